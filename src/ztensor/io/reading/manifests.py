"""Find, fetch and parse the manifest of one file, and check every rule that needs no data."""

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

# The end of a file that is read at once; it holds the manifest of a few hundred objects. Over a
# network the source itself reads ahead.
END_BYTES = 32 << 10
_LEFT_BYTES = 4096  # the block in which a file system leaves zeros after a crash


def manifest_in(source: Source, limits: Limits) -> tuple[Frame, Manifest]:
    """Return the frame and the parsed manifest of a file.

    Raises:
        FormatError: the file is damaged or not a zTensor file.
        UnsupportedVersionError: this release does not read its version.
        LimitError: a safety cap is exceeded.
        SourceError: the file cannot be read.
    """
    with foreign_bytes("the file", source.name):
        frame, end = _find(source, limits, LOOK_BYTES if source.prefers_long_reads else END_BYTES)
        start = frame.manifest_offset - (frame.file_size - len(end))
        data = end[start : start + frame.manifest_length] if start >= 0 else None
        return frame, parse_frame(source, frame, Budget(limits, source.size), data)


def frame_in(source: Source, limits: Limits) -> Frame:
    """Return the frame of a file: offset and length of its manifest, which is not read.

    Raises:
        ZTensorError: as `manifest_in`.
    """
    with foreign_bytes("the file", source.name):
        return _find(source, limits, LOOK_BYTES)[0]


def _find(source: Source, limits: Limits, length: int) -> tuple[Frame, bytes]:
    """Return the frame of a file, and its last `length` bytes (all of a shorter file)."""
    size = source.size
    length = min(length, size)
    end = bytes(source.read(size - length, length))
    head = end if length == size else bytes(source.read(0, HEAD_BYTES))
    return locate(head[:HEAD_BYTES], end, size, limits), end


def parse_frame(
    source: Source, frame: Frame, budget: Budget, data: bytes | None = None
) -> Manifest:
    """Return the parsed manifest of a frame. Call it within `foreign_bytes`.

    Args:
        source: the file.
        frame: offset and length of its manifest.
        budget: charged for steps and memory.
        data: the manifest's bytes if they were read already.

    Raises:
        ZTensorError: as `manifest_in`.
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
    """Return the problems that the objects' layouts find in the manifest alone, 256 at most."""
    problems: list[Problem] = []
    objects = manifest.objects
    unchecked = objects.others if type(objects) is TableObjects else objects
    if not unchecked:
        return problems
    for name, tensor_object in unchecked.items():
        layout = LAYOUTS.get(tensor_object.format)
        if layout is not None and (found := layout.check_object(tensor_object)):
            problems += [problem.under("objects", name).about(name) for problem in found]
            if len(problems) >= MOST_PROBLEMS:
                break
    return problems


def component_extents(manifest: Manifest) -> tuple[Any, Any, Any]:
    """Return offsets, lengths (int64) and is_encoded (bool) of all components, each (count,)."""
    objects = manifest.objects
    if isinstance(objects, LaterObjects):
        return objects.extents()
    others = objects.others if isinstance(objects, TableObjects) else objects
    components = [part for entry in others.values() for part in entry.components.values()]
    offsets = np.array([part.offset for part in components], np.int64)
    lengths = np.array([part.length for part in components], np.int64)
    is_encoded = np.array([part.encoding != "raw" for part in components], np.bool_)
    if isinstance(objects, TableObjects):
        table = objects.table
        offsets = np.concatenate((offsets, table.offsets))
        lengths = np.concatenate((lengths, table.lengths))
        is_encoded = np.concatenate((is_encoded, ~table.is_raw()))
    return offsets, lengths, is_encoded


def may_be_ours(given: Any) -> bool:
    """Return whether a file that does not open may be a damaged or cut zTensor file.

    Zeros count as the remains of a file on disk, but not in a store, where uploads are atomic.

    Raises:
        SourceError: the file cannot be read.
    """
    with contextlib.closing(source_of(given, mapped=False)) as source:
        head = source.read(0, min(source.size, _LEFT_BYTES))
        if isinstance(given, Remote) and not any(head):
            return False
        end = min(source.size, len(MAGIC_1))
        return may_be_damaged(bytes(head), bytes(source.read(source.size - end, end)))
