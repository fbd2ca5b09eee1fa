"""What a finished file says of how it is written: its version, its alignment, its digests."""

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
    """Return what a file that may be changed says.

    Raises:
        FormatError: the file is damaged; the message says how to repair it.
        UsageError: it is a file of another format, a data shard of 2.x, or of a divided checkpoint.
    """
    try:
        frame, manifest = FileObjects.manifest_in(source, DEFAULT_LIMITS)
    except FormatError as error:
        if error.reason is Reason.NOT_ZTENSOR:
            refuse_not_ours(source, error)
        error.hint = (
            "a damaged file is not changed: "
            f"`ztensor repair {describe(source.name, 200)}` shows what can be saved"
        )
        raise
    for _, kind, value in kinds_of(manifest.attributes):
        kind.require_changeable(value, source.name)
    if frame.manifest_length:
        return frame, manifest
    unknown = UsageError(
        "a data shard of 2.x has no manifest: only another file says what lies in it",
        file=source.name,
    )
    unknown.hint = "change the file that names it"
    raise unknown


def emitter_for(manifest: Manifest) -> Emitter:
    """Return what writes a manifest again, by the rule of `Portable.version_of`."""
    emitter = EMITTERS.older(manifest.version)
    pairs = ((found, found) for found in manifest.objects.values())
    if emitter is None or not says_all(emitter, manifest.attributes or {}, pairs):
        return EMITTERS.named(EMITTERS.latest)
    return emitter


def kept_alignment(emitter: Emitter, frame: Frame, manifest: Manifest) -> int:
    """Return what the blobs of a file begin at multiples of, as new ones of it should."""
    here = [part.offset for part in _components(manifest) if part.shard is None and part.length]
    offsets, known = here or [frame.manifest_offset], emitter.form.alignments
    fitting = (one for one in known if not any(offset % one for offset in offsets))
    return max(fitting, default=min(known))


def kept_digest(emitter: Emitter, manifest: Manifest) -> str | bool:
    """Return the kind of digest that a file has, or True, for the usual, where it is not one."""
    digests = (part.digest for part in _components(manifest) if part.digest is not None)
    kinds = {digest.partition(":")[0].lower() for digest in digests}
    is_one = len(kinds) == 1 and kinds <= {*(emitter.form.checksums or writable())}
    return kinds.pop() if is_one else True


def blobs_end(frame: Frame, manifest: Manifest) -> int:
    """Return how much of a file its blobs need; in 2.x they may lie behind the manifest."""
    if frame.manifest_hash is None:
        return frame.manifest_offset
    here = (part for part in _components(manifest) if part.shard is None)
    return max((part.offset + part.length for part in here), default=HEAD_BYTES)


def _components(manifest: Manifest) -> Iterator[Component]:
    for found in manifest.objects.values():
        yield from found.components.values()
