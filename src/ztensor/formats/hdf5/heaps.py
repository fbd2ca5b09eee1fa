"""The three heaps of HDF5: local (names), global (text of any length), fractal (many objects)."""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ztensor.formats.hdf5.trees import walk_tree_2
from ztensor.formats.hdf5.window import Window, malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class LocalHeap:
    """The names of a group's links, each ended by a NUL."""

    def __init__(self, window: Window, address: int) -> None:
        record = window.record("4sB3x LLO")
        data = window.block(address, b"HEAP", record.size, has_sum=False)
        _, _, length, _, place = record.unpack(data)
        self._data = bytes(window.take(place, length))
        self._window = window

    def text(self, offset: int) -> bytes:
        """Return the text at an offset.

        Raises:
            FormatError: there is none.
            LimitError: the budget is used up.
        """
        end = self._data.find(b"\0", offset)
        if end < 0:
            raise malformed("a name does not lie in its heap", len(self._data), offset)
        # Many names may be the ends of one: each is a copy.
        self._window.budget.charge_bytes(end - offset)
        return self._data[offset:end]


class GlobalHeaps:
    """The collections a file's variable-length texts lie in; each is looked through once."""

    _HEAD = "4sB3x L"
    _OBJECT = "H2x4x L"

    def __init__(self, window: Window) -> None:
        self._window = window
        self._found: dict[int, dict[int, tuple[int, int]]] = {}

    def read(self, address: int, number: int, length: int) -> bytes:
        """Return the first bytes of an object.

        Raises:
            FormatError: it is not there, or is not as long.
            LimitError: the budget is used up.
        """
        objects = self._found.get(address)
        if objects is None:
            objects = self._found[address] = self._look(address)
        place, size = objects.get(number, (0, -1))
        if length > size:
            raise malformed("a text does not lie in its heap", length, size)
        self._window.budget.charge_bytes(length)  # many may be one and the same
        return bytes(self._window.read(place, length))

    def _look(self, address: int) -> dict[int, tuple[int, int]]:
        """Return where each object of a collection lies, and its length."""
        window = self._window
        head = window.record(self._HEAD)
        record = window.record(self._OBJECT)
        sign, _, length = head.unpack(window.read(address, head.size))
        begin, prefix = (size + 7 & -8 for size in (head.size, record.size))  # as all is
        if sign != b"GCOL" or length < begin:
            raise malformed("no global heap is here", b"GCOL", sign)
        window.enter(address)
        data = window.take(address, length)
        objects: dict[int, tuple[int, int]] = {}
        at = begin
        while at + prefix <= length:
            number, size = record.unpack_from(data, at)
            step = prefix + (size + 7) // 8 * 8 if number else size
            if not 0 < step <= length - at:
                raise malformed(
                    "an object of a global heap has a size that cannot be",
                    f"1 to {length - at}",
                    step,
                )
            if number:
                objects[number] = (address + at + prefix, size)
                window.budget.charge_bytes(200)
            window.budget.charge_steps(1)
            at += step
        return objects


class _Block(NamedTuple):
    """A direct block of a fractal heap: the heap's bytes from `start` on lie at `address`."""

    start: int
    size: int
    address: int


