"""Every stored byte of a divided checkpoint checked: the root, the files, one by the other."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.table import WHOLE_OBJECT, Chunk, ChunkTable
from ztensor.distributed.opened import DividedObjects
from ztensor.distributed.place import opener
from ztensor.distributed.rows import SEPARATOR, told_digest
from ztensor.errors import (
    LimitError,
    ManifestError,
    ObjectNotFoundError,
    Problem,
    Reason,
    SourceError,
    UnsupportedError,
    ZTensorError,
)
from ztensor.ext import ALGORITHMS, FileObjects, Range, open_file
from ztensor.options import shifted
from ztensor.typing import Progress, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_MOST = 256  # problems that are listed one by one


def verify_divided(
    objects: DividedObjects,
    names: Iterable[str] | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Check every stored byte, and that the root tells what is in the files.

    The path of a problem begins with the file; its message names the chunk.

    Args:
        objects: the open checkpoint. That its chunks make its tensors was checked when it was
            opened.
        names: tensors to check; all of them, and the root, by default.
        threads: as for `FileObjects.check`.
        progress: likewise.

    Raises:
        ObjectNotFoundError: a name is not in the checkpoint.
        SourceError: the bytes could not be read.
    """
    objects.require_open()
    table = objects.root.table
    asked = None if names is None else [names] if isinstance(names, str) else list(names)
    for name in asked or ():
        if name not in objects.names:
            raise ObjectNotFoundError.named(name, objects.names, objects.name)
    beside = objects.value_arrays
    chosen = None if asked is None else [name for name in asked if name not in beside]
    arrays = None if asked is None else [beside[name] for name in asked if name in beside]
    total = objects.nbytes
    reports = []
    done = 0
    if arrays is None or arrays:
        report = objects.file.check(arrays, threads=1)
        reports.append(_under(objects.file.name, report))
        done = objects.file.nbytes
    if asked is None:
        try:
            dict(objects.attributes)  # which are made of the values beside the tensors
        except ZTensorError as error:
            reports.append(_unopened(error, objects.file.name))
    for number, rows in _rows_of_files(table, chosen):
        file = table.files[number]
        path = objects.place.shown(file.name)
        try:
            opened = open_file(
                opener(objects.place.target(file.name)), mmap=False, limits=objects.limits
            )
        except ZTensorError as error:
            found = objects.explained(error) if isinstance(error, SourceError) else error
            reports.append(_unopened(found, path))
            continue
        with contextlib.closing(opened):
            own = [_own_name(table, table.chunk(row)) for row in rows.tolist()]
            problems = list(_differences(opened, table, rows, own, file.digest))
            wanted = None if chosen is None else [name for name in own if name in opened.names]
            report = opened.check(wanted, threads=threads, progress=shifted(progress, done, total))
            report = dataclasses.replace(report, problems=(*problems, *report.problems))
            offsets = {
                name: table.chunk(row).offsets for name, row in zip(own, rows.tolist(), strict=True)
            }
            reports.append(_under(path, _named(report, offsets)))
        done += file.size
    if progress is not None:
        progress(total, total)
    count = len(objects.names) if asked is None else len(asked)
    return dataclasses.replace(_sum(reports), objects=count)


def _rows_of_files(
    table: ChunkTable, names: list[str] | None
) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
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


def _own_name(table: ChunkTable, chunk: Chunk) -> str:
    name = table.names[chunk.tensor]
    return f"{name}{SEPARATOR}{chunk.number}" if chunk.number else name


def _differences(
    file: FileObjects,
    table: ChunkTable,
    rows: np.ndarray[Any, Any],
    own: list[str],
    digest: str,
) -> Iterator[Problem]:
    """Yield where a file is not what the root says it is."""
    if digest and not _has_manifest(file, digest):
        yield Problem(
            Reason.DIGEST_MISMATCH,
            "the file is not the one that the root was written for: its manifest differs",
        )
    for count, (row, name) in enumerate(zip(rows.tolist(), own, strict=True)):
        if count >= _MOST:
            return
        chunk = table.chunk(row)
        found = file.manifest.objects.get(name)
        if found is None:
            wrong = "the root says that the file has this chunk, and it has not"
        elif chunk.encoding == WHOLE_OBJECT:
            continue
        else:
            data = found.components.get("data")
            told = (chunk.at, chunk.length, chunk.encoding, _digest(chunk.digest))
            there = data and (data.offset, data.length, data.encoding, _digest(data.digest))
            if told == there:
                continue
            wrong = "the root says something else of this chunk than the file"
        yield Problem(Reason.SHARD_INDEX, wrong, ("objects", name), object_name=name)


def _digest(text: str | None) -> object:
    return None if text is None else told_digest(text)


def _has_manifest(file: FileObjects, digest: str) -> bool:
    frame = file.frame
    algorithm, digits = told_digest(digest)
    if frame is None or algorithm not in ALGORITHMS:
        return False
    whole = Range(file.source, frame.manifest_offset, frame.manifest_length)
    return told_digest(ALGORITHMS[algorithm].of(whole.pieces()))[1] == digits


def _named(report: VerifyReport, offsets: Mapping[str, tuple[int, ...]]) -> VerifyReport:
    """Return a report of one file with problems about tensors and chunks instead of objects."""

    def told(problem: Problem) -> Problem:
        name = problem.object_name
        if name is None:
            return problem
        chunk = f", chunk at {list(offsets[name])}" if name in offsets else ""
        return problem._replace(
            object_name=name.partition(SEPARATOR)[0],
            message=f"{problem.message}{chunk}",
        )

    return dataclasses.replace(
        report,
        problems=tuple(map(told, report.problems)),
        unsupported=tuple(map(told, report.unsupported)),
        unchecked={name.partition(SEPARATOR)[0]: why for name, why in report.unchecked.items()},
    )


def _unopened(error: ZTensorError, path: str) -> VerifyReport:
    is_unsupported = isinstance(error, (UnsupportedError, LimitError))
    if isinstance(error, ManifestError) and error.problems:
        problems = tuple(problem.under(path) for problem in error.problems)
    else:
        problems = (Problem(error.reason or Reason.SHARD_FILE, error.message, (path,)),)
    wrong, unknown = ((), problems) if is_unsupported else (problems, ())
    return VerifyReport(wrong, unknown, 0, 0, 0, 0)


def _under(path: str, report: VerifyReport) -> VerifyReport:
    return dataclasses.replace(
        report,
        problems=tuple(problem.under(path) for problem in report.problems),
        unsupported=tuple(problem.under(path) for problem in report.unsupported),
    )


def _sum(reports: list[VerifyReport]) -> VerifyReport:
    return VerifyReport(
        tuple(problem for report in reports for problem in report.problems),
        tuple(problem for report in reports for problem in report.unsupported),
        checked=sum(report.checked for report in reports),
        undigested=sum(report.undigested for report in reports),
        objects=0,
        nbytes=sum(report.nbytes for report in reports),
        unchecked={name: why for report in reports for name, why in report.unchecked.items()},
    )
