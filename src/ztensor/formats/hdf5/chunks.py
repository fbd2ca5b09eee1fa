"""The chunk tables of datasets, from each of the six kinds of chunk index."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.errors import FormatError, Reason, describe
from ztensor.formats.hdf5.arrays import walk_extensible, walk_fixed
from ztensor.formats.hdf5.messages import Index, Layout, Space
from ztensor.formats.hdf5.trees import walk_tree_1, walk_tree_2
from ztensor.formats.hdf5.window import Window, malformed
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


_COST = 64  # bytes of memory of a chunk while the index is read
_MOST_CHUNKS = 1 << 62
_MASK_BYTES = 4  # after the length of a filtered chunk


class ChunkTable(NamedTuple):
    """The stored chunks of a dataset, in C order of the grid. All columns are (chunks,) uint64.

    Attributes:
        grid: the number of chunks along each axis.
        numbers: the C-order index of each chunk in the grid.
        offsets: the offset in the file.
        lengths: stored bytes.
        skipped: bit i is set if filter i was not applied.
        nbytes: the sum of the lengths.
    """

    grid: tuple[int, ...]
    numbers: Array
    offsets: Array
    lengths: Array
    skipped: Array
    nbytes: int

    @property
    def has_gaps(self) -> bool:
        """Return whether some chunks are not stored."""
        return len(self.numbers) < math.prod(self.grid)


class _Found(NamedTuple):
    """Some chunks of an index.

    Attributes:
        places: (chunks, axes), each chunk's coordinates in the grid; or (chunks,), its C-order
            index in the grid of the dataset's maximal shape.
        addresses: (chunks,).
        lengths: (chunks,), stored bytes.
        skipped: (chunks,), bits of skipped filters.
    """

    places: Array
    addresses: Array
    lengths: Array
    skipped: Array


def read_chunks(
    window: Window, layout: Layout, space: Space, nbytes: int, *, is_filtered: bool
) -> ChunkTable:
    """Return the chunk table of a dataset.

    Args:
        window: the file.
        layout: the dataset's layout, chunked.
        space: its shape, which is not empty.
        nbytes: the decoded length of a chunk.
        is_filtered: whether the dataset has filters.

    Raises:
        FormatError: the index is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    shape = space.shape or ()
    if len(layout.chunks) != len(shape):
        raise malformed("the rank of a chunk differs from its dataset's", len(shape), layout.chunks)
    grid = _grid(shape, layout.chunks)
    if math.prod(grid) > _MOST_CHUNKS:
        raise malformed("too many chunks", _MOST_CHUNKS, grid)
    columns: list[list[Array]] = [[np.empty(0, np.uint64)] for _ in range(4)]
    if window.is_defined(layout.address):
        index = _Index(window, layout, space, grid, nbytes, is_filtered=is_filtered)
        for some in index.walk():
            window.budget.charge_bytes(_COST * len(some.addresses))
            for column, values in zip(
                columns, (index.numbers(some.places), *some[1:]), strict=True
            ):
                column.append(values.astype(np.uint64))
    numbers, offsets, sizes, skipped = (np.concatenate(column) for column in columns)
    order = np.argsort(numbers, kind="stable")
    numbers, offsets, sizes = numbers[order], offsets[order], sizes[order]
    if (numbers[1:] == numbers[:-1]).any():
        raise malformed("duplicate chunk in an index")
    size = np.uint64(window.size)
    is_outside = (sizes > size) | (offsets > size - np.minimum(sizes, size))
    # Chunks do not overlap, so their total length is at most the file's.
    total = float(sizes.sum(dtype=np.float64))
    if is_outside.any() or total > window.size:
        raise FormatError(
            "chunks of a dataset are outside the file",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"within {window.size} bytes",
            found=describe(f"{int(is_outside.sum())} outside, {total:.0f} bytes in all"),
        )
    offsets += np.uint64(window.base)
    return ChunkTable(grid, numbers, offsets, sizes, skipped[order], int(sizes.sum()))


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of chunks along each axis."""
    return tuple(-(-length // step) for length, step in zip(shape, chunks, strict=True))


class _Index:
    """The index of one dataset."""

    def __init__(
        self,
        window: Window,
        layout: Layout,
        space: Space,
        grid: tuple[int, ...],
        nbytes: int,
        *,
        is_filtered: bool,
    ) -> None:
        self._window = window
        self._layout = layout
        self._grid = grid
        self._nbytes = min(nbytes, _MOST_CHUNKS)  # no file has longer chunks
        self._is_filtered = is_filtered
        unlimited = (1 << 8 * window.length_size) - 1
        self._free = [axis for axis, most in enumerate(space.most) if most == unlimited]
        self._most = _grid(space.most, layout.chunks)

    def walk(self) -> Iterator[_Found]:
        """Return an iterator over the stored chunks, some at a time."""
        match self._layout.lookup:
            case Index.TREE_1:
                return self._tree_1()
            case Index.TREE_2:
                return self._tree_2()
            case Index.SINGLE:
                return self._single()
            case Index.IMPLICIT:
                return self._implicit()
            case Index.FIXED | Index.EXTENSIBLE:
                return self._array()

    def numbers(self, places: Array) -> Array:
        """Return C-order indices in the grid of the dataset's current shape.

        Raises:
            FormatError: a chunk is outside the grid.
        """
        if places.ndim == 1:
            places = self._unravelled(places)
        if (places >= np.array(self._grid, np.uint64)).any():
            raise FormatError(
                "a chunk is outside its dataset",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"within {describe(self._grid)} chunks",
                found=describe(places.max(axis=0).tolist()),
            )
        numbers = np.zeros(len(places), np.uint64)
        for axis, length in enumerate(self._grid):
            numbers = numbers * np.uint64(length) + places[:, axis]
        return numbers

    def _unravelled(self, numbers: Array) -> Array:
        """Return the coordinates of C-order indices in the grid of the maximal shape.

        In an extensible array, the unlimited axis counts as the first.
        """
        axes = list(range(len(self._most)))
        if self._layout.lookup == Index.EXTENSIBLE and self._free:
            axes.insert(0, axes.pop(self._free[0]))
        places = np.zeros((len(numbers), len(axes)), np.uint64)
        left = numbers.astype(np.uint64)
        for axis in reversed(axes[1:]):
            # Indices stay below 2^63 along an axis.
            length = np.uint64(min(self._most[axis], 1 << 63) or 1)
            places[:, axis] = left % length
            left = left // length
        places[:, axes[0]] = left
        return places

    def _all(self, places: Array, addresses: Array) -> _Found:
        """Return chunks without filters."""
        lengths = np.full(len(addresses), self._nbytes, np.uint64)
        return _Found(places, addresses, lengths, np.zeros(len(addresses), np.uint64))

    def _entries(self, places: Array, table: Array) -> _Found:
        """Return chunks from rows of bytes: an address, and a length and a mask if filtered."""
        offset_size = self._window.offset_size
        addresses = _numbers(table[:, :offset_size])
        if not self._is_filtered:
            return self._all(places, addresses)
        lengths = _numbers(table[:, offset_size:-_MASK_BYTES])
        return _Found(places, addresses, lengths, _numbers(table[:, -_MASK_BYTES:]))

    def _widths(self) -> range:
        """Return the valid widths of entries: the length of a filtered chunk has 1 to 8 bytes."""
        least = self._window.offset_size
        if not self._is_filtered:
            return range(least, least + 1)
        return range(least + 1 + _MASK_BYTES, least + 9 + _MASK_BYTES)

    def _array(self) -> Iterator[_Found]:
        is_fixed = self._layout.lookup == Index.FIXED
        walk = walk_fixed if is_fixed else walk_extensible
        client = int(self._is_filtered)
        for first, width, body in walk(self._window, self._layout.address, client, self._widths()):
            table = np.frombuffer(body, np.uint8).reshape(-1, width)
            addresses = _numbers(table[:, : self._window.offset_size])
            stored = np.flatnonzero(addresses != np.uint64(self._window.undefined))
            yield self._entries(stored.astype(np.uint64) + np.uint64(first), table[stored])

    def _tree_2(self) -> Iterator[_Found]:
        place_bytes = 8 * len(self._grid)
        kind = 11 if self._is_filtered else 10
        known = {kind: [width + place_bytes for width in self._widths()]}
        for _, width, body in walk_tree_2(self._window, self._layout.address, known):
            table = np.frombuffer(body, np.uint8).reshape(-1, width)
            middle = width - place_bytes
            places = np.ascontiguousarray(table[:, middle:]).view("<u8")
            yield self._entries(places, table[:, :middle])

    def _tree_1(self) -> Iterator[_Found]:
        window, rank = self._window, len(self._grid)
        corner = ("corner", "<u8", (rank + 1,))
        address = ("address", f"<u{window.offset_size}")
        record = np.dtype([("length", "<u4"), ("skipped", "<u4"), corner, address])
        steps: Array = np.array(self._layout.chunks, np.uint64)
        key = record.itemsize - window.offset_size
        for leaf in walk_tree_1(window, self._layout.address, 1, key):
            table = np.frombuffer(leaf, record)
            corners = table["corner"][:, :rank]
            if (corners % steps).any():
                raise malformed("the corner of a chunk is not on the grid")
            yield _Found(corners // steps, table["address"], table["length"], table["skipped"])

    def _single(self) -> Iterator[_Found]:
        length, skipped = self._layout.single or (self._nbytes, 0)
        values = (0, self._layout.address, length, skipped)
        yield _Found(*(np.array([value], np.uint64) for value in values))

    def _implicit(self) -> Iterator[_Found]:
        count = math.prod(self._most)
        self._window.require(self._layout.address, count * self._nbytes)
        with self._window.budget.lent(count * _COST):
            numbers = np.arange(count, dtype=np.uint64)
            places = self._unravelled(numbers)
            is_now = (places < np.array(self._grid, np.uint64)).all(axis=1)
            addresses = np.uint64(self._layout.address) + numbers * np.uint64(self._nbytes)
        yield self._all(places[is_now], addresses[is_now])


def _numbers(columns: Array) -> Array:
    """Return the little-endian numbers of up to eight bytes in each row, (rows,) uint64."""
    whole = np.zeros((len(columns), 8), np.uint8)
    whole[:, : columns.shape[1]] = columns
    numbers: Array = whole.view("<u8")[:, 0]
    return numbers
