"""Plan the requests that fill several buffers, and scatter the bytes of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import collections
    from collections.abc import Iterable, Sequence

PART_BYTES = 8 << 20  # the longest request
GAP_BYTES = 1 << 20  # a gap up to this length costs less than another request
_FEW = 8  # a run this many times longer than the wanted bytes is mostly gaps


class Piece(NamedTuple):
    """One request: the range [start, stop), and its targets as (offset, memory)."""

    start: int
    stop: int
    targets: list[tuple[int, memoryview]]


def scatter(data: Any, start: int, targets: collections.deque[tuple[int, memoryview]]) -> None:
    """Copy the object's bytes from `start` into their targets; drop targets that are full."""
    stop = start + len(data)
    remaining: list[tuple[int, memoryview]] = []
    while targets and targets[0][0] < stop:
        offset, memory = targets.popleft()
        low, high = max(start, offset), min(stop, offset + memory.nbytes)
        if high > low:
            # NumPy lets other threads run meanwhile.
            np.copyto(
                np.frombuffer(memory, np.uint8)[low - offset : high - offset],
                data[low - start : high - start],
            )
        if offset + memory.nbytes > stop:
            remaining.append((offset, memory))
    targets.extendleft(reversed(remaining))


def plan(parts: Sequence[tuple[int, memoryview]]) -> Iterable[Piece]:
    """Yield the requests that fill several buffers.

    Ranges with at most `GAP_BYTES` between them share a request. No request is longer than
    `PART_BYTES`, or twice that if most of its bytes are not needed.

    Args:
        parts: (offset in the object, memory); they may overlap.
    """
    run: list[tuple[int, memoryview]] = []
    end = 0
    for offset, memory in sorted(parts, key=lambda part: part[0]):
        if run and offset > end + GAP_BYTES:
            yield from _split(run, end)
            run = []
        run.append((offset, memory))
        end = max(end, offset + memory.nbytes) if len(run) > 1 else offset + memory.nbytes
    if run:
        yield from _split(run, end)


def _split(run: list[tuple[int, memoryview]], end: int) -> Iterable[Piece]:
    start, first, most = run[0][0], 0, PART_BYTES
    if _FEW * sum(memory.nbytes for _, memory in run) < end - start:
        most *= 2
    while start < end:
        stop = min(end, start + most)
        targets = []
        for offset, memory in run[first:]:
            if offset >= stop:
                break
            low, high = max(offset, start), min(offset + memory.nbytes, stop)
            if high > low:
                targets.append((low, memory[low - offset : high - offset]))
        while first < len(run) and run[first][0] + run[first][1].nbytes <= stop:
            first += 1
        if targets:
            # A gap at either end is not requested.
            low = targets[0][0]
            high = max(offset + memory.nbytes for offset, memory in targets)
            yield Piece(low, high, targets)
        start = stop
