"""Shards of the format itself: a root and its files of blobs, written, read, and merged again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from ztensor.errors import ArgumentValueError, ContainerError, NotRepresentableError, UsageError
from ztensor.numpy import load_file, save_file

TIED = np.arange(3000.0)
TENSORS: dict[str, Any] = {
    "a": np.arange(5000, dtype=np.float32), "b": TIED, "c": np.zeros((0, 3)),
    "d": np.arange(20_000, dtype=np.int16).reshape(100, 200), "e": TIED,
    "s": ztensor.Tensor.coo(np.ones(2), [[0, 1], [1, 2]], (2, 3)),
}  # fmt: skip


@pytest.fixture(params=["1.2.0", "2.1"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "model.zt"
    save_file(TENSORS, path, {"step": 1}, version=request.param, compression=True)
    return path


def split(source: Path, **options: Any) -> list[str]:
    into = source.parent / "into"
    return ztensor.split(source, into, max_shard_size=8000, root=True, **options)


def test_a_root_and_its_shards_hold_the_same(source: Path) -> None:
    done: list[tuple[int, int]] = []
    *shards, root = split(source, progress=lambda *pair: done.append(pair))
    count = len(shards)
    assert count > 1
    assert done[-1][0] == done[-1][1]
    names = [f"model-{number:05d}-of-{count:05d}.zt" for number in range(1, count + 1)]
    assert [os.path.basename(path) for path in shards] == names
    assert sorted(os.listdir(Path(root).parent)) == sorted([*names, "model.zt"])
    assert ztensor.insight.tensor_hashes(root, attributes=True) == ztensor.insight.tensor_hashes(
        source, attributes=True
    )
    with ztensor.open(root) as reader:
        assert reader.version == "2"
        assert reader.attributes == {"step": 1}
        assert reader.verify(deep=True).outcome == "ok"
        assert reader.location("b") == reader.location("e")
        assert {reader.location(name).path for name in reader if name != "s"} <= set(shards)
    for path in shards:
        with ztensor.open(path) as shard:
            assert len(shard) == 0


@pytest.mark.parametrize("by", ["merge", "convert", "migrate"])
@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_they_become_one_file_again(source: Path, by: str, version: str, tmp_path: Path) -> None:
    root, target = split(source)[-1], tmp_path / "again.zt"
    if by == "merge":
        ztensor.merge([root], target, version=version)
    elif by == "convert":
        ztensor.convert(root, target, version=version, check=True, strict=True)
    else:
        ztensor.migrate(root, target, version=version)
    assert ztensor.insight.tensor_hashes(target, attributes=True) == ztensor.insight.tensor_hashes(
        source, attributes=True
    )
    for name, array in load_file(target).items():
        if name != "s":
            np.testing.assert_array_equal(array, TENSORS[name])


def test_damage_to_a_shard_is_seen(source: Path) -> None:
    first, *_, root = split(source)
    flip(Path(first), 70_000)  # padding, or a blob: the digest of the whole covers both
    with ztensor.open(root) as reader:
        assert reader.verify(deep=True).outcome == "damaged"
    os.unlink(first)
    with pytest.raises(ContainerError):
        ztensor.open(root)


def test_nothing_is_replaced(source: Path) -> None:
    with pytest.raises(UsageError):
        ztensor.split(source, max_shard_size=8000, root=True)
    split(source)
    before = {path: path.read_bytes() for path in (source.parent / "into").iterdir()}
    with pytest.raises(UsageError):
        split(source)
    assert before == {path: path.read_bytes() for path in (source.parent / "into").iterdir()}


def test_a_dry_run_writes_nothing(source: Path) -> None:
    split(source, dry_run=True)
    assert not (source.parent / "into").exists()


def test_wrong_names_and_formats_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    save_file({"": np.ones(3), "b": np.ones(5)}, path)
    with pytest.raises(NotRepresentableError):
        split(path)
    with pytest.raises(ArgumentValueError):
        split(path, to="safetensors")
    assert not (tmp_path / "into").exists()
