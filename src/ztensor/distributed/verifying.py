"""Check every stored byte of a distributed checkpoint, and the root against the parts."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable
from ztensor.distributed.opened import DividedObjects
from ztensor.distributed.place import opener
from ztensor.distributed.rows import SEPARATOR, own_name
from ztensor.errors import ObjectNotFoundError, Problem, Reason, SourceError, ZTensorError
from ztensor.ext import ALGORITHMS, FileObjects, Range, open_file
from ztensor.options import shifted
from ztensor.typing import Progress, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_MOST = 256  # differences of a file that are listed
Rows = np.ndarray[Any, Any]


def verify_divided(
    objects: DividedObjects,
    names: Iterable[str] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every stored byte, and that the root agrees with the parts.

    The path of a problem begins with the file; its message names the chunk.

    Args:
        objects: the open checkpoint; opening has checked that chunks tile their tensors.
        names: tensors to check; all of them, and the root, by default.
        threads: as for `FileObjects.check`.
        progress: likewise.

    Raises:
        ObjectNotFoundError: a name is not in the checkpoint.
        SourceError: the bytes could not be read.
    """
    objects.require_open()
    table, beside = objects.root.table, objects.value_arrays
    asked = None if names is None else [names] if isinstance(names, str) else list(names)
    for name in asked or ():
        if name not in objects.names:
            raise ObjectNotFoundError.named(name, objects.names, objects.name)
    tensors = None if asked is None else [name for name in asked if name not in beside]
    arrays = None if asked is None else [beside[name] for name in asked if name in beside]
    done, total = 0, objects.nbytes
    reports: list[tuple[str, VerifyReport | ZTensorError]] = []
    if arrays is None or arrays:
        root, done = objects.file, objects.file.nbytes
        reports.append((root.name, root.check(arrays, threads=1)))
    if asked is None:
        try:
            dict(objects.attributes)  # decodes the values
        except ZTensorError as error:
            reports.append((objects.file.name, error))
    for number, rows in _rows_of_files(table, tensors):
        how = {"threads": threads, "progress": shifted(progress, done, total)}
        path = objects.place.shown(table.files[number].name)
        reports.append((path, _of_file(objects, number, rows, is_whole=tensors is None, **how)))
        done += table.files[number].size
    if progress is not None:
        progress(total, total)
    count = len(objects.names) if asked is None else len(asked)
    return dataclasses.replace(VerifyReport.of_files(reports), objects=count)


def _of_file(
    objects: DividedObjects, number: int, rows: Rows, *, is_whole: bool, **how: Any
) -> VerifyReport | ZTensorError:
    """Return the report of one part, or the error of opening it."""
    table, file = objects.root.table, objects.root.table.files[number]
    target = opener(objects.place.target(file.name))
    try:
        opened = open_file(target, mmap=False, limits=objects.limits)
    except ZTensorError as error:
        return objects.explained(error) if isinstance(error, SourceError) else error
    with contextlib.closing(opened):
        chunks = {}
        for row in rows.tolist():
            chunk = table.chunk(row)
            chunks[own_name(table.names[chunk.tensor], chunk.number)] = chunk
        problems = itertools.islice(_differences(opened, chunks, file.digest), _MOST)
        wanted = None if is_whole else [name for name in chunks if name in opened.names]
        report = opened.check(wanted, **how)
        report = dataclasses.replace(report, problems=(*problems, *report.problems))
        return _named(report, chunks)


def _rows_of_files(table: ChunkTable, names: list[str] | None) -> Iterator[tuple[int, Rows]]:
    """Yield each file with the rows of the tensors in it."""
    wanted = None if names is None else np.array([table.tensor_of[name] for name in names])
    is_wanted = np.ones(len(table), np.bool_)
    if wanted is not None:
        is_wanted = np.isin(table.tensor, wanted)
    order = np.argsort(table.file, kind="stable")
    ends = np.searchsorted(table.file[order], np.arange(len(table.files) + 1))
    for number in range(len(table.files)):
        rows = order[ends[number] : ends[number + 1]]
        rows = rows[is_wanted[rows]]
        if names is None or len(rows):
            yield number, rows


def _differences(file: FileObjects, chunks: Mapping[str, Chunk], digest: str) -> Iterator[Problem]:
    """Yield the differences between a part and the root."""
    if digest and not _has_manifest(file, digest):
        yield Problem(
            Reason.DIGEST_MISMATCH,
            "the file is not the one that the root was written for: its manifest differs",
        )
    for name, chunk in chunks.items():
        stored_object = file.manifest.objects.get(name)
        if stored_object is None:
            wrong = "the file lacks a chunk that the root lists"
        elif chunk.encoding == WHOLE_OBJECT:
            continue
        else:
            data = stored_object.components.get("data")
            listed = (chunk.at, chunk.length, chunk.encoding, _digest(chunk.digest))
            stored = data and (data.offset, data.length, data.encoding, _digest(data.digest))
            if listed == stored:
                continue
            wrong = "the root and the file disagree about a chunk"
        yield Problem(Reason.SHARD_INDEX, wrong, ("objects", name), object_name=name)


def _digest(text: str | None) -> str:
    return (text or "").lower()


def _has_manifest(file: FileObjects, digest: str) -> bool:
    frame, algorithm = file.frame, ALGORITHMS.get(_digest(digest).partition(":")[0])
    if frame is None or algorithm is None:
        return False
    whole = Range(file.source, frame.manifest_offset, frame.manifest_length)
    return _digest(algorithm.of(whole.pieces())) == _digest(digest)


def _named(report: VerifyReport, chunks: Mapping[str, Chunk]) -> VerifyReport:
    """Return the report of a part with tensors and chunks instead of objects."""

    def renamed(problem: Problem) -> Problem:
        name = problem.object_name
        if name is None:
            return problem
        at = f", chunk at {list(chunks[name].offsets)}" if name in chunks else ""
        tensor = name.partition(SEPARATOR)[0]
        return problem._replace(object_name=tensor, message=f"{problem.message}{at}")

    return dataclasses.replace(
        report,
        problems=tuple(map(renamed, report.problems)),
        unsupported=tuple(map(renamed, report.unsupported)),
        unchecked={name.partition(SEPARATOR)[0]: why for name, why in report.unchecked.items()},
    )
