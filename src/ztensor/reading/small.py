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
from ztensor.model.rules import align
from ztensor.reading.plain import NO_CHECK, OTHER_CHECK, PlainTypes, usual_checks
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

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
# NumPy's arrays have no more dimensions.
_MOST_RANK = 64
# Of fewer encoded ones each is looked at by itself: arrays of few numbers cost what one does.
_LEAST_PACKED = 6
# One in so many names, and fewer, are looked at one by one.
_FEW = 16


class _Small(NamedTuple):
    """Small tensors that are plain once they are decoded, by columns, in the order of the file."""

    names: list[str]
    offsets: Ints
    lengths: Ints
    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]
    nbytes: Ints
    checks: Ints

    def part(self, run: slice) -> _Small:
        """Return some that follow each other."""
        columns: tuple[Any, ...] = self
        return _Small(*(column[run] for column in columns))


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
    encoding, table = _encoding(file, objects), objects.table
    rows = np.flatnonzero(~table.is_raw)
    if encoding is None or len(rows) < _LEAST_PACKED:
        return [], False
    rows = rows[np.argsort(table.offsets[rows], kind="stable")]
    checks = np.full(len(rows), NO_CHECK)
    if file.verify is not False:
        checks = usual_checks(covers_decoded=table.digest_covers_decoded).numbers(table)[rows]
    small = _small(file, table, rows, checks)
    runs = _runs(file, small.offsets, small.lengths, small.nbytes)
    # The next begins where blobs may.
    rooms = [int(align(small.nbytes[run]).sum()) for run in runs]
    slab, place, left = _BYTES_OF_NONE, 0, 0 if separate else sum(rooms)
    jobs = []
    for run, room in zip(runs, rooms, strict=True):
        if not separate and place + room > len(slab):
            slab, place = new_bytes(max(room, min(left, _SLAB_BYTES))), 0
        memory = None if separate else slab[place : place + room]
        jobs.append(functools.partial(_decode, file, encoding, small.part(run), result, memory))
        place, left = place + room, left - room
    return jobs, int(small.nbytes.sum()) > _LEAST_FOR_THREADS * len(small.names)


def _small(file: FileObjects, table: Table, rows: Ints, checks: Ints) -> _Small:
    """Return those of some rows that are small and plain.

    Args:
        file: the file.
        table: its table.
        rows: the rows, in the order of the file.
        checks: the digests of these rows, as numbers.
    """
    types, ranks = PlainTypes(), table.ranks[rows]
    dtypes = [types.spelled(*pair, is_exact=table.is_exact) for pair in table.spellings]
    chosen = np.array([one is not None for one in dtypes], np.bool_)[table.types[rows]]
    chosen &= (table.lengths[rows] > 0) & (table.lengths[rows] <= _MOST_STORED)
    chosen &= checks != OTHER_CHECK
    chosen &= ranks <= min(file.limits.rank, _MOST_RANK)
    rows, checks, ranks = rows[chosen], checks[chosen], ranks[chosen]
    shapes: list[tuple[int, ...]] = [()] * len(rows)
    counts = np.ones(len(rows))  # exact up to 2^53, which is far more than is small
    for rank in sorted(set(ranks.tolist())):
        some = np.flatnonzero(ranks == rank)
        dims = table.dims[table.dim_starts[rows[some], None] + np.arange(rank)]
        with np.errstate(invalid="ignore", over="ignore"):  # of no elements beside endless ones
            counts[some] = dims.prod(axis=1, dtype=np.float64)
        for number, shape in zip(some.tolist(), dims.tolist(), strict=True):
            shapes[number] = tuple(shape)
    sizes = np.array([0 if one is None else one.itemsize for one in dtypes])[table.types[rows]]
    most = min(_MOST_DECODED, file.limits.decoded_bytes)
    is_small = (counts > 0) & (counts * sizes <= most)
    nbytes = np.where(is_small, counts, 0).astype(np.int64) * sizes
    declared = table.decoded_lengths[rows]
    kept = np.flatnonzero(is_small & ((declared == -1) | (declared == nbytes)))
    rows = rows[kept]
    return _Small(
        [table.names[row] for row in rows.tolist()],
        table.offsets[rows],
        table.lengths[rows],
        [shapes[number] for number in kept.tolist()],
        [dtypes[kind] for kind in table.types[rows].tolist()],
        nbytes[kept],
        checks[kept],
    )


def _runs(file: FileObjects, offsets: Ints, lengths: Ints, nbytes: Ints) -> list[slice]:
    """Return which of some tensors in the order of the file are one job each."""
    if not len(offsets):
        return []
    reach = np.maximum.accumulate(offsets + lengths)
    read = np.where(_is_near(file, offsets, reach), np.diff(reach), lengths[1:])
    stored, decoded = np.cumsum(np.append(lengths[:1], read)), np.cumsum(nbytes)
    cuts = [0]
    while (first := cuts[-1]) < len(offsets):
        most = stored[first] - lengths[first] + _RUN_STORED
        end = np.searchsorted(stored, most, "right")
        most = decoded[first] - nbytes[first] + _RUN_DECODED
        end = min(end, np.searchsorted(decoded, most, "right"))
        cuts.append(max(first + 1, int(end)))
    return [slice(*pair) for pair in itertools.pairwise(cuts)]


def _is_near(file: FileObjects, offsets: Ints, reach: Ints) -> Bools:
    """Return which tensors but the first are read together with those before."""
    # So many bytes that nobody asked for are read, so as to read once.
    gap = _RUN_STORED if file.source.prefers_long_reads else _GAP_BYTES
    return np.less_equal(offsets[1:], reach[:-1] + gap)


