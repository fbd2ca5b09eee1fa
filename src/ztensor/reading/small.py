"""Small tensors of a table by runs of neighbours: encoded ones decoded, all of them checked.

To look at each by itself takes longer than the work. So a run is read at once, and each of its
tensors is checked, and decoded into memory they share. What is not as small data usually is (a
digest of another kind, a frame of another form, anything wrong) is left to those who look at each.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.encoding.base import EncodingOfSmall
from ztensor.model.dtype import element_count
from ztensor.model.rules import align
from ztensor.reading.plain import NO_CHECK, OTHER_CHECK, PlainTypes, usual_checks
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ztensor.limits import Limits
    from ztensor.model.table import Bools, Ints, Table, TableObjects
    from ztensor.reading.file import FileObjects

_MOST_STORED = 128 << 10  # of one tensor
_MOST_DECODED = 128 << 10
# A run, which is one job: so much is read, and decoded.
_RUN_STORED = 512 << 10
_RUN_DECODED = 2 << 20
# Dead bytes between two that are cheaper to read than to jump over, where a read costs little.
_GAP_BYTES = 16 << 10
# Memory that neighbours share: long, as the system gives the first byte of a few MiB as slowly.
_SLAB_BYTES = 64 << 20
# Threads pay where decoding takes longer than to hand it over, which holds the interpreter.
_LEAST_FOR_THREADS = 4 << 10
# One in so many names, and fewer, are looked at one by one.
_FEW = 16


class _Small(NamedTuple):
    name: str
    offset: int
    length: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    check: int


def small_jobs(
    file: FileObjects, objects: TableObjects, result: dict[str, Any], *, separate: bool
) -> tuple[Sequence[Callable[[], None]], bool]:
    """Return what decodes the small tensors among a file's, and whether threads pay.

    Args:
        file: an open file.
        objects: its objects.
        result: where arrays go, by name; what is not decoded here stays as it is.
        separate: whether each array gets memory of its own.
    """
    encoding = _encoding(file, objects)
    if encoding is None:
        return [], False
    runs = list(_runs(file, _small(file, objects)))
    count = sum(map(len, runs))
    total = sum(one.nbytes for run in runs for one in run)
    rooms = [sum(map(_room, run)) for run in runs]
    slab, place, left = _BYTES_OF_NONE, 0, 0 if separate else sum(rooms)
    jobs = []
    for run, room in zip(runs, rooms, strict=True):
        if not separate and place + room > len(slab):
            slab, place = new_bytes(max(room, min(left, _SLAB_BYTES))), 0
        memory = None if separate else slab[place : place + room]
        jobs.append(functools.partial(_decode, file, encoding, run, result, memory))
        place, left = place + room, left - room
    return jobs, total > _LEAST_FOR_THREADS * count


def _room(one: _Small) -> int:
    """Return the shared memory that one takes: the next begins where blobs may."""
    return align(one.nbytes)


def _small(file: FileObjects, objects: TableObjects) -> Iterator[_Small]:
    table, types = objects.table, PlainTypes()
    is_small = ~table.is_raw & (table.lengths <= _MOST_STORED) & (table.ranks <= file.limits.rank)
    chosen = np.flatnonzero(is_small)
    order = chosen[np.argsort(table.offsets[chosen], kind="stable")]
    dtypes: dict[int, np.dtype[Any] | None] = {}
    most = min(_MOST_DECODED, file.limits.decoded_bytes)
    is_checked = file.verify is not False
    checks = usual_checks(covers_decoded=table.digest_covers_decoded)
    for row, kind, offset, length, declared in zip(
        order.tolist(),
        table.types[order].tolist(),
        table.offsets[order].tolist(),
        table.lengths[order].tolist(),
        table.decoded_lengths[order].tolist(),
        strict=True,
    ):
        if kind not in dtypes:
            dtypes[kind] = types.spelled(*table.spellings[kind], is_exact=table.is_exact)
        dtype = dtypes[kind]
        if dtype is None:
            continue
        shape = table.shape(row)
        nbytes = element_count(shape) * dtype.itemsize
        check = checks.number(table.digest(row)) if is_checked else NO_CHECK
        if 0 < nbytes <= most and declared in (-1, nbytes) and check != OTHER_CHECK:
            yield _Small(table.names[row], offset, length, shape, dtype, nbytes, check)


def _runs(file: FileObjects, tensors: Iterator[_Small]) -> Iterator[list[_Small]]:
    """Yield neighbours that are one job."""
    run: list[_Small] = []
    stored = nbytes = end = 0
    gap = _gap(file)
    for one in tensors:
        stop = one.offset + one.length
        more = stop - one.offset if not run or one.offset > end + gap else max(0, stop - end)
        if run and (stored + more > _RUN_STORED or nbytes + one.nbytes > _RUN_DECODED):
            yield run
            run, stored, nbytes, more = [], 0, 0, one.length
        run.append(one)
        stored, nbytes, end = stored + more, nbytes + one.nbytes, max(end, stop)
    if run:
        yield run


def _gap(file: FileObjects) -> int:
    """Return how many bytes nobody asked for are read, so as to read once."""
    return _RUN_STORED if file.source.prefers_long_reads else _GAP_BYTES


def _stored(file: FileObjects, run: list[_Small]) -> list[memoryview]:
    """Return the stored bytes of a run's tensors, those of neighbours read at once."""
    gap, pieces = _gap(file), []
    first = 0
    with file.located(run[0].name):
        file.source.require_unchanged()
        while first < len(run):
            start, last, end = run[first].offset, first, run[first].offset
            while last < len(run) and run[last].offset <= end + gap:
                end = max(end, run[last].offset + run[last].length)
                last += 1
            memory = new_bytes(end - start)
            file.source.read_into(start, memory)
            begins = [one.offset - start for one in run[first:last]]
            pieces += [
                memory[begin : begin + one.length]
                for begin, one in zip(begins, run[first:last], strict=True)
            ]
            first = last
    return pieces


