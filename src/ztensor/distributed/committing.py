"""How a save becomes the checkpoint: the root is written last, and then the old files go.

Until the root is in place, readers find the earlier checkpoint, if there is one; from then on the
new one. They never find parts of both, since no file is written to a second time.
"""

from __future__ import annotations

import collections
import contextlib
import io
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile, broken
from ztensor.distributed.cleaning import clean
from ztensor.distributed.part import PartRecord, let_go
from ztensor.distributed.place import ROOT, Place
from ztensor.distributed.root import encode_values, is_root, open_root, parse_root, write_root
from ztensor.distributed.saves import MOST_SHOWN, Save
from ztensor.errors import (
    FormatError,
    SourceError,
    SourceNotFoundError,
    UsageError,
    ZTensorError,
    counted,
    describe,
    system_call,
)
from ztensor.ext import Store, open_file
from ztensor.typing import Durable, Path, Storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Array = np.ndarray[Any, Any]


def commit(
    folder: Path,
    records: Iterable[PartRecord],
    values: Mapping[str, object] | None = None,
    *,
    overwrite: bool = True,
    durable: Durable = "auto",
    storage: Storage | None = None,
    writer: str = "",
) -> None:
    """Make the parts of all processes the checkpoint of a folder, atomically.

    One process calls it when all have finished. Parts of the replaced checkpoint, and of saves that
    died, are then removed.

    Args:
        folder: the folder of the processes' writers.
        records: the result of `PartWriter.finish` of each process.
        values: values beside the tensors by name: plain values of Python and NumPy, and containers
            of them, as in `ztensor.save_tree`.
        overwrite: False refuses to replace a checkpoint.
        durable: see `ztensor.typing.SaveOptions`.
        storage: see `ztensor.typing.OpenOptions`.
        writer: name of the calling library, such as `"torch"`; kept in the root.

    Raises:
        NotRepresentableError: a value that no file can hold; the message has its place.
        UsageError: the processes disagree about a tensor, their chunks do not tile it, the records
            are not from all processes of one save, or there is a checkpoint and `overwrite` is
            False. The earlier checkpoint stays.
        SourceError: a part is missing, or the root could not be written.
    """
    commit_as(
        folder,
        records,
        values or {},
        None,
        writer=writer,
        overwrite=overwrite,
        durable=durable,
        storage=storage,
    )


def commit_as(
    folder: Path,
    records: Iterable[PartRecord],
    values: Mapping[str, object],
    save: Save | None,
    *,
    writer: str,
    overwrite: bool,
    durable: Durable,
    storage: Storage | None,
) -> None:
    """Make the parts of processes the checkpoint of a folder; see `commit`.

    `save` is None if the records name it. Processes without collectives commit a checkpoint each,
    and pass the save that they have in common, for readers to compare.
    """
    place = Place(folder, storage)
    try:
        parts = list(records)
        save = save_of_records(place, parts) if save is None else save
        encoded = encode_values(values)
        table = merged([record.table for record in parts])
        try:
            table.require_valid()
        except FormatError as error:
            raise _as_usage(error, place) from error
        _require_free(place, overwrite=overwrite)
        _require_there(place, table)
        before = _files_before(place)
        sink = place.sink(ROOT, is_new=not overwrite, durable=durable)
        write_root(sink, table, encoded, writer, save=save, durable=durable)
        clean(place, {file.name for file in table.files}, before)
    except BaseException:
        let_go(place.name)
        raise


def _require_free(place: Place, *, overwrite: bool) -> None:
    """Raise if the root is a link, or exists and must not be replaced.

    Raises:
        UsageError: it does.
    """
    place.require_no_link()
    if not overwrite and place.has_root():
        raise Store.taken(place.shown(ROOT))


def _as_usage(error: FormatError, place: Place) -> UsageError:
    """Return an error about chunks as a mistake of the caller: no file is damaged."""
    usage = UsageError(error.message, file=place.name, expected=error.expected, found=error.found)
    usage.object_name = error.object_name
    return usage


