"""Many plain tensors at once: neighbours are read together, and each is checked in the cache.

Loading keeps what was read (`loading.py`), `verify` does not. Small encoded tensors are decoded by
runs: what each takes by itself is longer than the work. Whatever is wrong, or of another form, is
left to the general way, which looks at each and says what it is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.places import Place
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.encoding import Encoding
from ztensor.spec.model.objects import Bools
from ztensor.threads import run_jobs

Named = tuple[str, Place]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Job = Callable[[], None]

# Dead bytes between two tensors that are cheaper to read than to jump over.
_GAP_BYTES = 64 << 10
# Neighbours are read together up to this long, which also is the unit threads share.
RUN_BYTES = 4 << 20
# Small: of so many bytes at most, stored and decoded; larger ones are looked at one by one.
_SMALL_BYTES = 128 << 10
# So much is read for a run of encoded ones: it is still in the cache when it is decoded.
_PACKED_RUN_BYTES = 512 << 10
# Of fewer encoded ones each is looked at by itself: arrays of few numbers cost what one does.
_LEAST_PACKED = 6
# Threads pay where the work on a tensor takes longer than to hand it over, which holds the
# interpreter.
_LEAST_FOR_THREADS = 4 << 10


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Plain tensors in the order of their bytes.

    Attributes:
        named: their names and places.
        offsets: (count,) int64, their first bytes in the file.
        lengths: (count,) int64, their bytes.
    """

    named: Sequence[Named]
    offsets: Ints
    lengths: Ints

    @classmethod
    def of(cls, named: Iterable[Named]) -> Self:
        """Return tensors in the order of their bytes."""
        found = sorted(named, key=lambda one: one[1].offset)
        offsets = np.fromiter((place.offset for _, place in found), np.int64, len(found))
        lengths = np.fromiter((place.length for _, place in found), np.int64, len(found))
        return cls(found, offsets, lengths)

    def __len__(self) -> int:
        return len(self.named)

    @property
    def span(self) -> tuple[int, int]:
        """Return where the bytes of the first begin, and the last of all end."""
        return self.offsets.item(0), int((self.offsets + self.lengths).max())

    def stored(self, memory: memoryview) -> list[memoryview]:
        """Return the stored bytes of each, in memory that begins with those of the first."""
        first = self.named[0][1].offset
        return [
            memory[place.offset - first : place.offset - first + place.length]
            for _, place in self.named
        ]

    def runs(self, most: int, alone: int, gap: int = _GAP_BYTES) -> Iterator[Rows]:
        """Yield neighbours that are read together, at most so many bytes.

        Args:
            most: bytes from the first byte of a run to its last; a longer tensor is a run.
            alone: tensors of so many bytes are runs by themselves.
            gap: dead bytes between two at most.
        """
        ends = np.maximum.accumulate(self.offsets + self.lengths)
        is_alone = self.lengths >= alone
        is_border = is_alone[1:] | is_alone[:-1] | (self.offsets[1:] > ends[:-1] + gap)
        borders = [0, *(np.flatnonzero(is_border) + 1).tolist(), len(self)]
        for first, stop in itertools.pairwise(borders):
            while first < stop:
                bound = self.offsets[first] + most
                after = first + int(np.searchsorted(ends[first:stop], bound, "right"))
                rows = slice(first, max(after, first + 1))
                yield Rows(self.named[rows], self.offsets[rows], self.lengths[rows])
                first = rows.stop  # noqa: PLW2901  # the run behind begins there


def require_right(file: FileObjects, rows: Rows, memory: memoryview) -> None:
    """Check the digests of tensors that were read.

    Args:
        file: the file.
        rows: the tensors.
        memory: the file's bytes from the first of theirs on.

    Raises:
        DigestMismatchError: one does not match its digest.
    """
    stored = rows.stored(memory)
    for number in np.flatnonzero(~_are_right(file, rows, stored)).tolist():
        name = rows.named[number][0]
        with file.located(name, "data"):  # the general way says what is wrong
            component = file.object(name).components["data"]
            file.stored(component).require_filled(stored[number])


def _are_right(file: FileObjects, rows: Rows, covered: Sequence[memoryview]) -> Bools:
    """Return a mask of the tensors without a digest to check, and of those that match it.

    Those whose digests are of another kind than the first, or are not spelled as our writers do,
    are left to the general way, as if they did not match.

    Args:
        file: the file.
        rows: the tensors.
        covered: of each the bytes that its digest covers.
    """
    first = next((place.digest for _, place in rows.named if place.digest is not None), None)
    if first is None or file.verify is False:
        return np.ones(len(rows), np.bool_)
    algorithm = ALGORITHMS.get(first.partition(":")[0])
    spelled = (lambda _: "") if algorithm is None else algorithm.whole()
    return np.array(
        [
            place.digest is None or place.digest == spelled(memory)
            for (_, place), memory in zip(rows.named, covered, strict=True)
        ],
        np.bool_,
    )


# --- Small ones ------------------------------------------------------------------------------


