"""All objects of a file at once: views laid in bulk, or owned arrays filled by several threads.

Reading one object at a time goes through `file.py`, which this mirrors for the common case,
plain dense tensors; everything else is handed to it. Owned reads follow what was measured: large
tensors in arrays of their own (the system gives them huge pages), small neighbours together in
one read into shared memory, digests computed by the same thread while the bytes are in its cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.buffers import aligned
from ztensor.errors import UnsupportedError
from ztensor.model.later import LaterObjects
from ztensor.model.rules import align
from ztensor.model.table import Table, TableObjects
from ztensor.reading.component import digest_of
from ztensor.reading.each import OWN_BYTES, SLAB_BYTES, read_each
from ztensor.reading.plain import NO_CHECK, OTHER_CHECK, Checks, PlainTypes, usual_checks
from ztensor.reading.small import small_jobs
from ztensor.source.ahead import walked
from ztensor.source.base import fill_arriving
from ztensor.threads import run_jobs, thread_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ztensor.layout.base import Array
    from ztensor.model.manifest import TensorObject
    from ztensor.reading.file import FileObjects
    from ztensor.reading.objects import Objects

    Ints = np.ndarray[Any, np.dtype[np.int64]]

# Small neighbours are read together up to this long, which also is the unit threads share.
_JOB_BYTES = 4 << 20
# Dead bytes between two tensors that are cheaper to read than to jump over.
_GAP_BYTES = 64 << 10
# A run of equal tensors is laid at once from this many on.
_LEAST_RUN = 32
# Memory mirrors the file, which is read in long pieces, unless so many times as much is between.
_MOST_SPREAD = 2
_FEW_TYPES = 8
_JOB_ROWS = 256  # of those that are read one by one
# Of fewer tensors all are laid one by one before the runs are found.
_LEAST_FOR_RUNS = 256
_MOST_RANK = 16


def load_all(
    file: FileObjects, *, copy: bool, threads: int | None = None, separate: bool = False
) -> dict[str, Any]:
    """Return all objects by name, in the order of the file.

    Args:
        file: an open file.
        copy: False gives views of the file where that is possible; True owned memory.
        threads: how many fill owned memory; see `thread_count`.
        separate: True gives every owned array memory of its own. By default small ones share
            memory with their neighbours in the file, which is freed when the last of them is.

    Raises:
        FormatError: stored bytes are damaged.
        UnsupportedError: a type, encoding or layout is unknown here.
        LimitError: a safety cap is exceeded.
        SourceError: bytes could not be read.
    """
    file.require_open()
    workers = thread_count(threads)
    whole = None if copy else file.source.view()
    try:
        if file.source.prefers_long_reads and isinstance(file.manifest.objects, LaterObjects):
            return _load_later(file, copy=copy)
        if whole is None:
            return _load_owned(file, workers, separate=separate)
        if file.verify is True:  # every view is checked before it is handed out
            result: dict[str, Any] = {}
            read_each(file, file.names, workers, result, copy=False, separate=False)
            return result
        file.source.require_unchanged()
        return _load_views(file, whole, workers)
    except UnsupportedError as error:
        if error.object_name is not None and len(file.names) > 1:
            error.hint = error.hint or "ztensor.open reads the other objects by name"
        raise


def load_files(
    objects: Objects,
    load: Callable[..., dict[str, Any]],
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Load all objects of one file or of a set, file after file.

    Args:
        objects: those of what `ztensor.open` gave.
        load: loads all objects of one file, as `load_all` does.
        progress: called after each file with the bytes loaded so far and of all of them.
        options: passed on to `load`.

    Returns:
        Names to what `load` made of them, in the order of the objects.

    Raises:
        ZTensorError: what opening a file or `load` raises.
    """
    files = objects.parts()
    total, done = sum(file.nbytes for file in files), 0
    result: dict[str, Any] = {}
    for file in files:
        result.update(load(file, **options))
        done += file.nbytes
        if progress is not None:
            progress(done, total)
    return result if len(files) == 1 else {name: result[name] for name in objects.names}


def _load_views(file: FileObjects, whole: memoryview, workers: int) -> dict[str, Any]:
    objects = file.manifest.objects
    if isinstance(objects, TableObjects):
        rows = _rows_of(objects, file.limits.rank, checked=False)
        result = _in_order(objects, rows.table.names, _lay(rows, whole, 0))
    else:
        result = _lay_few(objects, file.limits.rank, whole)
    _read_others(file, workers, result, copy=False, separate=False)
    return result


