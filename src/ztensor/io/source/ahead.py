"""Reading ahead: for sources that cost much for each request.

A caller that reads components one after the other, to load, verify, convert or count them, reads
each from its first byte on. `AheadSource` knows where components begin and end. It brings the one
that is begun as a whole, and those behind it as well once they are read in order: more each time,
up to a window. A caller that reads a part of a component asks what it reads from, which brings that
part alone.

Large encoded components are gone through more than once (a digest, then frames): such a one waits
in a temporary file.
"""

from __future__ import annotations

import bisect
import contextlib
import os
import tempfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.io.source.base import Range, Source
from ztensor.io.source.local import Descriptor, FileSource
from ztensor.io.source.memory import MemorySource
from ztensor.locks import Lock, cached_property

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_HEAD_BYTES = 4 << 10  # of each; a longer one is read alone
_AT_ONCE = 32  # heads that lie far from one another
_NEAR_BYTES = 8 << 20  # or all in so many bytes, which are one request
_MOST = 4096
_WINDOW_BYTES = 32 << 20
_FIRST_BYTES = 2 << 20  # the first time a reader goes on to the next component
_GROWTH = 4
_GAP_BYTES = 256 << 10  # between components: shorter ones are read, too
_KEPT = 2  # windows: threads that share the work are not all at the same place


class Extents(NamedTuple):
    """Where components lie, in the order of the file, none reaching into the next.

    Attributes:
        starts: (count,) int64, offsets of their first bytes.
        stops: (count,) int64, offsets behind their last ones.
        is_encoded: (count,) bool, whether they are read more than once.
    """

    starts: np.ndarray[Any, np.dtype[np.int64]]
    stops: np.ndarray[Any, np.dtype[np.int64]]
    is_encoded: np.ndarray[Any, np.dtype[np.bool_]]


def extents_of(offsets: Any, lengths: Any, is_encoded: Any) -> Extents:
    """Return the extents of components in any order; those that share bytes become one.

    Args:
        offsets: (count,) of their first bytes.
        lengths: (count,) in bytes.
        is_encoded: (count,) bool.
    """
    offsets, lengths = np.asarray(offsets, np.int64), np.asarray(lengths, np.int64)
    order = np.argsort(offsets, kind="stable")
    order = order[lengths[order] > 0]
    starts, stops = offsets[order], offsets[order] + lengths[order]
    encoded = np.asarray(is_encoded, np.bool_)[order]
    if not len(order):
        return Extents(starts, stops, encoded)
    reach = np.maximum.accumulate(stops)
    first = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), starts[1:] >= reach[:-1])))
    return Extents(
        starts[first], np.maximum.reduceat(stops, first), np.logical_or.reduceat(encoded, first)
    )


class _Window(NamedTuple):
    """What was brought of a source in one go.

    Attributes:
        starts: where its pieces begin, rising.
        pieces: their bytes, in memory or in a temporary file.
    """

    starts: list[int]
    pieces: list[Source]

    @classmethod
    def brought(cls, source: Source, starts: list[int], lengths: list[int]) -> _Window:
        memory = [new_bytes(length) for length in lengths]
        source.read_many(list(zip(starts, memory, strict=True)))
        return cls(starts, [MemorySource(one) for one in memory])

    def copy(self, offset: int, destination: memoryview) -> int:
        """Fill the beginning of `destination` with what there is, and return how much."""
        number = bisect.bisect_right(self.starts, offset) - 1
        within = offset - self.starts[number]
        if number < 0 or within >= self.pieces[number].size:
            return 0
        count = min(destination.nbytes, self.pieces[number].size - within)
        self.pieces[number].read_into(within, destination[:count])
        return count


