"""Rows of an encoded component: which runs of it are decoded for them, and what is kept of that.

An encoding says where its stored bytes may be entered: `Runs`, for zstd its frames. A reader keeps
the runs of what it was asked for and what it decoded last, so that one row after another costs no
more than its own run, whoever asks for it.
"""

from __future__ import annotations

import bisect
import collections
import functools
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ztensor.buffers import empty_array, new_bytes
from ztensor.locks import Lock
from ztensor.threads import run_jobs, thread_count

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from ztensor.encoding.base import Encoding, Runs
    from ztensor.layout.base import Array
    from ztensor.limits import Limits
    from ztensor.reading.selection import Indices
    from ztensor.source.at_once import AtOnce
    from ztensor.source.base import Range, Source

_T = TypeVar("_T")

WHOLE_BYTES = 64 << 20  # decoded, of a component that is read and kept whole for any part of it
KEPT_BYTES = 4 << 20  # decoded bytes that a reader keeps: some frames of rows
KEPT_TABLE_BYTES = 16 << 20  # of what `Runs` take: 64 GiB of tensors in frames of 64 KiB
_WORTH_BYTES = 2 << 20  # decoded: a millisecond or two of work; starting threads takes 0.2
_BATCH_BYTES = 512 << 10  # decoded by a thread at a time
_AT_ONCE_BYTES = 32 << 20  # stored, that are read at once where requests are dear


class RunCache:
    """What a reader found out about runs, and the runs it decoded last; safe to share."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tables: collections.OrderedDict[Hashable, Runs] = collections.OrderedDict()
        self._decoded: collections.OrderedDict[Hashable, Array] = collections.OrderedDict()
        self._table_bytes = self._decoded_bytes = 0

    def table(self, key: Hashable, find: Callable[[], Runs | None]) -> Runs | None:
        """Return the runs of a component, which `find` finds the first time."""
        with self._lock:
            runs = self._tables.get(key)
            if runs is not None:
                self._tables.move_to_end(key)
                return runs
        runs = find()
        if runs is not None:
            with self._lock:
                if key not in self._tables:
                    self._tables[key] = runs
                    self._table_bytes += _nbytes(runs)
                while self._table_bytes > KEPT_TABLE_BYTES and len(self._tables) > 1:
                    self._table_bytes -= _nbytes(self._tables.popitem(last=False)[1])
        return runs

    def decoded(self, key: Hashable) -> Array | None:
        """Return a run that was kept."""
        with self._lock:
            run = self._decoded.get(key)
            if run is not None:
                self._decoded.move_to_end(key)
            return run

    def keep(self, key: Hashable, run: Array) -> None:
        """Keep a decoded run, and drop those that were not asked for longest; one stays."""
        with self._lock:
            if key not in self._decoded:
                self._decoded[key] = run
                self._decoded_bytes += run.nbytes
            while self._decoded_bytes > KEPT_BYTES and len(self._decoded) > 1:
                self._decoded_bytes -= self._decoded.popitem(last=False)[1].nbytes

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._tables.clear()
            self._decoded.clear()
            self._table_bytes = self._decoded_bytes = 0


def _nbytes(runs: Runs) -> int:
    return 2 * len(runs.decoded) * runs.decoded.itemsize


class PartReader:
    """Reads stored bytes of one raw component.

    Args:
        stored: they.
    """

    __slots__ = ("_stored",)

    def __init__(self, stored: Range) -> None:
        self._stored = stored

    def __call__(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the bytes from `offset`."""
        self._stored.source.read_into(self._stored.offset + offset, target)

    @property
    def source(self) -> Source:
        """Return what is read."""
        return self._stored.source

    @property
    def prefers_many(self) -> bool:
        """Return whether several parts are better read at once."""
        return self._stored.source.prefers_long_reads

    def by(self, at_once: AtOnce) -> Callable[[int, memoryview], None]:
        """Return what asks for bytes, to be read with others, in place of reading them."""
        start = self._stored.offset
        return lambda offset, target: at_once.add(start + offset, target)


class _Read:
    """Stored bytes of which some runs were read; the others are read when they are asked for.

    Args:
        stored: all of them.
        runs: by their offsets.
    """

    def __init__(self, stored: Range | _Read, runs: dict[int, memoryview]) -> None:
        self._stored = stored
        self.source: Source = stored.source
        self.offset: int = stored.offset
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


class _Group(NamedTuple):
    """Wanted rows that lie in one run: those from number `first` to `last` of them."""

    run: int
    first: int
    last: int


