from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save

W = np.arange(4 * 30.0).reshape(4, 30)


@pytest.mark.parametrize("compression", [False, True])
def test_a_whole_checkpoint_is_ok(tmp_path: Path, compression: bool) -> None:
    save(tmp_path, {"w": W, "s": np.int64(3)}, axis=1, compression=compression)
    with ztensor.open(tmp_path) as reader:
        report = reader.verify()
        assert report.outcome == "ok"
        assert report.objects == 2
        assert reader.verify("w").outcome == "ok"


def _problems(folder: Path) -> str:
    """Return the errors of opening or verifying a folder as text."""
    try:
        with ztensor.open(folder) as reader:
            problems = reader.verify().problems
    except ztensor.ZTensorError as error:
        return str(error)
    return " ".join(f"{problem.path} {problem}" for problem in problems)


@pytest.mark.slow
def test_a_byte_in_any_place_of_any_file_is_found_and_named(tmp_path: Path) -> None:
    save(tmp_path, {"w": W}, processes=2)
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data), 37):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
            problems = _problems(tmp_path)
            if problems or data[at]:  # between blobs are zeros, which nothing reads
                assert path.name in problems, at
        path.write_bytes(data)


def test_damage_of_a_chunk_names_file_tensor_and_chunk(tmp_path: Path) -> None:
    save(tmp_path, {"w": W}, axis=1)
    path = next(tmp_path.glob("00001-*.zt"))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 1]) + data[65:])
    with ztensor.open(tmp_path) as reader:
        (problem,) = reader.verify().problems
    assert problem.object_name == "w"
    assert path.name in str(problem.path[0])
    assert "chunk at [0, 10]" in problem.message


def test_another_file_in_the_place_of_one_is_found(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    save(tmp_path / "a", {"w": W})
    save(tmp_path / "b", {"w": W + 1})
    ours, theirs = (next((tmp_path / name).glob("00001-*.zt")) for name in "ab")
    ours.write_bytes(theirs.read_bytes())
    with ztensor.open(tmp_path / "a") as reader:
        report = reader.verify()
        assert any("not the one that the root" in problem.message for problem in report.problems)
        with pytest.raises(ztensor.DigestMismatchError):
            reader["w"]


def test_256_differences_of_a_file_are_listed(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        tensors = {f"w{number:03}": np.arange(4) + ord(name) for number in range(299)}
        save(tmp_path / name, tensors, processes=1)
    ours, theirs = (next((tmp_path / name).glob("00000-*.zt")) for name in "ab")
    ours.write_bytes(theirs.read_bytes())
    with ztensor.open(tmp_path / "a") as reader:
        assert len(reader.verify().problems) == 256


def test_every_chunk_of_a_file_is_compared_with_the_root(tmp_path: Path) -> None:
    """The last of many is the one that differs."""
    for name in "ab":
        (tmp_path / name).mkdir()
        tensors = {f"w{number:03}": W for number in range(299)} | {"w299": W + ord(name)}
        save(tmp_path / name, tensors, processes=1)
    ours, theirs = (next((tmp_path / name).glob("00000-*.zt")) for name in "ab")
    ours.write_bytes(theirs.read_bytes())
    with ztensor.open(tmp_path / "a") as reader:
        problems = reader.verify().problems
    assert {problem.object_name for problem in problems} == {None, "w299"}
