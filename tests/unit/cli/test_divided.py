"""Every verb on the folder of a divided checkpoint, as on the file of the same tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from tests.unit.distributed.saving import save
from ztensor.numpy import load_file, save_file

W = np.arange(24.0).reshape(6, 4)
TENSORS: dict[str, Any] = {
    "w": np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8),
    "half": np.ones((4, 4), np.float16),
    "step": np.array(7),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture(params=[0, 1])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    (tmp_path / "step-1").mkdir()
    save(tmp_path / "step-1", TENSORS, axis=request.param, compression=bool(request.param))
    return tmp_path / "step-1"


def test_verbs_that_look(run: Run, folder: Path, tmp_path: Path) -> None:
    for verb in ("ls", "info", "stats", "verify"):
        ended = run(verb, folder, "--json")
        assert ended.code == 0
        assert verb in ("info", "verify") or all(name in ended.out for name in TENSORS)
    assert "48 elements" in run("show", folder, "w").out
    assert run("plot", folder, "w", "-o", tmp_path / "w.svg").code == 0
    file = tmp_path / "model.zt"
    save_file(TENSORS, file)
    assert run("diff", folder, file).code == 0
    assert run("hash", folder).out.split()[0] == run("hash", file).out.split()[0]


@pytest.mark.parametrize(
    ("verb", "suffix"),
    [("convert", ".zt"), ("convert", ".safetensors"), ("convert", ".npz"), ("merge", ".zt")],
)
def test_one_file_is_made_of_it(
    run: Run, folder: Path, tmp_path: Path, verb: str, suffix: str
) -> None:
    out = tmp_path / f"out{suffix}"
    assert run(verb, folder, *(["-o", out] if verb == "merge" else [out])).code == 0
    found = load_file(out)
    assert set(found) == set(TENSORS)
    assert all((found[name] == value).all() for name, value in TENSORS.items())
    assert ztensor.open(out).verify().outcome != "damaged"


@pytest.mark.parametrize("verb", ["rm", "mv", "set", "convert"])
def test_verbs_for_single_files_refuse_a_folder(run: Run, folder: Path, verb: str) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    more = {"rm": ["w"], "mv": ["w", "v"], "set": ["a=1"], "convert": ["--in-place"]}[verb]
    assert run(verb, folder, *more).code != 0
    assert run(verb, folder / "checkpoint.zt", *more).code != 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_damage_is_reported_with_file_tensor_and_chunk(run: Run, folder: Path) -> None:
    path = next(folder.glob("00001-*.zt"))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 1]) + data[65:])
    ended = run("verify", folder)
    assert ended.code == 1
    assert path.name in ended.err + ended.out
    assert "'w'" in ended.err + ended.out
    assert "chunk at [" in ended.err + ended.out


def test_values_that_a_copy_would_not_have_are_named(run: Run, tmp_path: Path) -> None:
    save(tmp_path, {"w": W}, values={"step": 3})
    assert run("convert", tmp_path, tmp_path / "out.zt", "--strict").code == 0
    assert ztensor.load_tree(tmp_path / "out.zt")["step"] == 3
    ended = run("convert", tmp_path, tmp_path / "out.npz", "--strict")
    assert ended.code == 2
    assert "step" in ended.err + ended.out


def test_a_damaged_root_is_kept_beside_the_new_one(tmp_path: Path, run: Run) -> None:
    save(tmp_path, {"w": W})
    root = tmp_path / "checkpoint.zt"
    data = root.read_bytes()
    root.write_bytes(data[: len(data) // 2])
    assert run("repair", tmp_path).code == 0
    with ztensor.open(tmp_path) as reader:
        assert (reader["w"] == W).all()
    (kept,) = tmp_path.glob("*.damaged-1")
    assert kept.read_bytes() == data[: len(data) // 2]


def test_ls_says_where_the_digests_are(run: Run, folder: Path, tmp_path: Path) -> None:
    found = {one["digest"] for one in run("ls", folder, "--json").json["files"][0]["objects"]}
    assert found == {"of chunks"}
    (tmp_path / "bare").mkdir()
    save(tmp_path / "bare", TENSORS, checksum=None)
    found = {
        o["digest"] for o in run("ls", tmp_path / "bare", "--json").json["files"][0]["objects"]
    }
    assert found == {"none"}
