"""Which version a file is written again in: its own, or the latest where that is not enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ArgumentValueError, NotRepresentableError
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import portable_object, stored_object
from ztensor.spec.container import LATEST, Emitter, emitter_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor.spec.model.manifest import Manifest, TensorObject


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