def _decode(
    file: FileObjects,
    encoding: EncodingOfSmall,
    run: list[_Small],
    result: dict[str, Any],
    slab: memoryview | None,
) -> None:
    stored, ndarray, place = _stored(file, run), np.ndarray, 0
    table = file.manifest.objects.table  # type: ignore[attr-defined]  # they are from one
    with _checking(encoding, file.limits, covers_decoded=table.digest_covers_decoded) as is_right:
        for one, piece in zip(run, stored, strict=True):
            if slab is None:
                memory, start = new_bytes(one.nbytes), 0
            else:
                memory, start = slab, place
            if not is_right(one, piece, memory[start : start + one.nbytes]):
                continue
            try:
                result[one.name] = ndarray(one.shape, one.dtype, memory, start)
            except (ValueError, TypeError):  # more than NumPy can hold
                continue
            place += _room(one)


@contextlib.contextmanager
def _checking(
    encoding: EncodingOfSmall | None, limits: Limits, *, covers_decoded: bool
) -> Iterator[Callable[[_Small, memoryview, memoryview], bool]]:
    """Lend what decodes one tensor, and says whether that was done and all is right with it.

    Args:
        encoding: theirs; None where all are raw.
        limits: the caps in force.
        covers_decoded: whether their digests cover decoded bytes.
    """
    number = usual_checks(covers_decoded=covers_decoded).function()
    lending = contextlib.nullcontext(None) if encoding is None else encoding.decoding_small(limits)
    with lending as decode:

        def is_right(one: _Small, stored: memoryview, memory: memoryview) -> bool:
            is_checked, is_raw = one.check != NO_CHECK, not one.nbytes
            is_early = is_raw or not covers_decoded
            if is_checked and is_early and number(stored) != one.check:
                return False
            if not is_raw and (decode is None or not decode(stored, memory)):
                return False
            return is_early or not is_checked or number(memory) == one.check

        yield is_right


# --- Checked --------------------------------------------------------------------------------


def checked_small(
    file: FileObjects,
    objects: TableObjects,
    names: Collection[str],
    report: Callable[[int], None],
    workers: int,
) -> set[str]:
    """Return the small tensors of which every byte was looked at and found right.

    They have a digest that matches, and decode to what their shape needs. Those that are not
    returned may be right as well.

    Args:
        file: an open file.
        objects: its objects.
        names: those to look at.
        report: called with stored bytes that were checked.
        workers: how many threads to use where they pay.
    """
    table, types = objects.table, PlainTypes()
    # Of few among many the whole table is not gone through.
    if len(names) < len(objects) // _FEW:
        return set()
    kinds = [
        # Any byte is a number; of bools there are two.
        pair[0] != "bool" and types.spelled(*pair, is_exact=table.is_exact) is not None
        for pair in table.spellings
    ]
    covers_decoded, offsets, lengths = table.digest_covers_decoded, table.offsets, table.lengths
    checks = usual_checks(covers_decoded=covers_decoded).numbers(table)
    chosen = (checks != NO_CHECK) & (checks != OTHER_CHECK)
    chosen &= (lengths > 0) & (lengths <= _MOST_STORED)
    chosen &= np.array(kinds, np.bool_)[table.types] & (table.ranks <= file.limits.rank)
    encoding = _encoding(file, objects)
    if encoding is None:
        chosen &= table.is_raw
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(offsets[rows], kind="stable")]
    reach = np.maximum.accumulate(offsets[rows] + lengths[rows])
    # Bytes that several have are gone through once: here for the first of them.
    is_apart = np.concatenate(
        (np.ones(min(len(rows), 1), np.bool_), offsets[rows][1:] >= reach[:-1])
    )
    rows = rows[is_apart]
    if len(names) != len(objects):
        wanted = frozenset(names)
        rows = rows[np.fromiter((table.names[row] in wanted for row in rows), np.bool_, len(rows))]
    found: set[str] = set()
    raw, packed = rows[table.is_raw[rows]], rows[~table.is_raw[rows]]
    jobs: list[Callable[[], None]] = [
        functools.partial(_check_raw, file, table, raw[run], checks[raw[run]], found, report)
        for run in _raw_runs(file, offsets[raw], lengths[raw])
    ]
    small: list[_Small] = []
    if encoding is not None and len(packed):
        every = {one.name: one for one in _small(file, objects)}
        for row, check in zip(packed.tolist(), checks[packed].tolist(), strict=True):
            one = every.get(table.names[row])
            if one is not None:
                small.append(one._replace(check=check))
        jobs += [
            functools.partial(_check, file, encoding, run, found, report, covers_decoded)
            for run in _runs(file, iter(small))
        ]
    nbytes = int(lengths[raw].sum()) + sum(one.nbytes for one in small)
    is_shared = nbytes > _LEAST_FOR_THREADS * (len(raw) + len(small))
    run_jobs(jobs, workers if is_shared else 1)
    return found


