"""Encodings of datasets that are not native raw, decoded in blocks of rows."""

from __future__ import annotations

import operator

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.ext import Blocks, Source, Stored, element_count
from ztensor.formats.base import InBlocks
from ztensor.formats.hdf5.chunks import ChunkTable
from ztensor.formats.hdf5.filters import Chunk, bad_chunk, unfiltered
from ztensor.formats.hdf5.messages import Filter, Layout
from ztensor.formats.hdf5.types import Elements
from ztensor.limits import Limits
from ztensor.typing import Array

_PIECE_BYTES = 8 << 20
# Deflate, the tightest of HDF5's own filters, gives at most 1032 bytes for one.
_MOST_RATIO = 1100
_ALWAYS_BYTES = 64 << 20
_SLACK_BYTES = 4096


class Unwritten(InBlocks):
    """A dataset without stored data: each element is the fill value.

    Decoded in blocks of about 8 MiB that consist of whole chunks.

    Args:
        name: the encoding's name.
        shape: the dataset's shape.
        elements: the stored and the decoded type.
        fill: the fill value, a 0-d array of the decoded type.
        chunks: the shape of its chunks; () if it has none.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        elements: Elements,
        fill: Array,
        chunks: tuple[int, ...] = (),
    ) -> None:
        super().__init__(name, Blocks(shape, elements.numpy.itemsize, _PIECE_BYTES, chunks))
        self._shape = shape
        self._elements = elements
        self._value = fill
        self._most_decoded = 0  # bytes of all decoded chunks

    def _require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse a shape that is far larger than the stored bytes can decode to."""
        most = min(max(_ALWAYS_BYTES, stored.length * _MOST_RATIO), limits.decoded_bytes)
        asked = max(expected_length, self._most_decoded)
        if asked > most:
            raise LimitError(
                "the dataset or one of its chunks is far larger than its stored data, and HDF5 "
                "would fill it up; read it with h5py",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {most} bytes",
                found=describe(asked),
            )
        self.require_equal_length(
            expected_length, self._blocks.nbytes, "the dataset's size differs"
        )

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del stored, limits
        starts = [part.start for part in place] + [0] * (len(self._shape) - len(place))
        lengths = [part.stop - part.start for part in place] + list(self._shape[len(place) :])
        self._read(starts, np.frombuffer(destination, self._elements.numpy).reshape(lengths))

    def _read(self, starts: list[int], block: Array) -> None:
        """Fill a block with the elements from the coordinates `starts`."""
        del starts
        block[...] = self._value


class Converted(Unwritten):
    """A dataset without chunks, of elements in a form that NumPy lacks."""

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        elements: Elements,
        source: Source,
        offset: int,
    ) -> None:
        super().__init__(name, shape, elements, np.zeros((), elements.numpy))
        self._source = source
        self._offset = offset

    def _read(self, starts: list[int], block: Array) -> None:
        first, width = 0, self._elements.stored.itemsize
        for start, length in zip(starts, self._shape, strict=True):
            first = first * length + start
        data = self._source.read(self._offset + first * width, block.size * width)
        stored = np.frombuffer(data, self._elements.stored).reshape(block.shape)
        block[...] = self._elements.converted(stored)


class InChunks(Unwritten):
    """A dataset in chunks with the same filters.

    Args:
        source: the file.
        layout: the dataset's layout.
        table: its chunks.
        filters: the filters in the order in which they were applied.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        elements: Elements,
        fill: Array,
        source: Source,
        layout: Layout,
        table: ChunkTable,
        filters: tuple[Filter, ...],
    ) -> None:
        super().__init__(name, shape, elements, fill, layout.chunks)
        self._source = source
        self._chunks = layout.chunks
        self._chunk_bytes = element_count(layout.chunks) * elements.stored.itemsize
        self._most_decoded = self._chunk_bytes * max(len(table.numbers), 1)
        self._table = table
        self._filters = filters
        self._are_edges_plain = layout.are_edges_plain

    def _read(self, starts: list[int], block: Array) -> None:
        table = self._table
        if table.has_gaps:
            block[...] = self._value
        # A block is a run of chunks: whole along the last axes, single along the first ones.
        first = last = 0
        for start, length, step, count in zip(
            starts, block.shape, self._chunks, table.grid, strict=True
        ):
            first = first * count + start // step
            last = last * count + (start + length - 1) // step
        at, end = np.searchsorted(table.numbers, np.array([first, last + 1], np.uint64)).tolist()
        columns = (table.numbers, table.offsets, table.lengths, table.skipped)
        for number, *place in zip(*(column[at:end].tolist() for column in columns), strict=True):
            corner = self._corner(number)
            chunk = self._chunk(*place, is_edge=self._is_edge(corner))
            corner = list(map(operator.sub, corner, starts))
            part = block[tuple(map(slice, corner, map(operator.add, corner, self._chunks)))]
            part[...] = self._elements.converted(chunk[tuple(map(slice, part.shape))])

    def _chunk(self, offset: int, length: int, skipped: int, *, is_edge: bool) -> Array:
        """Return the decoded elements of a chunk, of the stored type."""
        if length > 2 * self._chunk_bytes + _SLACK_BYTES:  # no filter's output is as long
            raise bad_chunk("too many stored bytes", self._chunk_bytes, length)
        data: Chunk = self._source.read(offset, length)
        if not (self._are_edges_plain and is_edge):
            data = unfiltered(data, self._filters, skipped, self._chunk_bytes)
        if len(data) != self._chunk_bytes:
            raise bad_chunk("wrong length", self._chunk_bytes, len(data))
        return np.frombuffer(data, self._elements.stored).reshape(self._chunks)

    def _corner(self, number: int) -> list[int]:
        """Return the coordinates of a chunk's first element."""
        corner = []
        for step, count in zip(reversed(self._chunks), reversed(self._table.grid), strict=True):
            number, at = divmod(number, count)
            corner.append(at * step)
        return corner[::-1]

    def _is_edge(self, corner: list[int]) -> bool:
        return any(map(operator.gt, map(operator.add, corner, self._chunks), self._shape))


def fill_of(elements: Elements, value: bytes | None) -> Array:
    """Return the fill value of a dataset, a 0-d array of the decoded type; None stands for zeros.

    Raises:
        EncodingError: the bytes have another length.
    """
    width = elements.stored.itemsize
    value = bytes(width) if value is None else value
    if len(value) != width:
        raise bad_chunk("wrong length of the fill value", width, len(value))
    fill: Array = elements.converted(np.frombuffer(value, elements.stored)).reshape(())
    return fill
