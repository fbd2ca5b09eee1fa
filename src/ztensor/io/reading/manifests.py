"""The manifest of one file: found, fetched, parsed, and every rule checked that needs no data."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from ztensor.errors import MOST_PROBLEMS, Problem
from ztensor.guard import foreign_bytes
from ztensor.io.source.base import Source
from ztensor.io.source.stores import source_of
from ztensor.io.source.urls import Remote
from ztensor.limits import Budget, Limits
from ztensor.spec.container import SCHEMAS
from ztensor.spec.container.framing import (
    HEAD_BYTES,
    LOOK_BYTES,
    MAGIC_1,
    Frame,
    locate,
    may_be_damaged,
)
from ztensor.spec.container.walk import require_none
from ztensor.spec.layout import LAYOUTS
from ztensor.spec.model.manifest import Manifest
from ztensor.spec.model.objects import LaterObjects, TableObjects

# So much of a file's end is read at once: the manifests of a few hundred objects are in it. Over a
# network the source itself brings more than it is asked for.
END_BYTES = 32 << 10
_LEFT_BYTES = 4096  # a file system leaves zeros by blocks of this


def manifest_in(source: Source, limits: Limits) -> tuple[Frame, Manifest]:
    """Return where a file's manifest lies and what it says.

    Raises:
        FormatError: the file is damaged or no zTensor file.
        UnsupportedVersionError: it is of a version this release does not read.
        LimitError: a safety cap is exceeded.
        SourceError: it cannot be read.
    """
    with foreign_bytes("the file", source.name):
        frame, end = _find(source, limits, LOOK_BYTES if source.prefers_long_reads else END_BYTES)
        start = frame.manifest_offset - (frame.file_size - len(end))
        data = end[start : start + frame.manifest_length] if start >= 0 else None
        return frame, parse_frame(source, frame, Budget(limits, source.size), data)


def frame_in(source: Source, limits: Limits) -> Frame:
    """Return where a file's manifest lies; nothing of it is read.

    Raises:
        ZTensorError: what `manifest_in` raises.
    """
    with foreign_bytes("the file"):
        return _find(source, limits, LOOK_BYTES)[0]


def _find(source: Source, limits: Limits, length: int) -> tuple[Frame, bytes]:
    """Return where a file's manifest lies, and so many of its last bytes, or all."""
    size = source.size
    length = min(length, size)
    end = bytes(source.read(size - length, length))
    head = end if length == size else bytes(source.read(0, HEAD_BYTES))
    return locate(head[:HEAD_BYTES], end, size, limits), end


def parse_frame(
    source: Source, frame: Frame, budget: Budget, data: bytes | None = None
) -> Manifest:
    """Return what the manifest in a frame says; the caller is within `foreign_bytes`.

    Args:
        source: the file.
        frame: where its manifest lies.
        budget: what it may cost.
        data: the manifest's bytes, where they were read before.

    Raises:
        ZTensorError: what `manifest_in` raises.
    """
    budget.charge_steps(frame.manifest_length)
    budget.charge_bytes(2 * frame.manifest_length)  # the pages of the file are ours as well
    if data is None:
        data = bytes(source.read(frame.manifest_offset, frame.manifest_length))
    manifest = SCHEMAS[frame.container](data, frame, budget)
    if problems := check_layouts(manifest):
        require_none(problems)
    return manifest


def check_layouts(manifest: Manifest) -> list[Problem]:
    """Return what each object's layout finds wrong with the manifest alone."""
    problems: list[Problem] = []
    objects = manifest.objects
    unchecked = objects.others if type(objects) is TableObjects else objects
    if not unchecked:
        return problems
    for name, tensor_object in unchecked.items():
        layout = LAYOUTS.get(tensor_object.format)
        if layout is not None and (found := layout.check_object(tensor_object)):
            problems += [one.under("objects", name).about(name) for one in found]
            if len(problems) >= MOST_PROBLEMS:
                break
    return problems


def component_extents(manifest: Manifest) -> tuple[Any, Any, Any]:
    """Return where a manifest's components are, as `extents_of` takes it."""
    objects = manifest.objects
    if isinstance(objects, LaterObjects):
        return objects.extents()
    others = objects.others if isinstance(objects, TableObjects) else objects
    some = [one for found in others.values() for one in found.components.values()]
    offsets = np.array([one.offset for one in some], np.int64)
    lengths = np.array([one.length for one in some], np.int64)
    is_encoded = np.array([one.encoding != "raw" for one in some], np.bool_)
    if isinstance(objects, TableObjects):
        table = objects.table
        offsets = np.concatenate((offsets, table.offsets))
        lengths = np.concatenate((lengths, table.lengths))
        is_encoded = np.concatenate((is_encoded, ~table.is_raw()))
    return offsets, lengths, is_encoded


def may_be_ours(given: Any) -> bool:
    """Return whether a file that does not open may be one of ours, damaged or cut.

    A store has objects only as a whole, so no zeros are what is left of one.

    Raises:
        SourceError: it cannot be read.
    """
    with contextlib.closing(source_of(given, mapped=False)) as source:
        head = source.read(0, min(source.size, _LEFT_BYTES))
        if isinstance(given, Remote) and not any(head):
            return False
        end = min(source.size, len(MAGIC_1))
        return may_be_damaged(bytes(head), bytes(source.read(source.size - end, end)))
