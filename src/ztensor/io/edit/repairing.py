"""Report the last committed state of a torn file, and cut the file back to it on demand."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentValueError, ContainerError, Reason, describe
from ztensor.io.contents import refuse_not_ours
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.recovery import Candidate, search
from ztensor.io.reading.verify import verify_file
from ztensor.io.source.appending import LockedFile
from ztensor.io.source.base import Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import path_text
from ztensor.io.source.sink import Place
from ztensor.io.source.targets import require_changed_in_place
from ztensor.limits import Limits

if TYPE_CHECKING:
    from ztensor.accepted import Durable, Path, Progress


@dataclasses.dataclass(frozen=True, slots=True)
class RepairReport:
    """The result of `find` or `repair`.

    Attributes:
        path: the file.
        size: its length in bytes.
        end: the end of the last committed state; None if there is none.
        is_clean: whether the file ends there, and needs no repair.
        objects: the number of objects of that state.
        tail: the number of bytes behind it.
        digests_ok: the number of components of that state with a matching digest.
        damaged: names of objects of that state with stored bytes that do not verify; objects in
            other files are not checked.
        candidates: ends that were tried, the last first, with the fault of each.
        written: the file that the state was written to, or None.
        tail_path: the file that keeps the bytes behind it, or None.
    """

    path: str
    size: int
    end: int | None
    is_clean: bool
    objects: int
    tail: int
    digests_ok: int
    damaged: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    written: str | None = None
    tail_path: str | None = None


def find(
    path: Path,
    *,
    within: int | None = None,
    accept: int | None = None,
    limits: Limits | None = None,
) -> RepairReport:
    """Report the last committed state of a file, which is only read.

    Args:
        path: the file.
        within: the number of bytes from the end to search; all by default.
        accept: take the state that ends at this offset although its position proves nothing.
        limits: safety caps.

    Raises:
        ContainerError: states cannot be found in this container (0.1).
        UsageError: it is a file of another format.
        SourceError: it cannot be read.
    """
    with contextlib.closing(FileSource(path_text(path))) as source:
        return _report(source, within=within, accept=accept, limits=limits)


def repair(
    path: Path,
    *,
    write: Path | None = None,
    in_place: bool = False,
    drop_tail: bool = False,
    accept: int | None = None,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> RepairReport:
    """Report a torn file, and repair it on demand.

    Without `write` and `in_place` nothing is changed.

    Args:
        path: the file.
        write: a new file for the last committed state; the torn one stays as it is.
        in_place: truncate the file itself to that state. The bytes behind it are first copied to
            `PATH.tail-1` (or the next free number).
        drop_tail: with `in_place`, do not copy them.
        accept: take the state that ends at this offset although its position proves nothing.
        durable: as for `Writer`.
        lock: with `in_place`; see `ztensor.typing.EditOptions`.
        timeout: with `in_place`, seconds to wait for another writer.
        dry_run: True takes every step but writing; the report is the same.
        overwrite: with `write`, False refuses to replace an existing file.
        progress: called with the bytes done so far and those to do: of the check of the state,
            then of the copy.

    Raises:
        ArgumentValueError: the arguments contradict each other.
        ContainerError: the file has no committed state; the message lists the ends tried.
        UsageError: it is a file of another format; or `write` exists, and `overwrite` is False.
        SourceError: a file cannot be read or written, or another process is writing it.
    """
    if (write is not None and in_place) or (drop_tail and not in_place):
        raise ArgumentValueError("repair writes a new file, or mends in place and may drop a tail")
    name = path_text(path)
    require_changed_in_place(name)
    locked = None
    if in_place:
        locked = LockedFile(name, durable=durable, lock=lock, timeout=timeout, dry_run=dry_run)
    with contextlib.closing(locked or FileSource(name)) as source:
        report = _report(source, progress, accept=accept)
        if report.is_clean if in_place else write is None:
            return report
        if report.end is None:
            raise _nothing_found(report)
        if locked is None:
            target = _require_other(path_text(write), name, overwrite=overwrite)
            with Place(target).written(durable, dry_run=dry_run) as sink:
                sink.start_with(source, report.end, progress=progress)
            return dataclasses.replace(report, written=target)
        tail = None
        if not drop_tail:
            place = Place.for_tail(name, locked.rights())
            with place.written(durable=True, dry_run=dry_run) as sink:
                sink.start_with(source, source.size, report.end, progress=progress)
            tail = place.path
        locked.cut(report.end)
        return dataclasses.replace(report, written=name, tail_path=tail)


def _require_other(target: str, name: str, *, overwrite: bool) -> str:
    """Return the path of a new file, which may be written, and is not the torn one."""
    require_changed_in_place(target)
    if os.path.exists(target) and os.path.samefile(target, name):
        raise ArgumentValueError(
            "repair writes to another file; in_place=True mends this one", file=name
        )
    Place(target).require_free(overwrite=overwrite)
    return target


def _report(source: Source, progress: Progress | None = None, **options: Any) -> RepairReport:
    """Find the last state of a file, and verify its stored bytes."""
    try:
        state, candidates = search(source, **options)
    except ContainerError as error:
        refuse_not_ours(source, error)
    size, tried = source.size, tuple(candidates)
    if state is None:
        return RepairReport(source.name, size, None, False, 0, 0, 0, (), tried)  # noqa: FBT003
    objects = state.manifest.objects
    here = [
        name
        for name in objects
        if all(part.shard is None for part in objects[name].components.values())
    ]
    checked = verify_file(FileObjects(source, state.manifest), here, progress=progress)
    return RepairReport(
        source.name,
        size,
        state.end,
        is_clean=state.end == size,
        objects=len(objects),
        tail=size - state.end,
        digests_ok=checked.checked,
        damaged=tuple(dict.fromkeys(p.object_name or "" for p in checked.problems)),
        candidates=tried,
    )


def _nothing_found(report: RepairReport) -> ContainerError:
    seen = "; ".join(f"at {c.end}: {c.fault}" for c in report.candidates[:5])
    return ContainerError(
        "no committed state was found",
        reason=Reason.FOOTER_MAGIC,
        file=report.path,
        found=describe(seen, 300) if seen else "no footer anywhere",
    )
