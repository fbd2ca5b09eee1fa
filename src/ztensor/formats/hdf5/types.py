"""Datatypes: the stored form of elements, and their NumPy type."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ztensor.formats.hdf5.header import Kind, read_header
from ztensor.formats.hdf5.window import Fields, Window, malformed, unknown
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable


_DEEPEST = 32
_COST = 1000  # bytes of memory of a type
_WIDTHS = (1, 2, 4, 8)
_IN_OBJECT = 2  # a shared message is in another object's header
_IS_VAX, _MANTISSA_IS_IMPLIED = 0x40, 2  # of a float's flags


class Elements(NamedTuple):
    """The stored and the decoded type of elements.

    Attributes:
        stored: the type in the file.
        numpy: the decoded type, little-endian.
        convert: converts stored elements; None if only the byte order differs.
        is_bfloat16: the bits are a bfloat16.
    """

    stored: np.dtype[Any]
    numpy: np.dtype[Any]
    convert: Callable[[Array], Array] | None = None
    is_bfloat16: bool = False

    @property
    def byte_order(self) -> Literal["little", "big"]:
        """Return the byte order of stored elements that need no conversion."""
        is_big = self.convert is None and self.stored != self.stored.newbyteorder("<")
        return "big" if is_big else "little"

    def converted(self, stored: Array) -> Array:
        """Return decoded elements."""
        return stored if self.convert is None else self.convert(stored)


class Type(NamedTuple):
    """A datatype.

    Attributes:
        size: bytes of an element.
        words: a description.
        elements: the stored and the decoded type; None for a type that NumPy lacks.
        text: the padding of texts: a NUL or a space; empty for a terminating NUL. None for types
            other than text.
        is_variable: elements have any length, and are in a heap.
        names: the number of names of an enum other than a bool.
        base: the type of an array's elements.
        shape: the shape of an array type.
    """

    size: int
    words: str
    elements: Elements | None = None
    text: bytes | None = None
    is_variable: bool = False
    names: int = 0
    base: Type | None = None
    shape: tuple[int, ...] = ()

    @property
    def is_opaque(self) -> bool:
        """Return whether elements are bytes without a meaning."""
        return self.elements is not None and self.elements.numpy.kind == "V"


class Types:
    """The types of one file; each is parsed once."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._found: dict[tuple[bytes, bool], Type] = {}

    def of(self, body: bytes, *, is_shared: bool) -> Type:
        """Return the type of a message, which may be the address of a stored type.

        Raises:
            FormatError: it is damaged.
            UnsupportedError: the type is in a heap.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        parsed = self._found.get((body, is_shared))
        if parsed is None:
            stored = self._stored(body) if is_shared else body
            self._window.budget.charge_bytes(_COST)
            parsed = parse_type(Fields(self._window, stored))
            self._found[body, is_shared] = parsed
        return parsed

    def _stored(self, body: bytes) -> bytes:
        """Return the body of the message that a shared one refers to."""
        fields = Fields(self._window, body)
        version, kind = fields.take("BB")
        if version == 3 and kind != _IN_OBJECT:
            raise unknown("a message shared in a heap")
        if not 1 <= version <= 3:
            raise malformed("a shared message's version is unknown", "1 to 3", version)
        if version == 1:  # reserved bytes, and the address of a group's heap
            fields.skip(6 + self._window.length_size)
        message = read_header(self._window, fields.one("O")).of(Kind.TYPE)
        if message is None or message.is_shared:
            raise malformed("not a stored type")
        return message.body


class _Head(NamedTuple):
    """The common fields of all types."""

    version: int
    flags: int
    size: int
    depth: int

    @property
    def order(self) -> str:
        return ">" if self.flags & 1 else "<"


def parse_type(fields: Fields, depth: int = 0) -> Type:
    """Return the type at the current field.

    Raises:
        FormatError: it is damaged.
    """
    if depth > _DEEPEST:
        raise malformed("a datatype is nested too deeply", _DEEPEST)
    first, low, high, size = fields.take("BBHI")
    version, kind = first >> 4, first & 15
    if not 1 <= version <= 5 or kind >= len(_CLASSES):
        raise malformed("a datatype is unknown", "class 0 to 11, version 1 to 5", (kind, version))
    if not size:
        raise malformed("a datatype of size 0")
    parsed: Type = _CLASSES[kind](fields, _Head(version, low | high << 8, size, depth))
    return parsed


# --- Numbers --------------------------------------------------------------------------------


def _integer(fields: Fields, head: _Head) -> Type:
    words, is_signed = f"integer of {head.size} bytes", bool(head.flags & 8)
    return Type(head.size, words, _whole_numbers(fields, head, is_signed=is_signed))


def _bit_field(fields: Fields, head: _Head) -> Type:
    return Type(head.size, "bit field", _whole_numbers(fields, head, is_signed=False))


def _whole_numbers(fields: Fields, head: _Head, *, is_signed: bool) -> Elements | None:
    offset, precision = fields.take("HH")
    if head.size not in _WIDTHS:
        return None
    letter = "i" if is_signed else "u"
    target = np.dtype(f"<{letter}{head.size}")
    if (offset, precision) == (0, 8 * head.size):
        return Elements(np.dtype(f"{head.order}{letter}{head.size}"), target)
    if not 0 < precision <= 8 * head.size - offset:
        return None

    def narrow(stored: Array) -> Array:
        """Return the numbers in a range of the bits."""
        kind = np.dtype(f"<u{target.itemsize}").type
        bits: Array = stored.astype(kind) >> kind(offset) & kind((1 << precision) - 1)
        if is_signed:
            sign = kind(1 << (precision - 1))
            bits = (bits ^ sign) - sign
        return bits.view(target)

    return Elements(np.dtype(f"{head.order}u{head.size}"), target, narrow)


class _Bits(NamedTuple):
    """The bit fields of a float, counted from the lowest bit, and the bias of its exponent."""

    sign: int
    exponent: int
    exponent_bits: int
    mantissa: int
    mantissa_bits: int
    bias: int


_IEEE = {
    2: _Bits(15, 10, 5, 0, 10, 15),
    4: _Bits(31, 23, 8, 0, 23, 127),
    8: _Bits(63, 52, 11, 0, 52, 1023),
}
_BFLOAT16 = _Bits(15, 7, 8, 0, 7, 127)
# NumPy's floats: bytes, bits of the mantissa, smallest and largest exponent.
_FLOATS = ((2, 10, -14, 16), (4, 23, -126, 128), (8, 52, -1022, 1024))


def _float(fields: Fields, head: _Head) -> Type:
    offset, precision, *places = fields.take("HH4BI")
    bits, elements = _Bits._make((head.flags >> 8 & 0xFF, *places)), None
    is_implied = head.flags >> 4 & 3 == _MANTISSA_IS_IMPLIED
    if is_implied and not head.flags & _IS_VAX and head.size in _WIDTHS and not offset:
        elements = _floats(bits, head, is_whole=precision == 8 * head.size)
    return Type(head.size, f"float of {head.size} bytes", elements)


def _floats(bits: _Bits, head: _Head, *, is_whole: bool) -> Elements | None:
    size, stored = head.size, np.dtype(f"{head.order}u{head.size}")
    if is_whole and bits == _IEEE.get(size):
        return Elements(np.dtype(f"{head.order}f{size}"), np.dtype(f"<f{size}"))
    if is_whole and (bits, size) == (_BFLOAT16, 2):
        return Elements(stored, np.dtype("<u2"), is_bfloat16=True)
    exponent_end = bits.exponent + bits.exponent_bits
    end = max(bits.sign + 1, exponent_end, bits.mantissa + bits.mantissa_bits)
    if not 0 < bits.exponent_bits <= 11 or end > 8 * size:
        return None
    most = (1 << bits.exponent_bits) - bits.bias - 1
    for width, mantissa, lowest, highest in _FLOATS:  # the first that represents all values
        if bits.mantissa_bits <= mantissa and most <= highest and 1 - bits.bias >= lowest:
            target = np.dtype(f"<f{width}")
            return Elements(stored, target, functools.partial(_widened, bits=bits, target=target))
    return None


def _widened(stored: Array, *, bits: _Bits, target: np.dtype[Any]) -> Array:
    """Return floats from their bit fields."""
    whole = stored.astype("<u8")

    def field(place: int, count: int) -> Any:
        return (whole >> np.uint64(place) & np.uint64((1 << count) - 1)).astype(np.int64)

    exponent = field(bits.exponent, bits.exponent_bits)
    mantissa = field(bits.mantissa, bits.mantissa_bits)
    is_normal = exponent > 0
    values = np.ldexp(
        (mantissa + (is_normal.astype(np.int64) << bits.mantissa_bits)).astype(np.float64),
        (np.maximum(exponent, 1) - bits.bias - bits.mantissa_bits).astype(np.int32),
    )
    is_special = exponent == (1 << bits.exponent_bits) - 1
    values = np.where(is_special, np.where(mantissa == 0, np.inf, np.nan), values)
    values = np.where(field(bits.sign, 1) == 1, -values, values)
    return values.astype(target)


# --- Types other than numbers ---------------------------------------------------------------


def _time(fields: Fields, head: _Head) -> Type:
    fields.skip(2)
    return Type(head.size, "time")


def _string(_: Fields, head: _Head) -> Type:
    return Type(head.size, "string", text={1: b"\0", 2: b" "}.get(head.flags & 15, b""))


def _opaque(fields: Fields, head: _Head) -> Type:
    fields.skip((head.flags & 0xFF) + 7 & -8)
    opaque = np.dtype(f"V{head.size}") if head.size < 1 << 31 else None
    elements = None if opaque is None else Elements(opaque, opaque)
    return Type(head.size, f"opaque of {head.size} bytes", elements)


def _reference(_: Fields, head: _Head) -> Type:
    return Type(head.size, "reference")


def _variable(fields: Fields, head: _Head) -> Type:
    parse_type(fields, head.depth + 1)
    if head.flags & 15 == 1:
        return Type(head.size, "string", text=b"", is_variable=True)
    return Type(head.size, "list of any length", is_variable=True)


# --- Types of types -------------------------------------------------------------------------


def _array(fields: Fields, head: _Head) -> Type:
    is_old = head.version < 3
    rank = fields.one("B")
    fields.skip(3 if is_old else 0)
    shape = fields.take(f"{rank}I")
    fields.skip(4 * rank if is_old else 0)  # the permutation of the axes, always the identity
    base = parse_type(fields, head.depth + 1)
    if math.prod(shape) * base.size != head.size:
        raise malformed("the size of an array differs from its elements'", shape, head.size)
    return Type(head.size, "array type", base=base, shape=shape)


def _name(fields: Fields, head: _Head) -> bytes:
    """Return a name, without its terminating NUL."""
    length = fields.data.find(b"\0", fields.at) + 1 - fields.at
    if length <= 0:
        raise malformed("unterminated name in a datatype")
    return fields.raw(length if head.version > 2 else length + 7 & -8)[: length - 1]


def _compound(fields: Fields, head: _Head) -> Type:
    """Return a compound. Only h5py's complex numbers are read: two equal floats `r` and `i`."""
    width = 4 if head.version < 3 else (head.size.bit_length() + 7) // 8
    names, offsets, types, bodies = [], [], [], []
    for _ in range(head.flags & 0xFFFF):
        names.append(_name(fields, head))
        offset = fields.number(width)
        is_array = head.version == 1 and fields.raw(28)[0] > 0
        begin = fields.at
        member = parse_type(fields, head.depth + 1)
        if not is_array and offset + member.size > head.size:
            size = offset + member.size
            raise malformed("a field reaches beyond its compound", head.size, size)
        offsets.append(offset)
        types.append(None if is_array else member.elements)
        bodies.append(fields.data[begin : fields.at])
    elements = None
    if names == [b"r", b"i"] and types[0] is not None and bodies[0] == bodies[1]:
        elements = _complex_numbers(types[0], offsets, head.size)
    return Type(head.size, "compound", elements)