class RunReader:
    """Reads decoded bytes of one component, decoding only the runs they are in.

    Args:
        encoding: the component's.
        stored: its stored bytes.
        runs: its runs.
        limits: the caps in force.
        cache: the reader's.
        key: identifies the component in the cache.
    """

    __slots__ = ("_cache", "_encoding", "_key", "_limits", "_runs", "_stored")

    def __init__(
        self,
        encoding: Encoding,
        stored: Range | _Read,
        runs: Runs,
        limits: Limits,
        cache: RunCache,
        key: Hashable,
    ) -> None:
        self._encoding = encoding
        self._stored = stored
        self._runs = runs
        self._limits = limits
        self._cache = cache
        self._key = key

    @property
    def decoded(self) -> array[int]:
        """Return where each run begins in the decoded bytes, and last where they end."""
        return self._runs.decoded

    def __call__(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the decoded bytes from `offset`."""
        decoded = self._runs.decoded
        number = bisect.bisect_right(decoded, offset) - 1
        if self._is_read_at_once and offset + len(target) > decoded[number + 1]:
            last = bisect.bisect_left(decoded, offset + len(target)) - 1
            for some in self._batches(range(number, last + 1)):
                begin, end = max(offset, decoded[some[0]]), decoded[some[-1] + 1]
                part = target[begin - offset : end - offset]
                self._with_stored(some)(begin, part)
            return
        parts: list[tuple[int, int, memoryview]] = []
        nbytes = len(target)
        while len(target):
            begin, end = decoded[number], decoded[number + 1]
            count = min(end - offset, len(target))
            parts.append((number, offset - begin, target[:count]))
            target = target[count:]
            offset += count
            number += 1
        self._share_out(parts, nbytes, self._copy_parts)

    def _copy_parts(self, parts: Sequence[tuple[int, int, memoryview]]) -> None:
        for number, start, target in parts:
            self._copy(number, start, target)

    @staticmethod
    def _share_out(work: Sequence[_T], nbytes: int, do: Callable[[Sequence[_T]], None]) -> None:
        """Do work on some runs, which decode to so many bytes, by several threads if that pays."""
        is_worth_it = len(work) > 1 and nbytes >= _WORTH_BYTES
        workers = thread_count() if is_worth_it else 1
        count = len(work) if workers == 1 else max(1, _BATCH_BYTES * len(work) // nbytes)
        starts = range(0, len(work), max(1, count))
        run_jobs((functools.partial(do, work[at : at + count]) for at in starts), workers)

    def rows(self, rows: Indices, target: Array) -> bool:
        """Fill `target` with rows, each run decoded once and several at a time.

        Args:
            rows: which, rising, each once.
            target: (rows, bytes of a row) uint8, contiguous.

        Returns:
            Whether it was done; False where a row lies in several runs.
        """
        groups = list(self._groups(rows, target.shape[1]))
        if groups and groups[-1].run < 0:
            return False
        if self._is_read_at_once and len(groups) > 1:
            by_run = {group.run: group for group in groups}
            for some in self._batches(by_run):
                self._with_stored(some)._decode_groups([by_run[run] for run in some], rows, target)
        else:
            self._decode_groups(groups, rows, target)
        return True

    def _decode_groups(self, groups: list[_Group], rows: Indices, target: Array) -> None:
        decoded = self._runs.decoded
        each = max(1, decoded[-1] // (len(decoded) - 1))  # on average
        self._share_out(groups, len(groups) * each, lambda some: self._take(some, rows, target))

    @property
    def _is_read_at_once(self) -> bool:
        """Return whether the runs that are wanted are asked for before one is decoded."""
        source, is_read = self._stored.source, isinstance(self._stored, _Read)
        return source.prefers_long_reads and source.exact() is source and not is_read

    def _batches(self, runs: Iterable[int]) -> Iterator[list[int]]:
        """Yield runs, rising, so many at a time as are read at once."""
        stored = self._runs.stored
        some: list[int] = []
        nbytes = 0
        for run in runs:
            length = stored[run + 1] - stored[run]
            if some and nbytes + length > _AT_ONCE_BYTES:
                yield some
                some, nbytes = [], 0
            some.append(run)
            nbytes += length
        if some:
            yield some

    def ask(self, places: Iterable[tuple[int, int]], at_once: AtOnce) -> RunReader | None:
        """Ask for the runs that decoded bytes are in, to be read with others.

        Args:
            places: where the decoded bytes begin and end, in order.
            at_once: what reads the file.

        Returns:
            The same over these runs, to be used once they are read; None where they are too many
            to be held, or are not asked for before one is decoded.
        """
        if not self._is_read_at_once:
            return None
        decoded, stored = self._runs.decoded, self._runs.stored
        runs: list[int] = []
        nbytes = behind = 0
        for begin, end in places:
            first = max(behind, bisect.bisect_right(decoded, begin) - 1)
            behind = max(first, bisect.bisect_left(decoded, end))
            nbytes += stored[behind] - stored[first]
            if nbytes > _AT_ONCE_BYTES:
                return None
            runs += range(first, behind)
        return self._with_stored(runs, at_once)

    def _with_stored(self, runs: list[int], at_once: AtOnce | None = None) -> RunReader:
        """Return the same over runs of which those that were not kept are read now."""
        stored, whole = self._runs.stored, self._stored
        missing = [run for run in runs if self._cache.decoded((self._key, run)) is None]
        read = {stored[run]: new_bytes(stored[run + 1] - stored[run]) for run in missing}
        parts = [(whole.offset + at, memory) for at, memory in read.items()]
        if at_once is None:
            whole.source.read_many(parts)
        else:
            for offset, memory in parts:
                at_once.add(offset, memory)
        held = _Read(whole, read)
        return RunReader(self._encoding, held, self._runs, self._limits, self._cache, self._key)

    def _groups(self, rows: Indices, row_bytes: int) -> Iterator[_Group]:
        """Yield the rows by the run they are in; last one in run -1 where a row is in several."""
        decoded = self._runs.decoded
        first, count = 0, len(rows)
        while first < count:
            run = bisect.bisect_right(decoded, int(rows[first]) * row_bytes) - 1
            behind = decoded[run + 1] // row_bytes  # the first row that is not whole in this run
            if isinstance(rows, range):
                last = min(count, max(0, -(-(behind - rows.start) // rows.step)))
            else:
                last = int(np.searchsorted(rows, behind))
            if last <= first:
                yield _Group(-1, first, count)
                return
            yield _Group(run, first, last)
            first = last

    def _take(self, groups: Sequence[_Group], rows: Indices, target: Array) -> None:
        decoded, row_bytes = self._runs.decoded, target.shape[1]
        for number, first, last in groups:
            start, low = int(rows[first]) * row_bytes - decoded[number], int(rows[first])
            count = int(rows[last - 1]) - low + 1
            part = target[first:last]
            if count == last - first:
                self._copy(number, start, part.reshape(-1).data)
                continue
            run = self._run(number)[start : start + count * row_bytes].reshape(count, row_bytes)
            if isinstance(rows, range):
                part[...] = run[:: rows.step]
            else:
                np.take(run, rows[first:last] - low, axis=0, out=part)

    def _copy(self, number: int, start: int, target: memoryview) -> None:
        """Fill `target` with a part of a run; a whole one is decoded into it and not kept."""
        decoded = self._runs.decoded
        is_whole = len(target) == decoded[number + 1] - decoded[number]
        if is_whole and self._cache.decoded((self._key, number)) is None:
            self._decode(number, target)
        else:
            target[:] = self._run(number).data[start : start + len(target)]

    def _run(self, number: int) -> Array:
        key = self._key, number
        run = self._cache.decoded(key)
        if run is None:
            decoded = self._runs.decoded
            run = empty_array((decoded[number + 1] - decoded[number],), np.dtype(np.uint8))
            self._decode(number, run.data)
            self._cache.keep(key, run)
        return run

    def _decode(self, number: int, target: memoryview) -> None:
        stored = self._runs.stored
        self._encoding.decode_run(
            self._stored, stored[number], stored[number + 1], target, self._limits
        )


class StreamReader:
    """Reads decoded bytes of one component that is only decoded from its start, in rising order.

    Args:
        pieces: all of its decoded bytes.
    """

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")
        self._begin = 0  # of the piece

    def __call__(self, offset: int, target: memoryview) -> None:
        """Fill `target` with the decoded bytes from `offset`, behind those asked for before."""
        while len(target):
            end = self._begin + len(self._piece)
            if offset >= end:
                self._begin, self._piece = end, next(self._pieces)
                continue
            part = self._piece[offset - self._begin :][: len(target)]
            target[: len(part)] = part
            target, offset = target[len(part) :], offset + len(part)

    def finish(self) -> None:
        """Decode what is left, so that all of it is checked."""
        for _ in self._pieces:
            pass