def packed_jobs(
    file: FileObjects, named: Iterable[tuple[str, Place | None]], result: dict[str, Any]
) -> tuple[list[Job], bool]:
    """Return what decodes small encoded tensors, and whether threads are worth it.

    Those of another form, or with anything wrong, are left out of the result.

    Args:
        file: an open file, on this machine.
        named: its tensors and where they are.
        result: takes the arrays by name.
    """

    def put(run: Rows, targets: list[memoryview], right: Bools) -> None:
        for number in np.flatnonzero(right).tolist():
            name, place = run.named[number]
            result[name] = place.array(targets[number], 0)

    return _jobs(file, _packed(file, named), put)


def right_names(
    file: FileObjects, names: Collection[str], report: Callable[[int], None], workers: int
) -> set[str]:
    """Return the small plain tensors of which every byte was looked at and found right.

    Those that are not returned may be right as well.

    Args:
        file: an open file whose digests are checked.
        names: those to look at.
        report: called with stored bytes that were checked.
        workers: how many threads to use where they pay.
    """
    wanted = frozenset(names)
    named = [
        (name, place)
        for name, place in file.places().items()
        if name in wanted
        and place is not None
        and place.digest is not None
        and place.length <= _SMALL_BYTES
        and place.dtype.char != "?"  # of a bool any other byte is a number
    ]
    right: set[str] = set()

    def note(run: Rows, _: list[memoryview], mask: Bools) -> None:
        right.update(run.named[number][0] for number in np.flatnonzero(mask).tolist())
        report(int(run.lengths[mask].sum()))

    raw = Rows.of(one for one in named if one[1].encoding == "raw")
    groups = [(None, raw), *_packed(file, named)]
    jobs, is_shared = _jobs(file, [(encoding, _apart(rows)) for encoding, rows in groups], note)
    run_jobs(jobs, workers if is_shared else 1)
    return right


def _apart(rows: Rows) -> Rows:
    """Return the first of tensors that have bytes in common, and those that have none."""
    reach = np.maximum.accumulate(rows.offsets + rows.lengths)
    is_apart = np.append(True, rows.offsets[1:] >= reach[:-1])
    return Rows.of(itertools.compress(rows.named, is_apart.tolist()))


def _packed(
    file: FileObjects, named: Iterable[tuple[str, Place | None]]
) -> Iterator[tuple[Encoding, Rows]]:
    """Yield the small encoded tensors of each encoding that decodes many at once."""
    found: dict[str, list[Named]] = {}
    most = min(_SMALL_BYTES, file.limits.decoded_bytes)
    for name, place in named:
        if place is None or place.encoding == "raw" or place.length > _SMALL_BYTES:
            continue
        if 0 < place.nbytes <= most:
            found.setdefault(place.encoding, []).append((name, place))
    for word, some in found.items():
        encoding = file.encodings.get(word)
        if encoding is not None and encoding.decodes_many and len(some) >= _LEAST_PACKED:
            yield encoding, Rows.of(some)


def _jobs(
    file: FileObjects,
    groups: Iterable[tuple[Encoding | None, Rows]],
    take: Callable[[Rows, list[memoryview], Bools], None],
) -> tuple[list[Job], bool]:
    """Return what reads small tensors by runs, and whether threads are worth it.

    Args:
        file: the file.
        groups: encodings, None for raw, and tensors.
        take: called with a run, memory of each of its tensors, and a mask of those that are right.
    """
    jobs: list[Job] = []
    nbytes = count = 0
    for encoding, rows in groups:
        is_raw, count = encoding is None, count + len(rows)
        nbytes += int(rows.lengths.sum()) if is_raw else sum(one.nbytes for _, one in rows.named)
        most = RUN_BYTES if is_raw else _PACKED_RUN_BYTES
        jobs += [
            functools.partial(_read, file, encoding, run, take)
            for run in rows.runs(most, _SMALL_BYTES + 1)
        ]
    return jobs, nbytes > _LEAST_FOR_THREADS * count


def _read(
    file: FileObjects,
    encoding: Encoding | None,
    run: Rows,
    take: Callable[[Rows, list[memoryview], Bools], None],
) -> None:
    """Read a run, decode it, and check each; memory of those that are not right is undefined."""
    (start, stop), name = run.span, run.named[0][0]
    memory = new_bytes(stop - start)
    with file.located(name):
        file.source.require_unchanged()
        file.source.read_into(start, memory)
    stored = run.stored(memory)
    if encoding is None:
        take(run, stored, _are_right(file, run, stored))
        return
    targets = [new_bytes(place.nbytes) for _, place in run.named]
    right = np.ones(len(run), np.bool_)
    covers_decoded = file.object(name).components["data"].digest_covers_decoded
    if not covers_decoded:
        right &= _are_right(file, run, stored)
    some = np.flatnonzero(right)
    into = [targets[number] for number in some.tolist()]
    starts = run.offsets[some] - start
    right[some] = encoding.decode_small(memory, starts, run.lengths[some], into, file.limits)
    if covers_decoded:
        right &= _are_right(file, run, targets)
    take(run, targets, right)
