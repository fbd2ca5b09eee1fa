from __future__ import annotations

import array
import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import ArgumentTypeError, Reason, SourceError
from ztensor.io.source.memory import MemorySource
from ztensor.numpy import load, save

DATA = bytes(range(40))


def anonymous_map(data: bytes) -> mmap.mmap:
    made = mmap.mmap(-1, len(data))
    made[:] = data
    return made


KINDS: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "array": lambda data: array.array("B", data),
    "numpy": lambda data: np.frombuffer(data, np.uint8),
    "numpy, other items": lambda data: np.frombuffer(data, np.uint64),
    "numpy, two axes": lambda data: np.frombuffer(data, np.uint8).reshape(5, 8),
    "mmap": anonymous_map,
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_contiguous_buffer_is_flat_bytes(kind: str) -> None:
    source = MemorySource(KINDS[kind](DATA))
    view = source.view()
    assert view is not None
    assert (source.size, view.nbytes, view.format, view.ndim) == (40, 40, "B", 1)
    assert view == DATA
    assert source.read(3, 30) == DATA[3:33]
    assert source.read(40, 0) == b""


@pytest.mark.parametrize(("offset", "length"), [(39, 2), (40, 1), (1000, 1), (0, 41)])
def test_more_than_there_is(offset: int, length: int) -> None:
    with refused(SourceError, Reason.SOURCE_CHANGED):
        MemorySource(DATA).read(offset, length)


# --- A whole file in memory -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "array", "numpy", "mmap"])
def test_arrays_over_a_buffer_are_read_only_views(kind: str) -> None:
    buffer = KINDS[kind](save({"w": np.arange(6, dtype=np.float32)}))
    with ztensor.open(buffer) as reader:
        view = reader["w"]
        copied = reader.read_numpy("w", copy=True)
    assert view.tolist() == copied.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 9
    copied[0] = 9
    assert load(buffer)["w"][0] == 0
    assert np.shares_memory(view, np.frombuffer(buffer, np.uint8))
    assert not np.shares_memory(copied, np.frombuffer(buffer, np.uint8))


def test_load_gives_memory_of_its_own_unless_asked() -> None:
    data = save({"w": np.arange(3)})
    assert load(data)["w"].flags.writeable
    assert not load(data, copy=False)["w"].flags.writeable


@pytest.mark.parametrize(
    "thing",
    [None, 5, object(), np.arange(4)[::2], [1, 2], np.zeros((2, 0))],
    ids=["none", "number", "object", "strided", "list", "empty and two axes"],
)
def test_what_is_no_buffer_is_said_so(thing: Any) -> None:
    with pytest.raises(ArgumentTypeError):
        ztensor.open(thing)
