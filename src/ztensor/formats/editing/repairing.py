"""Repair of files of other formats: gaps, bytes behind the last tensor, missing tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ztensor.errors import ArgumentValueError, FormatError, ManifestError, Reason
from ztensor.ext import Place, Source, is_remote, path_text, source_of
from ztensor.formats.editing.header import Header, Item, parsed
from ztensor.formats.editing.indexes import require_whole_model
from ztensor.formats.editing.plan import Plan
from ztensor.typing import Durable, Path, Progress


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a file.

    Attributes:
        kind: `gap` or `tail`: bytes of no tensor, between tensors or behind the last one; `lost`: a
            tensor that ends behind the file; `order`, `alignment` or `header`: tensors are not in
            the order of the header or an empty one is inside another, a tensor is not aligned, or
            the data is not.
        offset: where it is in the file.
        nbytes: the bytes that a repair drops; of a lost tensor those that are there.
        name: the tensor, or None.
    """

    kind: str
    offset: int
    nbytes: int = 0
    name: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class FormatRepair:
    """The result of a repair of a file of another format.

    Attributes:
        path: the file.
        size: its length in bytes.
        format: the format's name.
        objects: the number of tensors in its header.
        findings: the faults, in the order of the file.
        written: the file that was written, or None.
        tail_path: the file that keeps the dropped bytes, or None.
    """

    path: str
    size: int
    format: str
    objects: int
    findings: tuple[Finding, ...]
    written: str | None = None
    tail_path: str | None = None

    @property
    def lost(self) -> tuple[str, ...]:
        """Return the names of the tensors with bytes that are not in the file."""
        lost = (each.name for each in self.findings if each.kind == "lost")
        return tuple(name for name in lost if name is not None)


def repair_format(
    path: Path,
    *,
    write: Path | None = None,
    in_place: bool = False,
    drop_tail: bool = False,
    drop_lost: bool = False,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    overwrite: bool = True,
    progress: Progress | None = None,
) -> FormatRepair:
    """Report the faults of a `.safetensors` or `.gguf` file, and repair it on demand.

    Without `write` and `in_place` nothing is changed.

    Args:
        path: the file.
        write: a new file without the faults; the damaged one stays as it is.
        in_place: put the new file in the place of the damaged one. The bytes of no tensor are first
            copied to `PATH.tail-1` (or the next free number).
        drop_tail: with `in_place`, do not copy them.
        drop_lost: leave out tensors with bytes that are not in the file; by default they are an
            error.
        durable: as for `Writer`.
        lock: see `ztensor.typing.EditOptions`.
        timeout: seconds to wait for another writer.
        dry_run: True takes every step but writing; the report is the same.
        overwrite: with `write`, False refuses to replace an existing file.
        progress: called with the bytes written so far and in all.

    Raises:
        ArgumentValueError: the arguments contradict each other.
        FormatError: the header cannot be read, tensors overlap, or tensors are lost and `drop_lost`
            is False.
        UsageError: it is a file of another format; or `write` exists, and `overwrite` is False.
        SourceError: a file cannot be read or written, or another process is writing it.
    """
    if (write is not None and in_place) or (drop_tail and not in_place):
        raise ArgumentValueError("repair writes a new file, or mends in place and may drop a tail")
    name, file = path_text(path), None
    target = None if write is None else path_text(write)
    if in_place or is_remote(name):  # the latter is an error
        file = Place.of(name).locked(lock=lock, timeout=timeout)
    with contextlib.closing(file or source_of(name, mapped=False)) as source:
        header, items = parsed(source, are_checked=False)
        findings = tuple(_findings(source, header, items))
        if not findings:
            try:
                parsed(source, are_checked=True)
            except FormatError:
                findings = tuple(_misplaced(header, items))
                if not findings:
                    raise
        report = FormatRepair(name, source.size, header.format, len(items), findings)
        if not findings if in_place else target is None:
            return report
        for lost in report.lost:
            if not drop_lost:
                error = ManifestError(
                    "the bytes of tensors are not in the file",
                    reason=Reason.TRUNCATED,
                    file=name,
                    object_name=lost,
                    found=f"{len(report.lost)} lost of {report.objects}",
                )
                error.hint = "`--drop-lost` (drop_lost=True in Python) leaves them out"
                raise error
            del items[lost]
        place, tail = Place.of(name if target is None else target), None
        if file is not None:
            require_whole_model(name, header, items)
        elif os.path.exists(place.path) and os.path.samefile(place.path, name):
            message = "repair writes to another file; in_place=True mends this one"
            raise ArgumentValueError(message, file=name)
        else:
            place.require_free(overwrite=overwrite)
        plan = Plan.of(header, items)
        if file is not None and not drop_tail:
            tail = _keep(source, report, dry_run=dry_run)
        check = source.require_unchanged if file is None else file.require_in_place
        plan.put(source, place, check, durable=durable, dry_run=dry_run, progress=progress)
        return dataclasses.replace(report, written=place.path, tail_path=tail)


def _findings(source: Source, header: Header, items: Mapping[str, Item]) -> Iterator[Finding]:
    """Yield the faults of a file.

    Raises:
        FormatError: tensors overlap.
    """
    end = start = header.start
    step = header.alignment
    if start % header.start_alignment:
        yield Finding("header", start)
    stored = [name for name in header.ordered(items) if items[name].length]
    in_place = sorted(stored, key=lambda name: items[name].place)
    if stored != in_place:
        yield Finding("order", start)
    for name in in_place:
        place, length = items[name].place, items[name].length
        if place < end:
            raise ManifestError(
                "two tensors overlap",
                reason=Reason.OUT_OF_BOUNDS,
                file=source.name,
                object_name=name,
                expected=f"an offset from {end} on",
                found=str(place),
            )
        if (place - start) % step:
            yield Finding("alignment", place, name=name)
        yield from _gap(end, min(place, source.size), header)
        end = place + length
        if end > source.size:
            yield Finding("lost", place, max(0, source.size - place), name)
    yield from _tail(source, end, header)


def _misplaced(header: Header, items: Mapping[str, Item]) -> Iterator[Finding]:
    """Yield the tensors without bytes that are neither before nor behind another one."""
    stored = [(item.place, item.length) for item in items.values() if item.length]
    places = {header.start, *(at for start, length in stored for at in (start, start + length))}
    for name, item in items.items():
        if not item.length and item.place not in places:
            yield Finding("order", item.place, name=name)


def _gap(end: int, stop: int, header: Header) -> Iterator[Finding]:
    """Yield the bytes of no tensor between two places, behind padding."""
    if stop - end >= header.alignment:
        first = end + (header.start - end) % header.alignment
        yield Finding("gap", first, stop - first)


def _tail(source: Source, end: int, header: Header) -> Iterator[Finding]:
    """Yield the bytes behind the last tensor: behind padding, or all if that is not of zeros."""
    length = source.size - end
    padding = min(max(0, length), (header.start - end) % header.alignment)
    first = end if any(source.read(end, padding)) else end + padding
    is_zero = length < header.alignment and not any(source.read(first, max(0, source.size - first)))
    if not is_zero:
        yield Finding("tail", first, source.size - first)


def _keep(source: Any, report: FormatRepair, *, dry_run: bool) -> str | None:
    """Copy the bytes that a repair drops to a new file beside, and return its path."""
    dropped = [finding for finding in report.findings if finding.nbytes]
    if not dropped:
        return None
    place = Place.for_tail(report.path, source.rights())
    with place.written(durable=True, dry_run=dry_run) as sink:
        for finding in dropped:
            sink.start_with(source, finding.offset + finding.nbytes, finding.offset)
    return place.path
