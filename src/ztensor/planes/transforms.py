"""Divide elements into planes, one per byte of the element, and join them again.

| transform | plane 0 | plane 1 | plane k |
| --- | --- | --- | --- |
| `BYTES` | the most significant byte | the next one | ... down to the least significant byte |
| `FLOAT` | bits 14 to 7 of the top 16 | the sign, then bits 6 to 0 of the top 16 | as `BYTES` |

`FLOAT` moves the sign of bfloat16 and float32 behind the exponent, which then fills plane 0 alone.
All work is done in units of at least 16 bits, in memory that stays in the processor's cache: single
bytes take three times, new memory for each block twice the time.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

BYTES, FLOAT = 1, 2
WIDTHS = {BYTES: (1, 2, 4, 8), FLOAT: (2, 4, 8)}

Array = np.ndarray[Any, np.dtype[Any]]

_PAIR, _QUAD = np.dtype("<u2"), np.dtype("<u4")
_SIGN_AND_MANTISSA = 0x807F  # of the top 16 bits
_USUAL_ELEMENTS = 1 << 17
_KEPT = 16  # memories of the usual size: 0.8 MiB each


class Scratch:
    """Memory for the intermediate values of one block.

    Args:
        count: the most elements of the block.
    """

    def __init__(self, count: int) -> None:
        self.first, self.second = np.empty((2, count), _PAIR)
        self.planes = np.empty((2, count), np.uint8)


_idle: collections.deque[Scratch] = collections.deque(maxlen=_KEPT)


@contextlib.contextmanager
def scratch(count: int) -> Iterator[Scratch]:
    """Yield memory for a block of `count` elements; it is kept for the next block."""
    if count > _USUAL_ELEMENTS:
        yield Scratch(count)
        return
    try:
        memory = _idle.pop()  # atomic: two threads never get the same one
    except IndexError:
        memory = Scratch(_USUAL_ELEMENTS)
    yield memory
    _idle.append(memory)


def divide(block: memoryview, transform: int, width: int, memory: Scratch) -> Iterator[Array]:
    """Yield the planes of a block, (elements,) uint8, each valid until the second next.

    Args:
        block: whole elements of `width` bytes, little-endian.
        transform: `BYTES` or `FLOAT`.
        width: bytes of an element.
        memory: scratch memory.
    """
    if width == 1:
        yield np.frombuffer(block, np.uint8)
        return
    count = len(block) // width
    first, second, (upper, lower) = memory.first[:count], memory.second[:count], memory.planes
    upper, lower = upper[:count], lower[:count]
    pairs = np.frombuffer(block, _PAIR).reshape(count, width // 2)
    for lane in reversed(range(width // 2)):
        pair = pairs[:, lane]
        if width > 2:
            first[:] = pair
            pair = first
        if transform == FLOAT and lane == width // 2 - 1:
            np.right_shift(pair, 7, out=second)
            upper[:] = second
            np.bitwise_and(pair, _SIGN_AND_MANTISSA, out=second)
            np.right_shift(second, 8, out=first)
            np.bitwise_or(first, second, out=first)
            lower[:] = first
        else:
            np.right_shift(pair, 8, out=second)
            upper[:], lower[:] = second, pair
        yield upper
        yield lower


def join(
    planes: Iterator[Array], transform: int, width: int, destination: memoryview, memory: Scratch
) -> None:
    """Fill a block from its planes.

    Args:
        planes: (elements,) uint8 each, one per byte of the element.
        transform: `BYTES` or `FLOAT`.
        width: bytes of an element.
        destination: the block, flat, bytes, writable.
        memory: scratch memory.
    """
    if width == 1:
        np.frombuffer(destination, np.uint8)[:] = next(planes)
        return
    count = len(destination) // width
    pairs = np.frombuffer(destination, _PAIR).reshape(count, width // 2)
    first, second = memory.first[:count], memory.second[:count]
    for lane in reversed(range(width // 2)):
        target = pairs[:, 0] if width == 2 else first
        is_top = transform == FLOAT and lane == width // 2 - 1
        _pair(next(planes), next(planes), target, second, is_top=is_top)
        if width == 4:  # contiguous memory is faster than every second pair
            quads = np.frombuffer(destination, _QUAD)
            if lane:
                quads[:] = first
                np.left_shift(quads, 16, out=quads)
            else:
                np.bitwise_or(quads, first, out=quads)
        elif width > 4:
            pairs[:, lane] = first


def _pair(high: Array, low: Array, target: Array, second: Array, *, is_top: bool) -> None:
    """Fill `target`, (elements,) of 16 bits, from two planes; `second` is scratch memory."""
    if is_top:
        # The sign is the top bit of `low`: as a signed byte it extends to bit 15.
        target.view("<i2")[:] = low.view(np.int8)
        np.bitwise_and(target, _SIGN_AND_MANTISSA, out=target)
    else:
        target[:] = low
    second[:] = high
    np.left_shift(second, 7 if is_top else 8, out=second)
    np.bitwise_or(target, second, out=target)
