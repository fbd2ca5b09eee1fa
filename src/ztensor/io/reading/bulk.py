"""Many plain tensors at once: neighbours are read together, and each is checked in the cache.

Loading keeps what was read (`loading.py`), `verify` does not. Small encoded tensors are decoded by
runs: what each takes by itself is longer than the work. Whatever is wrong, or of another form, is
left to the general way, which looks at each and says what it is.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.spec.digest import ALGORITHMS
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from ztensor.io.reading.file import FileObjects
    from ztensor.io.reading.places import Place
    from ztensor.spec.encoding import Encoding
    from ztensor.spec.model.objects import Bools

    Ints = np.ndarray[Any, np.dtype[np.int64]]

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
        names: their names.
        places: where they are.
        offsets: (count,) their first bytes in the file.
        lengths: (count,) their bytes.
    """

    names: Sequence[str]
    places: Sequence[Place]
    offsets: Ints
    lengths: Ints

    @classmethod
    def of(cls, places: Collection[tuple[str, Place]]) -> Self:
        """Return tensors in the order of their bytes."""
        found = sorted(places, key=lambda one: one[1].offset)
        offsets = np.fromiter((one.offset for _, one in found), np.int64, len(found))
        lengths = np.fromiter((one.length for _, one in found), np.int64, len(found))
        return cls([name for name, _ in found], [one for _, one in found], offsets, lengths)

    def __len__(self) -> int:
        return len(self.names)

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to `stop`."""
        rows = slice(start, stop)
        return Rows(self.names[rows], self.places[rows], self.offsets[rows], self.lengths[rows])

    def stored(self, memory: memoryview) -> list[memoryview]:
        """Return the stored bytes of each, in memory that begins with those of the first."""
        starts = (self.offsets - self.offsets[0]).tolist()
        return [
            memory[start : start + place.length]
            for start, place in zip(starts, self.places, strict=True)
        ]

    def runs(self, most: int, alone: int, gap: int = _GAP_BYTES) -> Iterator[Rows]:
        """Yield neighbours that are read together, at most so many bytes.

        Args:
            most: bytes from the first byte of a run to its last; a longer tensor is a run.
            alone: tensors of so many bytes are runs by themselves.
            gap: dead bytes between two at most.
        """
        if not len(self):
            return
        ends = np.maximum.accumulate(self.offsets + self.lengths)
        is_alone = self.lengths >= alone
        is_border = is_alone[1:] | is_alone[:-1] | (self.offsets[1:] > ends[:-1] + gap)
        borders = [0, *(np.flatnonzero(is_border) + 1).tolist(), len(self)]
        for start, stop in itertools.pairwise(borders):
            first = start
            while first < stop:
                bound = self.offsets[first] + most
                after = first + int(np.searchsorted(ends[first:stop], bound, "right"))
                yield self.part(first, max(after, first + 1))
                first = max(after, first + 1)


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
        name = rows.names[number]
        with file.located(name, "data"):  # the general way says what is wrong
            component = file.object(name).components["data"]
            file.stored(component).require_filled(stored[number])


def _are_right(file: FileObjects, rows: Rows, covered: Sequence[memoryview]) -> Bools:
    """Return which tensors have no digest to check, or match it as our writers spell it.

    Args:
        file: the file.
        rows: the tensors.
        covered: of each the bytes that its digest covers.
    """
    is_checked = file.verify is not False
    return np.array(
        [
            place.digest is None or not is_checked or _is_right(place.digest, memory)
            for place, memory in zip(rows.places, covered, strict=True)
        ],
        np.bool_,
    )


def _is_right(text: str, memory: memoryview) -> bool:
    whole = _whole(text.partition(":")[0])
    return whole is not None and whole(memory) == text


@functools.cache
def _whole(algorithm: str) -> Callable[[Buffer], str] | None:
    known = ALGORITHMS.get(algorithm)
    return None if known is None else known.whole()


# --- Small ones ------------------------------------------------------------------------------


def packed_jobs(
    file: FileObjects, places: Iterable[tuple[str, Place | None]], result: dict[str, Any]
) -> tuple[list[Callable[[], None]], bool]:
    """Return what decodes small encoded tensors, and whether threads are worth it.

    Those of another form, or with anything wrong, are left out of the result.

    Args:
        file: an open file, on this machine.
        places: where its tensors are.
        result: takes the arrays by name.
    """
    jobs: list[Callable[[], None]] = []
    nbytes = count = 0
    for encoding, rows in _packed(file, places):
        nbytes, count = nbytes + sum(one.nbytes for one in rows.places), count + len(rows)
        jobs += [
            functools.partial(_decode_run, file, encoding, run, result)
            for run in rows.runs(_PACKED_RUN_BYTES, _SMALL_BYTES + 1)
        ]
    return jobs, nbytes > _LEAST_FOR_THREADS * count


def _packed(
    file: FileObjects, places: Iterable[tuple[str, Place | None]]
) -> Iterator[tuple[Encoding, Rows]]:
    """Yield the small encoded tensors of each encoding that decodes many at once."""
    found: dict[str, list[tuple[str, Place]]] = {}
    most = min(_SMALL_BYTES, file.limits.decoded_bytes)
    for name, place in places:
        if place is None or place.encoding == "raw" or place.length > _SMALL_BYTES:
            continue
        if 0 < place.nbytes <= most:
            found.setdefault(place.encoding, []).append((name, place))
    for word, some in found.items():
        encoding = file.encodings.get(word)
        if encoding is not None and encoding.decodes_many and len(some) >= _LEAST_PACKED:
            yield encoding, Rows.of(some)


def _decode_run(file: FileObjects, encoding: Encoding, run: Rows, result: dict[str, Any]) -> None:
    targets, right = _decoded(file, encoding, run)
    for number in np.flatnonzero(right).tolist():
        result[run.names[number]] = run.places[number].array(targets[number], 0)


def _decoded(file: FileObjects, encoding: Encoding, run: Rows) -> tuple[list[memoryview], Bools]:
    """Decode a run; return memory of each and which passed, that of the others is undefined."""
    memory = _read(file, run)
    targets = [new_bytes(place.nbytes) for place in run.places]
    covers_decoded = file.object(run.names[0]).components["data"].digest_covers_decoded
    right = np.ones(len(run), np.bool_)
    if not covers_decoded:
        right &= _are_right(file, run, run.stored(memory))
    some = np.flatnonzero(right)
    into = [targets[number] for number in some.tolist()]
    starts = run.offsets[some] - run.offsets[0]
    right[some] = encoding.decode_small(memory, starts, run.lengths[some], into, file.limits)
    if covers_decoded:
        right &= _are_right(file, run, targets)
    return targets, right


def _read(file: FileObjects, run: Rows) -> memoryview:
    """Return the bytes of a run, from the first of its first tensor on."""
    start = run.offsets.item(0)
    memory = new_bytes(int((run.offsets + run.lengths).max()) - start)
    with file.located(run.names[0]):
        file.source.require_unchanged()
        file.source.read_into(start, memory)
    return memory


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
    places = [
        (name, place)
        for name, place in file.places().every().items()
        if name in wanted
        and place is not None
        and place.digest is not None
        and place.length <= _SMALL_BYTES
        and place.dtype != np.bool_  # any other byte is a number
    ]
    raw = _apart(Rows.of([one for one in places if one[1].encoding == "raw"]))
    right: set[str] = set()

    def check(run: Rows) -> None:
        note(run, _are_right(file, run, run.stored(_read(file, run))))

    def check_packed(encoding: Encoding, run: Rows) -> None:
        note(run, _decoded(file, encoding, run)[1])

    def note(run: Rows, found: Bools) -> None:
        right.update(itertools.compress(run.names, found.tolist()))
        report(int(run.lengths[found].sum()))

    jobs: list[Callable[[], None]] = [
        functools.partial(check, run) for run in raw.runs(RUN_BYTES, RUN_BYTES)
    ]
    nbytes, count = int(raw.lengths.sum()), len(raw)
    for encoding, some in _packed(file, places):
        rows = _apart(some)
        nbytes, count = nbytes + sum(one.nbytes for one in rows.places), count + len(rows)
        jobs += [
            functools.partial(check_packed, encoding, run)
            for run in rows.runs(_PACKED_RUN_BYTES, _SMALL_BYTES + 1)
        ]
    run_jobs(jobs, workers if nbytes > _LEAST_FOR_THREADS * count else 1)
    return right


def _apart(rows: Rows) -> Rows:
    """Return the first of tensors that have bytes in common, and those that have none."""
    if not len(rows):
        return rows
    reach = np.maximum.accumulate(rows.offsets + rows.lengths)
    apart = np.flatnonzero(np.append(True, rows.offsets[1:] >= reach[:-1])).tolist()
    return Rows.of([(rows.names[row], rows.places[row]) for row in apart])
