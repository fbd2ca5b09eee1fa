"""A file written again: its version, its alignment, its objects as they are stored.

`compact` does so to a file, without the bytes nothing refers to. Stored bytes are copied, not
decoded.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, NotRepresentableError, UsageError
from ztensor.io.contents import only_ours_change
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import portable_object, stored_object
from ztensor.io.source.appending import LockedFile
from ztensor.io.source.paths import path_text
from ztensor.io.source.targets import Nowhere
from ztensor.io.writing.writer import Writer
from ztensor.spec.container import LATEST, Emitter, emitter_of
from ztensor.spec.container.framing import Frame
from ztensor.spec.model.manifest import Manifest, TensorObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ztensor.accepted import Durable, Path, Progress


def version_of(reader: Reader) -> str:
    """Return the version a file is rewritten in: its own, or the latest where that is not enough.

    It is not where it is only read, or cannot say all that the file says.
    """
    emitter = _older(max(file.version for file in reader.objects.parts()))
    if reader.format != "zt" or emitter is None:
        return LATEST
    form = emitter.form
    pairs = (
        (stored_object(file, name, form) or portable_object(file, name, form), file.object(name))
        for name in reader
        for file in (reader.objects.part(name),)
    )
    return emitter.version if _says_all(emitter, reader.attributes, pairs) else LATEST


def emitter_for(manifest: Manifest) -> Emitter:
    """Return what writes a manifest again, by the same rule."""
    emitter = _older(manifest.version)
    pairs = ((found, found) for found in manifest.objects.values())
    if emitter is None or not _says_all(emitter, manifest.attributes or {}, pairs):
        return emitter_of(LATEST)
    return emitter


def _older(version: str) -> Emitter | None:
    """Return what writes a version where it is not the latest."""
    # A later text of 1.1 than ours is 1.1 all the same: there is one container.
    known = "1.1.0" if version.startswith("1.1") else version
    try:
        emitter = emitter_of(known)
    except ArgumentValueError:
        return None
    return None if emitter.version == LATEST else emitter


def _says_all(
    emitter: Emitter,
    attributes: Mapping[str, object],
    pairs: Iterable[tuple[TensorObject, TensorObject]],
) -> bool:
    """Return whether a version can say objects: each as it will be written, and as it is now."""
    try:
        emitter.require_attributes(attributes)
        for new, old in pairs:
            emitter.require_object(new)
            # A later library appends to files of 1.1 what only 1.2 can say.
            if not emitter.form.is_exact and any(
                part.decoded_length is not None for part in old.components.values()
            ):
                return False
    except NotRepresentableError:
        return False
    return True


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
            raise only_ours_change(name, reader.format)
        (file,) = reader.objects.parts()
        require_manifest(file.frame, name)
        version, alignment = version_of(reader), None
        if file.frame is not None and not canonical:
            alignment = kept_alignment(emitter_of(version), file.frame, file.manifest)
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
