"""Words to the small integers packed in them, one byte each, in any array library.

Words of more than a byte are signed integers, since not every library shifts unsigned ones; bits
that the sign extends are masked.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from ztensor.errors import ArgumentValueError
from ztensor.quantization.namespace import Namespace
from ztensor.quantization.scheme import ORDERS, GroupScheme
from ztensor.typing import Array

if TYPE_CHECKING:
    import numpy as np

Indices: TypeAlias = "range | np.ndarray[Any, np.dtype[np.intp]]"
"""Rows along the first axis."""


def words_of(component: Array) -> Array:
    """Return words in native byte order, as uint8 or wider signed integers."""
    native = component.astype(component.dtype.newbyteorder("="), copy=False)
    return native.view("u1" if native.itemsize == 1 else f"i{native.itemsize}")


def unpack(
    xp: Namespace, scheme: GroupScheme, words: Any, axis: int, out: Any, *, offset: int = 0
) -> None:
    """Write the integers of whole blocks of words.

    Args:
        xp: the array library.
        scheme: bits, packing, order and sign.
        words: a matrix of `words_of`, packed along `axis`; its last axis is contiguous.
        axis: 0 or 1.
        out: a matrix of uint8 with an element for each integer of `words`; its last axis is
            contiguous. Signed integers are written as int8.
        offset: added to each integer, modulo 2^bits.
    """
    bits, width, mask = scheme.bits, scheme.packing.width, (1 << scheme.bits) - 1
    if 8 % bits or (axis == 1 and sys.byteorder == "big"):
        _one_by_one(scheme, words, axis, out)
    else:
        words = _in_sequence(xp, words, width, bits, scheme.order)
        if axis == 0:
            _halve_rows(xp, words, width, bits, out)
        else:
            _halve_bytes(xp, words, bits, out)
    if offset & mask:
        out += offset & mask
        out &= mask
    if scheme.signed and bits < 8:
        half = 1 << (bits - 1)
        out ^= half  # inverting the sign bit and subtracting half gives two's complement
        out -= half


def _one_by_one(scheme: GroupScheme, words: Any, axis: int, out: Any) -> None:
    """Write the integers of any packing, one place of all blocks after the other."""
    bits, width, mask = scheme.bits, scheme.packing.width, (1 << scheme.bits) - 1
    count, step = scheme.packing.count, scheme.packing.words
    lines, integers = (words.T, out.T) if axis else (words, out)
    for place, element in enumerate(ORDERS[scheme.order](count)):
        word, shift = divmod(place * bits, width)
        value = lines[word::step] >> shift
        if shift + bits > width:
            value &= (1 << (width - shift)) - 1
            value |= lines[word + 1 :: step] << (width - shift)
        integers[element::count] = value
    out &= mask  # masking bytes costs less than masking words


def _in_sequence(xp: Namespace, words: Any, width: int, bits: int, order: str) -> Any:
    """Return words with integers in sequential order, by swaps of runs of halving length."""
    run = {"sequential": 0, "reversed": width // 2, "awq": width // 4}[order]
    if run < bits:
        return words
    shape, dtype = tuple(words.shape), f"int{width}" if width > 8 else "uint8"
    ordered, moved = xp.scratch(shape, dtype), xp.scratch(shape, dtype)
    ordered[...] = words
    while run >= bits:
        xp.shift_right(ordered, run, moved)
        if order == "reversed":  # neighbouring runs are swapped
            low = _every((1 << run) - 1, 2 * run, width)
            moved &= low
            ordered &= low
            ordered <<= run
            ordered |= moved
        else:  # evens and odds: the middle ones of four runs are swapped
            moved ^= ordered
            moved &= _every(((1 << run) - 1) << run, 4 * run, width)
            ordered ^= moved
            moved <<= run
            ordered ^= moved
        run //= 2
    return ordered


def _every(mask: int, period: int, width: int) -> int:
    """Return a mask repeated through a word."""
    return sum(mask << start for start in range(0, width, period))


def _halve_rows(xp: Namespace, words: Any, width: int, bits: int, out: Any) -> None:
    """Write integers packed across rows: words are cut in half, and the halves again."""
    if width == bits:
        out[...] = words
    while width > bits:
        high = words
        if width > 8:  # the halves are narrower words: assignment drops the upper bits
            high = xp.scratch(tuple(words.shape), f"int{width}")
            xp.shift_right(words, width // 2, high)
        width //= 2
        rows, columns = words.shape
        dtype = f"int{width}" if width > 8 else "uint8"
        halves = out if width == bits else xp.scratch((2 * rows, columns), dtype)
        halves = halves.reshape(rows, 2, columns)
        if width >= 8:
            halves[:, 0], halves[:, 1] = words, high
        else:
            xp.mask(words, (1 << width) - 1, halves[:, 0])
            xp.shift_right(words, width, halves[:, 1])
        words = halves.reshape(2 * rows, columns)


def _halve_bytes(xp: Namespace, words: Any, bits: int, out: Any) -> None:
    """Write integers packed along rows: both halves of a byte become bytes, and again."""
    integers, width = xp.view(words, "uint8"), 8
    if width == bits:
        out[...] = integers
    while width > bits:
        width //= 2
        pairs = xp.view(out, "int16") if width == bits else xp.scratch(integers.shape, "int16")
        moved = xp.scratch(tuple(pairs.shape), "int16")
        pairs[...] = integers
        xp.shift_left(pairs, 8 - width, moved)
        pairs |= moved
        pairs &= ((1 << width) - 1) * 0x0101
        integers = xp.view(pairs, "uint8")


def whole_units(rows: Indices, unit: int, length: int) -> tuple[int, int]:
    """Return the half-open range of consecutive rows, in multiples of `unit`.

    Args:
        rows: the indices of rows.
        unit: the row unit.
        length: length of the first axis; rows may also end there.

    Raises:
        ArgumentValueError: rows are not consecutive, or cut a unit in two.
    """
    if not isinstance(rows, range) or (rows.step != 1 and rows[1:]):
        raise ArgumentValueError(
            "a quantized object has slices of consecutive rows only; for others, "
            "read(name).dequantize()[rows]",
            expected="an integer, or a slice with step 1",
        )
    start, stop = rows.start, rows[-1] + 1 if rows else rows.start
    if start % unit or (stop % unit and stop != length):
        low, high = start // unit * unit, min(-(-stop // unit) * unit, length)
        raise ArgumentValueError(
            "the rows cut a group, or a word of packed integers, in two",
            expected=f"multiples of {unit}; [{low}:{high}] holds these rows",
            found=f"[{start}:{stop}]",
        )
    return start, stop
