"""Rows of an encoded component: which runs of it are decoded for them, and what is kept of that.

An encoding says where its stored bytes may be entered: `Runs`, for zstd its frames. A reader keeps
the runs of what it was asked for and what it decoded last, so that one row after another costs no
more than its own run, whoever asks for it.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ztensor.buffers import empty_array, new_bytes
from ztensor.locks import Lock
from ztensor.threads import run_jobs
from ztensor.threads.sharing import thread_count

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Hashable, Iterable, Iterator

    from ztensor.io.source.base import AtOnce, Range
    from ztensor.limits import Limits
    from ztensor.spec.encoding.base import Encoding, Runs
    from ztensor.spec.layout.base import Array

    # A run, and what is wanted of it: where in it each piece begins, and what is filled.
    _Work = tuple[int, list[tuple[int, memoryview]]]

_T = TypeVar("_T")

WHOLE_BYTES = 64 << 20  # decoded, of a component that is read and kept whole for any part of it
KEPT_BYTES = 4 << 20  # decoded bytes that a reader keeps: some frames of rows
KEPT_TABLE_BYTES = 16 << 20  # of what `Runs` take: 64 GiB of tensors in frames of 64 KiB
_WORTH_BYTES = 2 << 20  # decoded: a millisecond or two of work; starting threads takes 0.2
_BATCH_BYTES = 512 << 10  # decoded by a thread at a time
_AT_ONCE_BYTES = 32 << 20  # stored, that are read at once where requests are dear


class Recent(Generic[_T]):
    """Values that were used last, so many bytes of them and one at least; safe to share.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: collections.OrderedDict[Hashable, tuple[_T, int]] = collections.OrderedDict()
        self._nbytes = 0

    def get(self, key: Hashable) -> _T | None:
        """Return a value that was kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def keep(self, key: Hashable, value: _T, nbytes: int) -> None:
        """Keep a value, and drop those that were not asked for longest."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, nbytes
                self._nbytes += nbytes
            while self._nbytes > self._most and len(self._kept) > 1:
                self._nbytes -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._kept.clear()
            self._nbytes = 0


class RunCache:
    """What a reader found out about runs, and the runs it decoded last; safe to share.

    Attributes:
        decoded: runs by component and number.
    """

    def __init__(self) -> None:
        self._tables: Recent[Runs] = Recent(KEPT_TABLE_BYTES)
        self.decoded: Recent[Array] = Recent(KEPT_BYTES)

    def table(self, key: Hashable, find: Callable[[], Runs | None]) -> Runs | None:
        """Return the runs of a component, which `find` finds the first time."""
        runs = self._tables.get(key) or find()
        if runs is not None:
            self._tables.keep(key, runs, 2 * len(runs.decoded) * runs.decoded.itemsize)
        return runs

    def clear(self) -> None:
        """Forget all."""
        self._tables.clear()
        self.decoded.clear()


class PartReader:
    """Reads parts of the stored bytes of one raw component.

    Args:
        stored: all of them.
    """

    def __init__(self, stored: Range) -> None:
        self._stored = stored

    def read(self, parts: Iterable[tuple[int, memoryview]], at_once: AtOnce) -> None:
        """Ask for bytes: where in the component each piece begins, and what is filled.

        Raises:
            SourceError: they could not be read.
        """
        for offset, target in parts:
            at_once.add(self._stored.offset + offset, target)


class _Fetched:
    """Stored bytes of which some runs were read; the others are read when they are asked for.

    Args:
        stored: all of them.
        runs: by their offsets.
    """

    def __init__(self, stored: Range, runs: dict[int, memoryview]) -> None:
        self._stored = stored
        self.length: int = stored.length
        self._runs = runs
        self._starts = sorted(runs)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        number = bisect.bisect_right(self._starts, offset) - 1
        if number >= 0:
            start = self._starts[number]
            run = self._runs[start]
            if offset + length <= start + run.nbytes:
                return run[offset - start : offset - start + length]
        return self._stored.read(offset, length)


