"""Check whether a file is in the canonical form of 2.x (2.1 section 6.3)."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from ztensor.errors import describe
from ztensor.ext import Component, FileObjects, Range
from ztensor.insight.analysis.streaming import opened
from ztensor.typing import Readable

if TYPE_CHECKING:
    from collections.abc import Iterator


_PAGE, _FOOTER = 1 << 16, 40  # alignment of blobs, and bytes of the footer
_MOST = 8  # most reasons in a report


def canonical_problems(source: Readable) -> list[str]:
    """Return the reasons why a file is not in the canonical form of 2.x; empty if it is.

    Two files in that form have the same tensors and attributes if and only if their bytes are
    equal. The manifest and the bytes between blobs are read; `Reader.verify` checks the digests of
    blobs.

    Args:
        source: an open reader, or anything `ztensor.open` takes.

    Returns:
        A sentence for each of the first reasons.

    Raises:
        FormatError: the file is damaged or of no known format.
        SourceError: the file cannot be read.
    """
    with opened(source) as reader:
        parts = reader.objects.parts()
        if reader.objects.is_set or len(parts) != 1:
            return ["it is a set of files"]
        return problems_of(parts[0])


def problems_of(file: FileObjects) -> list[str]:
    """Return the reasons for an open file."""
    frame = file.frame
    if frame is None or frame.container.value != "2":
        return ["it is not a file of 2.x"]
    if not frame.manifest_length:
        return ["it has no manifest"]
    if file.manifest.shards:
        return ["some components are in other files"]
    found = []
    behind = frame.manifest_offset + frame.manifest_length
    for problem in _problems(file, frame.manifest_offset, behind, frame.file_size):
        found.append(problem)
        if len(found) == _MOST:
            break
    return found


def _problems(file: FileObjects, start: int, behind: int, size: int) -> Iterator[str]:
    """Yield the reasons; the manifest is from `start` to `behind`."""
    end, position = 8, _PAGE  # end of the last blob; required offset of the next
    by_digest: dict[tuple[str, int], tuple[int, int]] = {}
    places: set[tuple[int, int]] = set()
    for name, role, component in _in_order(file):
        where = f"{describe(name)}, {role}"
        if not unicodedata.is_normalized("NFC", name) or not unicodedata.is_normalized("NFC", role):
            yield f"{where}: the name is not in NFC"
        if component.encoding != "raw":
            yield f"{where}: it is not raw"
        digest = component.digest or ""
        if not digest.startswith("xxh3:"):
            yield f"{where}: it has no xxh3 digest"
        place = component.offset, component.length
        if digest and by_digest.setdefault((digest, component.length), place) != place:
            yield f"{where}: equal bytes are stored elsewhere, too"
        if place in places:
            continue
        places.add(place)
        if component.offset != position:
            yield f"{where}: it begins at {component.offset}, expected {position}"
            return
        if not _are_zeros(file, end, component.offset):
            yield f"{where}: the padding before it is not zero"
        end = component.offset + component.length
        position = -(-max(end, position) // _PAGE) * _PAGE
    if start != position:
        yield f"the manifest is at {start}, expected {position}"
    elif not _are_zeros(file, end, position):
        yield "the padding before the manifest is not zero"
    if size != behind + _FOOTER:
        yield f"the footer is at {size - _FOOTER}, expected {behind}"
    elif not _are_zeros(file, behind + 28, behind + 32):
        yield "reserved bytes of the footer are not 0"


def _in_order(file: FileObjects) -> Iterator[tuple[str, str, Component]]:
    for name in sorted(file.names, key=str.encode):
        components = file.object(name).components
        for role in sorted(components, key=str.encode):
            yield name, role, components[role]


def _are_zeros(file: FileObjects, start: int, stop: int) -> bool:
    if start >= stop:
        return True
    return not any(any(bytes(piece)) for piece in Range(file.source, start, stop - start).pieces())
