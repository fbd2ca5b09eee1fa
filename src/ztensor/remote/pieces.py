"""Which requests fill several pieces of memory, and where the bytes of an answer go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import collections
    from collections.abc import Iterable, Sequence

PART_BYTES = 8 << 20  # of one request at most
GAP_BYTES = 1 << 20  # between two ranges that cost less to read than another request
_FEW = 8  # times the bytes that are wanted: a run this long is mostly gaps


class Piece(NamedTuple):
    """One request: bytes from `start` to `stop`, and where they go: (offset, memory)."""

    start: int
    stop: int
    targets: list[tuple[int, memoryview]]


def scatter(data: Any, start: int, targets: collections.deque[tuple[int, memoryview]]) -> None:
    """Copy bytes that lie at `start` to where they go; targets that are full are taken away."""
    stop = start + len(data)
    later: list[tuple[int, memoryview]] = []
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
            later.append((offset, memory))
    targets.extendleft(reversed(later))


def plan(parts: Sequence[tuple[int, memoryview]]) -> Iterable[Piece]:
    """Yield the requests that fill several pieces of memory.

    Ranges with at most `GAP_BYTES` between them are read at once, and no request is longer than
    `PART_BYTES`; twice that where most of it is thrown away.

    Args:
        parts: where each begins in the object, and its memory; they may overlap.
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
            # Bytes of a gap at either end are not asked for.
            low = targets[0][0]
            high = max(offset + memory.nbytes for offset, memory in targets)
            yield Piece(low, high, targets)
        start = stop
