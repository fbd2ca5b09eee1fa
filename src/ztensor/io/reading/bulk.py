"""Many small plain tensors at once: neighbours are read together, decoded, checked in the cache.

Loading keeps what was read (`loading.py`), `verify` does not. What each takes by itself is longer
than the work on it. Whatever is wrong, or of another form, is left to the general way, which looks
at each and says what it is.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ztensor.buffers import aligned, new_bytes
from ztensor.errors import ZTensorError
from ztensor.io.collecting import no_collection
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.places import Places
from ztensor.io.source.base import Source
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.encoding import Encoding
from ztensor.spec.encoding.base import Held
from ztensor.spec.model.manifest import ALIGNMENT
from ztensor.spec.model.objects import Bools, Ints
from ztensor.threads import run_jobs

# Small: of so many bytes at most; larger ones are looked at one by one.
_SMALL_BYTES = 4 << 20
_SMALL_ENCODED_BYTES = 128 << 10  # stored and decoded
# So much of these is read, decoded and checked at a time, while it is in the cache.
_RUN_BYTES = 4 << 20
# What is kept shares memory by so much: systems fill long memory with large pages.
_SLAB_BYTES = 64 << 20
# Dead bytes between two tensors that are read, and kept: the heads of archives are fewer.
_GAP_BYTES = 1 << 10
# Threads pay where the work on a tensor takes longer than to hand it over, which holds the
# interpreter.
_LEAST_FOR_THREADS = 4 << 10

Take = Callable[[Places, list[memoryview], Bools], None]


def take_small(
    file: FileObjects, places: Places, take: Take, workers: int, *, are_kept: bool
) -> None:
    """Read small tensors by runs, decode them, and check each; some are left out.

    Args:
        file: an open file, on this machine.
        places: the tensors.
        take: called with a run, memory of each of its tensors, and a mask of those that are right.
        workers: how many threads to use where they pay.
        are_kept: whether the memory is kept, which raw neighbours then share.
    """
    jobs: list[Callable[[], None]] = []
    nbytes = count = 0
    for word in dict.fromkeys(kind.encoding for kind in places.kinds):
        is_small = places.where(lambda kind, word=word: kind.encoding == word)  # type: ignore[misc]
        encoding, most = None, _SMALL_BYTES
        if word != "raw":
            encoding, sizes = file.encodings.get(word), places.nbytes()
            most = min(_SMALL_ENCODED_BYTES, file.limits.decoded_bytes)
            is_small &= (sizes > 0) & (sizes <= most)
            if encoding is None or not file.is_common(word):  # another format's may have no place
                continue
        is_small &= places.lengths <= most
        if are_kept and encoding is None:  # they begin in memory as in the file: aligned, or left
            is_small &= places.offsets % places.widths() == 0
        if not is_small.any():
            continue
        run = in_order(places.rows(is_small))
        sizes = run.lengths if encoding is None else run.nbytes()
        nbytes, count = nbytes + int(sizes.sum()), count + len(run.names)
        work = functools.partial(_take_run, file, encoding, take)
        if are_kept and encoding is None:
            for slab in map(run.rows, _cut(run, _SLAB_BYTES)):
                memory, starts = _laid(slab)
                jobs += [
                    functools.partial(work, slab.rows(part), (memory, starts[part]))
                    for part in _cut(slab, _RUN_BYTES)
                ]
        else:
            decoded = 0 if encoding is None else sizes
            parts = _cut(run, _RUN_BYTES, decoded)
            jobs += [functools.partial(work, run.rows(part)) for part in parts]
    with no_collection():
        run_jobs(jobs, workers if nbytes > _LEAST_FOR_THREADS * count else 1)


def in_order(places: Places) -> Places:
    """Return tensors in the order of their bytes."""
    order = np.argsort(places.offsets, kind="stable")
    return places if (order[1:] > order[:-1]).all() else places.rows(order)


def ends_of(run: Places) -> Ints:
    """Return (count,) where the bytes of all tensors of a run so far end."""
    return np.maximum.accumulate(run.offsets + run.lengths)


def _cut(run: Places, most: int, decoded: Ints | int = 0) -> Iterator[slice]:
    """Yield which tensors are read and decoded at a time.

    Args:
        run: tensors in the order of their bytes.
        most: how many bytes are read, and decoded, in all.
        decoded: (count,) the bytes that each is decoded to.
    """
    ends = ends_of(run)
    starts = np.maximum(run.offsets, np.append(0, ends[:-1]))
    done = np.cumsum(np.maximum(ends - starts, 0) + decoded)
    borders = np.flatnonzero(np.diff(done // most)) + 1
    yield from map(slice, [0, *borders.tolist()], [*borders.tolist(), len(done)])


def _laid(run: Places) -> tuple[memoryview, Ints]:
    """Return memory for the bytes of all, few dead ones between, and where in it each begins.

    Each begins as it does in the file, counted within 64 bytes.
    """
    ends = ends_of(run)
    firsts = np.flatnonzero(np.append(True, run.offsets[1:] > ends[:-1] + _GAP_BYTES))
    lows = run.offsets[firsts] // ALIGNMENT * ALIGNMENT
    stops = ends[np.append(firsts[1:], len(ends)) - 1]
    lengths = -(-stops // ALIGNMENT) * ALIGNMENT - lows
    places = np.cumsum(lengths)
    shifts = np.repeat(places - lengths - lows, np.diff(firsts, append=len(ends)))
    return aligned(places.item(-1)).data, run.offsets + shifts


def _read(run: Places, source: Source, memory: memoryview, starts: Ints) -> None:
    """Fill memory that was laid out for these tensors, perhaps among others."""
    ends, shifts = ends_of(run), starts - run.offsets
    firsts = np.flatnonzero(np.append(True, np.diff(shifts) != 0))
    stops = ends[np.append(firsts[1:], len(ends)) - 1]
    parts = zip(run.offsets[firsts].tolist(), stops.tolist(), shifts[firsts].tolist(), strict=True)
    source.read_many([(start, memory[start + to : stop + to]) for start, stop, to in parts])


def _take_run(
    file: FileObjects,
    encoding: Encoding | None,
    take: Take,
    run: Places,
    laid: tuple[memoryview, Ints] | None = None,
) -> None:
    name = run.names[0]
    with file.located(name):
        file.source.require_unchanged()
        memory, starts = laid or _laid(run)
        _read(run, file.source, memory, starts)
    places = zip(starts.tolist(), (starts + run.lengths).tolist(), strict=True)
    found = [memory[start:stop] for start, stop in places]
    if encoding is None:
        take(run, found, _are_right(file, run, found))
        return
    targets = [new_bytes(nbytes) for nbytes in run.nbytes().tolist()]
    covers_decoded = file.object(name).components["data"].is_exact
    right = np.ones(len(targets), np.bool_) if covers_decoded else _are_right(file, run, found)
    for number in np.flatnonzero(right).tolist():
        try:
            encoding.decode_into(Held(found[number]), targets[number], file.limits)
        except ZTensorError:
            right[number] = False
    if covers_decoded:
        right &= _are_right(file, run, targets)
    take(run, targets, right)


def _are_right(file: FileObjects, run: Places, covered: Sequence[memoryview]) -> Bools:
    """Return a mask of the tensors without a digest to check, and of those that match it.

    Those whose digests are of another kind than the first, or are not spelled as our writers do,
    are left to the general way, as if they did not match.

    Args:
        file: the file.
        run: the tensors.
        covered: of each the bytes that its digest covers.
    """
    first = next(filter(None, run.digests), None)
    if first is None or file.verify is False:
        return np.ones(len(run.names), np.bool_)
    algorithm = ALGORITHMS.get(first.partition(":")[0])
    spelled = (lambda _: "") if algorithm is None else algorithm.whole()
    pairs = zip(run.digests, map(spelled, covered), strict=True)
    return np.array([digest in (found, None) for digest, found in pairs], np.bool_)


def right_names(
    file: FileObjects, places: Places, report: Callable[[int], None], workers: int
) -> set[str]:
    """Return the small plain tensors of which every byte was looked at and found right.

    Those that are not returned may be right as well. Of those that have bytes in common the first
    is looked at.

    Args:
        file: an open file whose digests are checked.
        places: the tensors to look at.
        report: called with stored bytes that were checked.
        workers: how many threads to use where they pay.
    """
    # Of a bool any other byte is a number.
    is_held = places.where(lambda kind: kind.dtype.char != "?")
    is_held &= np.array([digest is not None for digest in places.digests], np.bool_)
    run = in_order(places.rows(is_held))
    is_apart = np.append(True, run.offsets[1:] >= ends_of(run)[:-1])[: len(run.names)]
    right: set[str] = set()

    def note(run: Places, _: list[memoryview], mask: Bools) -> None:
        right.update(itertools.compress(run.names, mask.tolist()))
        report(int(run.lengths[mask].sum()))

    take_small(file, run.rows(is_apart), note, workers, are_kept=False)
    return right
