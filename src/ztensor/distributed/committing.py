"""How a save becomes the checkpoint: the root is written last, and then the old files go.

Until the root is in place readers find the checkpoint of before, if there was one; from then on
they find the new one. Nobody finds some of both, as no file is ever written to a second time.
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
    """Make what the processes wrote the checkpoint of a folder, as a whole or not at all.

    One process calls it, once all have finished. Then files are removed that only the checkpoint
    of before named, and those that saves left which died.

    Args:
        folder: as the processes' writers got it.
        records: of each process what `PartWriter.finish` gave.
        values: what is no tensor, by name: plain values of Python and NumPy, and containers of
            them; see `ztensor.save_tree` for what is kept.
        overwrite: False refuses to replace a checkpoint.
        durable: see `ztensor.typing.SaveOptions`.
        storage: see `ztensor.typing.OpenOptions`.
        writer: what calls this, such as `"torch"`; kept in the root.

    Raises:
        NotRepresentableError: a value that no file can hold; the message has its place.
        UsageError: the processes disagree about a tensor, their chunks leave a tensor, overlap or
            do not cover it, or there is a checkpoint and `overwrite` is False. What was there
            before still is. Or the records are not those of all processes of one save.
        SourceError: a file of a process is not there, or the root could not be written.
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
    """Make what processes wrote the checkpoint of a folder; see `commit`.

    `save` is that of the records, None where they say it. Of processes that do not talk each has a
    checkpoint of its own: the save is then of all of them, and readers compare it.
    """
    place = Place(folder, storage)
    try:
        every = list(records)
        save = save_of_records(place, every) if save is None else save
        encoded = encode_values(values)
        table = merged([record.table for record in every])
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
    """Raise where a root is a link, or is there and must not be replaced.

    Raises:
        UsageError: so it is.
    """
    place.require_no_link()
    if not overwrite and place.has_root():
        raise Store.taken(place.shown(ROOT))


def _as_usage(error: FormatError, place: Place) -> UsageError:
    """Return what is wrong with the chunks as the caller's mistake: no file says it."""
    found = UsageError(error.message, file=place.name, expected=error.expected, found=error.found)
    found.object_name = error.object_name
    return found


def _require_there(place: Place, table: ChunkTable) -> None:
    """Raise where a file of a process is not there, or not as long as the process said.

    Raises:
        SourceError: so it is.
    """
    for file in table.files:
        path = place.path(file.name)
        if path is None:
            continue  # a store took it as a whole
        with system_call("a file of a process is not there", path):
            size = os.stat(path).st_size
        if size != file.size:
            raise SourceError(
                "a file of a process is not as long as it was",
                file=path,
                expected=str(file.size),
                found=str(size),
            )


def _files_before(place: Place) -> list[str]:
    """Return the files that the root names that is replaced; none where it cannot be read.

    Raises:
        UsageError: the file is intact, and no root.
    """
    try:
        file = open_root(place)
    except SourceNotFoundError:
        return []
    except ZTensorError:
        return []  # damaged: what it named is found as what no root names
    try:
        if not is_root(file):
            error = UsageError("a file of the root's name is there, and is no root", file=file.name)
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


# Of the columns of a table those in which nothing is a number of another one.
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
    # Where the axes of the rows are in the new order.
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
    """Return of each box a number that rises in the order of C; about, as floats have it."""
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
    """Return a record as bytes, for processes that exchange no more: a root of its chunks.

    A `PartRecord` may also be pickled; these bytes are only columns of numbers and texts.
    """
    data = io.BytesIO()
    save = Save(record.save_id, record.processes)
    write_root(data, record.table, encode_values({}), str(record.process), save=save)
    return data.getvalue()


def record_from_bytes(data: bytes) -> PartRecord:
    """Return the record of another process.

    Its chunks are not checked here: `commit` holds those of all processes to one another.

    Raises:
        FormatError: the bytes are none that `record_to_bytes` gives.
    """
    with contextlib.closing(open_file(io.BytesIO(data), mmap=False)) as file:
        root = parse_root(file, is_part=True)
    if not root.writer.isdecimal():
        raise broken("the record of a process has no number", found=describe(root.writer))
    return PartRecord(int(root.writer), root.table, root.save_id, root.processes)


def save_of_records(place: Place, records: Sequence[PartRecord]) -> Save:
    """Return the save that all records are of.

    Raises:
        UsageError: they are of several saves, or not those of all processes.
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
        some = missing or twice
        wrong = "gave no record" if missing else "gave several records"
        raise UsageError(
            f"{counted(len(some), 'process')} of the save {wrong}",
            file=place.name,
            expected=f"one record of each of {processes} processes",
            found=f"{'none' if missing else 'several'} of {describe(some[:MOST_SHOWN])}",
        )
