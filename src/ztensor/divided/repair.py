"""A lost root made anew of the files of the processes, where these tell all without doubt."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from ztensor.boundary import public
from ztensor.chunks.boxes import overlapping_pair
from ztensor.chunks.table import Kind, TableFile
from ztensor.contents import open_file
from ztensor.digest import ALGORITHMS, digest_of
from ztensor.divided.commit import merged
from ztensor.divided.opened import open_objects
from ztensor.divided.place import ATTRIBUTE, REQUESTS, Place
from ztensor.divided.root import encode_values, write_root
from ztensor.divided.rows import SEPARATOR, Tensors, Written, kind_of_object, row_of, table_of
from ztensor.errors import FormatError, Reason, SourceError, UsageError, ZTensorError, describe
from ztensor.model.showing import counted
from ztensor.sharded.naming import ROOT
from ztensor.source.base import Range
from ztensor.source.sink import FileSink
from ztensor.source.targets import shown
from ztensor.source.upload import RemoteSink, copy, is_there
from ztensor.threads import Pool

if TYPE_CHECKING:
    from ztensor.chunks.table import ChunkTable
    from ztensor.model.manifest import TensorObject
    from ztensor.reading.file import FileObjects
    from ztensor.source.sink import Durable
    from ztensor.typing import Path


_MOST_KEPT = 1000  # damaged roots


@dataclasses.dataclass(frozen=True, slots=True)
class RootReport:
    """What was found of a checkpoint whose root may be lost.

    Attributes:
        path: the root.
        tensors: how many there are.
        chunks: how many they are in.
        files: the files of processes.
        written: the path of the root where one was written, else None.
        kept: where a damaged root was kept, else None.
    """

    path: str
    tensors: int
    chunks: int
    files: tuple[str, ...]
    written: str | None = None
    kept: str | None = None

    def __repr__(self) -> str:
        """Return counts, and what was written."""
        done = "nothing to repair" if self.written is None else f"written to {self.written}"
        return (
            f"<RootReport {counted(self.tensors, 'tensor')} in "
            f"{counted(len(self.files), 'file')}, {done}>"
        )


@public
def repair(
    folder: Path,
    *,
    durable: Durable = "auto",
    dry_run: bool = False,
    storage: object = None,
) -> RootReport:
    """Write the root of a divided checkpoint anew where it is lost or damaged.

    The files of the processes tell of each chunk which box of which tensor it is. Values that are
    no tensors were in the root alone, and stay lost. A damaged root is kept beside the new one.

    Args:
        folder: the folder, or the URL of a prefix.
        durable: as for `commit`.
        dry_run: True writes nothing.
        storage: how the store of a URL is opened; see `ztensor.open`.

    Raises:
        UsageError: the files are of several saves, or do not cover all tensors, and the message
            names a tensor; or nothing is listed or written at places of this scheme. Nothing is
            written then.
        FormatError: a file is damaged.
        SourceError: a file cannot be read, or the folder has no such files.
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
            raise  # the root is whole, and a file that it names is missing
    table = _table_of_files(place)
    report = _report(path, table)
    if dry_run:
        return dataclasses.replace(report, written=path)
    kept, target = None, place.target(ROOT)
    if has_root:
        kept = _keep_path(target) if isinstance(target, str) else _keep_object(place)
    sink: FileSink | RemoteSink
    if isinstance(target, str):
        sink = FileSink(target, durable=durable)
    else:
        sink = RemoteSink(target, is_new=not has_root)
    write_root(sink, table, encode_values({}), "repair", durable=durable)
    return dataclasses.replace(report, written=path, kept=kept)


def _report(path: str, table: ChunkTable) -> RootReport:
    files = tuple(file.name for file in table.files)
    return RootReport(path, len(table.names), len(table), files)


def _keep_object(place: Place) -> str:
    """Have a store copy a damaged root, and return the copy's URL."""
    for number in range(1, _MOST_KEPT):
        kept = place.remote(f"{ROOT}.damaged-{number}")
        if not is_there(kept):
            copy(place.remote(ROOT), kept)
            return kept.name
    raise SourceError("too many damaged roots were kept", file=place.shown(ROOT))


def _keep_path(path: str) -> str:
    """Give a damaged root a second name, and return that."""
    folder = os.path.dirname(path)
    for number in range(1, _MOST_KEPT):
        kept = os.path.join(folder, f"{shown(path)}.damaged-{number}")
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        except OSError as error:
            raise SourceError.from_os(error, "cannot keep the damaged root", path) from error
        return kept
    raise SourceError("too many damaged roots were kept", file=path)


