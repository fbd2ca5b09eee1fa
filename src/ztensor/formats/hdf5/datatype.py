"""Datatype messages: what the elements of a dataset or an attribute are."""

from __future__ import annotations

import enum
import math
import struct
from typing import TYPE_CHECKING, NamedTuple

from ztensor.formats.hdf5.window import malformed

if TYPE_CHECKING:
    from collections.abc import Callable

    Part = Callable[[bytes, int, int], tuple["Type", int]]


class Class(enum.IntEnum):
    """The classes of types, by the format's numbers."""

    INTEGER = 0
    FLOAT = 1
    TIME = 2
    STRING = 3
    BITFIELD = 4
    OPAQUE = 5
    COMPOUND = 6
    REFERENCE = 7
    ENUM = 8
    VARIABLE = 9
    ARRAY = 10
    COMPLEX = 11


class Padding(enum.IntEnum):
    """What is behind the end of a string."""

    NULL_ENDED = 0
    NULLS = 1
    SPACES = 2


class FloatLayout(NamedTuple):
    """Which bits of a float are what, from the lowest one, and how its exponent is counted."""

    sign: int
    exponent: int
    exponent_bits: int
    mantissa: int
    mantissa_bits: int
    bias: int
    is_implied: bool  # the mantissa's highest bit is 1 and not stored


class Member(NamedTuple):
    """A field of a compound, or a name of an enum."""

    name: bytes
    offset: int = 0
    type: Type | None = None
    value: bytes = b""


class Type(NamedTuple):
    """A datatype.

    Attributes:
        kind: its class.
        size: bytes of an element.
        order: `little`, `big`, or `` for an order of VAX machines, or where there is none.
        is_signed: of integers.
        offset: the lowest bit of a number, and of a bit field.
        precision: how many bits are the number.
        layout: of floats.
        is_text: of variable-length types: text, not a list.
        padding: of strings.
        members: of compounds and enums.
        base: what an enum, a list, an array or a complex number consists of.
        shape: of arrays.
    """

    kind: Class
    size: int
    order: str = "little"
    is_signed: bool = False
    offset: int = 0
    precision: int = 0
    layout: FloatLayout | None = None
    is_text: bool = False
    padding: int = 0
    members: tuple[Member, ...] = ()
    base: Type | None = None
    shape: tuple[int, ...] = ()

    @property
    def has_names(self) -> bool:
        """Return whether numbers have names, other than those of a bool."""
        is_bool = {member.name for member in self.members} == {b"FALSE", b"TRUE"}
        return self.kind == Class.ENUM and not is_bool

    @property
    def is_string(self) -> bool:
        """Return whether elements are text, of whatever length."""
        return self.kind == Class.STRING or (self.kind == Class.VARIABLE and self.is_text)


_HEAD = struct.Struct("<BBHI")  # class and version, flags (lowest 8, others), size
_BITS = struct.Struct("<HH")  # offset, precision
_FLOAT = struct.Struct("<HHBBBBI")  # likewise; exponent, mantissa (place and bits), bias
_DEEPEST = 32
_IMPLIED = 2  # how the mantissa begins
_IS_VAX = 0x40  # of a float's flags


def parse(body: bytes) -> Type:
    """Return the type a message describes.

    Raises:
        FormatError: it is damaged.
    """
    try:
        return _parse(body, 0, 0)[0]
    except struct.error as error:
        raise malformed("a datatype is cut") from error


