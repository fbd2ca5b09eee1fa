from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.tracing import traced
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, open_divided, repair
from ztensor.ext import ALGORITHMS

FROZEN = np.arange(4000.0).reshape(40, 100)
HEAD = np.arange(60.0, dtype="f4").reshape(6, 10)


def _tensors(step: int) -> dict[str, Any]:
    return {"frozen": FROZEN, "head": HEAD + step, "step": np.int64(step)}


def _written(folder: Path, before: Path) -> int:
    """Return the bytes of files that only one folder has."""
    old = {path.stat().st_ino for path in before.iterdir()}
    return sum(path.stat().st_size for path in folder.iterdir() if path.stat().st_ino not in old)


@pytest.mark.parametrize("compression", [False, True])
def test_only_what_changed_is_written_and_the_old_step_may_go(
    tmp_path: Path, compression: bool
) -> None:
    folders = [tmp_path / f"step-{number}" for number in range(3)]
    for step, folder in enumerate(folders):
        folder.mkdir()
        since = {"since": folders[step - 1]} if step else {"checksum": "xxh3-128"}
        save(folder, _tensors(step), compression=compression, **since)
        if step:
            assert _written(folder, folders[step - 1]) < 12_000
            shutil.rmtree(folders[step - 1])
        with ztensor.open(folder) as reader:
            assert all((reader[name] == value).all() for name, value in _tensors(step).items())
            assert reader.verify().ok


def test_chunks_with_another_checksum_are_written_anew(tmp_path: Path) -> None:
    steps = [("xxh3-128", False), ("xxh3-128", True), ("sha256", False), ("sha256", True)]
    for number, (checksum, is_kept) in enumerate(steps):
        folder, before = tmp_path / f"{number}", tmp_path / f"{number - 1}"
        folder.mkdir()
        since: dict[str, Any] = {"since": before} if number else {}
        save(folder, _tensors(0), checksum=checksum, processes=1, **since)
        if number:
            assert (_written(folder, before) < 12_000) is is_kept


def test_a_step_is_saved_over_the_one_before_in_one_folder(tmp_path: Path) -> None:
    save(tmp_path, _tensors(0), checksum="xxh3-128")
    before = {path.name for path in tmp_path.glob("0*.zt")}
    save(tmp_path, _tensors(1), since=tmp_path)
    assert before < {path.name for path in tmp_path.glob("0*.zt")}
    with ztensor.open(tmp_path) as reader:
        assert (reader["head"] == HEAD + 1).all()
        assert reader.verify().ok


def test_of_a_file_that_is_hardly_used_the_chunks_are_copied(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "ab"]
    for step, folder in enumerate(folders):
        folder.mkdir()
        since = {"since": folders[0]} if step else {"checksum": "xxh3-128"}
        save(folder, {"large": FROZEN + step, "small": HEAD}, **since)
    assert not {p.name for p in folders[0].glob("0*.zt")} & {p.name for p in folders[1].iterdir()}
    with open_divided(folders[1]) as checkpoint:
        assert checkpoint.root.table.content is not None
        assert (checkpoint.objects.array("small", copy=True) == HEAD).all()


def test_without_strong_digests_nothing_is_taken_for_equal(tmp_path: Path) -> None:
    steps: dict[str, dict[str, Any]] = {
        "a": {},
        "b": {"since": tmp_path / "a"},
        "c": {"since": tmp_path / "b"},
    }
    for name, more in steps.items():
        (tmp_path / name).mkdir()
        save(tmp_path / name, _tensors(0), **more)
    assert _written(tmp_path / "b", tmp_path / "a") > FROZEN.nbytes
    assert _written(tmp_path / "c", tmp_path / "b") < 12_000


