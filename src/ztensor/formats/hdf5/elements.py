"""Datatypes as NumPy has them: which are equal to one of its own, and how others become one."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.formats.hdf5.datatype import Class, FloatLayout, Type
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable


_WIDTHS = (1, 2, 4, 8)
_IEEE = {
    2: FloatLayout(15, 10, 5, 0, 10, 15, is_implied=True),
    4: FloatLayout(31, 23, 8, 0, 23, 127, is_implied=True),
    8: FloatLayout(63, 52, 11, 0, 52, 1023, is_implied=True),
}
_BFLOAT16 = FloatLayout(15, 7, 8, 0, 7, 127, is_implied=True)
_BOOL = {b"FALSE": 0, b"TRUE": 1}
_COMPLEX = (b"r", b"i")
# NumPy's floats: bytes, bits of the mantissa, smallest and largest exponent.
_FLOATS = ((2, 10, -14, 16), (4, 23, -126, 128), (8, 52, -1022, 1024))


class Elements(NamedTuple):
    """How elements are stored and read.

    Attributes:
        stored: what they are in the file.
        numpy: what they are read as, little-endian.
        convert: makes the one the other; None where only the order of bytes differs.
        is_bfloat16: the bits are a bfloat16.
    """

    stored: np.dtype[Any]
    numpy: np.dtype[Any]
    convert: Callable[[Array], Array] | None = None
    is_bfloat16: bool = False

    def converted(self, stored: Array) -> Array:
        """Return elements as they are read."""
        return stored if self.convert is None else self.convert(stored)


def elements_of(kind: Type) -> Elements | None:
    """Return how elements of a type are read, or None where NumPy has nothing for them."""
    match kind.kind:
        case Class.INTEGER | Class.BITFIELD:
            return _integer(kind)
        case Class.FLOAT:
            return _float(kind)
        case Class.OPAQUE if kind.size < 1 << 31:
            opaque = np.dtype(f"V{kind.size}")
            return Elements(opaque, opaque)
        case Class.ENUM:
            return _enum(kind)
        case Class.COMPOUND:
            return _complex(kind)
        case Class.COMPLEX if kind.base is not None and kind.size == 2 * kind.base.size:
            return _plain_complex(elements_of(kind.base))
    return None


def _number(kind: Type, letter: str) -> np.dtype[Any]:
    return np.dtype(f"{'>' if kind.order == 'big' else '<'}{letter}{kind.size}")


def _integer(kind: Type) -> Elements | None:
    if kind.size not in _WIDTHS:
        return None
    letter = "i" if kind.is_signed else "u"
    target = np.dtype(f"<{letter}{kind.size}")
    if (kind.offset, kind.precision) == (0, 8 * kind.size):
        return Elements(_number(kind, letter), target)
    if not 0 < kind.precision <= 8 * kind.size - kind.offset:
        return None
    narrow = functools.partial(
        _narrowed,
        offset=kind.offset,
        precision=kind.precision,
        is_signed=kind.is_signed,
        target=target,
    )
    return Elements(_number(kind, "u"), target, narrow)


def _narrowed(
    stored: Array, *, offset: int, precision: int, is_signed: bool, target: np.dtype[Any]
) -> Array:
    """Return the numbers in some of the bits."""
    kind = np.dtype(f"<u{target.itemsize}").type
    bits: Array = stored.astype(kind) >> kind(offset) & kind((1 << precision) - 1)
    if is_signed:
        sign = kind(1 << (precision - 1))
        bits = (bits ^ sign) - sign
    return bits.view(target)


def _float(kind: Type) -> Elements | None:
    layout = kind.layout
    if layout is None or not kind.order or kind.size not in _WIDTHS or kind.offset:
        return None
    if kind.precision == 8 * kind.size:
        if layout == _IEEE.get(kind.size):
            return Elements(_number(kind, "f"), np.dtype(f"<f{kind.size}"))
        if (layout, kind.size) == (_BFLOAT16, 2):
            return Elements(_number(kind, "u"), np.dtype("<u2"), is_bfloat16=True)
    if not layout.is_implied or not layout.exponent_bits or layout.exponent_bits > 11:
        return None
    ends = (
        layout.sign + 1,
        layout.exponent + layout.exponent_bits,
        layout.mantissa + layout.mantissa_bits,
    )
    if max(ends) > 8 * kind.size:
        return None
    most = (1 << layout.exponent_bits) - layout.bias - 1
    for width, mantissa, lowest, highest in _FLOATS:  # the first that has room for all of them
        if layout.mantissa_bits <= mantissa and most <= highest and 1 - layout.bias >= lowest:
            target = np.dtype(f"<f{width}")
            widen = functools.partial(_widened, layout=layout, target=target)
            return Elements(_number(kind, "u"), target, widen)
    return None


def _widened(stored: Array, *, layout: FloatLayout, target: np.dtype[Any]) -> Array:
    """Return floats whose sign, exponent and mantissa are the bits that a layout says."""
    bits = stored.astype("<u8")

    def field(place: int, count: int) -> Any:
        return (bits >> np.uint64(place) & np.uint64((1 << count) - 1)).astype(np.int64)

    exponent = field(layout.exponent, layout.exponent_bits)
    mantissa = field(layout.mantissa, layout.mantissa_bits)
    is_normal = exponent > 0
    values = np.ldexp(
        (mantissa + (is_normal.astype(np.int64) << layout.mantissa_bits)).astype(np.float64),
        (np.maximum(exponent, 1) - layout.bias - layout.mantissa_bits).astype(np.int32),
    )
    is_special = exponent == (1 << layout.exponent_bits) - 1
    values = np.where(is_special, np.where(mantissa == 0, np.inf, np.nan), values)
    values = np.where(field(layout.sign, 1) == 1, -values, values)
    return values.astype(target)


def _enum(kind: Type) -> Elements | None:
    numbers = None if kind.base is None else elements_of(kind.base)
    if numbers is None or numbers.numpy.kind not in "iu":
        return None
    members = {
        member.name: int(numbers.converted(np.frombuffer(member.value, numbers.stored))[0])
        for member in kind.members
    }
    if members != _BOOL:
        return numbers
    boolean = np.dtype(bool)
    if kind.size == 1 and numbers.convert is None:
        return Elements(boolean, boolean)
    return Elements(numbers.stored, boolean, lambda stored: numbers.converted(stored) != 0)


def _complex(kind: Type) -> Elements | None:
    """Return how h5py's complex numbers are read: compounds of two floats, `r` and `i`."""
    if tuple(member.name for member in kind.members) != _COMPLEX:
        return None
    first, second = kind.members
    if first.type is None or first.type != second.type:
        return None
    part = elements_of(first.type)
    if (first.offset, second.offset, kind.size) == (0, first.type.size, 2 * first.type.size):
        return _plain_complex(part)
    if part is None or part.numpy.kind != "f" or part.numpy.itemsize not in (4, 8):
        return None
    if abs(first.offset - second.offset) < first.type.size or kind.size >= 1 << 31:
        return None
    stored = np.dtype(
        {
            "names": ["r", "i"],
            "formats": [part.stored, part.stored],
            "offsets": [first.offset, second.offset],
            "itemsize": kind.size,
        }
    )
    target = np.dtype(f"<c{2 * part.numpy.itemsize}")
    return Elements(stored, target, functools.partial(_joined, part=part, target=target))


def _plain_complex(part: Elements | None) -> Elements | None:
    """Return how pairs of floats are read, one behind the other."""
    if part is None or part.numpy.kind != "f" or part.numpy.itemsize not in (4, 8):
        return None
    target = np.dtype(f"<c{2 * part.numpy.itemsize}")
    if part.convert is None:
        order = part.stored.newbyteorder("<") != part.stored
        return Elements(target.newbyteorder(">" if order else "<"), target)
    stored = np.dtype([("r", part.stored), ("i", part.stored)])
    return Elements(stored, target, functools.partial(_joined, part=part, target=target))


def _joined(stored: Array, *, part: Elements, target: np.dtype[Any]) -> Array:
    """Return complex numbers whose two parts are fields."""
    whole = np.empty(stored.shape, target)
    whole.real = part.converted(stored["r"])
    whole.imag = part.converted(stored["i"])
    return whole
