"""HDF5's filters that keep only some bits of each number: n-bit and scale-offset.

Both write the bits of one number behind those of the last, the highest bit first.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ztensor.layout.base import Array

_ATOMIC = 1  # the class of n-bit's parameters that is a number
_WIDTHS = (1, 2, 4, 8)
_DECIMAL, _INTEGER = 0, 2  # how scale-offset made integers
_HEAD = struct.Struct("<IBQ")  # bits of a number, bytes of the least one, the least one
_PACKED_AT = 21  # where the numbers begin: the least one has room for sixteen bytes
_BATCH = 1 << 16  # numbers unpacked at once: each bit takes a byte


def _unpacked(data: bytes | bytearray | memoryview, count: int, bits: int) -> Array:
    """Return `count` numbers of `bits` bits each.

    Raises:
        ValueError: there are not as many.
    """
    if count * bits > 8 * len(data):
        raise ValueError(f"{len(data)} bytes for {count} numbers of {bits} bits")
    stored = np.frombuffer(data, np.uint8)
    numbers = np.zeros(count, np.uint64)
    for start in range(0, count, _BATCH):  # each begins with a whole byte
        some = min(_BATCH, count - start)
        first = start * bits // 8
        each = np.unpackbits(stored[first : first + (some * bits + 7) // 8], count=some * bits)
        part = numbers[start : start + some]
        for column in each.reshape(some, bits).T:
            part <<= np.uint64(1)
            part |= column
    return numbers


def _stored(numbers: Array, width: int, *, is_big: bool) -> bytes:
    return numbers.astype(f"{'>' if is_big else '<'}u{width}").tobytes()


def undo_nbit(
    data: bytes | bytearray | memoryview, parameters: tuple[int, ...], most: int
) -> bytes:
    """Return numbers of which only the bits that mean something were stored.

    Raises:
        ValueError: there are others, or not as many.
    """
    if len(parameters) >= 2 and parameters[1]:  # all bits mean something: nothing was done
        return bytes(data)
    if len(parameters) < 8 or parameters[3] != _ATOMIC:
        raise ValueError("no numbers, which is not known here")
    count, _, width, order, precision, offset = parameters[2:8]
    if width not in _WIDTHS or not 0 < precision <= 8 * width - offset or count * width > most:
        raise ValueError(f"{count} numbers of {precision} bits in {width} bytes")
    numbers = _unpacked(data, count, precision) << np.uint64(offset)
    return _stored(numbers, width, is_big=bool(order))


def undo_scale_offset(
    data: bytes | bytearray | memoryview, parameters: tuple[int, ...], most: int
) -> bytes:
    """Return numbers that were stored as what they are above the least of them.

    Raises:
        ValueError: there are others, or not as many.
    """
    if len(parameters) < 20 or len(data) < _HEAD.size:
        raise ValueError(f"{len(parameters)} parameters and {len(data)} bytes")
    how, factor, count, kind, width, _, order, has_fill = parameters[:8]
    bits, least_width, least = _HEAD.unpack_from(data)
    is_float = kind == 1
    if (
        width not in ((4, 8) if is_float else _WIDTHS)
        or how != (_DECIMAL if is_float else _INTEGER)
        or least_width != 8
        or count * width > most
    ):
        raise ValueError(f"{count} numbers of kind {kind} in {width} bytes")
    body = memoryview(data)[_PACKED_AT:]
    if bits >= 8 * width:
        if len(body) < count * width:
            raise ValueError(f"{len(body)} bytes for {count} numbers of {width} bytes")
        return bytes(body[: count * width])
    numbers = _unpacked(body, count, bits)
    is_fill = (numbers == np.uint64((1 << bits) - 1)) if has_fill and bits else None
    fill = struct.pack("<12I", *parameters[8:20])[:width]
    if is_float:
        number = np.dtype(f"<f{width}")
        smallest: Any = np.frombuffer(struct.pack("<Q", least)[:width], number)[0]
        scale = float(np.int32(np.uint32(factor)))
        values = (
            numbers.astype(np.int64).astype(number) / number.type(10.0**scale) + smallest
        ).astype(number)
        bits_of = values.view(f"<u{width}").copy()
    else:
        with np.errstate(over="ignore"):
            bits_of = (numbers + np.uint64(least)).astype(f"<u{width}")
    if is_fill is not None:
        bits_of[is_fill] = int.from_bytes(fill, "little")
    return _stored(bits_of, width, is_big=bool(order))
