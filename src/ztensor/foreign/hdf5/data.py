"""Datasets that do not lie in the file as NumPy has them, decoded in blocks of rows."""

from __future__ import annotations

import abc
import contextlib
import itertools
import operator
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.encoding.base import Runs
from ztensor.errors import (
    EncodingError,
    FormatError,
    LimitError,
    Reason,
    SourceError,
    UnsupportedError,
    describe,
)
from ztensor.foreign.base import ForeignEncoding
from ztensor.foreign.hdf5.file import opened
from ztensor.foreign.hdf5.filters import FILTERS, bad_chunk
from ztensor.layout.base import empty_array
from ztensor.model.dtype import element_count
from ztensor.source.base import read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.encoding import Stored
    from ztensor.layout.base import Array
    from ztensor.limits import Limits
    from ztensor.source.base import Source

_PIECE_BYTES = 8 << 20
# Deflate, the tightest of HDF5's own filters, gives at most 1032 bytes for one.
_MOST_RATIO = 1100
_ALWAYS_BYTES = 64 << 20


class _Rows(ForeignEncoding):
    """A dataset decoded in blocks of rows of about 8 MiB; a subclass says how.

    Args:
        name: the word components have for it.
        source: the file.
        path: the dataset's.
        shape: its shape.
        dtype: of what is decoded, little-endian.
        chunks: the shape of its chunks, or None.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        path: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunks: tuple[int, ...] | None,
    ) -> None:
        super().__init__(name)
        self._source = source
        self._path = path
        self._shape = shape
        self._dtype = dtype
        self._chunk_bytes = element_count(chunks or ()) * dtype.itemsize
        self._row = element_count(shape[1:]) * dtype.itemsize
        step = chunks[0] if chunks else 1  # no block cuts a chunk
        block = max(step, _PIECE_BYTES // max(self._row, 1) // step * step) * self._row
        total = element_count(shape) * dtype.itemsize
        inner = range(block, total, block) if shape and total else ()
        self._ends = array("Q", [0, *inner, total] if total else [0])

    @contextlib.contextmanager
    def _dataset(self) -> Iterator[Any]:
        with opened(self._source) as file:
            dataset = file[self._path]
            if dataset.shape != self._shape:
                raise SourceError(
                    "the file was changed after it was opened", reason=Reason.SOURCE_CHANGED
                )
            yield dataset

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse a shape that claims far more than the stored bytes can give.

        Raises:
            LimitError: it does.
        """
        del limits
        most = max(_ALWAYS_BYTES, stored.length * _MOST_RATIO)
        asked = max(expected_length, self._chunk_bytes)
        if asked > most:
            raise LimitError(
                "the dataset or one of its chunks is far larger than what is stored of it, and "
                "HDF5 would fill it up; read it with h5py",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {most} bytes",
                found=describe(asked),
            )
        if expected_length != self._ends[-1]:
            raise EncodingError(
                "the dataset has another size",
                reason=Reason.SIZE_MISMATCH,
                expected=str(expected_length),
                found=str(self._ends[-1]),
            )

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with the whole dataset, little-endian."""
        self.check_length(stored, destination.nbytes, limits)
        self._read(0, destination)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the dataset block by block; each is new memory."""
        self.check_length(stored, self._ends[-1], limits)
        for start, stop in itertools.pairwise(self._ends):
            piece = empty_array((stop - start,), np.dtype(np.uint8)).data
            self._read(start, piece)
            yield piece

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the blocks: a slice reads those it needs. Offsets are those of decoded bytes."""
        self.check_length(stored, expected_length, limits)
        return Runs(self._ends, self._ends)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` with one block."""
        del stored, stop, limits
        self._read(start, destination)

    def _read(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` with the rows from a byte offset on."""
        flat: Array = np.frombuffer(destination, self._dtype)
        if not self._shape:
            self._fill(0, flat.reshape(()))
        elif flat.size:
            self._fill(offset // self._row, flat.reshape(-1, *self._shape[1:]))

    @abc.abstractmethod
    def _fill(self, first: int, block: Array) -> None:
        """Fill an array with the rows from the `first` on."""


class ByLibrary(_Rows):
    """A dataset read by libhdf5."""

    def _fill(self, first: int, block: Array) -> None:
        block.reshape(-1).view(np.uint8)[...] = 0  # libhdf5 may leave what was never written
        with self._dataset() as dataset:
            if block.shape:
                dataset.read_direct(block, np.s_[first : first + len(block)])
            else:
                dataset.read_direct(block)


class _Chunk(NamedTuple):
    """Where a chunk lies in the dataset and in the file."""

    corner: tuple[int, ...]
    skipped: int  # bit i: the filter i was not applied
    offset: int
    length: int


class InChunks(_Rows):
    """A dataset whose chunks are decoded here, as libhdf5 does not check how long they turn out.

    Of a chunk that is shorter than it must be libhdf5 (2.0.0) gives what lies behind it in memory.

    Args:
        order: the byte order in the file.
        filters: number and parameters of each filter, in the order they were applied.
        has_user_block: whether something lies before the HDF5 file; some releases of libhdf5 leave
            it out of a chunk's offset, so that they have to fetch the chunk.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        path: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunks: tuple[int, ...],
        *,
        order: str,
        filters: list[tuple[int, tuple[int, ...]]],
        has_user_block: bool,
    ) -> None:
        super().__init__(name, source, path, shape, dtype, chunks)
        self._chunks = chunks
        self._stored = dtype.newbyteorder(">" if order == "big" else "<")
        self._has_user_block = has_user_block
        self._filters = filters
        self._found: tuple[dict[int, list[_Chunk]], Any] | None = None

    def _fill(self, first: int, block: Array) -> None:
        if self._found is None:  # two threads may both look
            self._found = self._look()
        by_row, fill = self._found
        step = self._chunks[0]
        block[...] = fill
        rows = range(first // step, -(-(first + len(block)) // step))
        with self._dataset() if self._has_user_block else contextlib.nullcontext() as dataset:
            for chunk in itertools.chain.from_iterable(by_row.get(row, ()) for row in rows):
                data = (
                    read_bytes(self._source, chunk.offset, chunk.length)
                    if dataset is None
                    else dataset.id.read_direct_chunk(chunk.corner)[1]
                )
                values = np.frombuffer(self._unfiltered(data, chunk.skipped), self._stored)
                corner = (chunk.corner[0] - first, *chunk.corner[1:])
                part = block[tuple(map(slice, corner, map(operator.add, corner, self._chunks)))]
                part[...] = values.reshape(self._chunks)[tuple(map(slice, part.shape))]

    def _look(self) -> tuple[dict[int, list[_Chunk]], Any]:
        """Return the chunks by their place along the first axis, and the value between them."""
        by_row: dict[int, list[_Chunk]] = {}
        count = 0

        def add(info: Any) -> None:
            nonlocal count
            count += 1
            chunk = _Chunk(
                tuple(info.chunk_offset), info.filter_mask, info.byte_offset or 0, info.size
            )
            places = zip(chunk.corner, self._shape, self._chunks, strict=True)
            if (
                count > self._source.size
                or chunk.offset + chunk.length > self._source.size
                or any(place % step or place >= length for place, length, step in places)
            ):
                raise FormatError(
                    "a chunk does not lie in the file or in the dataset",
                    reason=Reason.OUT_OF_BOUNDS,
                    found=describe(tuple(chunk)),
                )
            by_row.setdefault(chunk.corner[0] // self._chunks[0], []).append(chunk)

        with self._dataset() as dataset:
            fill = np.asarray(dataset.fillvalue)
            if fill.dtype.newbyteorder("<") != self._dtype:  # bits that h5py reads as a number
                if fill.dtype.kind != "V" and fill.any():
                    raise UnsupportedError(
                        "a fill value of this type is not known here",
                        reason=Reason.UNKNOWN_TYPE,
                        found=describe(str(fill.dtype)),
                    )
                fill = np.zeros((), self._dtype)
            # The other way is quadratic, but h5py has not always had this one.
            if hasattr(dataset.id, "chunk_iter"):
                dataset.id.chunk_iter(add)
            else:
                for number in range(dataset.id.get_num_chunks()):
                    add(dataset.id.get_chunk_info(number))
        return by_row, fill

    def _unfiltered(self, data: bytes | bytearray, skipped: int) -> bytes | bytearray:
        """Undo the filters, the last one first."""
        most = self._chunk_bytes + 4 * len(self._filters)  # checksums may be within
        for number in reversed(range(len(self._filters))):
            if not skipped >> number & 1:
                code, parameters = self._filters[number]
                data = FILTERS[code](data, parameters, most)
        if len(data) != self._chunk_bytes:
            raise bad_chunk("it has another length", self._chunk_bytes, len(data))
        return data
