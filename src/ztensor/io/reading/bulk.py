"""Many plain tensors at once: neighbours are read together, and each is checked in the cache.

Loading keeps what was read (`loading.py`), `verify` does not. Small encoded tensors are decoded by
runs: what each takes by itself is longer than the work. Whatever is wrong, or of another form, is
left to the general way, which looks at each and says what it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.places import Place
from ztensor.io.source.base import Source
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.encoding import Encoding
from ztensor.spec.model.objects import Bools, Ints
from ztensor.threads import run_jobs

Named = tuple[str, Place]

# Dead bytes between two tensors that are cheaper to read than to jump over.
_GAP_BYTES = 64 << 10
# Neighbours are read together up to this long, which also is the unit threads share.
RUN_BYTES = 4 << 20
# Small: of so many bytes at most, stored and decoded; larger ones are looked at one by one.
_SMALL_BYTES = 128 << 10
# So much of these is read and decoded at a time: it is still in the cache when it is checked.
_SMALL_RUN_BYTES = 2 << 20
_SMALL_GAP_BYTES = 16 << 10
# Of fewer encoded ones each is looked at by itself: arrays of few numbers cost what one does.
_LEAST_PACKED = 6
# Threads pay where the work on a tensor takes longer than to hand it over, which holds the
# interpreter.
_LEAST_FOR_THREADS = 4 << 10


class Run(NamedTuple):
    """Plain tensors in the order of their bytes.

    Attributes:
        named: their names and places.
        offsets: (count,) int64, their first bytes in the file.
        ends: (count,) int64, where the bytes of all so far end.
    """

    named: Sequence[Named]
    offsets: Ints
    ends: Ints

    @classmethod
    def of(cls, named: Iterable[Named]) -> Run:
        """Return tensors in the order of their bytes."""
        found = sorted(named, key=lambda one: one[1].offset)
        offsets = np.array([place.offset for _, place in found], np.int64)
        lengths = np.array([place.length for _, place in found], np.int64)
        return cls(found, offsets, np.maximum.accumulate(offsets + lengths))

    @property
    def span(self) -> tuple[int, int]:
        """Return where the bytes of the first begin, and the last of all end."""
        return self.offsets.item(0), self.ends.item(-1)

    def stored(self, memory: memoryview) -> list[memoryview]:
        """Return the stored bytes of each, in memory that begins with those of the first."""
        first = self.named[0][1].offset
        return [
            memory[place.offset - first : place.offset - first + place.length]
            for _, place in self.named
        ]

    def cut(self, most: int, alone: int, gap: int = _GAP_BYTES) -> Iterator[Run]:
        """Yield neighbours that are read together, at most so many bytes.

        Args:
            most: bytes from the first byte of a run to its last; a longer tensor is a run.
            alone: tensors of so many bytes are runs by themselves.
            gap: dead bytes between two at most.
        """
        is_alone = np.array([place.length >= alone for _, place in self.named], np.bool_)
        is_border = is_alone[1:] | is_alone[:-1] | (self.offsets[1:] > self.ends[:-1] + gap)
        borders = [0, *(np.flatnonzero(is_border) + 1).tolist(), len(self.named)]
        for begin, stop in itertools.pairwise(borders):
            first = begin
            while first < stop:
                bound = self.offsets[first] + most
                after = first + int(np.searchsorted(self.ends[first:stop], bound, "right"))
                some = slice(first, max(after, first + 1))
                yield self._part(some)
                first = some.stop

    def cut_small(self, nbytes: Ints) -> Iterator[Run]:
        """Yield those of small tensors that are read and decoded at a time.

        Args:
            nbytes: (count,) the decoded bytes of each.
        """
        is_near = self.offsets[1:] <= self.ends[:-1] + _SMALL_GAP_BYTES
        read = np.where(is_near, np.diff(self.ends), self.ends[1:] - self.offsets[1:])
        done = np.cumsum(np.append(self.ends[:1] - self.offsets[:1], read) + nbytes)
        borders = np.flatnonzero(np.diff(done // _SMALL_RUN_BYTES)) + 1
        for first, stop in itertools.pairwise([0, *borders.tolist(), len(self.named)]):
            yield self._part(slice(first, stop))

    def _part(self, some: slice) -> Run:
        return Run(self.named[some], self.offsets[some], self.ends[some])

    def read(self, source: Source) -> tuple[memoryview, Ints]:
        """Return the bytes of all, few dead ones between, and where in them each begins."""
        is_first = np.append(True, self.offsets[1:] > self.ends[:-1] + _SMALL_GAP_BYTES)
        firsts = np.flatnonzero(is_first)
        counts = np.diff(firsts, append=len(self.named))
        starts, stops = self.offsets[firsts], self.ends[firsts + counts - 1]
        places = np.cumsum(stops - starts)
        memory, shifts = new_bytes(places.item(-1)), places - stops
        parts = zip(starts.tolist(), stops.tolist(), shifts.tolist(), strict=True)
        source.read_many([(start, memory[start + to : stop + to]) for start, stop, to in parts])
        return memory, self.offsets + np.repeat(shifts, counts)


Take = Callable[[Run, list[memoryview], Bools], None]


def require_right(file: FileObjects, run: Run, memory: memoryview) -> None:
    """Check the digests of tensors that were read.

    Args:
        file: the file.
        run: the tensors.
        memory: the file's bytes from the first of theirs on.

    Raises:
        DigestMismatchError: one does not match its digest.
    """
    stored = run.stored(memory)
    for number in np.flatnonzero(~_are_right(file, run, stored)).tolist():
        name = run.named[number][0]
        with file.located(name, "data"):  # the general way says what is wrong
            component = file.object(name).components["data"]
            file.stored(component).require_filled(stored[number])


def _are_right(file: FileObjects, run: Run, covered: Sequence[memoryview]) -> Bools:
    """Return a mask of the tensors without a digest to check, and of those that match it.

    Those whose digests are of another kind than the first, or are not spelled as our writers do,
    are left to the general way, as if they did not match.

    Args:
        file: the file.
        run: the tensors.
        covered: of each the bytes that its digest covers.
    """
    first = next((place.digest for _, place in run.named if place.digest is not None), None)
    if first is None or file.verify is False:
        return np.ones(len(run.named), np.bool_)
    algorithm = ALGORITHMS.get(first.partition(":")[0])
    spelled = (lambda _: "") if algorithm is None else algorithm.whole()
    return np.array(
        [
            place.digest is None or place.digest == spelled(memory)
            for (_, place), memory in zip(run.named, covered, strict=True)
        ],
        np.bool_,
    )


# --- Small ones ------------------------------------------------------------------------------


def take_small(file: FileObjects, named: Iterable[Named], take: Take, workers: int) -> None:
    """Read small tensors by runs, decode them, and check each; some are left out.

    Args:
        file: an open file, on this machine.
        named: names and places.
        take: called with a run, memory of each of its tensors, and a mask of those that are right.
        workers: how many threads to use where they pay.
    """
    groups: dict[str, list[Named]] = {}
    for name, place in named:
        if place.length <= _SMALL_BYTES:
            groups.setdefault(place.encoding, []).append((name, place))
    jobs: list[Callable[[], None]] = []
    nbytes = count = 0
    for word, some in groups.items():
        encoding = None
        if word != "raw":
            encoding = file.encodings.get(word)
            limit = min(_SMALL_BYTES, file.limits.decoded_bytes)
            some = [one for one in some if 0 < one[1].nbytes <= limit]  # noqa: PLW2901
            if encoding is None or not encoding.decodes_many or len(some) < _LEAST_PACKED:
                continue
        run = Run.of(some)
        some_bytes = (one.length if word == "raw" else one.nbytes for _, one in run.named)
        sizes = np.fromiter(some_bytes, np.int64, len(run.named))
        nbytes, count = nbytes + int(sizes.sum()), count + len(some)
        jobs += [
            functools.partial(_take_run, file, encoding, part, take)
            for part in run.cut_small(sizes)
        ]
    run_jobs(jobs, workers if nbytes > _LEAST_FOR_THREADS * count else 1)


def _take_run(file: FileObjects, encoding: Encoding | None, run: Run, take: Take) -> None:
    name = run.named[0][0]
    with file.located(name):
        file.source.require_unchanged()
        memory, starts = run.read(file.source)
    places = zip(starts.tolist(), run.named, strict=True)
    found = [memory[start : start + place.length] for start, (_, place) in places]
    if encoding is None:
        take(run, found, _are_right(file, run, found))
        return
    targets = [new_bytes(place.nbytes) for _, place in run.named]
    covers_decoded = file.object(name).components["data"].digest_covers_decoded
    right = np.ones(len(targets), np.bool_) if covers_decoded else _are_right(file, run, found)
    some = np.flatnonzero(right)
    into = [targets[number] for number in some.tolist()]
    lengths = np.array([len(found[number]) for number in some.tolist()], np.int64)
    right[some] = encoding.decode_small(memory, starts[some], lengths, into, file.limits)
    if covers_decoded:
        right &= _are_right(file, run, targets)
    take(run, targets, right)


def right_names(
    file: FileObjects, named: Iterable[Named], report: Callable[[int], None], workers: int
) -> set[str]:
    """Return the small plain tensors of which every byte was looked at and found right.

    Those that are not returned may be right as well. Of those that have bytes in common the first
    is looked at.

    Args:
        file: an open file whose digests are checked.
        named: the plain tensors to look at.
        report: called with stored bytes that were checked.
        workers: how many threads to use where they pay.
    """
    run = Run.of(  # of a bool any other byte is a number
        one for one in named if one[1].digest is not None and one[1].dtype.char != "?"
    )
    is_apart = np.append(True, run.offsets[1:] >= run.ends[:-1])
    right: set[str] = set()

    def note(run: Run, _: list[memoryview], mask: Bools) -> None:
        found = list(itertools.compress(run.named, mask.tolist()))
        right.update([name for name, _ in found])
        report(sum([place.length for _, place in found]))

    take_small(file, itertools.compress(run.named, is_apart.tolist()), note, workers)
    return right
