"""`compact`: a file without the bytes nothing refers to. Stored bytes are copied, not decoded."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ztensor.io.edit.rewriting import (
    copy_objects,
    kept_alignment,
    require_manifest,
)
from ztensor.io.formats import FORMATS
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import Portable
from ztensor.io.source.appending import LockedFile
from ztensor.io.source.paths import path_text
from ztensor.io.source.targets import Nowhere
from ztensor.io.writing.writer import Writer
from ztensor.spec.container import EMITTERS

if TYPE_CHECKING:
    from ztensor.accepted import Durable, Path, Progress


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
        SourceError: it cannot be read or written, or another process is writing it; it is left as
            it is.
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
