"""Read the version, alignment and digest of a finished file, to keep them in an edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import FormatError, Reason, UsageError, describe
from ztensor.io.attributes import kinds_of
from ztensor.io.contents import refuse_not_ours
from ztensor.io.reading.file import FileObjects
from ztensor.io.reading.portable import says_all
from ztensor.io.source.base import Source
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import HEAD_BYTES, Frame
from ztensor.spec.digest import writable
from ztensor.spec.model.manifest import Component, Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_committed(source: Source) -> tuple[Frame, Manifest]:
    """Return the frame and manifest of a file that may be changed.

    Raises:
        FormatError: the file is damaged; the message says how to repair it.
        UsageError: it is a file of another format, a data shard of 2.x, or part of a distributed
            checkpoint.
    """
    try:
        frame, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    except FormatError as error:
        if error.reason is Reason.NOT_ZTENSOR:
            refuse_not_ours(source, error)
        if source.size:
            error.hint = (
                "a damaged file is not changed: "
                f"`ztensor repair {describe(source.name, 200)}` shows its last whole state"
            )
        raise
    for _, kind, value in kinds_of(manifest.attributes):
        kind.require_changeable(value, source.name)
    if frame.manifest_length:
        return frame, manifest
    unknown = UsageError(
        "a data shard of 2.x has no manifest: another file lists its objects",
        file=source.name,
    )
    unknown.hint = "change the file that names it"
    raise unknown


def emitter_for(manifest: Manifest) -> Emitter:
    """Return the emitter for a changed manifest, by the rule of `Portable.version_of`."""
    emitter = EMITTERS.older(manifest.version)
    pairs = ((entry, entry) for entry in manifest.objects.values())
    if emitter is None or not says_all(emitter, manifest.attributes or {}, pairs):
        return EMITTERS.named(EMITTERS.latest)
    return emitter


def kept_alignment(emitter: Emitter, frame: Frame, manifest: Manifest) -> int:
    """Return the largest known alignment that all blobs of a file have."""
    here = [part.offset for part in _components(manifest) if part.shard is None and part.length]
    offsets, known = here or [frame.manifest_offset], emitter.form.alignments
    fitting = (size for size in known if not any(offset % size for offset in offsets))
    return max(fitting, default=min(known))


def kept_digest(emitter: Emitter, manifest: Manifest) -> str | bool:
    """Return the digest algorithm of all components; True, for the default, if they differ."""
    digests = (part.digest for part in _components(manifest) if part.digest is not None)
    kinds = {digest.partition(":")[0].lower() for digest in digests}
    is_one = len(kinds) == 1 and kinds <= {*(emitter.form.checksums or writable())}
    return kinds.pop() if is_one else True


def blobs_end(frame: Frame, manifest: Manifest) -> int:
    """Return the end of the last blob; in 2.x blobs may follow the manifest."""
    if frame.manifest_hash is None:
        return frame.manifest_offset
    here = (part for part in _components(manifest) if part.shard is None)
    return max((part.offset + part.length for part in here), default=HEAD_BYTES)


def _components(manifest: Manifest) -> Iterator[Component]:
    for entry in manifest.objects.values():
        yield from entry.components.values()
