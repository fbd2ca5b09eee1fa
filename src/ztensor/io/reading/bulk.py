"""Read, decode and check many small native tensors in runs of neighbours.

For small tensors the overhead of a separate read exceeds the work. Loading keeps the memory
(`loading.py`), `verify` does not. Tensors that fail a check, or are not native, are left to the
general path, which reports the reason.
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

# The most bytes of a small raw tensor; larger ones are read one by one.
_SMALL_BYTES = 4 << 20
_SMALL_ENCODED_BYTES = 128 << 10  # stored and decoded
# The bytes that are read, decoded and checked at a time: they fit the processor's cache.
_RUN_BYTES = 4 << 20
# The size of a shared block of kept memory: systems back long memory with large pages.
_SLAB_BYTES = 64 << 20
# The largest gap between two tensors that is read along; headers of archive members are shorter.
_GAP_BYTES = 1 << 10
# Threads pay if the work on a tensor takes longer than handing it over under the GIL.
_LEAST_FOR_THREADS = 4 << 10

Take = Callable[[Places, list[memoryview], Bools], None]


def take_small(
    file: FileObjects, places: Places, take: Take, workers: int, *, are_kept: bool
) -> None:
    """Read, decode and check small tensors in runs. Larger ones are skipped.

    Args:
        file: an open local file.
        places: the tensors.
        take: called with a run, the memory of each tensor, and a mask of those that passed; the
            memory of the others is undefined.
        workers: the most threads to use.
        are_kept: True lets raw neighbours share memory blocks that are kept.
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
            # Another format may give no extent, and a typed encoding is another one for each kind.
            if encoding is None or encoding.is_typed or not file.is_common(word):
                continue
        is_small &= places.lengths <= most
        if are_kept and encoding is None:  # memory keeps the file's alignment: skip unaligned ones
            is_small &= places.offsets % places.widths() == 0
        if not is_small.any():
            continue
        run = in_order(places.rows(is_small))
        sizes = run.lengths if encoding is None else run.nbytes()
        nbytes, count = nbytes + int(sizes.sum()), count + len(run.names)
        work = functools.partial(_take_run, file, encoding, take)
        if are_kept and encoding is None:
            for slab in map(run.rows, _cut(run, _SLAB_BYTES)):
                memory, starts = _allocated(slab)
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
    """Return tensors in ascending order of their offsets."""
    order = np.argsort(places.offsets, kind="stable")
    return places if (order[1:] > order[:-1]).all() else places.rows(order)


def ends_of(run: Places) -> Ints:
    """Return (count,) int64, the running maximum of the tensors' ends."""
    return np.maximum.accumulate(run.offsets + run.lengths)


def _cut(run: Places, most: int, decoded: Ints | int = 0) -> Iterator[slice]:
    """Yield the slices of a run that are read and decoded at a time.

    Args:
        run: tensors in ascending order of their offsets.
        most: the bytes, read plus decoded, of a slice.
        decoded: (count,) the decoded length of each tensor.
    """
    ends = ends_of(run)
    starts = np.maximum(run.offsets, np.append(0, ends[:-1]))
    done = np.cumsum(np.maximum(ends - starts, 0) + decoded)
    borders = np.flatnonzero(np.diff(done // most)) + 1
    yield from map(slice, [0, *borders.tolist()], [*borders.tolist(), len(done)])


def _allocated(run: Places) -> tuple[memoryview, Ints]:
    """Allocate memory for a run. Return it with the start of each tensor in it, (count,) int64.

    Starts keep the offsets of the file modulo 64. Gaps of at most `_GAP_BYTES` are included.
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
    """Read a run into memory from `_allocated`, which may hold further runs."""
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
    memory_of: tuple[memoryview, Ints] | None = None,
) -> None:
    name = run.names[0]
    with file.located(name):
        file.source.require_unchanged()
        memory, starts = memory_of or _allocated(run)
        _read(run, file.source, memory, starts)
    extents = zip(starts.tolist(), (starts + run.lengths).tolist(), strict=True)
    stored = [memory[start:stop] for start, stop in extents]
    if encoding is None:
        take(run, stored, _are_right(file, run, stored))
        return
    targets = [new_bytes(nbytes) for nbytes in run.nbytes().tolist()]
    covers_decoded = file.object(name).components["data"].is_exact
    right = np.ones(len(targets), np.bool_) if covers_decoded else _are_right(file, run, stored)
    for number in np.flatnonzero(right).tolist():
        try:
            encoding.decode_into(Held(stored[number]), targets[number], file.limits)
        except ZTensorError:
            right[number] = False
    if covers_decoded:
        right &= _are_right(file, run, targets)
    take(run, targets, right)


def _are_right(file: FileObjects, run: Places, covered: Sequence[memoryview]) -> Bools:
    """Return a mask, (count,) bool, of the tensors that match their digest or have none.

    False also for digests with another algorithm than the first or with a spelling that our
    writers do not use: the general path checks these.

    Args:
        file: the file.
        run: the tensors.
        covered: the bytes under the digest of each tensor.
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
    """Return the names of small native tensors that match their digests.

    The others are not necessarily damaged: large, without digest, bools, or overlapping an earlier
    tensor.

    Args:
        file: an open file, not with `verify=False`.
        places: the tensors to check.
        report: called with the number of stored bytes that were checked.
        workers: the most threads to use.
    """
    # A matching digest does not make every byte of a bool 0 or 1.
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