def _lay_few(
    objects: Mapping[str, TensorObject], most_rank: int, whole: memoryview
) -> dict[str, Any]:
    """Return the arrays of a small manifest, None for those that are read one by one."""
    result: dict[str, Any] = {}
    dtypes = PlainTypes()
    for name, tensor_object in objects.items():
        result[name] = None
        dtype = dtypes.of(tensor_object)
        if dtype is not None and len(tensor_object.shape) <= most_rank:
            component = tensor_object.components["data"]
            with contextlib.suppress(ValueError, TypeError):  # more than NumPy can hold
                result[name] = np.ndarray(tensor_object.shape, dtype, whole, component.offset)
    return result


def _in_order(
    objects: Mapping[str, TensorObject], names: list[str], values: list[Array | None]
) -> dict[str, Any]:
    """Return the values by name, in the order of the file, with None for other objects."""
    found = dict(zip(names, values, strict=True))
    if len(found) == len(objects):
        return found
    return {**dict.fromkeys(objects), **found}


# --- Which objects, and where ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Plain dense tensors whose stored bytes are the elements as NumPy has them.

    Attributes:
        table: the tensors, none of them of 0 bytes.
        dtypes: the element types, by the table's types.
        checks: (count,) the digests of the bytes as numbers.
        kind: the kind of digest these are.
    """

    table: Table
    dtypes: list[np.dtype[Any]]
    checks: Ints
    kind: Checks

    def take(self, places: Ints) -> _Rows:
        """Return some of the rows."""
        return _Rows(self.table.take(places), self.dtypes, self.checks[places], self.kind)

    def dtype(self, row: int) -> np.dtype[Any]:
        """Return the element type of one."""
        return self.dtypes[self.table.types.item(row)]


def _rows_of(objects: Mapping[str, TensorObject], most_rank: int, *, checked: bool) -> _Rows:
    """Return those of a manifest's objects that are plain, with `checks` where they are used.

    An object of more dimensions than the limits allow is not one of them; reading it is an error.
    """
    if not isinstance(objects, TableObjects):
        return _rows_of_few(objects, most_rank, checked=checked)
    table = objects.table
    known = PlainTypes()
    dtypes: list[np.dtype[Any] | None] = [None] * len(table.spellings)
    few = len(table.spellings) <= _FEW_TYPES  # to look which are used takes longer
    for used in range(len(dtypes)) if few else np.unique(table.types).tolist():
        dtypes[used] = known.spelled(*table.spellings[used], is_exact=table.is_exact)
    has_dtype = np.array([dtype is not None for dtype in dtypes])
    kind = usual_checks(covers_decoded=table.digest_covers_decoded)
    rows = _Rows(
        table,
        [dtype or np.dtype(np.uint8) for dtype in dtypes],
        kind.numbers(table) if checked else np.full(len(table), NO_CHECK),
        kind,
    )
    is_plain = table.is_raw & (table.lengths > 0) & has_dtype[table.types]
    is_plain &= table.ranks <= most_rank
    return rows if is_plain.all() else rows.take(np.flatnonzero(is_plain))


def _rows_of_few(objects: Mapping[str, TensorObject], most_rank: int, *, checked: bool) -> _Rows:
    dtypes, kind_of_digest = PlainTypes(), usual_checks(covers_decoded=False)
    names, found = [], []
    kinds: dict[tuple[tuple[str, str | None], tuple[int, ...]], int] = {}
    for name, tensor_object in objects.items():
        component = tensor_object.components.get("data")
        if component is None or component.length == 0:
            continue
        if dtypes.of(tensor_object) is None or len(tensor_object.shape) > most_rank:
            continue
        kind_of_digest = usual_checks(covers_decoded=component.digest_covers_decoded)
        check = kind_of_digest.number(component.digest) if checked else NO_CHECK
        if check == OTHER_CHECK and ((digest := digest_of(component)) is None or not digest.known):
            check = NO_CHECK
        names.append(name)
        kind = kinds.setdefault(
            ((component.dtype, component.type), tensor_object.shape), len(kinds)
        )
        found.append((kind, component.offset, component.length, check))
    codes, offsets, lengths, checks = np.array(found, np.int64).reshape(-1, 4).T
    table = Table.of_raw(names, list(kinds), codes, offsets, lengths)
    found_dtypes = [dtypes.spelled(*spelling) for spelling in table.spellings]
    dtype_of = [dtype or np.dtype(np.uint8) for dtype in found_dtypes]
    return _Rows(table, dtype_of, checks, kind_of_digest)


def _lay(rows: _Rows, memory: memoryview, start: int) -> list[Array | None]:
    """Return arrays over the rows' bytes; None where NumPy cannot hold a shape.

    Args:
        rows: the rows.
        memory: what lies in the file from `start` on.
        start: an offset in the file.
    """
    values: list[Array | None] = []
    runs = _runs(rows.table)
    dims = [] if sum(map(len, runs)) == len(rows.table) else rows.table.dims.tolist()
    first = 0
    for run in runs:
        values += _lay_each(rows, dims, slice(first, run.start), memory, start)
        # Equal tensors at equal distances are the rows of one array, which costs a fourth.
        row, shape, dtype = run.start, rows.table.shape(run.start), rows.dtype(run.start)
        place, following = (rows.table.offsets[row : row + 2] - start).tolist()
        strides = np.ndarray(shape, dtype, memory, place).strides
        step = following - place
        values.extend(np.ndarray((len(run), *shape), dtype, memory, place, (step, *strides)))
        first = run.stop
    return values + _lay_each(rows, dims, slice(first, None), memory, start)


def _lay_each(
    rows: _Rows, dims: list[int], window: slice, memory: memoryview, start: int
) -> list[Array | None]:
    values: list[Array | None] = []
    table, dtypes, ndarray = rows.table, rows.dtypes, np.ndarray
    dim_starts = table.dim_starts[window]
    for kind, place, begin, end in zip(
        table.types[window].tolist(),
        (table.offsets[window] - start).tolist(),
        dim_starts.tolist(),
        (dim_starts + table.ranks[window]).tolist(),
        strict=True,
    ):
        try:
            values.append(ndarray(tuple(dims[begin:end]), dtypes[kind], memory, place))
        except (ValueError, TypeError):
            values.append(None)
    return values


def _runs(table: Table) -> list[range]:
    """Return runs of `_LEAST_RUN` or more tensors of one shape and type at equal distances."""
    count = len(table)
    if count < _LEAST_FOR_RUNS:
        return []
    here, there = slice(None, -1), slice(1, None)
    steps = np.diff(table.offsets)
    # The elements of an array of one dimension are no arrays: scalars stay single.
    is_like = table.ranks[here] == table.ranks[there]
    is_like &= (table.ranks[here] > 0) & (table.ranks[here] <= _MOST_RANK)
    is_like &= (table.types[here] == table.types[there]) & (steps >= table.lengths[here])
    for axis in range(min(int(table.ranks.max()), _MOST_RANK)):
        has_axis = np.flatnonzero(is_like & (table.ranks[here] > axis))
        starts = table.dim_starts + axis
        is_like[has_axis] = table.dims[starts[has_axis]] == table.dims[starts[has_axis + 1]]
    joins = is_like.copy()
    joins[1:] &= (steps[1:] == steps[:-1]) | ~is_like[:-1]
    edges = np.flatnonzero(np.diff(joins, prepend=False, append=False))
    pairs = edges.reshape(-1, 2).tolist()
    return [range(start, stop + 1) for start, stop in pairs if stop - start >= _LEAST_RUN]


def _read_others(
    file: FileObjects, workers: int, result: dict[str, Any], *, copy: bool, separate: bool
) -> None:
    """Read the objects that were not laid: small encoded ones by runs, the rest one by one."""
    objects = file.manifest.objects
    workers = min(workers, file.thread_count(workers))
    others = sum(value is None for value in result.values())
    if not others:
        return
    with walked(file.source) if others == len(objects) else contextlib.nullcontext():
        _read_rest(file, workers, result, copy=copy, separate=separate)


def _read_rest(
    file: FileObjects, workers: int, result: dict[str, Any], *, copy: bool, separate: bool
) -> None:
    objects = file.manifest.objects
    if isinstance(objects, TableObjects) and not file.source.prefers_long_reads:
        jobs, is_shared = small_jobs(file, objects, result, separate=separate)
        run_jobs(jobs, workers if is_shared else 1)
    others = file.in_file_order(name for name, value in result.items() if value is None)
    read_each(file, others, workers, result, copy=copy, separate=separate)


def _load_later(file: FileObjects, *, copy: bool) -> dict[str, Any]:
    """Read objects that say beside their bytes what they are: each with its bytes, in their order.

    To look at each before would be a request for each.
    """
    objects = file.manifest.objects
    found: dict[str, Any] = dict(file.arrays_at_once(objects))
    with walked(file.source):
        for name in file.in_file_order(name for name in objects if name not in found):
            found[name] = file.value(name, copy=copy)
    return {name: found[name] for name in objects}


# --- Owned memory ---------------------------------------------------------------------------


def _load_owned(file: FileObjects, workers: int, *, separate: bool) -> dict[str, Any]:
    objects = file.manifest.objects
    rows = _rows_of(objects, file.limits.rank, checked=file.verify is not False)
    if file.source.prefers_long_reads and 2 * int(rows.table.lengths.sum()) < file.source.size:
        rows = rows.take(np.empty(0, np.int64))  # most is encoded: all in one pass, in its order
    offsets = rows.table.offsets
    order = np.argsort(offsets, kind="stable")
    in_file = rows if (order[1:] > order[:-1]).all() else rows.take(order)
    values: list[Array | None] = []
    shifted: list[int] = []
    jobs: list[Callable[[], None]] = []
    arriving: list[tuple[int, memoryview, Callable[[], None]]] = []
    for group in _groups(in_file.table, separate=separate):
        part = in_file.take(group)
        table = part.table
        start = table.offsets.item(0)
        span = int((table.offsets + table.lengths).max()) - start
        if not file.source.prefers_long_reads and span > _MOST_SPREAD * int(table.lengths.sum()):
            packed, slab = _packed(part)
            values += _lay(packed, slab.data, 0)
            jobs.extend(_fill_apart(file, part, packed, slab.data))
            continue
        slab = aligned(span)
        shifted += [len(values) + row for row in _shifted(part, start)]
        values += _lay(part, slab.data, start)
        if file.source.prefers_long_reads:
            if len(table) > 1:
                check = functools.partial(_check_filled, file, part, slab.data, start)
                arriving.append((start, slab.data, check))
            else:
                arriving.extend(_pieces(file, table.names[0], slab.data))
            continue
        if len(table) > 1:
            jobs.extend(_fill_runs(file, part, slab.data, start))
        elif workers > 1:
            jobs.extend(_in_pieces(file, table.names[0], slab.data))
        else:
            jobs.append(functools.partial(_fill_one, file, table.names[0], slab.data))
    fill_arriving(file.source, arriving)
    run_jobs(jobs, workers)
    for place in shifted:
        values[place] = None if (value := values[place]) is None else value.copy()
    # In the order of the file's names, which need not be that of its bytes.
    result = _in_order(objects, in_file.table.names, values)
    if in_file is not rows:
        result = {name: result[name] for name in objects}
    _read_others(file, workers, result, copy=True, separate=separate)
    return result


def _groups(table: Table, *, separate: bool) -> Iterable[Ints]:
    """Yield tensors that share memory: neighbours in the file, a slab at most."""
    count = len(table)
    if count == 0:
        return
    is_alone = (table.lengths >= OWN_BYTES) | separate
    ends = np.maximum.accumulate(table.offsets + table.lengths)
    is_border = is_alone[1:] | is_alone[:-1] | (table.offsets[1:] > ends[:-1] + _GAP_BYTES)
    borders = [0, *(np.flatnonzero(is_border) + 1).tolist(), count]
    for start, stop in itertools.pairwise(borders):
        first = start
        while first < stop:
            bound = table.offsets[first] + SLAB_BYTES
            after = int(np.searchsorted(ends[first:stop], bound, "right")) + first
            after = max(after, first + 1)
            yield np.arange(first, after)
            first = after


def _shifted(rows: _Rows, start: int) -> list[int]:
    """Return the rows whose elements are no multiple of their width away from an offset."""
    widths = np.array([dtype.itemsize for dtype in rows.dtypes])
    table = rows.table
    found: list[int] = np.flatnonzero((table.offsets - start) % widths[table.types]).tolist()
    return found


def _packed(rows: _Rows) -> tuple[_Rows, Array]:
    """Return rows as they lie in memory where it does not mirror the file, and that memory."""
    ends = np.cumsum(align(rows.table.lengths))
    table = dataclasses.replace(rows.table, offsets=np.append(0, ends[:-1]))
    return dataclasses.replace(rows, table=table), aligned(ends.item(-1))


def _fill_apart(
    file: FileObjects, rows: _Rows, packed: _Rows, memory: memoryview
) -> Iterable[Callable[[], None]]:
    """Yield the reads of tensors that lie far apart, each read by itself."""
    for first in range(0, len(rows.table), _JOB_ROWS):
        some = np.arange(first, min(first + _JOB_ROWS, len(rows.table)))
        yield functools.partial(_fill_some, file, rows.take(some), packed.take(some), memory)


def _fill_some(file: FileObjects, rows: _Rows, packed: _Rows, memory: memoryview) -> None:
    begins = packed.table.offsets
    places = zip(begins.tolist(), (begins + packed.table.lengths).tolist(), strict=True)
    pieces = [memory[begin:end] for begin, end in places]
    with file.located(rows.table.names[0]):
        file.source.read_many(list(zip(rows.table.offsets.tolist(), pieces, strict=True)))
    _check_filled(file, packed, memory, 0)


def _in_pieces(file: FileObjects, name: str, memory: memoryview) -> Iterable[Callable[[], None]]:
    """Yield the reads of one large tensor, each hashed while it is in cache."""

    def fill(offset: int, piece: memoryview, check: Callable[[], None]) -> None:
        with file.located(name, "data"):
            file.source.read_into(offset, piece)
        check()

    return [functools.partial(fill, *piece) for piece in _pieces(file, name, memory)]


def _pieces(
    file: FileObjects, name: str, memory: memoryview
) -> Iterator[tuple[int, memoryview, Callable[[], None]]]:
    """Yield the pieces of one large tensor: where in the file, the memory, what to do once filled.

    Each is hashed while it is in cache, in their order; the last compares the digest.
    """

    def checked(done: Callable[[], None]) -> None:
        with file.located(name, "data"):
            done()

    for offset, piece, done in file.stored(file.object(name).components["data"]).parts(memory):
        yield offset, piece, functools.partial(checked, done)


def _require_digest(file: FileObjects, name: str, memory: memoryview) -> None:
    with file.located(name, "data"):
        file.stored(file.object(name).components["data"]).require_copy(memory)


def _fill_runs(
    file: FileObjects, rows: _Rows, memory: memoryview, start: int
) -> Iterable[Callable[[], None]]:
    """Yield the reads that fill a group's memory, each a run of neighbours."""
    table = rows.table
    ends = np.maximum.accumulate(table.offsets + table.lengths)
    first = 0
    while first < len(table):
        bound = table.offsets[first] + _JOB_BYTES
        after = max(int(np.searchsorted(ends, bound, "right")), first + 1)
        yield functools.partial(_fill_run, file, rows.take(np.arange(first, after)), memory, start)
        first = after


