"""What stands in front of components, asked for several at once: for formats that say it there.

A list of what is in an archive takes the head of each member. One after the other, each would wait
for the one before, and most of that is the way to a server and back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.io.source.base import Source
    from ztensor.io.source.pieces import Extents

_HEAD_BYTES = 4 << 10  # of each; a longer one is read by who asks
_AT_ONCE = 32  # heads that lie far from one another
_NEAR_BYTES = 8 << 20  # or all in so many bytes, which are one request
_MOST = 4096


class Heads:
    """Reads heads, those behind as well once they are read in order; thread-safe.

    Args:
        source: where they lie.
        find: gives the extents that begin with them, when the first is read.
    """

    def __init__(self, source: Source, find: Callable[[], Extents]) -> None:
        self._source = source
        self._find: Callable[[], Extents] | None = find
        self._starts = self._stops = np.empty(0, np.int64)
        self._kept: dict[int, memoryview] = {}
        self._next = -1
        self._lock = Lock()

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            SourceError: the bytes could not be read.
        """
        with self._lock:
            if self._find is not None:
                extents, self._find = self._find(), None
                self._starts, self._stops = extents.starts, extents.stops
            number = int(np.searchsorted(self._starts, offset))
            if number < len(self._starts) and self._starts[number] == offset:
                if number == self._next and destination.nbytes <= _HEAD_BYTES:
                    self._bring(number)
                elif number not in self._kept:
                    self._next = number + 1
                kept = self._kept.get(number)
                if kept is not None and destination.nbytes <= kept.nbytes:
                    destination[:] = kept[: destination.nbytes]
                    return
        self._source.read_into(offset, destination)

    def _bring(self, first: int) -> None:
        """Read a head and those behind it."""
        near = int(np.searchsorted(self._starts, self._starts[first] + _NEAR_BYTES))
        stop = min(max(first + _AT_ONCE, near), first + _MOST, len(self._starts))
        starts = self._starts[first:stop]
        lengths = np.minimum(self._stops[first:stop] - starts, _HEAD_BYTES)
        heads = [new_bytes(length) for length in lengths.tolist()]
        self._source.read_many(list(zip(starts.tolist(), heads, strict=True)))
        self._kept = dict(zip(range(first, stop), heads, strict=True))
        self._next = stop
