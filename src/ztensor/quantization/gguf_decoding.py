"""Blocks of ggml's types to floats.

The function of a type splits (blocks, bytes) into small integers, scales and offsets; `fill`
computes the floats. Operations have the order of ggml and of the package `gguf`, so floats are
equal bit for bit. `PARTS` is the table; blocks of other types are kept, but not decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.quantization.gguf_grids import words
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Parts(NamedTuple):
    """Blocks split into fields: an element is `code * scale`, then the offset is applied.

    Attributes:
        codes: (blocks, elements) 8-bit integers.
        scale: (blocks, groups) float32; groups are neighbours of the same number.
        offset: (blocks, groups) float32, or None.
        apply: how the offset is applied.
    """

    codes: Array
    scale: Array
    offset: Array | None = None
    apply: np.ufunc = np.subtract


def fill(out: Array, parts: Parts) -> None:
    """Write the elements of some blocks to (blocks, elements) float32."""
    out[...] = parts.codes
    groups = out.reshape(*parts.scale.shape, -1)
    groups *= parts.scale[:, :, None]
    if parts.offset is not None:
        parts.apply(groups, parts.offset[:, :, None], out=groups)


def _half(blocks: Array, at: int) -> Array:
    """Return the float16 at a place of each block, as (blocks, 1) float32."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def _codes(packed: Array, bits: int, run: int) -> Array:
    """Return the small integers packed in (blocks, n) bytes, as (blocks, n * 8 / bits).

    Of each `run` bytes the lowest bits come first, of all of them, then the next ones.
    """
    count, width = packed.shape
    packed = np.ascontiguousarray(packed)
    codes = np.empty((count, width // run, 8 // bits, run), np.uint8)
    for place in range(8 // bits):
        part = packed >> (place * bits)
        part &= (1 << bits) - 1
        codes[:, :, place] = part.reshape(count, -1, run)
    return codes.reshape(count, -1)


def _less(codes: Array, amount: int) -> Array:
    """Return unsigned integers less `amount`, as signed ones; in place."""
    codes -= np.uint8(amount)
    return codes.view(np.int8)


# Four bytes at once, in words: bits that a shift moves into the next byte are masked.
_LOW4, _LOW6, _HIGH2 = 0x0F0F0F0F, 0x3F3F3F3F, 0x30303030


def _words(part: Array) -> Array:
    """Return the bytes of (blocks, 4 * n) as n rows of words, one for each block."""
    return np.ascontiguousarray(part).view(np.uint32).T


def _bytes(*words: Array) -> Array:
    return np.stack(words, axis=1).view(np.uint8)


def _bits(packed: Array) -> Array:
    return np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little")


def _q4_0(blocks: Array) -> Parts:
    return Parts(_less(_codes(blocks[:, 2:], 4, 16), 8), _half(blocks, 0))


def _q4_1(blocks: Array) -> Parts:
    return Parts(_codes(blocks[:, 4:], 4, 16), _half(blocks, 0), _half(blocks, 2), np.add)


def _fifth_bit(low: Array, high: Array) -> Array:
    high <<= 4
    low |= high
    return low


def _q5_0(blocks: Array) -> Parts:
    codes = _fifth_bit(_codes(blocks[:, 6:], 4, 16), _bits(blocks[:, 2:6]))
    return Parts(_less(codes, 16), _half(blocks, 0))


def _q5_1(blocks: Array) -> Parts:
    codes = _fifth_bit(_codes(blocks[:, 8:], 4, 16), _bits(blocks[:, 4:8]))
    return Parts(codes, _half(blocks, 0), _half(blocks, 2), np.add)


def _q8_0(blocks: Array) -> Parts:
    return Parts(blocks[:, 2:].view(np.int8), _half(blocks, 0))


def _q2_k(blocks: Array) -> Parts:
    scales = blocks[:, :16]
    return Parts(
        _codes(blocks[:, 16:80], 2, 32),
        _half(blocks, 80) * (scales & 15).astype(np.float32),
        _half(blocks, 82) * (scales >> 4).astype(np.float32),
    )


def _q3_k(blocks: Array) -> Parts:
    # Sixteen scales of 6 bits: the low 4 bits in eight bytes, the high 2 in the next four.
    one, two, high = _words(blocks[:, 96:108])
    scales = _bytes(
        one & _LOW4 | high << 4 & _HIGH2,
        two & _LOW4 | high << 2 & _HIGH2,
        one >> 4 & _LOW4 | high & _HIGH2,
        two >> 4 & _LOW4 | high >> 2 & _HIGH2,
    )
    codes, third = _codes(blocks[:, 32:96], 2, 32), _codes(blocks[:, :32], 1, 32)
    third <<= 2  # a bit that is not set means four less
    codes |= third
    return Parts(_less(codes, 4), _half(blocks, 108) * _less(scales, 32).astype(np.float32))


def _k_scales(blocks: Array) -> tuple[Array, Array]:
    """Return the scales and minima of Q4_K and Q5_K: (blocks, 8) float32 each.

    Eight of 6 bits each: four scales and four minima in the low bits of eight bytes, the low
    halves of the others in the last four, their high bits in the two that are left of the eight.
    """
    one, two, low = _words(blocks[:, 4:16])
    scales = _bytes(one & _LOW6, low & _LOW4 | one >> 2 & _HIGH2)
    minima = _bytes(two & _LOW6, low >> 4 & _LOW4 | two >> 2 & _HIGH2)
    return (
        _half(blocks, 0) * scales.astype(np.float32),
        _half(blocks, 2) * minima.astype(np.float32),
    )


def _q4_k(blocks: Array) -> Parts:
    return Parts(_codes(blocks[:, 16:], 4, 32), *_k_scales(blocks))


def _q5_k(blocks: Array) -> Parts:
    codes = _fifth_bit(_codes(blocks[:, 48:], 4, 32), _codes(blocks[:, 16:48], 1, 32))
    return Parts(codes, *_k_scales(blocks))


def _q6_k(blocks: Array) -> Parts:
    codes = _fifth_bit(_codes(blocks[:, :128], 4, 64), _codes(blocks[:, 128:192], 2, 32))
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    return Parts(_less(codes, 32), _half(blocks, 208) * scales)


def _q8_k(blocks: Array) -> Parts:
    scale = blocks[:, :4].view("<f4").astype(np.float32)
    return Parts(blocks[:, 4:260].view(np.int8), scale)


_IQ4 = np.array((-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113), np.int8)
_FP4 = np.array((0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12), np.int8)  # doubled
_HALF_E8M0 = np.ldexp(np.float32(1), np.arange(256, dtype=np.int32) - 128)


def _iq4_nl(blocks: Array) -> Parts:
    return Parts(_IQ4[_codes(blocks[:, 2:], 4, 16)], _half(blocks, 0))


def _iq4_xs(blocks: Array) -> Parts:
    # Eight scales of 6 bits: low halves in the nibbles of four bytes, high bits in pairs of bits.
    low = np.stack((blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4), axis=2).reshape(-1, 8)
    pairs = _bits(blocks[:, 2:4]).reshape(-1, 8, 2)
    scales = low | pairs[:, :, 0] << 4 | pairs[:, :, 1] << 5
    scale = _half(blocks, 0) * _less(scales, 32).astype(np.float32)
    return Parts(_IQ4[_codes(blocks[:, 8:], 4, 16)], scale)


def _mxfp4(blocks: Array) -> Parts:
    return Parts(_FP4[_codes(blocks[:, 1:], 4, 16)], _HALF_E8M0[blocks[:, :1]])


def _trits(packed: Array, run: int, count: int) -> Array:
    """Return `count` base-3 digits of each byte, a fraction of 256, in the order of `_codes`."""
    width = packed.shape[1]
    powers = np.array((1, 3, 9, 27, 81)[:count], np.uint8).reshape(1, 1, count, 1)
    rest = packed.reshape(-1, width // run, 1, run) * powers
    digits = (rest.astype(np.uint16) * np.uint16(3) >> 8).astype(np.uint8)
    return digits.reshape(-1, width * count)


def _tq1_0(blocks: Array) -> Parts:
    digits = (
        _trits(blocks[:, :32], 32, 5),
        _trits(blocks[:, 32:48], 16, 5),
        _trits(blocks[:, 48:52], 4, 4),
    )
    return Parts(_less(np.concatenate(digits, axis=1), 1), _half(blocks, 52))


def _tq2_0(blocks: Array) -> Parts:
    return Parts(_less(_codes(blocks[:, :64], 2, 32), 1), _half(blocks, 64))


def _half_ue4m3(code: int) -> float:
    """Return half of 4 bits of exponent and 3 of mantissa; 0x7f is 0, as ggml has it."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code == 0x7F:
        return 0.0
    return (mantissa + 8 * (exponent > 0)) * 2.0 ** (max(exponent, 1) - 11)


_HALF_UE4M3 = np.array([_half_ue4m3(code) for code in range(256)], np.float32)


def _nvfp4(blocks: Array) -> Parts:
    return Parts(_FP4[_codes(blocks[:, 4:], 4, 8)], _HALF_UE4M3[blocks[:, :4]])


# --- Points of a grid, which have 4 or 8 neighbours at once ------------------------------------

# The sign bits of eight neighbours as factors. The eighth follows from the others: an even
# number of them is set.
_SIGNS = 1 - 2 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_SIGN_WORDS = _SIGNS.astype(np.int8).view(np.uint64).reshape(-1)
_EVEN = np.arange(128, dtype=np.uint8)
_EVEN = _EVEN | (np.unpackbits(_EVEN[:, None], axis=1).sum(axis=1, dtype=np.uint8) & 1) << 7


def _points(name: str, index: Array) -> Array:
    """Return the points of (blocks, n) numbers, as (blocks, n * width) int8."""
    found: Array = words(name)[index].view(np.int8)
    return found


def _signed(codes: Array, signs: Array) -> Array:
    """Return codes by the signs of (blocks, codes / 8) bytes."""
    codes *= _SIGN_WORDS[signs].view(np.int8)
    return codes


def _fields(packed: Array, shifts: tuple[int, ...], mask: int) -> Array:
    """Return bit fields of (blocks, n) integers, as (blocks, n * len(shifts)) of the same type."""
    by = np.array(shifts, packed.dtype)
    found: Array = packed[:, :, None] >> by & packed.dtype.type(mask)
    return found.reshape(len(packed), -1)


def _integers(part: Array, dtype: str) -> Array:
    found: Array = np.ascontiguousarray(part).view(dtype)
    return found


def _iq2_scale(blocks: Array, steps: Array) -> Array:
    scale: Array = _half(blocks, 0) * (np.float32(0.5) + steps.astype(np.float32))
    return scale * np.float32(0.25)


def _iq2_xxs(blocks: Array) -> Parts:
    pairs = _integers(blocks[:, 2:], "<u4")
    signs = _EVEN[_fields(pairs[:, 1::2], (0, 7, 14, 21), 127)]
    codes = _points("iq2_xxs", _integers(pairs[:, ::2], "u1"))
    return Parts(_signed(codes, signs), _iq2_scale(blocks, pairs[:, 1::2] >> 28))


def _iq2_xs(blocks: Array) -> Parts:
    both = _integers(blocks[:, 2:66], "<u2")
    codes = _signed(_points("iq2_xs", both & 511), _EVEN[both >> 9])
    return Parts(codes, _iq2_scale(blocks, _fields(blocks[:, 66:], (0, 4), 15)))


def _iq2_s(blocks: Array) -> Parts:
    high = _fields(blocks[:, 66:74], (0, 2, 4, 6), 3).astype(np.uint16)
    codes = _points("iq2_s", blocks[:, 2:34] | high << 8)
    scale = _iq2_scale(blocks, _fields(blocks[:, 74:], (0, 4), 15))
    return Parts(_signed(codes, blocks[:, 34:66]), scale)


def _iq3_xxs(blocks: Array) -> Parts:
    both = _integers(blocks[:, 66:], "<u4")
    signs = _EVEN[_fields(both, (0, 7, 14, 21), 127)]
    steps = np.float32(0.5) + (both >> 28).astype(np.float32)
    codes = _signed(_points("iq3_xxs", blocks[:, 2:66]), signs)
    return Parts(codes, _half(blocks, 0) * steps * np.float32(0.5))


def _iq3_s(blocks: Array) -> Parts:
    codes = _points("iq3_s", blocks[:, 2:66] | _bits(blocks[:, 66:74]).astype(np.uint16) << 8)
    steps = _fields(blocks[:, 106:], (0, 4), 15) * 2 + 1
    return Parts(_signed(codes, blocks[:, 74:106]), _half(blocks, 0) * steps.astype(np.float32))


def _iq1(low: Array, high: Array, is_less: Array, scale: Array) -> Parts:
    """Return points of -1, 0 and 1 with an eighth more or less, in eighths; `scale` is of wholes.

    An eighth of a scale is exact: scales are multiples of the smallest float16.
    """
    codes = _points("iq1_s", low | high.astype(np.uint16) << 8)
    codes <<= 3
    groups = codes.reshape(*is_less.shape, -1)
    groups += np.where(is_less, np.int8(-1), np.int8(1))[:, :, None]
    return Parts(codes, scale * np.float32(0.125))


def _iq1_s(blocks: Array) -> Parts:
    high = _integers(blocks[:, 34:], "<u2")
    steps = (high >> 12 & 7) * 2 + 1
    scale = _half(blocks, 0) * steps.astype(np.float32)
    return _iq1(blocks[:, 2:34], _fields(high, (0, 3, 6, 9), 7), high >> 15 != 0, scale)


def _iq1_m(blocks: Array) -> Parts:
    # The float16 is in the high nibbles of four words; their low bits are four scales each.
    parts = _integers(blocks[:, 48:], "<u2")
    nibbles = parts >> 12 << np.array((0, 4, 8, 12), np.uint16)
    half = np.bitwise_or.reduce(nibbles, axis=1).view(np.float16).astype(np.float32)
    steps = _fields(parts, (0, 3, 6, 9), 7) * 2 + 1
    scale = half[:, None] * steps.astype(np.float32)
    high = _fields(blocks[:, 32:48], (0, 4), 15)
    return _iq1(blocks[:, :32], high & 7, high & 8 != 0, scale)


PARTS: Mapping[str, Callable[[Array], Parts]] = {
    "q4_0": _q4_0,
    "q4_1": _q4_1,
    "q5_0": _q5_0,
    "q5_1": _q5_1,
    "q8_0": _q8_0,
    "q2_k": _q2_k,
    "q3_k": _q3_k,
    "q4_k": _q4_k,
    "q5_k": _q5_k,
    "q6_k": _q6_k,
    "q8_k": _q8_k,
    "iq4_nl": _iq4_nl,
    "iq4_xs": _iq4_xs,
    "tq1_0": _tq1_0,
    "tq2_0": _tq2_0,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
    "iq1_s": _iq1_s,
    "iq1_m": _iq1_m,
    "iq2_xxs": _iq2_xxs,
    "iq2_xs": _iq2_xs,
    "iq2_s": _iq2_s,
    "iq3_xxs": _iq3_xxs,
    "iq3_s": _iq3_s,
}