class FractalHeap:
    """A heap of links or attributes: objects by an identifier that says where they are.

    Small objects lie in direct blocks whose sizes double, in an order that a table gives; tiny ones
    are in the identifier; huge ones lie for themselves, found by a tree.
    """

    _HEAD = "4sBHHB I LOLO LLLL LLLL H LLHH OH"

    def __init__(self, window: Window, address: int) -> None:
        self._window = window
        head = window.record(self._HEAD)
        prefix = window.read(address, head.size)
        filter_length = struct.unpack_from("<H", prefix, 7)[0]
        more = window.length_size + 4 + filter_length if filter_length else 0
        data = window.block(address, b"FRHP", head.size + more + 4, has_sum=True)
        (
            _, _, self._id_length, _, flags, most_managed,
            _, self._huge_address, _, _,
            _, _, _, _,
            _, _, _, _,
            self._columns, self._first, self._most_direct, heap_bits, _,
            root, rows,
        ) = head.unpack_from(data)  # fmt: skip
        if filter_length:
            raise malformed("a heap is filtered, which no link or attribute is")
        sizes = (self._first, self._most_direct)
        if not all(size and not size & (size - 1) for size in sizes) or not self._columns:
            raise malformed("a heap's blocks have no sizes that double", None, sizes)
        if self._first > self._most_direct or heap_bits > 64 or rows > 64:
            raise malformed("a heap's table cannot be", None, (*sizes, heap_bits, rows))
        self._has_sums = bool(flags & 2)
        self._address = address
        self._offset_width = (heap_bits + 7) // 8
        self._length_width = min(
            (self._most_direct.bit_length() + 6) // 8, (most_managed.bit_length() + 7) // 8
        )
        self._blocks: list[_Block] = []
        self._starts: list[int] = []
        self._held: dict[int, bytes | bytearray] = {}
        self._huge: dict[int, tuple[int, int]] | None = None
        if window.is_defined(root):
            if rows:
                self._look(root, rows, 0, 0)
            else:
                self._blocks.append(_Block(0, self._first, root))
        self._starts = [block.start for block in self._blocks]

    def _look(self, address: int, rows: int, start: int, depth: int) -> None:
        """Note the direct blocks below an indirect one, which begins at `start` in the heap."""
        window = self._window
        window.require_depth(depth)
        head = 5 + window.offset_size + self._offset_width
        direct_rows = self._most_direct.bit_length() - self._first.bit_length() + 2
        count = rows * self._columns
        size = head + count * window.offset_size + 4
        data = window.block(address, b"FHIB", size, has_sum=True)
        self._require_place(data, start)
        places = window.record(f"{count}O").unpack_from(data, head)
        window.budget.charge_steps(count)
        window.budget.charge_bytes(count * 150)
        for number, place in enumerate(places):
            row = number // self._columns
            length = self._first << max(row - 1, 0)
            if window.is_defined(place):
                if row < direct_rows:
                    self._blocks.append(_Block(start, length, place))
                else:
                    below = length.bit_length() - (self._first * self._columns).bit_length() + 1
                    if below < 1:
                        raise malformed("a heap's table cannot be", None, below)
                    self._look(place, below, start, depth + 1)
            start += length

    def _require_place(self, data: bytes | bytearray, start: int) -> None:
        """Raise where a block is of another heap, or of another part of it."""
        width = self._window.offset_size
        owner = int.from_bytes(data[5 : 5 + width], "little")
        place = int.from_bytes(data[5 + width : 5 + width + self._offset_width], "little")
        if (owner, place) != (self._address, start):
            raise malformed(
                "a block belongs elsewhere in a heap", (self._address, start), (owner, place)
            )

    def read(self, identifier: bytes) -> bytes:
        """Return an object by its identifier.

        Raises:
            FormatError: there is none.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        kind = identifier[0] >> 4 & 3
        if kind == 0:
            return self._managed(identifier)
        if kind == 1:
            return self._huge_one(identifier)
        if kind == 2:
            start, length = 1, (identifier[0] & 15) + 1
            if self._id_length > 18:
                start, length = 2, ((identifier[0] & 15) << 8 | identifier[1]) + 1
            if start + length > len(identifier):
                raise malformed("a tiny object is longer than its identifier")
            return identifier[start : start + length]
        raise malformed("an identifier of a heap is unknown", "0 to 2", kind)

    def _managed(self, identifier: bytes) -> bytes:
        middle = 1 + self._offset_width
        offset = int.from_bytes(identifier[1:middle], "little")
        length = int.from_bytes(identifier[middle : middle + self._length_width], "little")
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset + length > self._starts[number] + self._blocks[number].size:
            raise malformed("an object does not lie in its heap", None, (offset, length))
        block = self._blocks[number]
        data = self._held.get(number)
        if data is None:
            data = self._window.block(block.address, b"FHDB", block.size, has_sum=False)
            self._require_place(data, block.start)
            if self._has_sums:
                self._require_sum(data)
            self._held[number] = data
        self._window.budget.charge_bytes(length)  # many may be one and the same
        return bytes(data[offset - block.start : offset - block.start + length])

    def _require_sum(self, data: bytes | bytearray) -> None:
        """Raise where the checksum in a block's prefix, counted as zero there, is another."""
        at = 5 + self._window.offset_size + self._offset_width
        self._window.require_sum(data[:at] + bytes(4) + data[at + 4 :] + data[at : at + 4])

    def _huge_one(self, identifier: bytes) -> bytes:
        window = self._window
        both = window.offset_size + window.length_size
        if both <= self._id_length - 1:
            place, length = window.record("OL").unpack_from(identifier, 1)
        else:
            if self._huge is None:
                self._huge = self._find_huge()
            width = min(self._id_length - 1, 8)
            key = int.from_bytes(identifier[1 : 1 + width], "little")
            place, length = self._huge.get(key, (0, -1))
            if length < 0:
                raise malformed("a huge object is not in its heap", None, key)
        return bytes(window.take(place, length))

    def _find_huge(self) -> dict[int, tuple[int, int]]:
        if not self._window.is_defined(self._huge_address):
            return {}
        record = self._window.record("OLL")
        found = {}
        for kind, width, body in walk_tree_2(self._window, self._huge_address):
            if (kind, width) != (1, record.size):
                raise malformed("a tree has other records", (1, record.size), (kind, width))
            for place, length, key in record.iter_unpack(body):
                self._window.budget.charge_bytes(200)
                found[key] = (place, length)
        return found


def dense(
    window: Window, heap_address: int, tree: int, records: Mapping[int, tuple[int, slice]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield what a tree lists: each record, and the object of the heap that it stands for.

    Args:
        window: the file.
        heap_address: where the heap is.
        tree: where the tree is.
        records: the kinds of records; how long each is, and where in it the identifier is.

    Raises:
        FormatError: heap or tree are damaged.
        LimitError: the budget is used up.
        SourceError: they cannot be read.
    """
    heap = FractalHeap(window, heap_address)
    for kind, width, body in walk_tree_2(window, tree):
        if kind not in records or width != records[kind][0]:
            raise malformed("a tree has other records", list(records), (kind, width))
        place = records[kind][1]
        for at in range(0, len(body), width):
            record = body[at : at + width]
            yield record, heap.read(record[place])
