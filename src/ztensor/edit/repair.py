"""Report the last committed state of a torn file, and cut the file back to it on demand."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor.errors import (
    ArgumentValueError,
    ContainerError,
    Reason,
    describe,
)
from ztensor.limits import Limits
from ztensor.reader import ManifestReader
from ztensor.recovery import Candidate, State, search
from ztensor.source.appending import AppendSink
from ztensor.source.base import read_bytes
from ztensor.source.local import FileSource
from ztensor.source.sink import FileSink
from ztensor.verify import verify_reader

if TYPE_CHECKING:
    from ztensor.source.base import Source
    from ztensor.source.sink import Durable

    Path = str | os.PathLike[str]

_WINDOW = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class RepairReport:
    """What `find` or `repair` found.

    Attributes:
        path: the file.
        size: its length in bytes.
        end: where the last committed state ends; None where none was found.
        is_clean: the file ends there: nothing has to be repaired.
        objects: how many objects that state holds.
        tail: bytes behind it.
        digests_ok: components of that state whose digest matches.
        damaged: names of objects of that state whose stored bytes do not verify.
        candidates: places that were looked at, the last first, with the reason each failed.
        written: the file the state was written to, or None.
        tail_path: where the bytes behind it were kept, or None.
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
    """Return where the last committed state of a file ends; the file is only read.

    Args:
        path: the file.
        within: how many bytes from the end to search; all by default.
        accept: take the state that ends at this offset although its position proves nothing.
        limits: safety caps.

    Raises:
        ContainerError: the file is not of the container whose states can be found (0.1, 2.x).
        SourceError: it cannot be read.
    """
    name = os.fsdecode(os.fspath(path))
    source = FileSource(name)
    try:
        found, candidates = search(source, within=within, accept=accept, limits=limits)
        return _report(source, found, candidates)
    finally:
        source.close()


def repair(
    path: Path,
    *,
    write: Path | None = None,
    in_place: bool = False,
    drop_tail: bool = False,
    accept: int | None = None,
    durable: Durable = "auto",
    timeout: float = 0.0,
) -> RepairReport:
    """Report, and on demand mend, a torn file.

    Without `write` and `in_place` nothing is changed.

    Args:
        path: the file.
        write: a new file that takes the last committed state; the torn one stays as it is.
        in_place: cut the file itself back to that state. The bytes behind it are first kept
            beside it as `PATH.tail-1` (or the next free number).
        drop_tail: with `in_place`, do not keep them.
        accept: take the state that ends at this offset although its position proves nothing.
        durable: as for `Writer`.
        timeout: with `in_place`, seconds to wait for another writer.

    Raises:
        ArgumentValueError: both or contradicting ways to mend were asked for.
        ContainerError: no committed state was found; the message says what was.
        SourceError: a file cannot be read or written, or another process is writing it.
    """
    if write is not None and in_place:
        raise ArgumentValueError("repair writes a new file or mends in place, not both")
    if drop_tail and not in_place:
        raise ArgumentValueError("drop_tail goes with in_place")
    name = os.fsdecode(os.fspath(path))
    if in_place:
        return _repair_in_place(name, accept, timeout, drop_tail=drop_tail)
    source = FileSource(name)
    try:
        found, candidates = search(source, accept=accept)
        report = _report(source, found, candidates)
        if write is None:
            return report
        if found is None:
            raise _nothing_found(report)
        target = os.fsdecode(os.fspath(write))
        sink = FileSink(target, durable=durable)
        try:
            for offset in range(0, found.end, _WINDOW):
                sink.write(read_bytes(source, offset, min(_WINDOW, found.end - offset)))
            sink.commit()
        except BaseException:
            sink.abort()
            raise
    finally:
        source.close()
    return dataclasses.replace(report, written=target)


def _repair_in_place(
    name: str, accept: int | None, timeout: float, *, drop_tail: bool
) -> RepairReport:
    locked = AppendSink(name, timeout=timeout)
    try:
        found, candidates = search(locked, accept=accept)
        report = _report(locked, found, candidates)
        if found is None:
            raise _nothing_found(report)
        if report.is_clean:
            return report
        tail_path = None
        if not drop_tail:
            tail_path = _free_tail_path(name)
            sink = FileSink(tail_path, durable=True)
            try:
                for offset in range(found.end, locked.size, _WINDOW):
                    sink.write(read_bytes(locked, offset, min(_WINDOW, locked.size - offset)))
                sink.commit()
            except BaseException:
                sink.abort()
                raise
        locked.cut(found.end)
    finally:
        locked.close()
    return dataclasses.replace(report, written=name, tail_path=tail_path)


def _free_tail_path(name: str) -> str:
    number = 1
    while os.path.lexists(f"{name}.tail-{number}"):
        number += 1
    return f"{name}.tail-{number}"


def _report(source: Source, state: State | None, candidates: list[Candidate]) -> RepairReport:
    digests_ok = 0
    damaged: tuple[str, ...] = ()
    if state is not None:
        checked = verify_reader(ManifestReader(source, state.manifest))
        digests_ok = checked.checked
        damaged = tuple(dict.fromkeys(p.object_name or "" for p in checked.problems))
    return RepairReport(
        path=source.name,
        size=source.size,
        end=None if state is None else state.end,
        is_clean=state is not None and state.end == source.size,
        objects=0 if state is None else len(state.manifest.objects),
        tail=0 if state is None else source.size - state.end,
        digests_ok=digests_ok,
        damaged=damaged,
        candidates=tuple(candidates),
    )


def _nothing_found(report: RepairReport) -> ContainerError:
    seen = "; ".join(f"at {c.end}: {c.fault}" for c in report.candidates[:5])
    return ContainerError(
        "no committed state was found",
        reason=Reason.FOOTER_MAGIC,
        file=report.path,
        found=describe(seen, 300) if seen else "no footer anywhere",
    )
