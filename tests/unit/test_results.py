"""What functions return: short at a prompt, and fit to be sent to another process."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import fleet
from ztensor.numpy import save_file

pytestmark = pytest.mark.slow

COUNT = 700


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of many small objects, of which some differ, and one that is damaged."""
    return made(tmp_path_factory.mktemp("results"), COUNT)


def made(found: Path, count: int) -> Path:
    many = {f"layers.{number}.weight": np.full(4, number, np.float32) for number in range(count)}
    other = {name: value + (number % 7 == 0) for number, (name, value) in enumerate(many.items())}
    other["layers.1.weight"] = np.array([np.nan, np.inf, 1, 2], np.float32)
    note = "x" * 100_000
    save_file(many, found / "a.zt", {"note": note})
    save_file(other, found / "b.zt", {"note": note, "only": note})
    data = bytearray((found / "a.zt").read_bytes())
    for offset in range(64, 64 * count, 64):
        data[offset] ^= 1
    (found / "damaged.zt").write_bytes(data)
    return found


def verified(folder: Path) -> Any:
    with ztensor.open(folder / "damaged.zt") as reader:
        return reader.verify()


def described(folder: Path) -> Any:
    with ztensor.open(folder / "a.zt") as reader:
        return reader.metadata("layers.1.weight")


def located(folder: Path) -> Any:
    with ztensor.open(folder / "a.zt") as reader:
        return reader.location("layers.1.weight")


def kept(folder: Path) -> Any:
    with ztensor.CheckpointManager(folder / "steps") as manager:
        if not manager.steps():
            manager.save(1, {"step": 3}, metrics={"loss": 0.5})
            manager.wait()
        return manager.restore(), *manager.checkpoints()


def whole(folder: Path) -> Any:
    old = folder / "model"
    old.mkdir(exist_ok=True)
    save_file({"a": np.ones(3)}, old / "model.zt", {"n": 3})  # a number is lost in safetensors
    return ztensor.convert_folder(old, folder / "new", to="safetensors", overwrite=True)


def planned(folder: Path) -> Any:
    steps = [{"stack": 0, "over": "n"}]
    rule = {"from": "layers.{n}.weight", "to": "layers", "steps": steps}
    return ztensor.converting.Recipe({"rule": [rule]}).plan(folder / "a.zt")[0]


RESULTS: dict[str, Callable[[Path], Any]] = {
    "stats": lambda folder: ztensor.stats(folder / "b.zt"),
    "one of stats": lambda folder: ztensor.stats(folder / "b.zt", "layers.1.weight"),
    "histogram": lambda folder: (
        ztensor.stats(folder / "a.zt", "layers.1.weight")["layers.1.weight"].histogram
    ),
    "diff": lambda folder: ztensor.diff(folder / "a.zt", folder / "b.zt"),
    "examine": lambda folder: ztensor.examine(folder / "a.zt", folder / "b.zt"),
    "plot": lambda folder: ztensor.plot(folder / "a.zt", [f"layers.{n}.weight" for n in range(12)]),
    "verify": verified,
    "metadata": described,
    "convert": lambda folder: ztensor.convert(folder / "a.zt", folder / "a.npz"),
    "migrate": lambda folder: ztensor.migrate(folder / "a.zt", folder / "m.zt", version="1.1.0"),
    "convert a folder": whole,
    "location": located,
    "migrate to another type": lambda folder: ztensor.convert(
        folder / "a.zt", folder / "h.zt", dtype="float16"
    ),
    "plan of a recipe": planned,
    "files": lambda folder: tuple(fleet.hash_files([folder / "a.zt"])),
    "steps": kept,
    "repair": lambda folder: ztensor.repair(folder / "a.zt", dry_run=True),
}


@pytest.fixture(scope="module", params=RESULTS)
def result(request: pytest.FixtureRequest, folder: Path) -> Any:
    return RESULTS[request.param](folder)


def test_a_result_is_short_at_a_prompt(result: Any) -> None:
    assert len(repr(result)) < 1200
    assert len(str(result)) < 1200


def test_a_result_survives_pickling_and_copying(result: Any) -> None:
    for protocol in (2, pickle.HIGHEST_PROTOCOL):
        again = pickle.loads(pickle.dumps(result, protocol))
        assert again == result or repr(again) == repr(result)  # NaN is not equal to itself
    assert repr(copy.deepcopy(result)) == repr(result)


def test_every_kind_of_result_is_among_them(tmp_path: Path) -> None:
    """Every class of results is tested above."""
    folder = made(tmp_path, 100)
    seen: set[type] = set()

    def look(thing: Any) -> None:
        if dataclasses.is_dataclass(thing):
            seen.add(type(thing))
            for field in dataclasses.fields(thing):
                look(getattr(thing, field.name))
        elif isinstance(thing, dict):
            for value in thing.values():
                look(value)
        elif isinstance(thing, tuple):
            for value in thing[:100]:
                look(value)

    for make in RESULTS.values():
        look(make(folder))
    public = (ztensor, ztensor.io, ztensor.insight, ztensor.converting, ztensor.training, fleet)
    reports = {
        kind
        for module in public
        for name in module.__all__
        if dataclasses.is_dataclass(kind := getattr(module, name))
    }
    # Made by callers.
    given = {ztensor.Remote, ztensor.training.Record}
    assert reports - given - seen == set()


def test_they_say_what_matters(folder: Path) -> None:
    found = repr(RESULTS["stats"](folder))
    assert "NaN in 1 object" in found
    assert "'layers.1.weight'" in found
    assert "101 objects" in repr(RESULTS["diff"](folder))
    assert "nothing lost" not in repr(RESULTS["convert"](folder))
    assert isinstance(RESULTS["stats"](folder), dict)
