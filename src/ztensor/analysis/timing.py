"""How long a file takes to open and to read on this machine, beside plain reads of it.

Everything is done in rounds, one thing after another, so that a machine that becomes slower does so
for all; what is told of each is the median. The first round may be cut where the time is up.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ztensor.analysis.peers import PEERS, Peer
from ztensor.errors import ArgumentValueError, ZTensorError, describe
from ztensor.opening import open as open_reader
from ztensor.reading.loading import load_all, load_files
from ztensor.source.caching import cached_part
from ztensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ztensor.opening import Reader, ShardedReader

OURS, PLAIN = "ztensor", "cat"
_MOST_ROUNDS = 7
# Of what takes longest, so many are done of the whole within the time.
_PASSES = 24
_MOST_BYTES = 2 << 30  # of memory: an owned load holds them all
_PIECE_BYTES = 1 << 20
_COLD = 0.1  # of a file in the page cache: no more, where it is to be cold

Work = Literal[
    "open",
    "open, names",
    "open, first tensor",
    "read all bytes",
    "load mapped, sum",
    "load owned",
    "verify",
    "cold: open, first tensor",
    "cold: read all bytes",
    "cold: load mapped, sum",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Timed:
    """One thing that was done.

    Attributes:
        work: what.
        by: `ztensor`, `cat` (plain reads of the same number of bytes), or another library.
        seconds: of each round; none where it was not done.
        nbytes: how many bytes it is about, or None where that is no matter of bytes.
        note: why it was not done, or what is to be known; "" for nothing.
    """

    work: Work
    by: str
    seconds: tuple[float, ...]
    nbytes: int | None
    note: str = ""

    @property
    def median(self) -> float | None:
        """Return the seconds of the round in the middle."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def rate(self) -> float | None:
        """Return bytes in a second, by the median."""
        return None if not self.median or self.nbytes is None else self.nbytes / self.median


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """What was measured of a file.

    Attributes:
        format: its format.
        nbytes: its length, or that of all files of a set.
        object_count: how many objects it has.
        timed_count: how many of them were loaded and verified: the first ones.
        timed_nbytes: stored bytes of those, of the whole file where it is all.
        rounds: how many.
        seconds: how long it took in all.
        cached: which part of the file was in the page cache after it was asked to be dropped;
            None where the system does not tell.
        rows: what was done.
    """

    format: str
    nbytes: int
    object_count: int
    timed_count: int
    timed_nbytes: int
    rounds: int
    seconds: float
    cached: float | None
    rows: tuple[Timed, ...]

    @property
    def is_cold(self) -> bool:
        """Return whether the page cache could be dropped, so that reads came from the disk."""
        return self.cached is not None and self.cached <= _COLD


def time_file(path: Any, seconds: float = 10.0, *, alone: bool = False) -> Timing:
    """Time what people do with a file, of any format, or with a set of files.

    Args:
        path: what `ztensor.open` takes.
        seconds: about how long it may take. A file too long for it is timed by its first objects.
        alone: True leaves the format's own library out.

    Raises:
        ArgumentValueError: the seconds are none.
        ZTensorError: the file cannot be opened, or has no object.
    """
    if not 0 < seconds < float("inf"):
        raise ArgumentValueError("seconds must be a positive number", found=describe(seconds))
    begun = time.perf_counter()
    with open_reader(path, mmap=False) as reader:
        plain = _Plain(reader)
        rate = plain.rate(seconds / 10)
        names, nbytes = _sample(reader, min(int(rate * seconds / _PASSES), _MOST_BYTES))
        bench = _Bench(path, reader, plain, names, nbytes)
        rounds = bench.run(begun + seconds, alone=alone)
        return Timing(
            reader.format,
            reader.nbytes,
            len(reader),
            len(reader) if names is None else len(names),
            nbytes,
            rounds,
            time.perf_counter() - begun,
            bench.cached,
            bench.rows(),
        )


def _sample(reader: Reader | ShardedReader, most: int) -> tuple[list[str] | None, int]:
    """Return the first objects that make up no more than so many bytes, None for all of them."""
    if reader.nbytes <= most or len(reader) < 2:
        return None, reader.nbytes
    names: list[str] = []
    total = 0
    for name in reader:
        nbytes = reader.objects.part(name).object(name).stored_nbytes
        if names and total + nbytes > most:
            return names, total
        names.append(name)
        total += nbytes
    return None, reader.nbytes


class _Plain:
    """Plain reads of the files, as `cat` makes them."""

    def __init__(self, reader: Reader | ShardedReader) -> None:
        self._sources = [part.source for part in reader.objects.parts()]
        self._piece = memoryview(bytearray(_PIECE_BYTES))

    def read(self, most: int | None = None, until: float = float("inf")) -> int:
        """Read up to so many bytes; return how many were read when the time was up."""
        done = 0
        for source in self._sources:
            for offset in range(0, source.size, _PIECE_BYTES):
                count = min(_PIECE_BYTES, source.size - offset)
                if most is not None:
                    count = min(count, most - done)
                if count <= 0 or time.perf_counter() > until:
                    return done
                source.read_into(offset, self._piece[:count])
                done += count
        return done

    def rate(self, seconds: float) -> float:
        """Return bytes in a second, of reads that take no longer than that."""
        begun = time.perf_counter()
        done = self.read(until=begun + seconds)
        return max(done / max(time.perf_counter() - begun, 1e-6), 1.0)

    def cached(self) -> float | None:
        """Return which part of the files is in the page cache."""
        parts = [cached_part(source) for source in self._sources if source.size]
        known = [part for part in parts if part is not None]
        return max(known) if known and len(known) == len(parts) else None


