"""Rebuild a lost root from the parts, if they leave no doubt."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable, TableFile, broken
from ztensor.distributed.columns import Columns, kinds_of
from ztensor.distributed.committing import merged
from ztensor.distributed.opened import open_objects
from ztensor.distributed.place import ATTRIBUTE, REQUESTS, ROOT, Place
from ztensor.distributed.root import encode_values, write_root
from ztensor.distributed.rows import Tensors, kind_of, own_name, stored_as, table_of
from ztensor.distributed.saves import FileOfPart, file_of_part, require_one_save
from ztensor.errors import (
    FormatError,
    Reason,
    SourceError,
    UsageError,
    ZTensorError,
    counted,
    describe,
)
from ztensor.ext import (
    ALGORITHMS,
    FileObjects,
    Pool,
    Range,
    Store,
    element_count,
    foreign_bytes,
    open_file,
)
from ztensor.limits import Budget
from ztensor.typing import Durable, Path, Storage

_MOST_KEPT = 1000  # damaged roots


@dataclasses.dataclass(frozen=True, slots=True)
class RootReport:
    """The result of `repair`.

    Attributes:
        path: the root.
        tensors: number of tensors.
        chunks: number of their chunks.
        files: the parts.
        written: path of the root if it was written, else None.
        kept: path at which a damaged root was kept, else None.
    """

    path: str
    tensors: int
    chunks: int
    files: tuple[str, ...]
    written: str | None = None
    kept: str | None = None

    def __repr__(self) -> str:
        """Return counts, and the path that was written."""
        done = "nothing to repair" if self.written is None else f"written to {self.written}"
        return (
            f"<RootReport {counted(self.tensors, 'tensor')} in "
            f"{counted(len(self.files), 'file')}, {done}>"
        )


def repair(
    folder: Path,
    *,
    durable: Durable = "auto",
    dry_run: bool = False,
    one_save: bool = False,
    storage: Storage | None = None,
) -> RootReport:
    """Rebuild the root of a distributed checkpoint if it is lost or damaged.

    Each part describes its chunks, and names its save with the number of processes and files. The
    root is rebuilt from the only save of which all parts exist; parts of incomplete saves stay and
    are ignored. Values beside the tensors were only in the root and are lost. A damaged root is
    kept beside the new one.

    Args:
        folder: the folder, or the URL of a prefix.
        durable: as for `commit`.
        dry_run: True writes nothing.
        one_save: True asserts that parts without an id are all from one save, and that none is
            missing. A `PartWriter` without `save_id` and `processes` writes such parts.
        storage: see `ztensor.typing.OpenOptions`.

    Raises:
        UsageError: no save is complete, or several are; the parts do not cover all tensors; or URLs
            of this scheme do not list or write files. Nothing is written then.
        FormatError: a part is damaged.
        SourceError: a part cannot be read, or there are none.
    """
    place = Place(folder, storage)
    path = place.shown(ROOT)
    try:
        with contextlib.closing(open_objects(folder, storage=storage)) as found:
            found.require_there()
            return _report(path, found.root.table)
    except ZTensorError as error:
        has_root = place.has_root()
        if isinstance(error, SourceError) and has_root:
            raise  # the root is intact, but a part is missing
    files = require_one_save(place.name, _files_of(place), one_save=one_save)
    table = _joined(files, place.name)
    report = _report(path, table)
    place.require_no_link()
    if dry_run:
        return dataclasses.replace(report, written=path)
    kept, target = None, place.target(ROOT)
    if has_root:
        kept = _keep_path(target) if isinstance(target, str) else _keep_object(place)
    sink = place.sink(ROOT, is_new=not has_root, durable=durable)
    write_root(sink, table, encode_values({}), "repair", save=files[0].save, durable=durable)
    return dataclasses.replace(report, written=path, kept=kept)


def _report(path: str, table: ChunkTable) -> RootReport:
    files = tuple(file.name for file in table.files)
    return RootReport(path, len(table.names), len(table), files)


def _keep_object(place: Place) -> str:
    """Copy a damaged root in the store, and return the URL of the copy."""
    for number in range(1, _MOST_KEPT):
        kept = place.remote(f"{ROOT}.damaged-{number}")
        store = Store.of(kept.url)
        if store.look(kept) is None:
            store.copy(place.remote(ROOT), kept)
            return kept.name
    raise SourceError("too many damaged roots were kept", file=place.shown(ROOT))


def _keep_path(path: str) -> str:
    """Link a damaged root under a second name, and return the path."""
    folder = os.path.dirname(path)
    for number in range(1, _MOST_KEPT):
        kept = os.path.join(folder, f"{ROOT}.damaged-{number}")
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        except OSError as error:
            raise SourceError.from_os(error, "cannot keep the damaged root", path) from error
        return kept
    raise SourceError("too many damaged roots were kept", file=path)


def _files_of(place: Place) -> list[FileOfPart]:
    names = list(place.parts())
    with Pool(REQUESTS if place.is_remote else 1) as workers:
        found = workers.map(functools.partial(_file_of, place), names)
        files = [file for file in found if file is not None]
    if not files:
        raise SourceError("the folder has no file of a distributed checkpoint", file=place.name)
    return files


def _joined(files: list[FileOfPart], folder: str) -> ChunkTable:
    """Return the chunks of several files as one table.

    Raises:
        UsageError: they do not make a checkpoint.
    """
    tables = [file.table for file in files]
    try:
        table = merged(tables)
        table.require_valid()
    except FormatError as error:
        raise _doubtful(error, tables, folder) from error
    except UsageError as error:
        error.hint = (
            "its files are from several saves; move the files of other saves out of the folder"
        )
        raise error.locate(file=folder) from None
    return table


def _doubtful(error: FormatError, tables: list[ChunkTable], folder: str) -> UsageError:
    """Return the error for parts that do not make a checkpoint."""
    usage = UsageError(
        f"the files of the folder do not make one checkpoint: {error.message}",
        file=folder,
        expected=error.expected,
        found=error.found,
    )
    usage.object_name = name = error.object_name
    holders = [(t, t.tensor_of[name]) for t in tables if name is not None and name in t.tensor_of]
    files = [file.name for table, _ in holders for file in table.files]
    counts = [table.boxes(own)[1].prod(axis=1, dtype=np.float64).sum() for table, own in holders]
    if holders and sum(counts) > element_count(holders[0][0].shapes[holders[0][1]]):
        usage.hint = (
            f"there are files from several saves: {describe(files[:4], 200)}; only the root knew "
            "which belong together: move the files of other saves out of the folder"
        )
    return usage


def _file_of(place: Place, name: str) -> FileOfPart | None:
    """Return a part as its file describes it; None if the file is not a part.

    Raises:
        FormatError: the file is damaged, or its description is malformed.
    """
    with contextlib.closing(open_file(place.target(name), mmap=False)) as file:
        attributes = (file.manifest.attributes or {}).get(ATTRIBUTE)
        frame = file.frame
        if frame is None or not isinstance(attributes, Mapping) or "version" in attributes:
            return None
        with foreign_bytes("the part", file.name):
            tensors, rows = _described_by(file, attributes)
            whole = Range(file.source, frame.manifest_offset, frame.manifest_length)
            digest = ALGORITHMS["sha256"].of(whole.pieces())
            table = table_of(tensors, rows, [TableFile(name, file.nbytes, digest)])
            return file_of_part(name, table, attributes)


def _described_by(file: FileObjects, attributes: Mapping[str, Any]) -> tuple[Tensors, list[Chunk]]:
    """Return the tensors and chunks of a part from its columns and objects.

    Raises:
        FormatError: the columns are damaged, or disagree with the objects.
    """
    prefix, listed = attributes.get("table"), attributes.get("kinds")
    if not isinstance(prefix, str) or not isinstance(listed, list):
        raise broken("a part does not say which chunks it has", found=describe(attributes))
    columns, kinds = Columns(file, Budget(file.limits, file.nbytes), prefix), kinds_of(listed)
    ranks = columns.column("tensors/rank", most=file.limits.rank)
    names, shapes = columns.names(len(ranks)), columns.shapes(ranks)
    kind = columns.column("tensors/kind", len(ranks), most=len(kinds) - 1).tolist()
    tensors = Tensors()
    for name, shape, number in zip(names, shapes, kind, strict=True):
        tensors.number(name, shape, kinds[number], is_whole=False)
    of = columns.column("chunks/tensor", most=len(ranks) - 1)
    numbers = columns.column("chunks/object", len(of)).tolist()
    counts = ranks.astype(np.int64)[of]
    offsets = columns.column("chunks/offsets", int(counts.sum())).tolist()
    ends = np.cumsum(counts).tolist()
    if len(of) != sum(not name.startswith(prefix) for name in file.names):
        raise FormatError(
            "the columns of the file do not list all its chunks", reason=Reason.SHARD_FILE
        )
    rows = []
    for tensor, number, end, count in zip(of.tolist(), numbers, ends, counts.tolist(), strict=True):
        name, shape = own_name(names[tensor], number), shapes[tensor]
        stored = file.manifest.objects.get(name)
        is_whole = stored is not None and (stored.format != "dense" or bool(stored.attributes))
        if (
            stored is None
            or kind_of(stored) != tensors.kinds[tensor]
            or len(stored.shape) != count
            or (is_whole and stored.shape != shape)
        ):
            raise FormatError(
                "the file lacks a chunk that its columns list, or has another one",
                reason=Reason.SHARD_FILE,
                object_name=name,
            )
        word, begin = WHOLE_OBJECT if is_whole else "raw", tuple(offsets[end - count : end])
        chunk = Chunk(-1, tensor, 0, number, word, begin, stored.shape, 0, 0, None)
        rows.append(stored_as(chunk, 0, stored))
    return tensors, rows
