"""The three heaps of HDF5: local (names), global (text of any length), fractal (many objects)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ztensor.formats.hdf5.trees import walk_tree_2
from ztensor.formats.hdf5.window import Fields, Window, malformed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class LocalHeap:
    """The names of a group's links, each terminated by a NUL."""

    def __init__(self, window: Window, address: int) -> None:
        length, _, place = window.fields(address, b"HEAP", "3x LLO", has_sum=False)
        self._data = bytes(window.take(place, length))
        self._window = window

    def text(self, offset: int) -> bytes:
        """Return the text at an offset.

        Raises:
            FormatError: it is outside the heap.
            LimitError: the budget is used up.
        """
        end = self._data.find(b"\0", offset)
        if end < 0:
            raise malformed("a name is outside its heap", len(self._data), offset)
        # Many names may be suffixes of one text; each is a copy.
        self._window.budget.charge_bytes(end - offset)
        return self._data[offset:end]


class GlobalHeaps:
    """The collections of a file's variable-length texts; each is parsed once."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._found: dict[int, dict[int, tuple[int, int]]] = {}

    def read(self, address: int, number: int, length: int) -> bytes:
        """Return the first `length` bytes of an object.

        Raises:
            FormatError: there is no such object, or it is shorter.
            LimitError: the budget is used up.
        """
        objects = self._found.get(address)
        if objects is None:
            objects = self._found[address] = self._look(address)
        place, size = objects.get(number, (0, -1))
        if length > size:
            raise malformed("a text is outside its heap", length, size)
        self._window.budget.charge_bytes(length)  # an object may be read very often
        return bytes(self._window.read(place, length))

    def _look(self, address: int) -> dict[int, tuple[int, int]]:
        """Return the address and the length of each object of a collection."""
        window = self._window
        head, record = window.record("4s4x L"), window.record("H6x L")
        sign, length = head.unpack(window.read(address, head.size))
        at, prefix = (size + 7 & -8 for size in (head.size, record.size))  # all sizes are aligned
        if sign != b"GCOL" or length < at:
            raise malformed("not a global heap", b"GCOL", sign)
        window.enter(address)
        data = window.take(address, length)
        objects: dict[int, tuple[int, int]] = {}
        while at + prefix <= length:
            number, size = record.unpack_from(data, at)
            step = prefix + (size + 7 & -8) if number else size
            if not 0 < step <= length - at:
                raise malformed(
                    "invalid size of an object of a global heap",
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
    """A direct block of a fractal heap: the bytes of the heap from `start` are at `address`."""

    start: int
    size: int
    address: int


class FractalHeap:
    """A heap of links or attributes, read by identifiers.

    Small objects are in direct blocks of doubling sizes, in the order of a table. Tiny objects are
    in the identifier. Huge objects have a place of their own, which a tree or the identifier has.
    """

    # Fields of the header: lengths of identifiers and filters, flags, the longest managed object,
    # the tree of huge objects; columns, first and longest block, bits of the heap, root and rows.
    _HEAD = "HHB I {L}xO{L}x{O}x {L}x{L}x{L}x{L}x {L}x{L}x{L}x{L}x H LLH2x OH"

    def __init__(self, window: Window, address: int) -> None:
        self._window = window
        self._address = address
        form = self._HEAD.format(L=window.length_size, O=window.offset_size)
        if int.from_bytes(window.read(address + 7, 2), "little"):
            raise malformed("a filtered heap of links or attributes")
        (
            self._id_length, _, flags, most_managed, self._huge_address,
            self._columns, self._first, self._most_direct, heap_bits, root, rows,
        ) = window.fields(address, b"FRHP", form)  # fmt: skip
        sizes = (self._first, self._most_direct)
        if not all(size and not size & (size - 1) for size in sizes) or not self._columns:
            raise malformed("the sizes of a heap's blocks do not double", None, sizes)
        if self._first > self._most_direct or heap_bits > 64 or rows > 64:
            raise malformed("invalid table of a heap", None, (*sizes, heap_bits, rows))
        self._has_sums = bool(flags & 2)
        self._offset_width = (heap_bits + 7) // 8
        self._length_width = min(
            (self._most_direct.bit_length() + 6) // 8, (most_managed.bit_length() + 7) // 8
        )
        self._blocks: list[_Block] = []
        self._held: dict[int, bytes | bytearray] = {}
        self._huge: dict[int, tuple[int, int]] | None = None
        if window.is_defined(root):
            if rows:
                self._look(root, rows, 0, 0)
            else:
                self._blocks.append(_Block(0, self._first, root))
        self._starts = [block.start for block in self._blocks]

    def _look(self, address: int, rows: int, start: int, depth: int) -> None:
        """Add the direct blocks below an indirect block, which begins at `start` in the heap."""
        window = self._window
        window.require_depth(depth, "blocks of an HDF5 heap")
        direct_rows = self._most_direct.bit_length() - self._first.bit_length() + 2
        count = rows * self._columns
        size = 5 + window.offset_size + self._offset_width + count * window.offset_size + 4
        fields = self._entered(window.block(address, b"FHIB", size), start)
        window.budget.charge_steps(count)
        window.budget.charge_bytes(count * 150)
        for number, place in enumerate(fields.take(f"{count}O")):
            row = number // self._columns
            length = self._first << max(row - 1, 0)
            if window.is_defined(place):
                if row < direct_rows:
                    self._blocks.append(_Block(start, length, place))
                else:
                    below = length.bit_length() - (self._first * self._columns).bit_length() + 1
                    if below < 1:
                        raise malformed("invalid table of a heap", None, below)
                    self._look(place, below, start, depth + 1)
            start += length

    def _entered(self, data: bytes | bytearray, start: int) -> Fields:
        """Return the fields of a block; raise if it belongs to another heap or place."""
        fields = Fields(self._window, data, 5)
        place = fields.one("O"), fields.number(self._offset_width)
        if place != (self._address, start):
            raise malformed("a block of another heap or place", (self._address, start), place)
        return fields

    def read(self, identifier: bytes) -> bytes:
        """Return an object by its identifier.

        Raises:
            FormatError: there is no such object.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        fields = Fields(self._window, identifier)
        head = fields.one("B")
        kind = head >> 4 & 3
        if kind == 0:
            return self._managed(
                fields.number(self._offset_width), fields.number(self._length_width)
            )
        if kind == 1:
            return bytes(self._window.take(*self._huge_place(fields)))
        if kind == 2:
            length = head & 15 if self._id_length <= 18 else (head & 15) << 8 | fields.one("B")
            return fields.raw(length + 1)
        raise malformed("unknown kind of a heap's identifier", "0 to 2", kind)

    def _managed(self, offset: int, length: int) -> bytes:
        """Return bytes of a direct block."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset + length > self._starts[number] + self._blocks[number].size:
            raise malformed("an object is outside its heap", None, (offset, length))
        block = self._blocks[number]
        data = self._held.get(number)
        if data is None:
            data = self._window.block(block.address, b"FHDB", block.size, has_sum=False)
            at = self._entered(data, block.start).at
            if self._has_sums:  # computed with zeros in place of the checksum
                self._window.require_sum(data[:at] + bytes(4) + data[at + 4 :] + data[at : at + 4])
            self._held[number] = data
        self._window.budget.charge_bytes(length)  # an object may be read very often
        return bytes(data[offset - block.start : offset - block.start + length])

    def _huge_place(self, fields: Fields) -> tuple[int, int]:
        """Return the address and the length of a huge object."""
        window = self._window
        if window.offset_size + window.length_size < self._id_length:
            place, length = fields.take("OL")
            return place, length
        if self._huge is None:
            self._huge = self._find_huge()
        key = fields.number(min(self._id_length - 1, 8))
        if key not in self._huge:
            raise malformed("unknown huge object of a heap", None, key)
        return self._huge[key]

    def _find_huge(self) -> dict[int, tuple[int, int]]:
        window = self._window
        huge: dict[int, tuple[int, int]] = {}
        if window.is_defined(self._huge_address):
            record = window.record("OLL")
            for records in walk_tree_2(window, self._huge_address, {1: (record.size,)}):
                for place, length, key in record.iter_unpack(records.body):
                    window.budget.charge_bytes(200)
                    huge[key] = (place, length)
        return huge


def dense(
    window: Window, heap_address: int, tree: int, records: Mapping[int, tuple[int, slice]]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield each record of a tree, with its object of a heap.

    Args:
        window: the file.
        heap_address: the address of the heap.
        tree: the address of the tree.
        records: the kinds of records, with their width and the place of the identifier in them.

    Raises:
        FormatError: the heap or the tree is damaged.
        LimitError: the budget is used up.
        SourceError: they cannot be read.
    """
    heap = FractalHeap(window, heap_address)
    widths = {kind: (width,) for kind, (width, _) in records.items()}
    for kind, width, body in walk_tree_2(window, tree, widths):
        place = records[kind][1]
        for at in range(0, len(body), width):
            record = body[at : at + width]
            yield record, heap.read(record[place])
