"""What a file is written again as: its version, its alignment, its objects as they are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import UsageError
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import says_all
from ztensor.io.writing.writer import Writer
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import Frame
from ztensor.spec.model.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.accepted import Progress


def emitter_for(manifest: Manifest) -> Emitter:
    """Return what writes a manifest again, by the rule of `Portable.version_of`."""
    emitter = EMITTERS.older(manifest.version)
    pairs = ((found, found) for found in manifest.objects.values())
    if emitter is None or not says_all(emitter, manifest.attributes or {}, pairs):
        return EMITTERS.named(EMITTERS.latest)
    return emitter


def require_manifest(frame: Frame | None, name: str) -> None:
    """Raise where a file has no manifest, as a data shard of 2.x: there is nothing to change.

    Raises:
        UsageError: so it is.
    """
    if frame is None or frame.manifest_length:
        return
    error = UsageError(
        "a data shard of 2.x has no manifest: only another file says what lies in it", file=name
    )
    error.hint = "change the file that names it"
    raise error


def kept_alignment(emitter: Emitter, frame: Frame, manifest: Manifest) -> int:
    """Return what the blobs of a file begin at multiples of, as new ones of it should."""
    parts = (part for one in manifest.objects.values() for part in one.components.values())
    here = [part.offset for part in parts if part.shard is None and part.length]
    offsets, known = here or [frame.manifest_offset], emitter.form.alignments
    fitting = (one for one in known if not any(offset % one for offset in offsets))
    return max(fitting, default=min(known))


def copy_objects(
    writer: Writer, reader: Reader, names: Sequence[str], progress: Progress | None = None
) -> None:
    """Copy objects as they are stored.

    Args:
        writer: takes them.
        reader: has them.
        names: which, in order.
        progress: called with the stored bytes copied so far and those to copy in all.
    """
    writer.copier.expect((reader.objects, name) for name in names)
    total, done = sum(reader.metadata(name).stored_nbytes for name in names), 0
    for name in names:
        writer.copy(name, reader)
        done += reader.metadata(name).stored_nbytes
        if progress is not None:
            progress(done, total)
