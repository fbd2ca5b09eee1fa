"""Messages of protobuf, field by field: of each its number, its kind and where it lies."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import (
    FormatError,
    LimitError,
    Reason,
)
from ztensor.ext import Source
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator


SECTION = "onnx.proto"
BLOCK_BYTES = 1 << 12
VARINT_BYTES = 1 << 18
PIECE_BYTES = 8 << 20
TEXT_BYTES = 16 << 20
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}
# In bytes of memory: a text; a place for it; a pair of them; a field kept; an object with its name
# and component; how one is stored; a dimension.
TEXT_COST, PLACE_COST, ENTRY_COST, FIELD_COST = 96, 16, 144, 224
OBJECT_COST, ENCODING_COST, NUMBER_COST = 900, 600, 40


class Field(NamedTuple):
    """One field of a message: a number, or a range of bytes of the file."""

    number: int
    wire: int
    value: int
    start: int
    stop: int


class Message:
    """A source read by small steps, a block at a time.

    Args:
        source: the file.
        budget: what texts and numbers are charged to.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source = source
        self.budget = budget
        self._start = 0
        self._block: bytes | bytearray = b""

    def _at(self, place: int, count: int) -> bytes | bytearray:
        """Return up to `count` bytes, fewer only at the end of the file."""
        begin = place - self._start
        if begin < 0 or begin + count > len(self._block):
            length = min(BLOCK_BYTES, self.source.size - place)
            self._start, self._block = place, self.source.read(place, length)
            begin = 0
        return self._block[begin : begin + count]

    def varint(self, place: int, stop: int) -> tuple[int, int]:
        """Return a number and the place behind it."""
        begin = place - self._start
        if 0 <= begin < len(self._block) and place < stop and self._block[begin] < 0x80:
            return self._block[begin], place + 1  # nearly all: most of a model are short fields
        value = 0
        for shift, byte in enumerate(self._at(place, min(10, stop - place))):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, place + shift + 1
        raise damaged("a number does not end", place, Reason.TRUNCATED)

    def fields(self, start: int, stop: int) -> Iterator[Field]:
        """Yield the fields of a message; they end where it ends."""
        place = start
        while place < stop:
            at = place
            tag, place = self.varint(place, stop)
            number, wire = tag >> 3, tag & 7
            value, begin = 0, place
            if wire == VARINT:
                value, place = self.varint(place, stop)
            elif wire == BYTES:
                length, begin = self.varint(place, stop)
                place = begin + length
            elif wire in FIXED:
                place += FIXED[wire]
            else:
                raise damaged(f"a field has the wire type {wire}", at, Reason.FIELD_TYPE)
            if number == 0 or tag >= 1 << 32:
                raise damaged(f"a field has the number {number}", at, Reason.FIELD_VALUE)
            if place > stop:
                raise damaged("a field ends behind its message", at, Reason.TRUNCATED)
            yield Field(number, wire, value, begin, place)

    def head(self, field: Field) -> bytes | bytearray:
        """Return the first bytes of a message, all of a short one."""
        return self._at(field.start, min(BLOCK_BYTES, field.stop - field.start))

    def text(self, field: Field, what: str) -> str:
        """Return a string field."""
        require_wire(field, BYTES, what)
        if field.stop - field.start > TEXT_BYTES:
            raise LimitError(
                f"{what} is longer than this release reads",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {TEXT_BYTES} bytes",
                found=str(field.stop - field.start),
            )
        length = field.stop - field.start
        self.budget.charge_bytes(PLACE_COST)
        try:
            with self.budget.lent(length):
                return self.budget.text(self.source.read(field.start, length))
        except UnicodeDecodeError as error:
            raise damaged(f"{what} is not UTF-8", field.start, Reason.FIELD_VALUE) from error

    def pair(self, field: Field, what: str) -> tuple[str, str]:
        """Return key and value of a `StringStringEntryProto`."""
        require_wire(field, BYTES, what)
        found = {1: "", 2: ""}
        for inner in self.fields(field.start, field.stop):
            if inner.number in found:
                found[inner.number] = self.text(inner, what)
        return found[1], found[2]


def damaged(what: str, place: int, reason: Reason) -> FormatError:
    """Return the error for what is wrong at an offset of the file."""
    return FormatError(what, reason=reason, found=f"offset {place}", section=SECTION)


def require_wire(field: Field, wire: int, what: str) -> None:
    """Raise where a field is of another wire type.

    Raises:
        FormatError: it is.
    """
    if field.wire != wire:
        raise FormatError(
            f"{what} has another wire type",
            reason=Reason.FIELD_TYPE,
            expected=str(wire),
            found=f"{field.wire} at offset {field.start}",
            section=SECTION,
        )


def signed(value: int) -> int:
    """Return what 64 bits mean in two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value


def nbytes_of(field: Field) -> int:
    """Return how long a field's content is."""
    return field.stop - field.start
