"""Blobs of one file that overlap: copied once, as a whole, and shared again in the new file."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from ztensor.spec.model.rules import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Iterable


class Overlaps:
    """Runs of stored bytes that several blobs share in part.

    Only blobs that begin as ours do, at a multiple of 64, can keep their place in a run. Blobs that
    are equal need none of this, nor those beside which nothing lies.

    Args:
        blobs: offset and length of each, in any order.
    """

    def __init__(self, blobs: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        start = stop = 0
        is_shared = False
        found = sorted({blob for blob in blobs if blob[1] and not blob[0] % ALIGNMENT})
        for offset, length in found:
            if offset < stop:
                stop, is_shared = max(stop, offset + length), True
                continue
            if is_shared:
                self._starts.append(start)
                self._stops.append(stop)
            start, stop, is_shared = offset, offset + length, False
        if is_shared:
            self._starts.append(start)
            self._stops.append(stop)

    def around(self, offset: int, length: int) -> tuple[int, int] | None:
        """Return offset and length of the run a blob lies in, or None where it lies in none."""
        at = bisect.bisect_right(self._starts, offset) - 1
        if at < 0 or offset % ALIGNMENT or offset + length > self._stops[at]:
            return None
        return self._starts[at], self._stops[at] - self._starts[at]
