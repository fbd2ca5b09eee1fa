"""Where the chunks of a dataset lie, by each of the six kinds of index that files have."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import FormatError, Reason, describe
from ztensor.formats.hdf5.messages import Index, Layout, Space
from ztensor.formats.hdf5.trees import walk_tree_1, walk_tree_2
from ztensor.formats.hdf5.window import Window, malformed
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


_COST = 64  # bytes of memory for a chunk, while the index is read
_MOST_CHUNKS = 1 << 62


class ChunkTable(NamedTuple):
    """The chunks of a dataset that are stored, in the order of their places.

    Attributes:
        grid: how many chunks there are along each axis.
        numbers: the place of each in the grid, counted in C's order.
        offsets: where each lies in the file.
        lengths: how many bytes it has there.
        skipped: bit i: the filter i was not applied.
        nbytes: all lengths together.
    """

    grid: tuple[int, ...]
    numbers: Array
    offsets: Array
    lengths: Array
    skipped: Array
    nbytes: int

    @property
    def has_gaps(self) -> bool:
        """Return whether chunks are missing."""
        return len(self.numbers) < math.prod(self.grid)


class _Found(NamedTuple):
    """Some chunks of an index.

    Attributes:
        places: a row for each, its place along each axis, in chunks; or one number each, in the
            order of the grid of the largest shape the dataset may have.
        addresses: where each lies.
        lengths: how long each is, or None.
        skipped: its skipped filters, or None.
    """

    places: Array
    addresses: Array
    lengths: Array | None
    skipped: Array | None


def read_chunks(
    window: Window, layout: Layout, space: Space, nbytes: int, *, is_filtered: bool
) -> ChunkTable:
    """Return where the chunks of a dataset are.

    Args:
        window: the file.
        layout: the dataset's, chunked.
        space: its shape; there are elements in it.
        nbytes: of a chunk, when it is decoded.
        is_filtered: whether the dataset has filters.

    Raises:
        FormatError: the index is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    shape = space.shape or ()
    if len(layout.chunks) != len(shape):
        raise malformed("a chunk has another rank than its dataset", len(shape), layout.chunks)
    grid = _grid(shape, layout.chunks)
    if math.prod(grid) > _MOST_CHUNKS:
        raise malformed("a dataset has more chunks than can be counted", _MOST_CHUNKS, grid)
    empty: Array = np.empty(0, np.uint64)
    if not window.is_defined(layout.address):
        return ChunkTable(grid, empty, empty, empty, empty, 0)
    walk = _Walk(window, layout, space, nbytes, is_filtered=is_filtered)
    parts = list(walk.run())
    places = [walk.numbers(part.places, grid) for part in parts]
    addresses = [part.addresses.astype(np.uint64) for part in parts]
    lengths, skipped = [], []
    for part in parts:
        count = len(part.addresses)
        plain = part.lengths is None
        whole = min(nbytes, _MOST_CHUNKS)  # what is longer lies in no file
        lengths.append(np.full(count, whole, np.uint64) if plain else part.lengths)
        skipped.append(np.zeros(count, np.uint32) if part.skipped is None else part.skipped)
    return _table(window, grid, places, addresses, lengths, skipped)


def _table(
    window: Window,
    grid: tuple[int, ...],
    places: list[Array],
    addresses: list[Array],
    lengths: list[Any],
    skipped: list[Array],
) -> ChunkTable:
    """Put parts together, sorted, and check what they say."""
    if not places:
        places = addresses = lengths = skipped = [np.empty(0, np.uint64)]
    numbers: Array = np.concatenate(places)
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    offsets: Array = np.concatenate(addresses)[order]
    sizes: Array = np.concatenate(lengths).astype(np.uint64)[order]
    if len(numbers) > 1 and (numbers[1:] == numbers[:-1]).any():
        raise malformed("an index has two chunks for one place")
    size = np.uint64(window.size)
    is_outside = (sizes > size) | (offsets > size - np.minimum(sizes, size))
    # Chunks lie side by side, so that all of them are no longer than the file.
    total = float(sizes.sum(dtype=np.float64))
    if is_outside.any() or total > window.size:
        raise FormatError(
            "the chunks of a dataset do not lie in the file",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"within {window.size} bytes",
            found=describe(f"{int(is_outside.sum())} outside, {total:.0f} bytes in all"),
        )
    return ChunkTable(
        grid,
        numbers,
        offsets + np.uint64(window.base),
        sizes,
        np.concatenate(skipped)[order],
        int(sizes.sum()),
    )