class RunReader:
    """Reads decoded bytes of one component, decoding only the runs they are in.

    Args:
        encoding: the component's.
        stored: its stored bytes.
        runs: its runs.
        limits: the caps in force.
        cache: the reader's.
        key: identifies the component in the cache.

    Attributes:
        decoded: where each run begins in the decoded bytes, and last where they end.
    """

    def __init__(
        self,
        encoding: Encoding,
        stored: Range,
        runs: Runs,
        limits: Limits,
        cache: RunCache,
        key: Hashable,
    ) -> None:
        self.decoded: array[int] = runs.decoded
        self._encoding = encoding
        self._range = stored
        self._stored: Range | _Fetched = stored
        self._starts: array[int] = runs.stored
        self._limits = limits
        self._cache = cache
        self._key = key

    def fetch(self, places: Iterable[tuple[int, int]], at_once: AtOnce) -> RunReader | None:
        """Ask for the runs that decoded bytes are in, to be read with others.

        Args:
            places: where the decoded bytes begin and end, in order.
            at_once: what reads the file.

        Returns:
            The same over these runs, to be used once they are read; None where they are too many
            to be held, or reads cost little.
        """
        if not self._is_fetched_at_once:
            return None
        runs: list[int] = []
        nbytes = behind = 0
        for begin, end in places:
            first = max(behind, bisect.bisect_right(self.decoded, begin) - 1)
            behind = max(first, bisect.bisect_left(self.decoded, end))
            nbytes += self._starts[behind] - self._starts[first]
            if nbytes > _AT_ONCE_BYTES:
                return None
            runs += range(first, behind)
        return self._over(runs, at_once)

    @property
    def _is_fetched_at_once(self) -> bool:
        """Return whether the runs that are wanted are asked for before one is decoded."""
        source = self._range.source
        is_exact = source.prefers_long_reads and source.exact() is source
        return is_exact and self._stored is self._range

    def _over(self, runs: Iterable[int], at_once: AtOnce) -> RunReader:
        """Return the same over runs of which those that were not kept are asked for."""
        read: dict[int, memoryview] = {}
        for run in runs:
            if self._cache.decoded.get((self._key, run)) is None:
                start = self._starts[run]
                read[start] = new_bytes(self._starts[run + 1] - start)
                at_once.add(self._range.offset + start, read[start])
        part = copy.copy(self)
        part._stored = _Fetched(self._range, read)
        return part

    def read(self, parts: Iterable[tuple[int, memoryview]], at_once: AtOnce) -> None:
        """Fill pieces of memory, each run decoded once and several at a time.

        Args:
            parts: where in the decoded bytes each piece begins, and what is filled.
            at_once: what reads the file; it waits for nothing now.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
            SourceError: they could not be read.
        """
        wanted: dict[int, list[tuple[int, memoryview]]] = {}
        for offset, target in parts:
            run, done = bisect.bisect_right(self.decoded, offset) - 1, 0
            while done < len(target):
                start = offset + done - self.decoded[run]
                piece = target[done : done + self.decoded[run + 1] - self.decoded[run] - start]
                wanted.setdefault(run, []).append((start, piece))
                done += len(piece)
                run += 1
        work = list(wanted.items())
        if not self._is_fetched_at_once:
            self._share_out(work)
            return
        for some in self._batches(work):
            fetched = self._over((run for run, _ in some), at_once)
            at_once.end()
            fetched._share_out(some)

    def _batches(self, work: Iterable[_Work]) -> Iterator[list[_Work]]:
        """Yield work on runs, so many at a time as are read at once."""
        some: list[_Work] = []
        nbytes = 0
        for run, pieces in work:
            length = self._starts[run + 1] - self._starts[run]
            if some and nbytes + length > _AT_ONCE_BYTES:
                yield some
                some, nbytes = [], 0
            some.append((run, pieces))
            nbytes += length
        if some:
            yield some

    def _share_out(self, work: list[_Work]) -> None:
        """Decode some runs, by several threads if that pays."""
        nbytes = sum(self.decoded[run + 1] - self.decoded[run] for run, _ in work)
        workers = thread_count() if len(work) > 1 and nbytes >= _WORTH_BYTES else 1
        count = len(work) if workers == 1 else max(1, _BATCH_BYTES * len(work) // nbytes)
        starts = range(0, len(work), max(1, count))
        run_jobs((functools.partial(self._take, work[at : at + count]) for at in starts), workers)

    def _take(self, work: Iterable[_Work]) -> None:
        decoded = self.decoded
        for number, pieces in work:
            key, length = (self._key, number), decoded[number + 1] - decoded[number]
            run = self._cache.decoded.get(key)
            if run is None and len(pieces) == 1 and len(pieces[0][1]) == length:
                self._decode(number, pieces[0][1])  # where it belongs, and it is not kept
                continue
            if run is None:
                run = empty_array((length,), np.dtype(np.uint8))
                self._decode(number, run.data)
                self._cache.decoded.keep(key, run, run.nbytes)
            for start, target in pieces:
                target[:] = run.data[start : start + len(target)]

    def _decode(self, number: int, target: memoryview) -> None:
        start, stop = self._starts[number], self._starts[number + 1]
        self._encoding.decode_run(self._stored, start, stop, target, self._limits)


class StreamReader:
    """Reads decoded bytes of one component that is only decoded from its start, in rising order.

    Args:
        pieces: all of its decoded bytes.
    """

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._begin = 0  # of the piece

    def read(self, parts: Iterable[tuple[int, memoryview]], at_once: AtOnce) -> None:
        """Fill pieces of memory, as `RunReader` does; each behind those asked for before."""
        del at_once
        for offset, target in parts:
            done = 0
            while done < len(target):
                start = offset + done - self._begin
                if start >= len(self._piece):
                    self._begin += len(self._piece)
                    self._piece = next(self._pieces)
                    continue
                piece = self._piece[start : start + len(target) - done]
                target[done : done + len(piece)] = piece
                done += len(piece)

    def finish(self) -> None:
        """Decode what is left, so that all of it is checked."""
        for _ in self._pieces:
            pass