@dataclasses.dataclass(slots=True)
class _Row:
    work: Work
    by: str
    call: Callable[[], object]
    nbytes: int | None = None
    is_cold: bool = False
    seconds: list[float] = dataclasses.field(default_factory=list)
    note: str = ""


class _Bench:
    """The rows, and what fills them.

    Attributes:
        cached: as in `Timing`.
    """

    def __init__(
        self,
        path: Any,
        reader: Reader | ShardedReader,
        plain: _Plain,
        names: list[str] | None,
        nbytes: int,
    ) -> None:
        self.cached: float | None = None
        self._path, self._reader, self._plain = path, reader, plain
        self._names, self._nbytes = names, nbytes
        self._first = next(iter(reader), None)
        self._rows: list[_Row] = []

    def rows(self) -> tuple[Timed, ...]:
        """Return what was measured."""
        return tuple(
            Timed(row.work, row.by, tuple(row.seconds), row.nbytes, row.note) for row in self._rows
        )

    def run(self, until: float, *, alone: bool) -> int:
        """Do all there is to do until the time is up, and return how many rounds that was."""
        peer = None if alone or self._reader.objects.is_set else PEERS.get(self._reader.format)
        self._rows = list(self._works(peer))
        self._is_dropped()  # so that it is known also where no time is left for cold reads
        self._plain.read(self._nbytes)
        for number in range(_MOST_ROUNDS):
            begun = time.perf_counter()
            for row in self._rows:
                if number and row.note:
                    continue
                if time.perf_counter() > until:
                    row.note = row.note or ("" if row.seconds else "no time was left")
                    continue
                self._time(row)
            if 2 * time.perf_counter() - begun > until:
                break
        return max(len(row.seconds) for row in self._rows)

    def _works(self, peer: Peer | None) -> Iterable[_Row]:
        count, first = self._nbytes, self._first
        yield _Row("open", OURS, self._open)
        yield _Row("open, names", OURS, self._list)
        if first is not None:
            yield _Row("open, first tensor", OURS, self._read_first)
        yield _Row("read all bytes", PLAIN, lambda: self._plain.read(count), count)
        yield _Row("load mapped, sum", OURS, lambda: self._load(copy=False), count)
        yield _Row("load owned", OURS, lambda: self._load(copy=True), count)
        if peer is not None and peer.is_installed:
            yield from self._works_of(peer)
        yield _Row("verify", OURS, self._verify, count)
        if first is not None:
            yield _Row("cold: open, first tensor", OURS, self._read_first, is_cold=True)
        yield _Row(
            "cold: read all bytes", PLAIN, lambda: self._plain.read(count), count, is_cold=True
        )
        yield _Row(
            "cold: load mapped, sum", OURS, lambda: self._load(copy=False), count, is_cold=True
        )

    def _works_of(self, peer: Peer) -> Iterable[_Row]:
        path, first, names = str(self._path), self._first, self._names
        wanted = None if names is None else set(names)

        def list_() -> None:
            with peer.opened(path) as (found, _):
                list(found)

        def read_first() -> None:
            with peer.opened(path) as (_, value):
                _summed(value(first or ""))

        def load() -> None:
            with peer.opened(path) as (found, value):
                for name in found:
                    if wanted is None or name in wanted:
                        _summed(value(name))

        yield _Row("open, names", peer.module, list_)
        if first is not None:
            yield _Row("open, first tensor", peer.module, read_first)
        yield _Row("load owned", peer.module, load, self._nbytes)

    def _time(self, row: _Row) -> None:
        if row.is_cold and not self._is_dropped():
            row.note = "the system kept the file in its page cache"
            return
        begun = time.perf_counter()
        try:
            row.call()
        except ZTensorError as error:
            row.note = error.message
        except Exception as error:  # another library's: it is only compared with
            if row.by in (OURS, PLAIN):
                raise
            row.note = f"{type(error).__name__}: {error}"
        else:
            row.seconds.append(time.perf_counter() - begun)

    def _is_dropped(self) -> bool:
        if self._reader.evict():
            self.cached = self._plain.cached()
        return self.cached is not None and self.cached <= _COLD

    # --- What is done -----------------------------------------------------------------------

    def _open(self) -> None:
        open_reader(self._path).close()

    def _list(self) -> None:
        with open_reader(self._path) as reader:
            list(reader)

    def _read_first(self) -> None:
        with open_reader(self._path) as reader:
            _summed(reader.read(self._first or "", copy=True))

    def _load(self, *, copy: bool) -> None:
        with open_reader(self._path) as reader:
            objects = reader.objects
            if self._names is not None:
                objects = objects.select(self._names)
            for value in load_files(objects, load_all, copy=copy).values():
                if not copy:
                    _summed(value)

    def _verify(self) -> None:
        with open_reader(self._path, mmap=False) as reader:
            if reader.verify(self._names).problems:
                raise ZTensorError("damaged: `ztensor verify` says more")


def _summed(value: Any) -> int:
    """Return a sum over all bytes of an array, or of a tensor's components."""
    arrays: Sequence[Any] = [value]
    if isinstance(value, Tensor):
        arrays = list(value.components.values())
    total = 0
    for array in arrays:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        even = len(flat) // 8 * 8
        total += int(flat[:even].view(np.uint64).sum()) + int(flat[even:].sum())
    return total