class AheadSource(Source):
    """A source that brings what is read next; safe to use from several threads.

    Args:
        source: what it reads from; it is closed with this.
    """

    prefers_long_reads = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name
        self.path = source.path
        self.size = source.size
        self.remote = source.remote
        self._find: Callable[[], tuple[Any, Any, Any]] = lambda: ([], [], [])
        self._is_patient = False
        self._lock = Lock()
        self._next = -1  # the number of the extent that is read next where all are
        self._windows: list[_Window] = []
        self._budget = 0
        self._walks = 0

    def expect(self, find: Callable[[], tuple[Any, Any, Any]], *, is_patient: bool = False) -> None:
        """Say where components lie; before, nothing is brought ahead.

        Args:
            find: gives what `extents_of` takes, when the first component is read.
            is_patient: whether nothing but their heads is brought ahead before somebody goes
                through all of them: what is read before may be what stands in front of components.
        """
        self._find, self._is_patient = find, is_patient
        vars(self).pop("_extents", None)

    @cached_property
    def _extents(self) -> Extents:
        return extents_of(*self._find())

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            SourceError: the bytes could not be read.
        """
        if self._is_patient and not self._walks:
            with self._lock:
                is_filled = self._copy_head(offset, destination)
            if not is_filled:
                self.source.read_into(offset, destination)
            return
        with self._lock:
            done = 0
            while done < destination.nbytes:
                rest = destination[done:]
                done += self._copy(offset + done, rest) or self._fetch(offset + done, rest)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory; nothing else is read. See `Source`."""
        self.source.read_many(pieces)

    @contextlib.contextmanager
    def walked(self) -> Iterator[None]:
        """Say that meanwhile all components are read in their order: windows are whole at once."""
        self._walks += 1
        try:
            yield
        finally:
            self._walks -= 1

    def _copy_head(self, offset: int, destination: memoryview) -> bool:
        """Fill with a head, if it is one; those behind come with it once they are read in order."""
        starts, stops, _ = self._extents
        number = int(np.searchsorted(starts, offset))
        is_head = number < len(starts) and starts[number] == offset
        if is_head and number == self._next and destination.nbytes <= _HEAD_BYTES:
            near = int(np.searchsorted(starts, starts[number] + _NEAR_BYTES))
            self._next = stop = min(max(number + _AT_ONCE, near), number + _MOST, len(starts))
            heads = starts[number:stop]
            lengths = np.minimum(stops[number:stop] - heads, _HEAD_BYTES)
            self._windows = [_Window.brought(self.source, heads.tolist(), lengths.tolist())]
        count = self._copy(offset, destination)
        if is_head and not count:
            self._next = number + 1
        return count == destination.nbytes

    def _copy(self, offset: int, destination: memoryview) -> int:
        """Fill the beginning of `destination` with what was brought, and return how much."""
        counts = (window.copy(offset, destination) for window in self._windows)
        return next(filter(None, counts), 0)

    def _fetch(self, offset: int, destination: memoryview) -> int:
        """Fill `destination` and return its length, or bring more than that and return 0."""
        starts, stops, encoded = self._extents
        number = int(np.searchsorted(starts, offset, "right")) - 1
        start, stop = (int(starts[number]), int(stops[number])) if number >= 0 else (0, 0)
        goes_on = number == self._next or (self._walks > 0 and offset == start)
        if offset >= stop or (offset != start and not goes_on):
            self.source.read_into(offset, destination)  # no component, or a part of one
            return destination.nbytes
        if encoded[number] and stop - start > _WINDOW_BYTES:
            self._wait(start, stop)
            self._next = number + 1
            return 0
        self._budget = min(_WINDOW_BYTES, self._budget * _GROWTH or _FIRST_BYTES) if goes_on else 0
        if self._walks:
            self._budget = _WINDOW_BYTES
        if not self._budget and not encoded[number] and stop - offset <= destination.nbytes:
            self.source.read_into(offset, destination)  # into its place, neighbours perhaps too
            self._next = int(np.searchsorted(stops, offset + destination.nbytes, "right"))
            return destination.nbytes
        self._bring(number, offset, offset + max(self._budget, min(_WINDOW_BYTES, stop - offset)))
        return 0

    def _bring(self, number: int, offset: int, end: int) -> None:
        """Read a window from an offset in an extent on, and the extents behind it up to `end`."""
        starts, stops, encoded = self._extents
        self._next = behind = max(number, int(np.searchsorted(stops, end, "right")))
        # One that reaches beyond is cut, unless it would be read once more from its beginning.
        is_cut = behind < len(starts) and starts[behind] < end and not encoded[behind]
        behind += bool(is_cut or behind == number)
        lows = np.maximum(starts[number:behind], offset)
        highs = np.minimum(stops[number:behind], end)
        gaps = np.flatnonzero(lows[1:] - highs[:-1] > _GAP_BYTES)
        starts, stops = lows[np.append(0, gaps + 1)], highs[np.append(gaps, -1)]
        self._windows = self._windows[-_KEPT + 1 :]  # the oldest is given back before
        lengths = (stops - starts).tolist()
        self._windows.append(_Window.brought(self.source, starts.tolist(), lengths))

    def _wait(self, start: int, stop: int) -> None:
        """Bring a long extent into a temporary file, which goes with its last reference."""
        self._windows = []
        with tempfile.TemporaryFile() as file:
            for piece in Range(self.source, start, stop - start).pieces():
                file.write(piece)
            file.flush()
            kept = Descriptor(os.dup(file.fileno()))
        self._windows.append(_Window([start], [FileSource(self.name, opener=lambda _: kept)]))

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise where the source is no longer what was opened; see `Source`."""
        self.source.require_unchanged(ask=ask)

    def close(self) -> None:
        """Forget what was read ahead, and close the source. May be called again."""
        with self._lock:
            self._windows = []
        self.source.close()
