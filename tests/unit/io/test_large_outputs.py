"""What we write we read: the largest sensible output of every writer opens within `Limits()`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from ztensor.distributed import PartWriter, commit, compact, repair

COUNT = 100_000
TINY = np.arange(4, dtype=np.float32)

# Each writes 100,000 objects of 16 bytes, which takes from four seconds to a minute.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _names() -> Iterator[str]:
    return (f"layers.{number}.weight" for number in range(COUNT))


def _file(path: Path, **options: Any) -> Path:
    tensors = {name: TINY + number for number, name in enumerate(_names())}
    ztensor.numpy.save_file(tensors, path, **options)
    return path


def _version(folder: Path, version: str) -> Path:
    return _file(folder / "model.zt", version=version)


def _other_format(folder: Path, suffix: str) -> Path:
    if suffix == ".h5":
        pytest.importorskip("h5py", reason="h5py writes HDF5")
    return _file(folder / f"model{suffix}")


def _shards(folder: Path, suffix: str) -> Path:
    _file(folder / f"model{suffix}", max_shard_size="500KB")
    return folder / f"model{suffix}.index.json"


def _tree(folder: Path, version: str) -> Path:
    layers = [{"weight": TINY + number, "name": f"layer {number}"} for number in range(COUNT)]
    ztensor.save_tree({"layers": layers}, folder / "tree.zt", version=version)
    assert len(ztensor.load_tree(folder / "tree.zt")["layers"]) == COUNT
    return folder / "tree.zt"


def _part(folder: Path, more: str) -> Path:
    """Write a part of chunks of halves, or of empty tensors."""
    options: dict[str, Any] = {"checksum": "xxh3-128"} if more == "xxh3-128" else {}
    with PartWriter(folder, processes=1, **options) as part:
        for name in _names():
            if more == "empty":
                part.add(name, TINY[:0])
            else:
                part.add(name, TINY[:2], shape=(4,), offsets=(0,))
                part.add(name, TINY[2:], shape=(4,), offsets=(2,))
        commit(folder, [part.finish()])
    (path,) = folder.glob("00000-*.zt")
    return path


WRITERS: dict[str, tuple[Callable[[Path, str], Path], str]] = {
    **{
        f"save_file {version}": (_version, version)
        for version in ("0.1.0", "1.1.0", "1.2.0", "2.1")
    },
    **{f"tree {version}": (_tree, version) for version in ("1.2.0", "2.1")},
    **{f"part, {more}": (_part, more) for more in ("plain", "xxh3-128", "empty")},
    **{f"shards {suffix}": (_shards, suffix) for suffix in (".zt", ".safetensors")},
    **{suffix: (_other_format, suffix) for suffix in (".safetensors", ".npz", ".gguf", ".h5")},
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_hundred_thousand_tiny_objects_that_we_wrote_are_opened(
    tmp_path: Path, writer: str
) -> None:
    write, of = WRITERS[writer]
    with ztensor.open(write(tmp_path, of)) as reader:
        assert len(reader) >= COUNT or of == "empty"


def test_a_part_of_a_hundred_thousand_chunks_is_replaced_repaired_and_taken_over(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
    first = _part(old, "xxh3-128")
    with PartWriter(new, processes=1, since=old) as part:
        for name in _names():
            part.add(name, TINY[:2], shape=(4,), offsets=(0,))
            part.add(name, TINY[2:], shape=(4,), offsets=(2,))
        commit(new, [part.finish()])
    with ztensor.open(new) as reader:
        assert (reader["layers.7.weight"] == TINY).all()
    assert (new / first.name).exists()
    _dead = PartWriter(new)  # a save that dies
    _dead.add("other", TINY)
    litter = _dead.finish().table.files[0].name
    del _dead
    assert compact(new) == [litter]
    (old / "checkpoint.zt").unlink()
    assert repair(old).chunks == 2 * COUNT
    assert compact(old) == []
