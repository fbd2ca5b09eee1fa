"""Parts of a component's decoded bytes: which runs of it are decoded for them, and what is kept.

An encoding says where its stored bytes may be entered: `Runs`, for zstd its frames. A file keeps
the runs it looked for and those it decoded last: so one row after another costs no more than its
own run. A reader of parts has one method, `read`: it asks for pieces of memory to be filled, and
they are full once the `AtOnce` has ended.
"""

from __future__ import annotations

import abc
import bisect
import collections
import functools
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

import numpy as np

from ztensor.buffers import empty_array, new_bytes
from ztensor.io.source.base import AtOnce, Range
from ztensor.limits import Limits
from ztensor.locks import Lock
from ztensor.spec.encoding.base import Encoding, Runs, Stored
from ztensor.threads import run_jobs
from ztensor.threads.sharing import thread_count

Pieces = list[tuple[int, memoryview]]  # where each begins, and what is filled

_KEPT_BYTES = 4 << 20  # decoded bytes that a file keeps: frames of some rows
_KEPT_TABLE_BYTES = 16 << 20  # of what `Runs` take: 64 GiB of tensors in frames of 64 KiB
_WORTH_BYTES = 2 << 20  # decoded: a millisecond or two of work; starting threads takes 0.2
_BATCH_BYTES = 512 << 10  # decoded by a thread at a time
_AT_ONCE_BYTES = 32 << 20  # stored, that are asked for together where requests are dear


class Recent:
    """Values that were used last, safe to share.

    Args:
        most: so many bytes of them are kept, and one value at least.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._kept: collections.OrderedDict[Hashable, tuple[Any, int]] = collections.OrderedDict()
        self._nbytes = 0

    def get(self, key: Hashable) -> Any:
        """Return a value that was kept, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value, and drop those that were not asked for longest."""
        with self._lock:
            if key not in self._kept:
                self._kept[key] = value, nbytes
                self._nbytes += nbytes
            while self._nbytes > self._most and len(self._kept) > 1:
                self._nbytes -= self._kept.popitem(last=False)[1][1]


class Kept:
    """What a file keeps of its compressed components: runs it decoded, and where others begin."""

    def __init__(self) -> None:
        self.decoded = Recent(_KEPT_BYTES)
        self._tables = Recent(_KEPT_TABLE_BYTES)

    def table(self, key: Hashable, find: Callable[[], Runs | None]) -> Runs | None:
        """Return the runs of a component, which `find` finds the first time."""
        runs: Runs | None = self._tables.get(key) or find()
        if runs is not None:
            self._tables.keep(key, runs, 2 * len(runs.decoded) * runs.decoded.itemsize)
        return runs


class Parts(abc.ABC):
    """Reads parts of the decoded bytes of one component.

    Attributes:
        decoded: where each run begins in the decoded bytes, and last where they end; None where
            there are no runs.
    """

    decoded: array[int] | None = None

    @abc.abstractmethod
    def read(self, parts: Pieces, at_once: AtOnce) -> None:
        """Ask for decoded bytes: they are there once `at_once` has ended.

        Raises:
            EncodingError: the stored bytes are damaged; here, or when `at_once` reads.
            LimitError: a safety cap is exceeded; likewise.
            SourceError: they could not be read; likewise.
        """


class RawParts(Parts):
    """Parts of a component that is stored as it is.

    Args:
        offset: its first byte in the file.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def read(self, parts: Pieces, at_once: AtOnce) -> None:
        """Ask for bytes; see `Parts`."""
        for offset, target in parts:
            at_once.add(self._offset + offset, target)


class _Fetched:
    """Stored bytes of which one run was read before; the others are read when asked for."""

    def __init__(self, stored: Range, start: int, run: memoryview) -> None:
        self._stored, self._start, self._run = stored, start, run
        self.length: int = stored.length

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        first = offset - self._start
        if first >= 0 and first + length <= self._run.nbytes:
            return self._run[first : first + length]
        return self._stored.read(offset, length)


