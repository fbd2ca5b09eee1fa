"""The notes that a statement has on a zTensor file, so that it is read without hashing all of it.

| field | content |
| --- | --- |
| `size` | length of the file |
| `container` | the framing, as `Container` names it |
| `manifest` | `offset`, `length` and `sha256` of the manifest's bytes |
| `count` | number of components |
| `components` | base64 of a SHA-256 (32 bytes) of each component, by object name and role |

A SHA-256 covers the bytes that the component's own digest covers: the stored ones; of an encoded
component in 2.x the decoded ones. Names and roles are in the order of their code points.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ztensor.errors import NotZTensorError, Reason, SourceError, describe
from ztensor.ext import Component, FileObjects, Manifest, Source, run_jobs
from ztensor.signing.bundle import require
from ztensor.signing.keys import sha256_of

_DIGEST_BYTES = 32


class _Pinned(Source):
    """A file of which some bytes are in memory, whatever the file has there now.

    Args:
        source: the file.
        offset: where the bytes are in the file.
        data: the bytes.
    """

    def __init__(self, source: Source, offset: int, data: bytes) -> None:
        self.name, self.size = source.name, source.size
        self._source, self._offset, self._data = source, offset, data

    def read_into(self, offset: int, destination: memoryview) -> None:
        self._source.read_into(offset, destination)
        start = max(offset, self._offset)
        stop = min(offset + len(destination), self._offset + len(self._data))
        if start < stop:
            piece = self._data[start - self._offset : stop - self._offset]
            destination[start - offset : stop - offset] = piece


def notes_of(file: FileObjects, workers: int, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """Return the notes on a file, of which everything is read.

    Args:
        file: the file.
        workers: how many threads hash components.
        meanwhile: another job for these threads.

    Raises:
        FormatError: the file is damaged.
    """
    notes, parts, _ = _facts(file)
    hashes, step = [b""] * len(parts), 4 * workers

    def hash_some(first: int) -> None:
        for place in range(first, len(parts), step):
            hashes[place] = _hash(file, *parts[place])

    run_jobs([meanwhile, *(functools.partial(hash_some, first) for first in range(step))], workers)
    return {**notes, "components": base64.b64encode(b"".join(hashes)).decode()}


def is_as_noted(file: FileObjects, notes: Mapping[str, Any]) -> bool:
    """Return whether the manifest is the noted one, and has digests of all data."""
    facts, parts, _ = _facts(file)
    return facts.items() <= notes.items() and all(part.digest for _, _, part in parts)


def under_notes(file: FileObjects, notes: Mapping[str, Any]) -> FileObjects:
    """Return the objects of a file with signed digests, which are compared as they are read.

    Args:
        file: the open file, with `verify=True`.
        notes: the notes of a signature.

    Raises:
        SignatureError: the manifest is not the signed one, or the notes are malformed.
        SourceError: the file changed while it was opened.
    """
    facts, parts, manifest = _facts(file)
    for field, fact in facts.items():
        message = f"this file was not signed: it has another {field}"
        texts = {"expected": describe(notes.get(field), 300), "found": describe(fact, 300)}
        require(notes.get(field) == fact, message, Reason.MANIFEST_DIGEST, **texts)
    listed: Any = notes.get("components")
    try:
        hashes = base64.b64decode(listed, validate=True).hex()
    except (ValueError, TypeError):
        hashes = "malformed"
    is_whole = len(hashes) == 64 * len(parts)
    require(
        is_whole, "the signature has no list of the components' digests", found=describe(listed)
    )
    places = range(0, len(hashes), 64)
    digests = {
        (name, role): f"sha256:{hashes[at : at + 64]}"
        for at, (name, role, _) in zip(places, parts, strict=True)
    }
    objects = {}
    for name, entry in manifest.objects.items():
        components = {
            role: part._replace(digest=digests[name, role], digest_may_cover_decoded=False)
            for role, part in entry.components.items()
        }
        objects[name] = entry._replace(components=components)
    return file.changed(**{**manifest._asdict(), "objects": objects})


def _facts(file: FileObjects) -> tuple[dict[str, Any], list[tuple[str, str, Component]], Manifest]:
    """Return notes on the manifest; all names, roles and components; the manifest of these bytes.

    Components are in the order of their digests.
    """
    source, frame = file.source.parts[0][1], file.frame
    if frame is None:
        raise NotZTensorError("not a zTensor file", file=file.name)
    data = bytes(source.read(frame.manifest_offset, frame.manifest_length))
    again, manifest = file.manifest_in(_Pinned(source, frame.manifest_offset, data), file.limits)
    names, version = file.manifest.objects.keys(), file.version
    if (again, manifest.objects.keys(), manifest.version) != (frame, names, version):
        raise SourceError(
            "the file changed while it was opened", reason=Reason.SOURCE_CHANGED, file=file.name
        )
    manifest = manifest._replace(objects=dict(manifest.objects))  # a table builds them each time
    parts = [
        (name, role, part)
        for name, entry in sorted(manifest.objects.items())
        for role, part in sorted(entry.components.items())
    ]
    place = {"offset": frame.manifest_offset, "length": frame.manifest_length}
    facts = {"size": frame.file_size, "container": frame.container.value, "count": len(parts)}
    return {**facts, "manifest": {**place, "sha256": sha256_of([data])}}, parts, manifest


def _hash(file: FileObjects, name: str, role: str, part: Component) -> bytes:
    """Return the SHA-256 of a component, once its own digest was compared."""
    stored = file.stored(part)
    with file.located(name, role):
        if part.is_exact and part.encoding != "raw":
            pieces = stored.checked_pieces(file.known_length(name, role))
        else:
            stored.check()
            pieces = stored.stored().pieces()
        return bytes.fromhex(sha256_of(pieces))