def _parse(body: bytes, at: int, depth: int) -> tuple[Type, int]:
    """Return the type at a place, and where it ends."""
    if depth > _DEEPEST:
        raise malformed("a datatype is nested too deeply", _DEEPEST)
    head, low, high, size = _HEAD.unpack_from(body, at)
    version, kind = head >> 4, head & 15
    if not 1 <= version <= 5 or kind > Class.COMPLEX:
        raise malformed("a datatype is unknown", "class 0 to 11, version 1 to 5", (kind, version))
    if not size:
        raise malformed("a datatype has no bytes")
    at += _HEAD.size
    flags = low | high << 8
    order = "big" if low & 1 else "little"
    match Class(kind):
        case Class.INTEGER | Class.BITFIELD:
            offset, precision = _BITS.unpack_from(body, at)
            is_signed = kind == Class.INTEGER and bool(low & 8)
            return Type(Class(kind), size, order, is_signed, offset, precision), at + _BITS.size
        case Class.FLOAT:
            return _float(body, at, flags, size)
        case Class.TIME:
            return Type(Class.TIME, size), at + 2
        case Class.STRING:
            return Type(Class.STRING, size, padding=low & 15), at
        case Class.OPAQUE:
            return Type(Class.OPAQUE, size), at + (low + 7) // 8 * 8
        case Class.COMPOUND:
            return _compound(body, at, depth, version, flags, size)
        case Class.REFERENCE:
            return Type(Class.REFERENCE, size), at
        case Class.ENUM:
            return _enum(body, at, depth, version, flags, size)
        case Class.VARIABLE:
            base, end = _parse(body, at, depth + 1)
            is_text = low & 15 == 1
            return Type(Class.VARIABLE, size, is_text=is_text, padding=low >> 4, base=base), end
        case Class.ARRAY:
            return _array(body, at, depth, version, size)
        case Class.COMPLEX:
            base, end = _parse(body, at, depth + 1)
            return Type(Class.COMPLEX, size, base=base), end


def _name(body: bytes, at: int, version: int) -> tuple[bytes, int]:
    """Return a name that ends with a NUL, and where the next field begins."""
    end = body.find(b"\0", at)
    if end < 0:
        raise malformed("a name in a datatype has no end")
    length = end + 1 - at
    return body[at:end], at + (length if version > 2 else (length + 7) // 8 * 8)


def _float(body: bytes, at: int, flags: int, size: int) -> tuple[Type, int]:
    offset, precision, exponent, exponent_bits, mantissa, mantissa_bits, bias = _FLOAT.unpack_from(
        body, at
    )
    layout = FloatLayout(
        sign=flags >> 8 & 0xFF,
        exponent=exponent,
        exponent_bits=exponent_bits,
        mantissa=mantissa,
        mantissa_bits=mantissa_bits,
        bias=bias,
        is_implied=flags >> 4 & 3 == _IMPLIED,
    )
    order = "" if flags & _IS_VAX else "big" if flags & 1 else "little"
    return Type(
        Class.FLOAT, size, order, offset=offset, precision=precision, layout=layout
    ), at + _FLOAT.size


def _array(body: bytes, at: int, depth: int, version: int, size: int) -> tuple[Type, int]:
    (rank,) = struct.unpack_from("<B", body, at)
    at += 1 if version > 2 else 4
    shape = struct.unpack_from(f"<{rank}I", body, at)
    at += 4 * rank if version > 2 else 8 * rank
    base, end = _parse(body, at, depth + 1)
    if math.prod(shape) * base.size != size:
        raise malformed("an array has another size than its elements", shape, size)
    return Type(Class.ARRAY, size, base=base, shape=shape), end


def _compound(
    body: bytes, at: int, depth: int, version: int, count: int, size: int
) -> tuple[Type, int]:
    width = 4 if version < 3 else (size.bit_length() + 7) // 8
    members = []
    for _ in range(count):
        name, at = _name(body, at, version)
        offset = int.from_bytes(body[at : at + width], "little")
        at += width
        rank = 0
        if version == 1:
            rank = body[at] if at < len(body) else 0
            at += 28
        member, at = _parse(body, at, depth + 1)
        if rank:
            member = Type(Class.ARRAY, size, base=member)
        elif offset + member.size > size:
            raise malformed("a field leads out of its compound", size, offset + member.size)
        members.append(Member(name, offset, member))
    return Type(Class.COMPOUND, size, members=tuple(members)), at


def _enum(
    body: bytes, at: int, depth: int, version: int, count: int, size: int
) -> tuple[Type, int]:
    base, at = _parse(body, at, depth + 1)
    if base.size != size:
        raise malformed("an enum has another size than its numbers", base.size, size)
    names = []
    for _ in range(count):
        name, at = _name(body, at, version)
        names.append(name)
    end = at + count * size
    if end > len(body):
        raise malformed("a datatype is cut")
    values = (body[place : place + size] for place in range(at, end, size))
    members = tuple(Member(name, value=value) for name, value in zip(names, values, strict=True))
    return Type(Class.ENUM, size, members=members, base=base), end