class RunReader(Parts):
    """Parts of a component of which only the runs are decoded that they are in.

    Args:
        encoding: the component's.
        stored: its stored bytes.
        runs: its runs.
        limits: the caps in force.
        cache: the file's.
        key: identifies the component in the cache.
        is_gathered: whether the bytes of several runs are asked for together.
    """

    decoded: array[int]

    def __init__(
        self,
        encoding: Encoding,
        stored: Range,
        runs: Runs,
        limits: Limits,
        cache: Recent,
        key: Hashable,
        *,
        is_gathered: bool,
    ) -> None:
        self.decoded = runs.decoded
        self._is_gathered = is_gathered
        self._encoding, self._limits = encoding, limits
        self._stored, self._starts = stored, runs.stored
        self._cache, self._key = cache, key
        self._asked: dict[int, memoryview] = {}  # stored bytes of runs, where requests are dear

    def read(self, parts: Pieces, at_once: AtOnce) -> None:
        """Ask for decoded bytes, each run decoded once and several at a time; see `Parts`."""
        wanted: dict[int, Pieces] = {}
        for offset, target in parts:
            run, done = bisect.bisect_right(self.decoded, offset) - 1, 0
            while done < len(target):
                start = offset + done - self.decoded[run]
                piece = target[done : done + self.decoded[run + 1] - self.decoded[run] - start]
                wanted.setdefault(run, []).append((start, piece))
                done += len(piece)
                run += 1
        if not self._is_gathered:
            self._decode(wanted, {})
            return
        for some in self._batches(wanted):
            asked = self._ask(some, at_once)
            work = {run: wanted[run] for run in some}
            at_once.later(functools.partial(self._decode, work, asked))

    def _batches(self, runs: Iterable[int]) -> Iterator[list[int]]:
        """Yield runs, so many at a time as are asked for together."""
        some: list[int] = []
        nbytes = 0
        for run in runs:
            length = self._starts[run + 1] - self._starts[run]
            if some and nbytes + length > _AT_ONCE_BYTES:
                yield some
                some, nbytes = [], 0
            some.append(run)
            nbytes += length
        yield some

    def _ask(self, runs: Iterable[int], at_once: AtOnce) -> dict[int, memoryview]:
        """Ask for the stored bytes of runs, but those that are kept or were just asked for."""
        asked: dict[int, memoryview] = {}
        for run in runs:
            if run in self._asked:
                asked[run] = self._asked[run]
            elif self._cache.get((self._key, run)) is None:
                start = self._starts[run]
                asked[run] = new_bytes(self._starts[run + 1] - start)
                at_once.add(self._stored.offset + start, asked[run])
        self._asked = asked
        return asked

    def _decode(self, wanted: dict[int, Pieces], asked: dict[int, memoryview]) -> None:
        """Decode runs, by several threads if that pays."""
        runs = list(wanted)
        nbytes = sum(self.decoded[run + 1] - self.decoded[run] for run in runs)
        workers = thread_count() if len(runs) > 1 and nbytes >= _WORTH_BYTES else 1
        count = len(runs) if workers == 1 else max(1, _BATCH_BYTES * len(runs) // nbytes)

        def work(some: list[int]) -> None:
            for run in some:
                self._take(run, wanted[run], asked.get(run))

        starts = range(0, len(runs), max(1, count))
        run_jobs((functools.partial(work, runs[at : at + count]) for at in starts), workers)

    def _take(self, number: int, pieces: Pieces, asked: memoryview | None) -> None:
        """Fill pieces of one run."""
        start, stop = self._starts[number], self._starts[number + 1]
        stored: Stored = self._stored if asked is None else _Fetched(self._stored, start, asked)
        key, length = (self._key, number), self.decoded[number + 1] - self.decoded[number]
        run: np.ndarray[Any, Any] | None = self._cache.get(key)
        if run is None and len(pieces) == 1 and len(pieces[0][1]) == length:
            # Where it belongs, and it is not kept.
            self._encoding.decode_run(stored, start, stop, pieces[0][1], self._limits)
            return
        if run is None:
            run = empty_array((length,), np.dtype(np.uint8))
            self._encoding.decode_run(stored, start, stop, run.data, self._limits)
            self._cache.keep(key, run, run.nbytes)
        for first, target in pieces:
            target[:] = run.data[first : first + len(target)]


class StreamReader(Parts):
    """Parts of a component that is only decoded from its start, in rising order.

    Args:
        pieces: all of its decoded bytes.
    """

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._begin = 0  # of the piece

    def read(self, parts: Pieces, at_once: AtOnce) -> None:
        """Fill pieces of memory, each behind those asked for before; see `Parts`."""
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
        collections.deque(self._pieces, maxlen=0)
