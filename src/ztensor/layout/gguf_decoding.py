"""Blocks of ggml's types to floats: what each of their bytes means.

Every type's function takes (blocks, bytes) apart into small integers and what they are scaled by;
`fill` does the rest. The order of operations is that of ggml and of the package `gguf`, so that
floats are the same bit for bit. `PARTS` is the table; blocks of a type that is not in it are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.layout.base import Array


class Parts(NamedTuple):
    """Some blocks, taken apart: an element is `code * scale`, and perhaps the offset applied.

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


# Four bytes at once, in words: what a shift moves from one byte to the next is masked.
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
}
