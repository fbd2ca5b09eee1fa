"""New memory: where it begins, and that files fill it well wherever it begins."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import numpy as np
import pytest

import ztensor
from ztensor.buffers import aligned, bytes_beside, new_bytes
from ztensor.source.local import FileSource

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1 << 20


def _at(place: int, length: int) -> memoryview:
    """Return memory that begins so many bytes into a page."""
    return bytes_beside(place, length).data


@pytest.mark.parametrize("length", [4 * _MIB, 5 * _MIB, 8 * _MIB, 34 * _MIB - 4096])
def test_memory_takes_hardly_more_than_was_asked_for(length: int) -> None:
    tracemalloc.start()
    memory = new_bytes(length)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(memory) <= held < length + 8192


@pytest.mark.parametrize("length", [_MIB // 4, _MIB + 17, 5 * _MIB])
@pytest.mark.parametrize("offset", [0, 24, 4096])
@pytest.mark.parametrize("behind", [0, 16, 31, 32])
def test_memory_is_filled_wherever_it_begins(
    tmp_path: Path, length: int, offset: int, behind: int
) -> None:
    data = np.random.default_rng(length).bytes(offset + length)
    (tmp_path / "data").write_bytes(data)
    source = FileSource(str(tmp_path / "data"))
    for fill in (source.read_into, lambda at, memory: source.read_many([(at, memory)])):
        memory = _at((offset + behind) % 4096, length)
        fill(offset, memory)
        assert memory == data[offset:]
    source.close()


def test_a_file_that_was_cut_is_told_on_that_way_too(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(_MIB))
    source = FileSource(str(tmp_path / "data"))
    (tmp_path / "data").write_bytes(bytes(_MIB // 2 + 5))
    with pytest.raises(ztensor.SourceError, match="shorter"):
        source.read_into(0, _at(16, _MIB))
    source.close()


def test_memory_that_cannot_be_had_is_a_limit() -> None:
    for make in (new_bytes, aligned):
        with pytest.raises(ztensor.LimitError):
            make(1 << 62)
