"""Memory for bytes in order that belong to an array of any strides: its own, or ours between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.ext import empty_array
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


BLOCK_BYTES = 8 << 20
# Read and hashed at once: what is longer has left the core's cache by the time it is hashed.
_PIECE_BYTES = 2 << 20
# Read into memory of ours where the place it belongs to is not one run of bytes.
_STAGED_BYTES = 1 << 20


def pieces_of(target: Array, start: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield memory for the bytes of an array in C's order, which has them when all are filled.

    Args:
        target: the array; where it is no run of bytes, a piece is memory of ours, and copied from
            when the next is asked for.
        start: where its bytes begin.

    Yields:
        Where a piece begins, and its memory.
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
