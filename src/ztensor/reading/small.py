"""Small tensors of a table by runs of neighbours: encoded ones decoded, all of them checked.

To look at each by itself takes longer than the work. So a run is read at once, and each of its
tensors is checked, and decoded into memory they share. What is not as small data usually is (a
digest of another kind, a frame of another form, anything wrong) is left to those who look at each.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.digest import crc32c
from ztensor.encoding.base import EncodingOfSmall
from ztensor.layout.base import empty_array
from ztensor.model.dtype import element_count
from ztensor.reading.plain import NO_CHECK, OTHER_CHECK, PlainTypes, check_of, checks_of
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from ztensor.model.table import TableObjects
    from ztensor.reading.file import FileObjects

_MOST_STORED = 128 << 10  # of one tensor
_MOST_DECODED = 128 << 10
# A run, which is one job: so much is read at once, and so much memory is shared.
_RUN_STORED = 512 << 10
_RUN_DECODED = 2 << 20
# Threads pay where decoding takes longer than to hand it over, which holds the interpreter.
_LEAST_FOR_THREADS = 4 << 10
# One in so many names, and fewer, are looked at one by one.
_FEW = 16
_ALIGNMENT = 64


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
    runs = list(_runs(_small(file, objects)))
    count = sum(map(len, runs))
    total = sum(one.nbytes for run in runs for one in run)
    jobs = [
        functools.partial(_decode, file, encoding, run, result, separate=separate) for run in runs
    ]
    return jobs, total > _LEAST_FOR_THREADS * count


def _small(file: FileObjects, objects: TableObjects) -> Iterator[_Small]:
    table, types = objects.table, PlainTypes()
    is_small = ~table.is_raw & (table.lengths <= _MOST_STORED) & (table.ranks <= file.limits.rank)
    chosen = np.flatnonzero(is_small)
    order = chosen[np.argsort(table.offsets[chosen], kind="stable")]
    dtypes: dict[int, np.dtype[Any] | None] = {}
    most = min(_MOST_DECODED, file.limits.decoded_bytes)
    is_checked = file.verify is not False
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
        check = check_of(table.digest(row)) if is_checked else NO_CHECK
        if table.digest_covers_decoded and check != NO_CHECK:
            continue
        if 0 < nbytes <= most and declared in (-1, nbytes) and check != OTHER_CHECK:
            yield _Small(table.names[row], offset, length, shape, dtype, nbytes, check)


def _runs(tensors: Iterator[_Small]) -> Iterator[list[_Small]]:
    """Yield neighbours that are read at once."""
    run: list[_Small] = []
    nbytes = 0
    for one in tensors:
        end = one.offset + one.length
        if run and (end - run[0].offset > _RUN_STORED or nbytes + one.nbytes > _RUN_DECODED):
            yield run
            run, nbytes = [], 0
        run.append(one)
        nbytes += one.nbytes
    if run:
        yield run


def _decode(
    file: FileObjects,
    encoding: EncodingOfSmall,
    run: list[_Small],
    result: dict[str, Any],
    *,
    separate: bool,
) -> None:
    start = run[0].offset
    stored = empty_array((max(one.offset + one.length for one in run) - start,), _BYTES).data
    with file.located(run[0].name):
        file.source.require_unchanged()
        file.source.read_into(start, stored)
    crc, ndarray = crc32c(), np.ndarray
    slab, place = _BYTES_OF_NONE, 0
    if not separate:
        room = sum(-(-one.nbytes // _ALIGNMENT) * _ALIGNMENT for one in run)
        slab = empty_array((room,), _BYTES).data
    with encoding.decoding_small() as decode:
        for name, offset, length, shape, dtype, nbytes, check in run:
            piece = stored[offset - start : offset - start + length]
            if check != NO_CHECK and crc(piece, 0) != check:
                continue
            if separate:
                slab, place = empty_array((nbytes,), _BYTES).data, 0
            if not decode(piece, slab[place : place + nbytes]):
                continue
            try:
                result[name] = ndarray(shape, dtype, slab, place)
            except (ValueError, TypeError):  # more than NumPy can hold
                continue
            place += -(-nbytes // _ALIGNMENT) * _ALIGNMENT


# --- Checked --------------------------------------------------------------------------------


def checked_small(
    file: FileObjects,
    objects: TableObjects,
    names: Collection[str],
    report: Callable[[int], None],
    workers: int,
) -> set[str]:
    """Return the small tensors of which every byte was looked at and found right.

    They have a crc32c that matches, and decode to what their shape needs. Those that are not
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
    if table.digest_covers_decoded or len(names) < len(objects) // _FEW:
        return set()
    kinds = [
        # Any byte is a number; of bools there are two.
        pair[0] != "bool" and types.spelled(*pair, is_exact=table.is_exact) is not None
        for pair in table.spellings
    ]
    checks, offsets, lengths = checks_of(table), table.offsets, table.lengths
    chosen = (checks >= 0) & (lengths > 0) & (lengths <= _MOST_STORED)
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
    encoded = {one.name: one for one in _small(file, objects)} if encoding is not None else {}
    every = len(names) == len(objects)
    wanted = names if every else frozenset(names)
    plain: list[_Small] = []
    rows = rows[is_apart]
    for row, is_raw, offset, length, check in zip(
        rows.tolist(),
        table.is_raw[rows].tolist(),
        offsets[rows].tolist(),
        lengths[rows].tolist(),
        checks[rows].tolist(),
        strict=True,
    ):
        name = table.names[row]
        if not every and name not in wanted:
            continue
        if is_raw:
            plain.append(_Small(name, offset, length, (), _BYTES, 0, check))
        elif name in encoded:
            plain.append(_Small(*encoded[name][:-1], check))
    found: set[str] = set()
    jobs = [
        functools.partial(_check, file, encoding, run, found, report) for run in _runs(iter(plain))
    ]
    is_shared = sum(one.nbytes for one in plain) > _LEAST_FOR_THREADS * len(plain)
    run_jobs(jobs, workers if is_shared else 1)
    return found


def _check(
    file: FileObjects,
    encoding: EncodingOfSmall | None,
    run: list[_Small],
    found: set[str],
    report: Callable[[int], None],
) -> None:
    start = run[0].offset
    stored = empty_array((max(one.offset + one.length for one in run) - start,), _BYTES).data
    with file.located(run[0].name):
        file.source.require_unchanged()
        file.source.read_into(start, stored)
    crc, right, nbytes = crc32c(), [], 0
    scratch = empty_array((max(one.nbytes for one in run),), _BYTES).data
    lending = contextlib.nullcontext(None) if encoding is None else encoding.decoding_small()
    with lending as decode:
        for one in run:
            piece = stored[one.offset - start : one.offset - start + one.length]
            if crc(piece, 0) != one.check:
                continue
            if one.nbytes and (decode is None or not decode(piece, scratch[: one.nbytes])):
                continue
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
