"""Bytes in memory, and open file objects, as sources."""

from __future__ import annotations

import array
import errno
import io
import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor.errors import ArgumentTypeError, Reason, SourceError
from ztensor.ext import source_of
from ztensor.numpy import load, save

DATA = bytes(range(40))
SAVED = save({"w": np.arange(6000, dtype=np.float32).reshape(60, 100), "b": np.ones(3)})


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
    source = source_of(KINDS[kind](DATA), mapped=False)
    view = source.view()
    assert view is not None
    assert (source.size, view.nbytes, view.format, view.ndim) == (40, 40, "B", 1)
    assert view == DATA
    assert source.read(3, 30) == DATA[3:33]
    assert source.read(40, 0) == b""
    for offset, length in [(39, 2), (40, 1), (1000, 1), (0, 41)]:
        with refused(SourceError, Reason.SOURCE_CHANGED):
            source.read(offset, length)


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
    assert load(buffer)["w"].flags.writeable
    assert not load(buffer, copy=False)["w"].flags.writeable
    assert np.shares_memory(view, np.frombuffer(buffer, np.uint8))
    assert not np.shares_memory(copied, np.frombuffer(buffer, np.uint8))


# --- File objects -------------------------------------------------------------------------------


class Trickle(io.BytesIO):
    """Gives three bytes at a time, and no name."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(min(size or 0, 3))


class Raises(io.BytesIO):
    """A file object whose reads fail once it is open."""

    error: Exception | None = None

    def read(self, size: int | None = -1, /) -> bytes:
        if self.error is not None:
            raise self.error
        return super().read(size)


class NoSeek(io.BytesIO):
    def seek(self, offset: int, whence: int = 0, /) -> int:
        raise io.UnsupportedOperation("seek")


def closed_file() -> io.BytesIO:
    file = io.BytesIO(SAVED)
    file.close()
    return file


def test_a_file_object_stays_the_callers(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(SAVED)
    with (tmp_path / "m.zt").open("rb") as file:
        source = source_of(file, mapped=True)
        assert source.name == str(tmp_path / "m.zt")
        assert (source.path, source.view(), source.is_held) == (None, None, False)
        assert source.size == len(SAVED)
        assert source.read(100, 50) == SAVED[100:150]
        source.require_unchanged()
        source.close()
        assert not file.closed


@pytest.mark.parametrize(
    "file",
    [io.BytesIO(SAVED), Trickle(SAVED), io.BufferedReader(Trickle(SAVED))],
    ids=["BytesIO", "short reads", "buffered"],
)
def test_tensors_from_a_file_object_are_memory_of_their_own(file: Any) -> None:
    with ztensor.open(file) as reader:
        found = reader["b"]
        found[0] = 7
        assert reader["b"].tolist() == [1, 1, 1]
        assert reader.get_slice("w")[59, 98:].tolist() == [5998, 5999]


@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken"), ValueError("I/O operation on closed file")]
)
def test_a_file_object_that_fails_or_shrinks_later(error: Exception) -> None:
    file = Raises(SAVED)
    reader = ztensor.open(file)
    file.error = error
    with refused(SourceError, Reason.SOURCE_FAILED) as caught:
        reader["w"]
    assert caught.value.__cause__ is error
    assert caught.value.object_name == "w"
    file.error = None
    file.truncate(1000)
    with refused(SourceError, Reason.SOURCE_CHANGED):
        reader["w"]


UNUSABLE: dict[str, Any] = {
    "text": io.StringIO("text"),
    "not seekable": NoSeek(SAVED),
    "closed": closed_file(),
    "none": None,
    "number": 5,
    "object": object(),
    "strided": np.arange(4)[::2],
    "list": [1, 2],
    "empty and two axes": np.zeros((2, 0)),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_what_cannot_be_opened_is_a_wrong_argument(kind: str) -> None:
    with pytest.raises(ArgumentTypeError):
        ztensor.open(UNUSABLE[kind])
