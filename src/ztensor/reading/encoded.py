"""Small encoded tensors of a table, decoded by runs of neighbours.

To look at each by itself takes longer than to decode it. So a run is read at once, and each of its
tensors is checked and decoded into memory they share. What is not as small data usually is (a
digest of another kind, a frame of another form, anything wrong) is left to `file.py`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.digest import crc32c
from ztensor.encoding.base import EncodingOfSmall
from ztensor.layout.base import empty_array
from ztensor.model.dtype import element_count
from ztensor.reading.plain import NO_CHECK, OTHER_CHECK, PlainTypes, check_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.model.table import TableObjects
    from ztensor.reading.file import FileObjects

_MOST_STORED = 128 << 10  # of one tensor
_MOST_DECODED = 128 << 10
# A run, which is one job: so much is read at once, and so much memory is shared.
_RUN_STORED = 512 << 10
_RUN_DECODED = 2 << 20
# Threads pay where decoding takes longer than to hand it over, which holds the interpreter.
_LEAST_FOR_THREADS = 4 << 10
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
) -> tuple[list[Callable[[], None]], bool]:
    """Return what decodes the small tensors among a file's, and whether threads pay.

    Args:
        file: an open file.
        objects: its objects.
        result: where arrays go, by name; what is not decoded here stays as it is.
        separate: whether each array gets memory of its own.
    """
    encoding = file.encodings.get("zstd")  # the one encoding of a table beside raw
    if not isinstance(encoding, EncodingOfSmall):
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
            dtypes[kind] = types.spelled(*table.spellings[kind])
        dtype = dtypes[kind]
        if dtype is None:
            continue
        shape = table.shape(row)
        nbytes = element_count(shape) * dtype.itemsize
        check = check_of(table.digest(row)) if is_checked else NO_CHECK
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


_BYTES = np.dtype(np.uint8)
_BYTES_OF_NONE = memoryview(b"")
