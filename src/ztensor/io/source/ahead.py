"""Prefetch for sources with slow requests.

A caller that reads components in order, to load, verify, convert or count them, reads each from its
first byte on. `AheadSource` knows the extents of components. When a read begins at the start of a
component it fetches all of that; when components are read in order it also fetches the next ones,
more each time, up to a window. A read of a part of a component fetches that part alone.

Long encoded components are read more than once (a digest, then frames); each is kept in a temporary
file meanwhile.
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

_HEAD_BYTES = 4 << 10  # most bytes of a head; a longer one is read alone
_AT_ONCE = 32  # heads in one go, if they are far apart
_NEAR_BYTES = 8 << 20  # or all heads in this many bytes, which are one request
_MOST = 4096  # heads in one go
_WINDOW_BYTES = 32 << 20
_FIRST_BYTES = 2 << 20  # the first prefetch when components are read in order
_GROWTH = 4
_GAP_BYTES = 256 << 10  # shorter gaps between components are fetched with them
_KEPT = 2  # windows, since threads that share the work are at different places


class Extents(NamedTuple):
    """Disjoint extents of components, ascending.

    Attributes:
        starts: (count,) int64, offsets of the first bytes.
        stops: (count,) int64, offsets behind the last bytes.
        is_encoded: (count,) bool, whether the component is read more than once.
    """

    starts: np.ndarray[Any, np.dtype[np.int64]]
    stops: np.ndarray[Any, np.dtype[np.int64]]
    is_encoded: np.ndarray[Any, np.dtype[np.bool_]]


def extents_of(offsets: Any, lengths: Any, is_encoded: Any) -> Extents:
    """Return the extents of components in any order; overlapping ones become one.

    Args:
        offsets: (count,) integers, offsets of the first bytes.
        lengths: (count,) integers, in bytes.
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
    """Chunks of a source that were fetched in one go.

    Attributes:
        starts: offsets of the chunks, ascending.
        chunks: their bytes, in memory or in a temporary file.
    """

    starts: list[int]
    chunks: list[Source]

    @classmethod
    def fetched(cls, source: Source, starts: list[int], lengths: list[int]) -> _Window:
        memory = [new_bytes(length) for length in lengths]
        source.read_many(list(zip(starts, memory, strict=True)))
        return cls(starts, [MemorySource(chunk) for chunk in memory])

    def copy(self, offset: int, destination: memoryview) -> int:
        """Fill the beginning of `destination` with fetched bytes; return their number."""
        number = bisect.bisect_right(self.starts, offset) - 1
        within = offset - self.starts[number]
        if number < 0 or within >= self.chunks[number].size:
            return 0
        count = min(destination.nbytes, self.chunks[number].size - within)
        self.chunks[number].read_into(within, destination[:count])
        return count


