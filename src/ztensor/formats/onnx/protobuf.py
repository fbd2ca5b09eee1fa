"""The fields of protobuf messages: number, wire type and place of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import FormatError, LimitError, Reason
from ztensor.ext import Source
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


SECTION = "onnx.proto"
BLOCK_BYTES = 1 << 12
VARINT_BYTES = 1 << 18
TEXT_BYTES = 16 << 20
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
FIXED = {FIXED64: 8, FIXED32: 4}
# In bytes of memory: a text; a place for it; a pair of texts; a field; an object with its name and
# component; an encoding; a dimension.
TEXT_COST, PLACE_COST, ENTRY_COST, FIELD_COST = 96, 16, 144, 224
OBJECT_COST, ENCODING_COST, NUMBER_COST = 900, 600, 40


class Field(NamedTuple):
    """One field of a message: a number, or a range of bytes of the file."""

    number: int
    wire: int
    value: int
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """The length of its content."""
        return self.stop - self.start


_ANY: Mapping[int, int] = {}


class Message:
    """A source of protobuf messages, read in blocks.

    Args:
        source: the file.
        budget: is charged for texts and numbers.
    """

    def __init__(self, source: Source, budget: Budget) -> None:
        self.source = source
        self.budget = budget
        self._start = 0
        self._block: bytes | bytearray = b""

    def _at(self, place: int, count: int) -> bytes | bytearray:
        """Return `count` bytes, fewer only at the end of the file."""
        begin = place - self._start
        if begin < 0 or begin + count > len(self._block):
            length = min(BLOCK_BYTES, self.source.size - place)
            self._start, self._block = place, self.source.read(place, length)
            begin = 0
        return self._block[begin : begin + count]

    def varint(self, place: int, stop: int) -> tuple[int, int]:
        """Return a number, and the offset after it."""
        begin = place - self._start
        if 0 <= begin < len(self._block) and place < stop and self._block[begin] < 0x80:
            return self._block[begin], place + 1  # most fields of a model are short
        value = 0
        for shift, byte in enumerate(self._at(place, min(10, stop - place))):
            value |= (byte & 0x7F) << 7 * shift
            if byte < 0x80:
                if value >= 1 << 64:
                    break
                return value, place + shift + 1
        raise damaged("unterminated number", place, Reason.TRUNCATED)

    def fields(self, start: int, stop: int, wires: Mapping[int, int] = _ANY) -> Iterator[Field]:
        """Yield the fields of a message.

        Args:
            start: the offset of its beginning.
            stop: the offset of its end.
            wires: the required wire types of fields, by their numbers.

        Raises:
            FormatError: a field is malformed, or has another wire type.
        """
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
                raise damaged("a field ends after its message", at, Reason.TRUNCATED)
            if wire != wires.get(number, wire):
                raise damaged(f"field {number} has another wire type", at, Reason.FIELD_TYPE)
            yield Field(number, wire, value, begin, place)

    def within(self, field: Field, wires: Mapping[int, int] = _ANY) -> Iterator[Field]:
        """Yield the fields of a field that is a message; see `fields`."""
        return self.fields(field.start, field.stop, wires)

    def head(self, field: Field) -> bytes | bytearray:
        """Return the first bytes of a message: all of them, if it is short."""
        return self._at(field.start, min(BLOCK_BYTES, field.nbytes))

    def text(self, field: Field) -> str:
        """Return a string field."""
        if field.nbytes > TEXT_BYTES:
            raise LimitError(
                "a text is longer than this release reads",
                reason=Reason.LIMIT_MANIFEST,
                expected=f"at most {TEXT_BYTES} bytes",
                found=str(field.nbytes),
            )
        self.budget.charge_bytes(PLACE_COST)
        try:
            with self.budget.lent(field.nbytes):
                return self.budget.text(self.source.read(field.start, field.nbytes))
        except UnicodeDecodeError as error:
            raise damaged("a text is not UTF-8", field.start, Reason.FIELD_VALUE) from error

    def texts(self, field: Field, numbers: Collection[int]) -> list[str]:
        """Return string fields of a message in the order of `numbers`; empty if missing."""
        texts = dict.fromkeys(numbers, "")
        for inner in self.within(field, dict.fromkeys(numbers, BYTES)):
            if inner.number in texts:
                texts[inner.number] = self.text(inner)
        return list(texts.values())

    def numbers(self, field: Field) -> Iterator[int]:
        """Yield the numbers of a repeated field: one, or several packed ones."""
        if field.wire == VARINT:
            yield field.value
        elif field.wire != BYTES:
            raise damaged("numbers have another wire type", field.start, Reason.FIELD_TYPE)
        else:
            place = field.start
            while place < field.stop:
                value, place = self.varint(place, field.stop)
                yield value


def damaged(problem: str, place: int, reason: Reason) -> FormatError:
    """Return the error for damage at an offset of the file."""
    return FormatError(problem, reason=reason, found=f"offset {place}", section=SECTION)


def signed(value: int) -> int:
    """Return the signed number of 64 bits in two's complement."""
    return value - (1 << 64) if value >= 1 << 63 else value