def _complex(fields: Fields, head: _Head) -> Type:
    base = parse_type(fields, head.depth + 1)
    elements = None
    if base.elements is not None and head.size == 2 * base.size:
        elements = _complex_numbers(base.elements, [0, base.size], head.size)
    return Type(head.size, "complex number", elements)


def _complex_numbers(part: Elements, offsets: list[int], size: int) -> Elements | None:
    """Return the types of pairs of equal floats at two offsets; None if NumPy has none."""
    width = part.stored.itemsize
    if part.numpy.kind != "f" or part.numpy.itemsize not in (4, 8):
        return None
    target = np.dtype(f"<c{2 * part.numpy.itemsize}")
    if part.convert is None and (offsets, size) == ([0, width], 2 * width):
        is_big = part.stored.newbyteorder("<") != part.stored
        return Elements(target.newbyteorder(">" if is_big else "<"), target)
    if abs(offsets[0] - offsets[1]) < width or size >= 1 << 31:
        return None

    def joined(stored: Array) -> Array:
        whole = np.empty(stored.shape, target)
        whole.real, whole.imag = part.converted(stored["r"]), part.converted(stored["i"])
        return whole

    formats = [part.stored] * 2
    places: Any = {"names": ["r", "i"], "formats": formats, "offsets": offsets, "itemsize": size}
    return Elements(np.dtype(places), target, joined)