def _grid(shape: tuple[int, ...], chunks: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many chunks there are along each axis."""
    return tuple(-(-length // step) for length, step in zip(shape, chunks, strict=True))


class _Walk:
    """One walk over the index of one dataset."""

    def __init__(
        self, window: Window, layout: Layout, space: Space, nbytes: int, *, is_filtered: bool
    ) -> None:
        self._window = window
        self._layout = layout
        self._shape = space.shape or ()
        self._nbytes = nbytes
        self._is_filtered = is_filtered
        unlimited = (1 << 8 * window.length_size) - 1
        self._free = [axis for axis, most in enumerate(space.most) if most == unlimited]
        self._most = _grid(space.most, layout.chunks)

    def run(self) -> Iterator[_Found]:
        """Yield the chunks that are stored."""
        layout = self._layout
        match layout.lookup:
            case Index.TREE_1:
                return self._tree_1()
            case Index.SINGLE:
                return self._single()
            case Index.IMPLICIT:
                return self._implicit()
            case Index.FIXED:
                return self._fixed()
            case Index.EXTENSIBLE:
                return self._extensible()
            case Index.TREE_2:
                return self._tree_2()

    def numbers(self, places: Array, grid: tuple[int, ...]) -> Array:
        """Return the places as numbers in the grid of the shape that the dataset has now.

        Raises:
            FormatError: one is not in it.
        """
        if places.ndim == 1:
            places = self._unravelled(places)
        limits: Array = np.array(grid, np.uint64)
        if (places >= limits).any():
            raise FormatError(
                "a chunk does not lie in its dataset",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"within {describe(grid)} chunks",
                found=describe(places.max(axis=0).tolist()),
            )
        numbers = np.zeros(len(places), np.uint64)
        for axis, length in enumerate(grid):
            numbers = numbers * np.uint64(length) + places[:, axis]
        return numbers

    def _unravelled(self, numbers: Array) -> Array:
        """Return numbers in the grid of the largest shape as places.

        In an extensible array the axis that has no end is counted as if it were the first.
        """
        axes = list(range(len(self._most)))
        if self._layout.lookup == Index.EXTENSIBLE and self._free:
            axes.insert(0, axes.pop(self._free[0]))
        places = np.zeros((len(numbers), len(axes)), np.uint64)
        left = numbers.astype(np.uint64)
        for axis in reversed(axes[1:]):
            # More than 2^63 along an axis is more than there are numbers.
            length = np.uint64(min(self._most[axis], 1 << 63) or 1)
            places[:, axis] = left % length
            left = left // length
        places[:, axes[0]] = left
        return places

    def _charge(self, count: int) -> None:
        self._window.budget.charge_bytes(count * _COST)

    def _entries(self, data: bytes | bytearray, first: int, width: int) -> _Found:
        """Return the entries of an array that lead to chunks; `first` is the number of the first.

        An entry is an address; where there are filters, a length and a mask behind it.
        """
        window = self._window
        offset_size = window.offset_size
        table = np.frombuffer(data, np.uint8).reshape(-1, width)
        addresses = _numbers(table[:, :offset_size])
        stored = np.flatnonzero(addresses != np.uint64(window.undefined))
        self._charge(len(stored))
        places = stored.astype(np.uint64) + np.uint64(first)
        if width == offset_size:
            return _Found(places, addresses[stored], None, None)
        table = table[stored]
        return _Found(
            places,
            addresses[stored],
            _numbers(table[:, offset_size:-4]),
            _numbers(table[:, -4:]).astype(np.uint32),
        )

    def _require_entry(self, client: int, width: int) -> None:
        offset_size = self._window.offset_size
        low, high = (offset_size + 5, offset_size + 12) if self._is_filtered else (offset_size,) * 2
        if client != self._is_filtered or not low <= width <= high:
            raise malformed(
                "an index has other entries", (int(self._is_filtered), low), (client, width)
            )

    def _single(self) -> Iterator[_Found]:
        address = np.array([self._layout.address], np.uint64)
        place = np.zeros(1, np.uint64)
        self._charge(1)
        if self._layout.single is None:
            yield _Found(place, address, None, None)
        else:
            length, skipped = self._layout.single
            yield _Found(
                place, address, np.array([length], np.uint64), np.array([skipped], np.uint32)
            )

    def _implicit(self) -> Iterator[_Found]:
        count = math.prod(self._most)
        self._window.require(self._layout.address, count * self._nbytes)
        self._charge(count)
        numbers = np.arange(count, dtype=np.uint64)
        places = self._unravelled(numbers)
        limits: Array = np.array(_grid(self._shape, self._layout.chunks), np.uint64)
        is_now = (places < limits).all(axis=1)
        addresses = np.uint64(self._layout.address) + numbers * np.uint64(self._nbytes)
        yield _Found(places[is_now], addresses[is_now], None, None)

    def _tree_1(self) -> Iterator[_Found]:
        window = self._window
        rank = len(self._shape)
        record = np.dtype(
            [
                ("length", "<u4"),
                ("skipped", "<u4"),
                ("corner", "<u8", (rank + 1,)),
                ("address", f"<u{window.offset_size}"),
            ]
        )
        steps: Array = np.array(self._layout.chunks, np.uint64)
        key = record.itemsize - window.offset_size
        for leaf in walk_tree_1(window, self._layout.address, 1, key):
            table = np.frombuffer(leaf, record)
            self._charge(len(table))
            corners = table["corner"][:, :rank]
            if (corners % steps).any():
                raise malformed("a chunk begins within another")
            yield _Found(corners // steps, table["address"], table["length"], table["skipped"])

    def _tree_2(self) -> Iterator[_Found]:
        offset_size, rank = self._window.offset_size, len(self._shape)
        kind = 11 if self._is_filtered else 10
        for found, width, body in walk_tree_2(self._window, self._layout.address):
            length_width = width - offset_size - 8 * rank - (4 if self._is_filtered else 0)
            is_right = 1 <= length_width <= 8 if self._is_filtered else length_width == 0
            if found != kind or not is_right:
                raise malformed("a tree has other records", kind, (found, width))
            table = np.frombuffer(body, np.uint8).reshape(-1, width)
            self._charge(len(table))
            places = np.ascontiguousarray(table[:, width - 8 * rank :]).view("<u8")
            addresses = _numbers(table[:, :offset_size])
            if self._is_filtered:
                end = offset_size + length_width
                lengths = _numbers(table[:, offset_size:end])
                skipped = _numbers(table[:, end : end + 4]).astype(np.uint32)
                yield _Found(places, addresses, lengths, skipped)
            else:
                yield _Found(places, addresses, None, None)

    def _fixed(self) -> Iterator[_Found]:
        window = self._window
        head = window.record("4sBB BB LO I")
        data = window.block(self._layout.address, b"FAHD", head.size, has_sum=True)
        _, _, client, width, page_bits, count, address, _ = head.unpack(data)
        self._require_entry(client, width)
        if not window.is_defined(address):
            return
        prefix = 6 + window.offset_size
        page = 1 << page_bits
        if count <= page:
            data = window.block(address, b"FADB", prefix + count * width + 4, has_sum=True)
            yield self._entries(data[prefix:-4], 0, width)
            return
        bitmap = (-(-count // page) + 7) // 8
        data = window.block(address, b"FADB", prefix + bitmap + 4, has_sum=True)
        start = address + prefix + bitmap + 4
        yield from self._pages(self._bits(data[prefix:-4]), start, 0, count, page, width)

    def _bits(self, bitmap: bytes | bytearray) -> Array:
        """Return a byte for each bit, the highest of a byte first."""
        self._window.budget.charge_bytes(16 * len(bitmap))
        return np.unpackbits(np.frombuffer(bitmap, np.uint8))

    def _pages(
        self, is_written: Array, start: int, first: int, count: int, page: int, width: int
    ) -> Iterator[_Found]:
        """Yield the entries of those pages, one behind the other, that were written."""
        window = self._window
        for number in np.flatnonzero(is_written).tolist():
            entries = min(page, count - number * page)
            if entries <= 0:
                raise malformed("a page lies behind the end of an index", count, number * page)
            data = window.take(start + number * (page * width + 4), entries * width + 4)
            window.require_sum(data)
            yield self._entries(data[:-4], first + number * page, width)

    def _extensible(self) -> Iterator[_Found]:
        window = self._window
        offset_size = window.offset_size
        head = window.record("4sBB 6B 6L O I")
        data = window.block(self._layout.address, b"EAHD", head.size, has_sum=True)
        _, _, client, width, bits, inner, least, pointers, page_bits, *_, address, _ = head.unpack(
            data
        )
        self._require_entry(client, width)
        if not (_is_power(least) and _is_power(pointers) and least.bit_length() <= bits <= 64):
            raise malformed("an extensible array cannot be", None, (bits, least, pointers))
        if not window.is_defined(address):
            return
        supers = 2 + bits - least.bit_length()  # super blocks: two for each doubling of a block
        in_index = 2 * (pointers.bit_length() - 1)  # so many have their blocks in the index block
        blocks = 2 * (pointers - 1)
        prefix = 6 + offset_size
        places = blocks + max(supers - in_index, 0)
        size = prefix + inner * width + places * offset_size + 4
        data = window.block(address, b"EAIB", size, has_sum=True)
        middle = prefix + inner * width
        yield self._entries(data[prefix:middle], 0, width)
        addresses = iter(window.record(f"{places}O").unpack_from(data, middle))
        form = _Form(width, 1 << page_bits, (bits + 7) // 8)
        first = inner
        for number in range(supers):
            count = 1 << number // 2
            entries = least << (number + 1) // 2
            if number < in_index:
                for place in itertools.islice(addresses, count):
                    if window.is_defined(place):
                        yield from self._data_block(place, first, entries, form, None)
                    first += entries
            else:
                place = next(addresses, window.undefined)
                if window.is_defined(place):
                    yield from self._super_block(place, first, count, entries, form)
                first += count * entries

    def _super_block(
        self, address: int, first: int, count: int, entries: int, form: _Form
    ) -> Iterator[_Found]:
        window = self._window
        prefix = 6 + window.offset_size + form.place_width
        pages = 0 if entries <= form.page else entries // form.page
        bitmap = count * ((pages + 7) // 8)
        start = prefix + bitmap
        size = start + count * window.offset_size + 4
        data = window.block(address, b"EASB", size, has_sum=True)
        window.budget.charge_steps(count)
        places = window.record(f"{count}O").unpack_from(data, start)
        bits = self._bits(data[prefix:start])
        for number, place in enumerate(places):
            if window.is_defined(place):
                # Room is for whole bytes for each block, but the bits lie one behind the other.
                written = bits[number * pages : (number + 1) * pages] if pages else None
                yield from self._data_block(place, first + number * entries, entries, form, written)

    def _data_block(
        self,
        address: int,
        first: int,
        entries: int,
        form: _Form,
        is_written: Array | None,
    ) -> Iterator[_Found]:
        window = self._window
        prefix = 6 + window.offset_size + form.place_width
        if is_written is None:
            size = prefix + entries * form.width + 4
            data = window.block(address, b"EADB", size, has_sum=True)
            yield self._entries(data[prefix:-4], first, form.width)
        else:
            window.block(address, b"EADB", prefix + 4, has_sum=True)
            yield from self._pages(
                is_written, address + prefix + 4, first, entries, form.page, form.width
            )


class _Form(NamedTuple):
    """What the blocks of an extensible array have in common.

    Attributes:
        width: bytes of an entry.
        page: entries of a page, where a block is longer than one.
        place_width: bytes of the number that says where in the array a block is.
    """

    width: int
    page: int
    place_width: int


def _is_power(number: int) -> bool:
    """Return whether a number is a power of two."""
    return number > 0 and not number & (number - 1)


def _numbers(columns: Array) -> Array:
    """Return little-endian numbers of up to eight bytes, a row for each."""
    whole = np.zeros((len(columns), 8), np.uint8)
    whole[:, : columns.shape[1]] = columns
    numbers: Array = whole.view("<u8")[:, 0]
    return numbers