def test_equal_crc32c_is_no_equality(tmp_path: Path) -> None:
    first = np.arange(64, dtype=np.uint8)
    # XOR with a multiple of the polynomial keeps the sum: 1 + x^... found by adding it bitwise.
    second = first.copy()
    polynomial = (1 << 32) | 0x1EDC6F41
    for bit in range(33):
        if polynomial >> (32 - bit) & 1:
            second[20 + bit // 8] ^= 1 << (bit % 8)
    crc = ALGORITHMS["crc32c"]
    assert crc.of([first.data]) == crc.of([second.data])
    steps: tuple[tuple[str, Any, dict[str, Any]], ...] = (
        ("a", first, {"checksum": "xxh3-128"}),
        ("b", second, {"since": tmp_path / "a"}),
    )
    for name, value, more in steps:
        (tmp_path / name).mkdir()
        save(tmp_path / name, {"w": value}, processes=1, **more)
    with ztensor.open(tmp_path / "b") as reader:
        assert (reader["w"] == second).all()


def test_an_aborted_part_takes_its_links_away(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    save(tmp_path / "a", _tensors(0), checksum="xxh3-128", processes=1)
    part = PartWriter(tmp_path / "b", since=tmp_path / "a")
    part.add("frozen", FROZEN)
    part.abort()
    assert not os.listdir(tmp_path / "b")
    with ztensor.open(tmp_path / "a") as reader:
        assert reader.verify().ok


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a store that copies no object, as S3 does none above 5 GiB."""
    obstore = pytest.importorskip("obstore")

    def refuse(*_: Any, **__: Any) -> None:
        raise obstore.exceptions.GenericError(
            "InvalidRequest: The specified copy source is larger than the maximum allowable size"
        )

    monkeypatch.setattr(obstore, "copy", refuse)
    return pytest.importorskip("obstore.store").MemoryStore()


@pytest.mark.parametrize("copies", [True, False])
def test_a_step_in_a_store_does_not_need_the_one_before(
    copies: bool, request: pytest.FixtureRequest
) -> None:
    """What did not change is copied, or written anew where the store refuses to copy."""
    obstore = pytest.importorskip("obstore")
    store = obstore.store.MemoryStore() if copies else request.getfixturevalue("refusing")
    more: dict[str, Any] = {"checksum": "xxh3-128"}
    for step in range(2):
        save(f"memory://run/step-{step}", _tensors(step), storage=store, **more)
        more = {"since": "memory://run/step-0"}
    for found in obstore.list(store).collect():
        if found["path"].startswith("run/step-0"):
            obstore.delete(store, found["path"])
    with ztensor.open("memory://run/step-1", storage=store) as reader:
        assert all((reader[name] == value).all() for name, value in _tensors(1).items())
        assert reader.verify().ok


def test_a_damaged_root_is_kept_in_a_store_that_refuses_to_copy(refusing: Any) -> None:
    obstore = pytest.importorskip("obstore")
    save("memory://run", _tensors(0), storage=refusing)
    obstore.put(refusing, "run/checkpoint.zt", b"damage")
    report = repair("memory://run", storage=refusing)
    assert report.kept is not None
    kept = next(one["path"] for one in obstore.list(refusing).collect() if "damaged" in one["path"])
    assert bytes(obstore.get(refusing, kept).bytes()) == b"damage"


@pytest.mark.slow
def test_an_object_is_written_anew_in_bounded_memory(refusing: Any, tmp_path: Path) -> None:
    from ztensor.remote.upload import copy

    del refusing  # which keeps objects in memory
    store = pytest.importorskip("obstore.store").LocalStore(tmp_path)
    whole = np.arange(160 << 20, dtype=np.uint8)
    whole.tofile(tmp_path / "a")
    source, target = (ztensor.Remote(f"memory://{name}", store) for name in ("a", "b"))
    with traced() as memory:
        assert copy(source, target)
        _, peak = memory()
    assert peak < whole.nbytes
    assert (np.fromfile(tmp_path / "b", np.uint8) == whole).all()


def _seconds(folder: Path, count: int) -> float:
    """Return the seconds to copy many small tensors from a file that is hardly needed."""
    small = {f"layer.{number}": np.full(4, number, "f4") for number in range(count)}
    for name in "ab":
        (folder / name).mkdir(parents=True)
    large = np.zeros(16 * count, "f4")
    save(folder / "a", {**small, "large": large}, processes=1, checksum="xxh3-128")
    begun = time.process_time()
    save(folder / "b", {**small, "large": large + 1}, processes=1, since=folder / "a")
    seconds = time.process_time() - begun
    with open_divided(folder / "b") as checkpoint:
        assert len(checkpoint.root.files) == 1  # none was linked
    return seconds


@pytest.mark.slow
def test_the_time_to_copy_chunks_grows_with_their_number_alone(tmp_path: Path) -> None:
    few, many = (_seconds(tmp_path / str(count), count) for count in (3_000, 48_000))
    assert many < 32 * few  # 16 if linear, 256 if quadratic