def _fill_one(file: FileObjects, name: str, memory: memoryview) -> None:
    with file.located(name, "data"):
        file.stored(file.object(name).components["data"]).fill(memory)


def _fill_run(file: FileObjects, rows: _Rows, memory: memoryview, start: int) -> None:
    """Read neighbours at once, and check each while it is in the processor's cache."""
    table = rows.table
    begins = (table.offsets - start).tolist()
    ends = (table.offsets + table.lengths - start).tolist()
    first, last = begins[0], max(ends)
    with file.located(table.names[0]):
        file.source.read_into(start + first, memory[first:last])
    _check_filled(file, rows, memory, start)


def _check_filled(file: FileObjects, rows: _Rows, memory: memoryview, start: int) -> None:
    """Check the digests of tensors that were read; `memory` has what lies from `start` on."""
    table = rows.table
    begins = (table.offsets - start).tolist()
    ends = (table.offsets + table.lengths - start).tolist()
    if not (rows.checks != NO_CHECK).any():
        return
    number = rows.kind.function()
    found = [number(memory[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    checks = rows.checks.tolist()
    if found == checks:
        return
    for row, check in enumerate(checks):
        if check not in (NO_CHECK, found[row]):
            _require_digest(file, table.names[row], memory[begins[row] : ends[row]])