def _raw_runs(file: FileObjects, offsets: Ints, lengths: Ints) -> list[slice]:
    """Return which raw tensors are one job, of those whose bytes follow each other."""
    if not len(offsets):
        return []
    ends = offsets + lengths
    cost = np.where(_is_near(file, offsets, ends), ends[1:] - ends[:-1], lengths[1:])
    run = np.cumsum(cost) // _RUN_STORED
    cuts = [0, *(np.flatnonzero(np.diff(run, prepend=0)) + 1).tolist(), len(offsets)]
    return [slice(*pair) for pair in itertools.pairwise(cuts)]


def _is_near(file: FileObjects, offsets: Ints, ends: Ints) -> Bools:
    """Return which tensors but the first are read together with the one before."""
    return np.less_equal(offsets[1:], ends[:-1] + _gap(file))


def _check_raw(
    file: FileObjects,
    table: Table,
    rows: Ints,
    checks: Ints,
    found: set[str],
    report: Callable[[int], None],
) -> None:
    """Check raw tensors that do not overlap, in the order of the file."""
    offsets, lengths = table.offsets[rows], table.lengths[rows]
    ends = offsets + lengths
    firsts = np.flatnonzero(np.concatenate(([True], ~_is_near(file, offsets, ends))))
    starts, stops = offsets[firsts], ends[np.append(firsts[1:], len(rows)) - 1]
    # Where each part that is read at once begins in memory, and so each tensor.
    begins = np.cumsum(stops - starts) - (stops - starts)
    memory = new_bytes(int((stops - starts).sum()))
    parts = zip(starts.tolist(), begins.tolist(), (begins + stops - starts).tolist(), strict=True)
    with file.located(table.names[rows[0]]):
        file.source.require_unchanged()
        file.source.read_many([(start, memory[low:high]) for start, low, high in parts])
    shift = np.repeat(begins - starts, np.diff(firsts, append=len(rows)))
    lows = (offsets + shift).tolist()
    pieces = [
        memory[low : low + length] for low, length in zip(lows, lengths.tolist(), strict=True)
    ]
    kind = usual_checks(covers_decoded=table.digest_covers_decoded)
    is_right = kind.are_right(pieces, checks)
    names = table.names
    found.update([names[row] for row in rows[is_right].tolist()])
    report(int(lengths[is_right].sum()))


def _check(
    file: FileObjects,
    encoding: EncodingOfSmall | None,
    run: list[_Small],
    found: set[str],
    report: Callable[[int], None],
    covers_decoded: bool,  # noqa: FBT001  # of one form
) -> None:
    right, nbytes = [], 0
    scratch = new_bytes(max(one.nbytes for one in run))
    with _checking(encoding, file.limits, covers_decoded=covers_decoded) as is_right:
        for one, piece in zip(run, _stored(file, run), strict=True):
            if is_right(one, piece, scratch[: one.nbytes]):
                right.append(one.name)
                nbytes += one.length
    found.update(right)
    report(nbytes)


def _encoding(file: FileObjects, objects: TableObjects) -> EncodingOfSmall | None:
    """Return the one encoding of a table beside raw, where it decodes little data in few steps."""
    encoding = file.encodings.get(objects.table.packed)
    return encoding if isinstance(encoding, EncodingOfSmall) else None


_BYTES = np.dtype(np.uint8)
_BYTES_OF_NONE = memoryview(b"")