class AheadSource(Source):
    """A source that prefetches; safe to use from several threads.

    Args:
        source: the source to read; it is closed with this one.
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
        self._next = -1  # the number of the next extent, if they are read in order
        self._windows: list[_Window] = []
        self._budget = 0
        self._walks = 0

    def expect(self, find: Callable[[], tuple[Any, Any, Any]], *, is_patient: bool = False) -> None:
        """Set the extents of components; before, nothing is prefetched.

        Args:
            find: returns the arguments of `extents_of`; called when the first component is read.
            is_patient: whether only heads of components are prefetched until `walked` is entered:
                earlier reads may be of headers in front of components.
        """
        self._find, self._is_patient = find, is_patient
        vars(self).pop("_extents", None)

    @cached_property
    def _extents(self) -> Extents:
        return extents_of(*self._find())

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            SourceError: a request failed.
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
        """Fill several buffers; nothing is prefetched. See `Source`."""
        self.source.read_many(pieces)

    @contextlib.contextmanager
    def walked(self) -> Iterator[None]:
        """Prefetch full windows while all components are read in their order."""
        self._walks += 1
        try:
            yield
        finally:
            self._walks -= 1

    def _copy_head(self, offset: int, destination: memoryview) -> bool:
        """Fill with a head, and prefetch the next ones if heads are read in order."""
        starts, stops, _ = self._extents
        number = int(np.searchsorted(starts, offset))
        is_head = number < len(starts) and starts[number] == offset
        if is_head and number == self._next and destination.nbytes <= _HEAD_BYTES:
            near = int(np.searchsorted(starts, starts[number] + _NEAR_BYTES))
            self._next = stop = min(max(number + _AT_ONCE, near), number + _MOST, len(starts))
            heads = starts[number:stop]
            lengths = np.minimum(stops[number:stop] - heads, _HEAD_BYTES)
            self._windows = [_Window.fetched(self.source, heads.tolist(), lengths.tolist())]
        count = self._copy(offset, destination)
        if is_head and not count:
            self._next = number + 1
        return count == destination.nbytes

    def _copy(self, offset: int, destination: memoryview) -> int:
        """Fill the beginning of `destination` from the windows; return the number of bytes."""
        counts = (window.copy(offset, destination) for window in self._windows)
        return next(filter(None, counts), 0)

    def _fetch(self, offset: int, destination: memoryview) -> int:
        """Fill `destination` and return its length, or fetch a window and return 0."""
        starts, stops, encoded = self._extents
        number = int(np.searchsorted(starts, offset, "right")) - 1
        start, stop = (int(starts[number]), int(stops[number])) if number >= 0 else (0, 0)
        goes_on = number == self._next or (self._walks > 0 and offset == start)
        if offset >= stop or (offset != start and not goes_on):
            self.source.read_into(offset, destination)  # between components, or a part of one
            return destination.nbytes
        if encoded[number] and stop - start > _WINDOW_BYTES:
            self._keep_in_file(start, stop)
            self._next = number + 1
            return 0
        self._budget = min(_WINDOW_BYTES, self._budget * _GROWTH or _FIRST_BYTES) if goes_on else 0
        if self._walks:
            self._budget = _WINDOW_BYTES
        if not self._budget and not encoded[number] and stop - offset <= destination.nbytes:
            self.source.read_into(offset, destination)  # without a copy
            self._next = int(np.searchsorted(stops, offset + destination.nbytes, "right"))
            return destination.nbytes
        self._fetch_window(
            number, offset, offset + max(self._budget, min(_WINDOW_BYTES, stop - offset))
        )
        return 0

    def _fetch_window(self, number: int, offset: int, end: int) -> None:
        """Fetch an extent from an offset in it on, and the following extents up to `end`."""
        starts, stops, encoded = self._extents
        self._next = behind = max(number, int(np.searchsorted(stops, end, "right")))
        # The last one is cut at `end`, unless it is encoded, and so read again from its beginning.
        is_cut = behind < len(starts) and starts[behind] < end and not encoded[behind]
        behind += bool(is_cut or behind == number)
        lows = np.maximum(starts[number:behind], offset)
        highs = np.minimum(stops[number:behind], end)
        gaps = np.flatnonzero(lows[1:] - highs[:-1] > _GAP_BYTES)
        starts, stops = lows[np.append(0, gaps + 1)], highs[np.append(gaps, -1)]
        self._windows = self._windows[-_KEPT + 1 :]  # the memory of the oldest is free before
        lengths = (stops - starts).tolist()
        self._windows.append(_Window.fetched(self.source, starts.tolist(), lengths))

    def _keep_in_file(self, start: int, stop: int) -> None:
        """Fetch a long extent into a temporary file, removed with its last reference."""
        self._windows = []
        with tempfile.TemporaryFile() as file:
            for piece in Range(self.source, start, stop - start).pieces():
                file.write(piece)
            file.flush()
            kept = Descriptor(os.dup(file.fileno()))
        self._windows.append(_Window([start], [FileSource(self.name, opener=lambda _: kept)]))

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise if the source changed since it was opened; see `Source`."""
        self.source.require_unchanged(ask=ask)

    def close(self) -> None:
        """Drop prefetched bytes, and close the source. May be called again."""
        with self._lock:
            self._windows = []
        self.source.close()