def _require_there(place: Place, table: ChunkTable) -> None:
    """Raise if a part is missing, or has another length than its record says.

    Raises:
        SourceError: it is, or has.
    """
    for file in table.files:
        path = place.path(file.name)
        if path is None:
            continue  # stores write objects atomically
        with system_call("a part is missing", path):
            size = os.stat(path).st_size
        if size != file.size:
            raise SourceError(
                "a part has another length than when it was finished",
                file=path,
                expected=str(file.size),
                found=str(size),
            )


def _files_before(place: Place) -> list[str]:
    """Return the files of the root that is to be replaced; none if it cannot be read.

    Raises:
        UsageError: the file is intact, but not a root.
    """
    try:
        file = open_root(place)
    except SourceNotFoundError:
        return []
    except ZTensorError:
        return []  # damaged; a listing finds its parts
    try:
        if not is_root(file):
            error = UsageError("a file has the name of the root, but is not one", file=file.name)
            error.hint = "move it away, or save in another folder"
            raise error
        return [one.name for one in parse_root(file).files]
    except UsageError:
        raise
    except ZTensorError:
        return []
    finally:
        file.close()


# --- Tables of processes to one -------------------------------------------------------------


def merged(tables: list[ChunkTable]) -> ChunkTable:
    """Return the chunks of several processes as one table, in the order of tensors and boxes.

    Raises:
        UsageError: they disagree about a tensor, or about digests.
    """
    algorithms = {table.algorithm for table in tables if len(table)}
    if len(algorithms) > 1:
        raise UsageError(
            "the processes wrote different digests; give all the same checksum=",
            found=describe(sorted(algorithms)),
        )
    tensors: dict[str, tuple[tuple[int, ...], Kind]] = {}
    numbers: dict[str, int] = {}
    kinds: dict[Kind, int] = {}
    files: dict[TableFile, int] = {}
    words: dict[str, int] = {"raw": 0}
    columns: list[dict[str, Any]] = []
    for table in tables:
        for number, name in enumerate(table.names):
            own = table.shapes[number], table.kind_of(number)
            if tensors.setdefault(name, own) != own:
                raise _disagreement(name, own, tensors[name])
            numbers.setdefault(name, len(numbers))
        for kind in table.kinds:
            kinds.setdefault(kind, len(kinds))
        places = np.array([numbers[name] for name in table.names], np.int64)
        named = np.array([files.setdefault(one, len(files)) for one in table.files], np.int64)
        spelt = np.array([words.setdefault(one, len(words)) for one in table.encodings], np.int64)
        if len(table):
            zeros = np.zeros(len(table), np.int64)
            columns.append(
                {
                    "tensor": places[table.tensor],
                    "file": named[table.file],
                    "number": zeros if table.number is None else table.number,
                    "encoding": spelt[zeros if table.encoding is None else table.encoding],
                    **{name: getattr(table, name) for name in _KEPT},
                }
            )
    shapes = [shape for shape, _ in tensors.values()]
    return ChunkTable(
        names=list(tensors),
        kinds=list(kinds),
        kind=np.array([kinds[kind] for _, kind in tensors.values()], np.int64),
        shapes=shapes,
        files=list(files),
        encodings=list(words),
        algorithm=next(iter(algorithms), ""),
        **_sorted(columns, shapes),
    )


# The columns of a table that are not indices into others.
_KEPT = ("offsets", "sizes", "at", "length", "digest", "content")


def _disagreement(
    name: str, own: tuple[tuple[int, ...], Kind], other: tuple[tuple[int, ...], Kind]
) -> UsageError:
    expected, found = (
        f"{kind.type or kind.dtype} of shape {shape}" for shape, kind in (other, own)
    )
    return UsageError(
        "the processes disagree about a tensor", object_name=name, expected=expected, found=found
    )


