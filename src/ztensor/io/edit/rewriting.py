"""A file written again: its version, its alignment, its objects as they are stored.

`compact` does so to a file, without the bytes nothing refers to. Stored bytes are copied, not
decoded.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ztensor.errors import UsageError
from ztensor.io.formats import FORMATS
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import Portable, says_all
from ztensor.io.source.appending import LockedFile
from ztensor.io.source.paths import path_text
from ztensor.io.source.targets import Nowhere
from ztensor.io.writing.writer import Writer
from ztensor.spec.container import EMITTERS, Emitter
from ztensor.spec.container.framing import Frame
from ztensor.spec.model.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.accepted import Durable, Path, Progress


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


def compact(
    path: Path,
    *,
    canonical: bool = False,
    durable: Durable = "auto",
    lock: bool = True,
    timeout: float = 0.0,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> int:
    """Rewrite a file without the bytes nothing refers to, and return how many that saved.

    The new file replaces the old one as a whole; version, alignment, attributes, encodings,
    digests and unknown fields stay, and of a 2.x file what lies in other files. Containers that
    are only read become 1.2.0.

    Args:
        path: the file.
        canonical: of 2.x: True gives it the form in which the same tensors are always the same
            bytes; what lies in other files is taken in.
        durable: see `ztensor.typing.EditOptions`, like the next two.
        lock: likewise.
        timeout: likewise.
        dry_run: True takes every step but writing.
        progress: called with the stored bytes copied so far and those to copy in all.

    Raises:
        ArgumentValueError: of a file of 1.x or 0.1, a canonical form was asked for.
        NotRepresentableError: a name is not in NFC, as a canonical file asks.
        FormatError: the file is damaged; it is left as it is.
        UsageError: it is a file of another format, or a data shard of 2.x.
        SourceError: it cannot be read or written, or another process is writing it; it stays.
    """
    name = path_text(path)
    locked = LockedFile(name, lock=lock, timeout=timeout)  # keeps other writers out
    with contextlib.closing(locked), Reader(name) as reader:
        if reader.format != "zt":
            raise FORMATS.unchangeable(name, reader.format)
        (file,) = reader.objects.parts()
        require_manifest(file.frame, name)
        version, alignment = Portable.version_of(reader.objects), None
        if file.frame is not None and not canonical:
            alignment = kept_alignment(EMITTERS.named(version), file.frame, file.manifest)
        with Writer(
            Nowhere(name) if dry_run else name,
            version=version,
            attributes=reader.attributes or None,
            durable=durable,
            format="zt",
            alignment=alignment,
            canonical=canonical,
        ) as writer:
            writer.draft.extra = file.manifest.extra
            if not canonical:
                writer.draft.shards = file.manifest.shards
            names = sorted(reader) if canonical else list(reader)
            copy_objects(writer, reader, names, progress)
            locked.require_in_place()
            after = writer.finish()
    return locked.size - after
