"""What a statement says of a zTensor file, so that it can be read before all of it is hashed.

| field | content |
| --- | --- |
| `size` | length of the file |
| `container` | the framing, as `Container` names it |
| `manifest` | `offset`, `length` and `sha256` of the manifest's bytes |
| `count` | number of components |
| `components` | base64 of a SHA-256 (32 bytes) of each component, by object name and role |

`components` is missing if each component's own digest in the manifest is a sha256. A SHA-256 covers
what the component's own digest covers: the stored bytes; of an encoded component in 2.x the decoded
ones. Names and roles are in the order of their code points.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable
from typing import Any

from ztensor.errors import Reason, SourceError, describe
from ztensor.ext import (
    Component,
    FileObjects,
    Manifest,
    Source,
    run_jobs,
)
from ztensor.signing.bundle import SignatureError
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


def notes_of(file: FileObjects, workers: int) -> dict[str, Any]:
    """Return what a statement says of a file, of which everything is read.

    Raises:
        FormatError: the file is damaged.
        SourceError: it cannot be read, or changed meanwhile.
    """
    facts, manifest = _facts(file)
    parts = _components(manifest)
    if not all(_is_sha256(file, part) for _, _, part in parts):
        hashes = [b""] * len(parts)

        def hash_some(first: int) -> None:
            for place in range(first, len(parts), 4 * workers):
                hashes[place] = _hash(file, *parts[place])

        run_jobs((functools.partial(hash_some, first) for first in range(4 * workers)), workers)
        facts["components"] = base64.b64encode(b"".join(hashes)).decode()
    file.source.require_unchanged()
    return facts


def is_as_noted(file: FileObjects, notes: Any) -> bool:
    """Return whether notes are of this file, by its manifest; digests in it cover all data."""
    facts, manifest = _facts(file)
    is_covered = all(part.digest is not None for _, _, part in _components(manifest))
    return is_covered and facts.items() <= notes.items()


def under_notes(file: FileObjects, notes: Any) -> FileObjects:
    """Return the objects of a file with signed digests, which are compared as they are read.

    Args:
        file: the open file, with `verify=True`.
        notes: what `notes_of` returned when it was signed.

    Raises:
        SignatureError: the manifest is not the signed one, or the notes are malformed.
        SourceError: the file changed while it was opened.
    """
    facts, manifest = _facts(file)
    for field, fact in facts.items():
        if notes.get(field) != fact:
            raise SignatureError(
                "this manifest was not signed: another file has its name"
                if field == "manifest"
                else f"the file was not signed with this {field}",
                reason=Reason.MANIFEST_DIGEST,
                file=file.name,
                expected=describe(notes.get(field), 300),
                found=describe(fact, 300),
            )
    digests = _digests(file, manifest, notes.get("components"))
    objects = {}
    for name, entry in manifest.objects.items():
        parts = {
            role: part._replace(digest=digests[name, role], digest_may_cover_decoded=False)
            for role, part in entry.components.items()
        }
        objects[name] = entry._replace(components=parts)
    return file.changed(**{**manifest._asdict(), "objects": objects})


def _facts(file: FileObjects) -> tuple[dict[str, Any], Manifest]:
    """Return the facts of a file's manifest, and the manifest parsed from the hashed bytes."""
    source, frame = file.source.parts[0][1], file.frame
    if frame is None:
        raise SignatureError("not a zTensor file", reason=Reason.NOT_ZTENSOR, file=file.name)
    data = bytes(source.read(frame.manifest_offset, frame.manifest_length))
    pinned = _Pinned(source, frame.manifest_offset, data)
    again, manifest = file.manifest_in(pinned, file.limits)
    if again != frame or manifest.objects.keys() != file.manifest.objects.keys():
        raise SourceError(
            "the file changed while it was opened", reason=Reason.SOURCE_CHANGED, file=file.name
        )
    found = {
        "offset": frame.manifest_offset,
        "length": frame.manifest_length,
        "sha256": sha256_of([data]),
    }
    facts = {
        "size": frame.file_size,
        "container": frame.container.value,
        "manifest": found,
        "count": sum(len(entry.components) for entry in manifest.objects.values()),
    }
    return facts, manifest


def _components(manifest: Manifest) -> list[tuple[str, str, Component]]:
    """Return name, role and component of all components, in the order of their digests."""
    return [
        (name, role, part)
        for name, entry in sorted(manifest.objects.items())
        for role, part in sorted(entry.components.items())
    ]


def _is_sha256(file: FileObjects, part: Component) -> bool:
    digest = file.stored(part).digest
    return digest is not None and digest.algorithm == "sha256" and digest.known is not None


def _covers_decoded(part: Component) -> bool:
    return part.is_exact and part.encoding != "raw"


def _hash(file: FileObjects, name: str, role: str, part: Component) -> bytes:
    """Return the SHA-256 of a component, whose own digest is compared."""
    stored = file.stored(part)
    with file.located(name, role):
        pieces: Iterable[memoryview]
        if _covers_decoded(part):
            pieces = stored.checked_pieces(file.known_length(name, role))
        else:
            stored.check()
            pieces = stored.stored().pieces()
        return bytes.fromhex(sha256_of(pieces))


def _digests(
    file: FileObjects, manifest: Manifest, listed: Any
) -> dict[tuple[str, str], str | None]:
    """Return the signed digest of each component: as listed, or as the signed manifest has it."""
    parts = _components(manifest)
    if listed is None and all(_is_sha256(file, part) for _, _, part in parts):
        return {(name, role): part.digest for name, role, part in parts}
    try:
        hashes = base64.b64decode(listed, validate=True)
    except (ValueError, TypeError):
        hashes = b""
    if len(hashes) != _DIGEST_BYTES * len(parts) or not hashes:
        raise SignatureError(
            "the statement does not have a digest of each component",
            reason=Reason.FIELD_VALUE,
            file=file.name,
            expected=f"{_DIGEST_BYTES * len(parts)} bytes in base64",
            found=describe(listed),
        )
    return {
        (name, role): f"sha256:{hashes[start : start + _DIGEST_BYTES].hex()}"
        for start, (name, role, _) in zip(range(0, len(hashes), _DIGEST_BYTES), parts, strict=True)
    }