def _sorted(columns: list[dict[str, Any]], shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    """Return the columns of several tables as one, in the order of tensors and their boxes."""
    joined: dict[str, Any] = {}
    for name in ("tensor", "file", "number", "encoding", *_KEPT):
        found = [one[name] for one in columns]
        is_there = all(one is not None for one in found)
        if not found and name not in ("digest", "content"):
            found = [np.empty(0, np.int64)]
        joined[name] = np.concatenate(found) if found and is_there else None
    tensor, offsets = joined["tensor"], joined["offsets"]
    ranks = np.array([len(shape) for shape in shapes], np.int64)[tensor]
    ends = np.cumsum(ranks)
    order = np.lexsort((_positions(tensor, ranks, ends, offsets, shapes), tensor))
    counts = ranks[order]
    # The axes of the rows in the new order.
    axes = np.repeat(ends[order] - counts - (np.cumsum(counts) - counts), counts)
    axes = axes + np.arange(len(axes))
    for name, column in joined.items():
        if column is not None:
            joined[name] = column[axes if name in ("offsets", "sizes") else order]
    for name in ("number", "encoding"):
        if not joined[name].any():
            joined[name] = None
    return joined


def _positions(
    tensor: Array, ranks: Array, ends: Array, offsets: Array, shapes: list[tuple[int, ...]]
) -> Array:
    """Return the flat index of the first element of each box, as a float."""
    positions = np.zeros(len(tensor), np.float64)
    for rank in np.unique(ranks).tolist():
        rows = np.flatnonzero(ranks == rank)
        position = np.zeros(len(rows), np.float64)
        if rank:
            lengths = np.array(
                [shape if len(shape) == rank else (0,) * rank for shape in shapes], np.float64
            )
            for axis in range(rank):
                own = offsets[ends[rows] - rank + axis]
                position = position * lengths[tensor[rows], axis] + own
        positions[rows] = position
    return positions


def record_to_bytes(record: PartRecord) -> bytes:
    """Return a record as bytes, a root of its chunks, for processes that exchange bytes.

    A `PartRecord` may also be pickled; these bytes are only columns of numbers and texts.
    """
    data = io.BytesIO()
    save = Save(record.save_id, record.processes)
    write_root(data, record.table, encode_values({}), str(record.process), save=save)
    return data.getvalue()


def record_from_bytes(data: bytes) -> PartRecord:
    """Return the record of another process.

    `commit` checks its chunks, with those of all other processes.

    Raises:
        FormatError: the bytes are not a record.
    """
    with contextlib.closing(open_file(io.BytesIO(data), mmap=False)) as file:
        root = parse_root(file, is_part=True)
    if not root.writer.isdecimal():
        raise broken("the record of a process has no number", found=describe(root.writer))
    return PartRecord(int(root.writer), root.table, root.save_id, root.processes)


def save_of_records(place: Place, records: Sequence[PartRecord]) -> Save:
    """Return the save of all records.

    Raises:
        UsageError: they are of several saves, or records of processes are missing.
    """
    saves = {Save(record.save_id, record.processes) for record in records}
    if len(saves) > 1:
        raise UsageError(
            "the records are of different saves",
            file=place.name,
            expected="one save_id and one number of processes",
            found=describe(sorted(map(str, saves)), 400),
        )
    save = next(iter(saves), Save())
    if save.processes is not None:
        _require_each_once(place, save.processes, [record.process for record in records])
    return save


def _require_each_once(place: Place, processes: int, found: Sequence[int]) -> None:
    missing = sorted(set(range(processes)) - set(found))
    twice = [one for one, count in collections.Counter(found).items() if count > 1]
    if missing or twice:
        wrong_ones = missing or twice
        wrong = "gave no record" if missing else "gave several records"
        raise UsageError(
            f"{counted(len(wrong_ones), 'process')} of the save {wrong}",
            file=place.name,
            expected=f"one record of each of {processes} processes",
            found=f"{'none' if missing else 'several'} of {describe(wrong_ones[:MOST_SHOWN])}",
        )
