"""New memory: where it begins, and how much it takes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from ztensor.buffers import aligned, new_bytes
from ztensor.ext import empty_array

_MIB = 1 << 20


@pytest.mark.parametrize("length", [32 << 10, 100_000, _MIB + 1, 40 * _MIB])
def test_memory_for_many_bytes_begins_where_blobs_do(length: int) -> None:
    for made in (empty_array((length,), np.dtype(np.uint8)), aligned(length)):
        assert made.ctypes.data % 64 == 0
        assert made.flags.writeable
    assert np.frombuffer(new_bytes(length), np.uint8).ctypes.data % 64 == 0


@pytest.mark.parametrize("length", [4 * _MIB, 5 * _MIB, 8 * _MIB, 34 * _MIB - 4096])
def test_memory_takes_hardly_more_than_was_asked_for(length: int) -> None:
    tracemalloc.start()
    memory = new_bytes(length)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(memory) <= held < length + 8192


def test_shape_and_type_are_what_was_asked_for() -> None:
    made = empty_array((300, 0, 7), np.dtype("<f4")), empty_array((300, 100), np.dtype(">f8"))
    assert [one.shape for one in made] == [(300, 0, 7), (300, 100)]
    assert [one.dtype.str for one in made] == ["<f4", ">f8"]
    assert all(one.flags.c_contiguous for one in made)
