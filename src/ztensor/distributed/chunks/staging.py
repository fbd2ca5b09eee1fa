"""Memory for the bytes of an array in C's order, whatever its strides."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.ext import empty_array
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


BLOCK_BYTES = 8 << 20
# Read and hashed at once: longer pieces leave the core's cache before they are hashed.
_PIECE_BYTES = 2 << 20
# Read into a buffer if the target is not contiguous.
_STAGED_BYTES = 1 << 20


def pieces_of(target: Array, start: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield memory for the bytes of an array in C's order; the caller fills each piece in turn.

    Args:
        target: the array. If it is not contiguous, pieces are buffers, copied into it before the
            next piece is yielded.
        start: offset of its first byte.

    Yields:
        Offset and memory of a piece.
    """
    if target.flags.c_contiguous:
        flat = target.reshape(-1).view(np.uint8).data
        for at in range(0, len(flat), _PIECE_BYTES):
            yield start + at, flat[at : at + _PIECE_BYTES]
        return
    row = target[0].nbytes
    if row > _STAGED_BYTES:
        for number, part in enumerate(target):
            yield from pieces_of(part, start + number * row)
        return
    count = max(1, _STAGED_BYTES // max(row, 1))
    staged = empty_array((min(count, len(target)), *target.shape[1:]), target.dtype)
    for first in range(0, len(target), count):
        part = target[first : first + count]
        block = staged[: len(part)]
        yield start + first * row, block.reshape(-1).view(np.uint8).data
        part[...] = block