def _table_of_files(place: Place) -> ChunkTable:
    folder = place.name
    names = list(place.parts())
    with Pool(REQUESTS if place.is_remote else 1) as workers:
        found = workers.map(functools.partial(_table_of_file, place), names)
        tables = [table for table in found if table is not None]
    if not tables:
        raise SourceError("the folder has no file of a divided checkpoint", file=folder)
    try:
        table = merged(tables)
        table.require_valid()
    except FormatError as error:
        raise _doubtful(error, tables, folder) from error
    except UsageError as error:
        error.hint = "its files are of several saves; move those of others out of the folder"
        raise error.locate(file=folder) from None
    return table


def _doubtful(error: FormatError, tables: list[ChunkTable], folder: str) -> UsageError:
    """Return why the files do not make a checkpoint."""
    found = UsageError(
        f"the files of the folder do not make one checkpoint: {error.message}",
        file=folder,
        expected=error.expected,
        found=error.found,
    )
    found.object_name = name = error.object_name
    holders = [t for t in tables if name is not None and name in t.tensor_of]
    boxes = [t.boxes(t.tensor_of[name or ""]) for t in holders]
    files = [file.name for table in holders for file in table.files]
    if boxes and overlapping_pair(*map(np.concatenate, zip(*boxes, strict=True))) is not None:
        found.hint = (
            f"files of several saves are there: {describe(files[:4], 200)}; which of them belong "
            "together only the root told: move those of others out of the folder"
        )
    return found


def _table_of_file(place: Place, name: str) -> ChunkTable | None:
    """Return what a file of a process says; None where it is a file like any other.

    Raises:
        FormatError: it is damaged, or says of a chunk what cannot be.
    """
    with contextlib.closing(open_file(place.target(name), mmap=False)) as file:
        told = (file.manifest.attributes or {}).get(ATTRIBUTE)
        frame = file.frame
        if told is None or frame is None:
            return None
        tensors, rows = Tensors(), []
        for own in file.names:
            found = file.object(own)
            rows.append(row_of(_written(own, found, tensors, file), 0, found))
        for empty in told.get("empty", ()) if isinstance(told, Mapping) else ():
            _declare(empty, tensors, file)
        whole = Range(file.source, frame.manifest_offset, frame.manifest_length)
        digest = digest_of(ALGORITHMS["sha256"], whole.pieces())
        return table_of(tensors, rows, [TableFile(name, file.nbytes, digest)])


def _written(own: str, found: TensorObject, tensors: Tensors, file: FileObjects) -> Written:
    told: Any = (found.attributes or {}).get(ATTRIBUTE)
    of, shape, offsets = (
        told.get(key) if isinstance(told, Mapping) else None for key in ("of", "shape", "offsets")
    )
    if (
        not isinstance(of, str)
        or not _is_shape(shape)
        or not _is_shape(offsets)
        or len(offsets) != len(shape)
    ):
        raise FormatError(
            "the object does not say which part of which tensor it is",
            reason=Reason.SHARD_FILE,
            file=file.name,
            object_name=own,
            found=describe(told),
        )
    kept = {key for key in found.attributes or {} if key != ATTRIBUTE}
    is_whole = found.format != "dense" or bool(kept)
    if len(found.shape) != len(shape) or (is_whole and found.shape != tuple(shape)):
        raise FormatError(
            "the chunk is of another rank than its tensor",
            reason=Reason.SHARD_FILE,
            file=file.name,
            object_name=own,
        )
    number = tensors.number(
        of, tuple(shape), kind_of_object(found), is_whole=found.shape == tuple(shape)
    )
    _, _, count = own.rpartition(SEPARATOR) if own != of else ("", "", "0")
    return Written(
        own, number, int(count) if count.isdecimal() else 0, tuple(offsets), found.shape, is_whole
    )


def _is_shape(found: object) -> TypeGuard[list[int]]:
    return isinstance(found, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in found)


def _declare(empty: Any, tensors: Tensors, file: FileObjects) -> None:
    """Note a tensor without elements, of which there is no object."""
    try:
        name, dtype, type, shape = empty
        tensors.number(str(name), tuple(map(int, shape)), Kind(dtype, type or None), is_whole=True)
    except (TypeError, ValueError) as error:
        raise FormatError(
            "an empty tensor is malformed", reason=Reason.SHARD_FILE, file=file.name
        ) from error