def _enum(fields: Fields, head: _Head) -> Type:
    base = parse_type(fields, head.depth + 1)
    if base.size != head.size:
        raise malformed("the size of an enum differs from its numbers'", base.size, head.size)
    count, numbers = head.flags & 0xFFFF, base.elements
    names = [_name(fields, head) for _ in range(count)]
    values = fields.raw(count * head.size)
    if set(names) != {b"FALSE", b"TRUE"}:
        is_number = numbers is not None and numbers.numpy.kind in "iu"
        return Type(head.size, "enum", numbers if is_number else None, names=count)
    return Type(head.size, "enum", numbers and _booleans(numbers, names, values))


def _booleans(numbers: Elements, names: list[bytes], values: bytes) -> Elements | None:
    """Return the types of an enum of FALSE and TRUE: bool if the numbers are 0 and 1."""
    if numbers.numpy.kind not in "iu":
        return None
    members = numbers.converted(np.frombuffer(values, numbers.stored)).tolist()
    if dict(zip(names, members, strict=True)) != {b"FALSE": 0, b"TRUE": 1}:
        return numbers
    boolean = np.dtype(bool)
    if numbers.stored.itemsize == 1 and numbers.convert is None:
        return Elements(boolean, boolean)
    return Elements(numbers.stored, boolean, lambda stored: numbers.converted(stored) != 0)


# By the format's numbers.
_CLASSES: tuple[Callable[[Fields, _Head], Type], ...] = (
    _integer, _float, _time, _string, _bit_field, _opaque, _compound, _reference, _enum, _variable,
    _array, _complex,
)  # fmt: skip