def _stored(file: FileObjects, name: str, offsets: Ints, lengths: Ints) -> tuple[memoryview, Ints]:
    """Read the bytes of a run; return them, and where in them each tensor begins.

    Args:
        file: the file.
        name: the first of the tensors, for an error.
        offsets: where they lie, in the order of the file.
        lengths: bytes of each.
    """
    reach = np.maximum.accumulate(offsets + lengths)
    firsts = np.flatnonzero(np.concatenate(([True], ~_is_near(file, offsets, reach))))
    starts, stops = offsets[firsts], reach[np.append(firsts[1:], len(offsets)) - 1]
    # Where each part that is read at once begins in memory, and so each tensor.
    begins = np.cumsum(stops - starts) - (stops - starts)
    memory = new_bytes(int((stops - starts).sum()))
    parts = zip(starts.tolist(), begins.tolist(), (begins + stops - starts).tolist(), strict=True)
    with file.located(name):
        file.source.require_unchanged()
        file.source.read_many([(start, memory[low:high]) for start, low, high in parts])
    return memory, offsets + np.repeat(begins - starts, np.diff(firsts, append=len(offsets)))


def _cut(memory: memoryview, starts: Ints, lengths: Ints) -> list[memoryview]:
    """Return pieces of memory."""
    ends = (starts + lengths).tolist()
    return [memory[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]


def _decode(
    file: FileObjects,
    encoding: EncodingOfSmall,
    run: _Small,
    result: dict[str, Any],
    slab: memoryview | None,
) -> None:
    if slab is None:
        targets = memories = [new_bytes(nbytes) for nbytes in run.nbytes.tolist()]
        places = [0] * len(targets)
    else:
        rooms = align(run.nbytes)
        starts = np.cumsum(rooms) - rooms
        targets, memories = _cut(slab, starts, run.nbytes), [slab] * len(rooms)
        places = starts.tolist()
    right, ndarray = _decoded(file, encoding, run, targets).tolist(), np.ndarray
    for name, shape, dtype, memory, place in itertools.compress(
        zip(run.names, run.shapes, run.dtypes, memories, places, strict=True), right
    ):
        with contextlib.suppress(ValueError, TypeError):  # more than NumPy can hold
            result[name] = ndarray(shape, dtype, memory, place)


def _decoded(
    file: FileObjects, encoding: EncodingOfSmall, run: _Small, targets: list[memoryview]
) -> Bools:
    """Decode a run, and return of which tensors all is right; the others fill with anything."""
    covers_decoded = file.manifest.objects.table.digest_covers_decoded  # type: ignore[attr-defined]  # they are from one
    kind, is_free = usual_checks(covers_decoded=covers_decoded), run.checks == NO_CHECK
    memory, starts = _stored(file, run.names[0], run.offsets, run.lengths)
    if covers_decoded or is_free.all():
        right = encoding.decode_small(memory, starts, run.lengths, targets, file.limits)
    else:
        right = kind.are_right(_cut(memory, starts, run.lengths), run.checks) | is_free
        some = np.flatnonzero(right)
        into = [targets[number] for number in some.tolist()]
        right[some] = encoding.decode_small(
            memory, starts[some], run.lengths[some], into, file.limits
        )
    if covers_decoded and not is_free.all():
        right &= kind.are_right(targets, run.checks) | is_free
    return right


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
        for run in _runs(file, offsets[raw], lengths[raw], lengths[raw])
    ]
    nbytes, count = int(lengths[raw].sum()), len(raw)
    if encoding is not None and len(packed) >= _LEAST_PACKED:
        small = _small(file, table, packed, checks[packed])
        jobs += [
            functools.partial(_check, file, encoding, small.part(run), found, report)
            for run in _runs(file, small.offsets, small.lengths, small.nbytes)
        ]
        nbytes, count = nbytes + int(small.nbytes.sum()), count + len(small.names)
    run_jobs(jobs, workers if nbytes > _LEAST_FOR_THREADS * count else 1)
    return found


def _check_raw(
    file: FileObjects,
    table: Table,
    rows: Ints,
    checks: Ints,
    found: set[str],
    report: Callable[[int], None],
) -> None:
    """Check raw tensors that do not overlap, in the order of the file."""
    offsets, lengths, names = table.offsets[rows], table.lengths[rows], table.names
    memory, starts = _stored(file, names[rows[0]], offsets, lengths)
    kind = usual_checks(covers_decoded=table.digest_covers_decoded)
    is_right = kind.are_right(_cut(memory, starts, lengths), checks)
    found.update([names[row] for row in rows[is_right].tolist()])
    report(int(lengths[is_right].sum()))


def _check(
    file: FileObjects,
    encoding: EncodingOfSmall,
    run: _Small,
    found: set[str],
    report: Callable[[int], None],
) -> None:
    stops = np.cumsum(run.nbytes)
    targets = _cut(new_bytes(stops.item(-1)), stops - run.nbytes, run.nbytes)
    is_right = _decoded(file, encoding, run, targets)
    found.update(itertools.compress(run.names, is_right.tolist()))
    report(int(run.lengths[is_right].sum()))


def _encoding(file: FileObjects, objects: TableObjects) -> EncodingOfSmall | None:
    """Return the one encoding of a table beside raw, where it decodes little data in few steps."""
    encoding = file.encodings.get(objects.table.packed)
    return encoding if isinstance(encoding, EncodingOfSmall) else None


_BYTES_OF_NONE = memoryview(b"")
