"""Datasets that do not lie in the file as NumPy has them, decoded in blocks of rows."""

from __future__ import annotations

import abc
import contextlib
import itertools
import math
import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import (
    EncodingError,
    FormatError,
    LimitError,
    Reason,
    SourceError,
    UnsupportedError,
    describe,
)
from ztensor.foreign.base import Blocks, InBlocks
from ztensor.foreign.hdf5.file import opened
from ztensor.foreign.hdf5.filters import FILTERS, Chunk, bad_chunk
from ztensor.model.dtype import element_count
from ztensor.source.base import Range

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


class _Rows(InBlocks):
    """A dataset decoded in blocks of about 8 MiB that cut no chunk; a subclass says how.

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
        super().__init__(name, Blocks(shape, dtype.itemsize, _PIECE_BYTES, chunks or ()))
        self._source = source
        self._path = path
        self._shape = shape
        self._dtype = dtype
        self._chunk_bytes = element_count(chunks or ()) * dtype.itemsize

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
        if expected_length != self._blocks.nbytes:
            raise EncodingError(
                "the dataset has another size",
                reason=Reason.SIZE_MISMATCH,
                expected=str(expected_length),
                found=str(self._blocks.nbytes),
            )

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del stored, limits
        lengths = [
            len(range(*part.indices(n))) for part, n in zip(place, self._shape, strict=False)
        ]
        block = np.frombuffer(destination, self._dtype).reshape(
            *lengths, *self._shape[len(place) :]
        )
        self._read(place, block)

    @abc.abstractmethod
    def _read(self, place: tuple[slice, ...], block: Array) -> None:
        """Fill an array with the elements at a place."""


class ByLibrary(_Rows):
    """A dataset read by libhdf5."""

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with the whole dataset, in one call of the library."""
        self.check_length(stored, destination.nbytes, limits)
        self._fill(stored, tuple(map(slice, self._shape)), destination, limits)

    def _read(self, place: tuple[slice, ...], block: Array) -> None:
        block.reshape(-1).view(np.uint8)[...] = 0  # libhdf5 may leave what was never written
        with self._dataset() as dataset:
            if block.shape:
                dataset.read_direct(block, place)
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
        self._found: tuple[dict[int, list[_Chunk]], Any, bool] | None = None

    def _read(self, place: tuple[slice, ...], block: Array) -> None:
        if self._found is None:  # two threads may both look
            self._found = self._look()
        by_row, fill, has_gaps = self._found
        step = self._chunks[0]
        rows = range(place[0].start // step, -(-place[0].stop // step))
        if has_gaps:
            block[...] = fill
        with self._dataset() if self._has_user_block else contextlib.nullcontext() as dataset:
            data: Chunk
            for chunk in itertools.chain.from_iterable(by_row.get(row, ()) for row in rows):
                if not all(
                    part.start <= at < part.stop
                    for part, at in zip(place, chunk.corner, strict=False)
                ):
                    continue
                data = (
                    Range(self._source, chunk.offset, chunk.length).read(0, chunk.length)
                    if dataset is None
                    else dataset.id.read_direct_chunk(chunk.corner)[1]
                )
                values = np.frombuffer(self._unfiltered(data, chunk.skipped), self._stored)
                starts = (*(part.start for part in place), *(0,) * (block.ndim - len(place)))
                corner = tuple(map(operator.sub, chunk.corner, starts))
                part = block[tuple(map(slice, corner, map(operator.add, corner, self._chunks)))]
                part[...] = values.reshape(self._chunks)[tuple(map(slice, part.shape))]

    def _look(self) -> tuple[dict[int, list[_Chunk]], Any, bool]:
        """Return the chunks by their place along the first axis, and what is between them.

        That is a value, and whether there are places that no chunk is for.
        """
        by_row: dict[int, list[_Chunk]] = {}
        corners: set[tuple[int, ...]] = set()  # an index may be wrong, and name one twice
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
            corners.add(chunk.corner)
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
        places = map(range, (0,) * len(self._shape), self._shape, self._chunks)
        return by_row, fill, len(corners) < math.prod(map(len, places))

    def _unfiltered(self, data: Chunk, skipped: int) -> Chunk:
        """Undo the filters, the last one first."""
        most = self._chunk_bytes + 4 * len(self._filters)  # checksums may be within
        for number in reversed(range(len(self._filters))):
            if not skipped >> number & 1:
                code, parameters = self._filters[number]
                data = FILTERS[code](data, parameters, most)
        if len(data) != self._chunk_bytes:
            raise bad_chunk("it has another length", self._chunk_bytes, len(data))
        return data
