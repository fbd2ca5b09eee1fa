"""What a version of zTensor can say of a file, and which version a file is written in."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ztensor.converting.report import Loss
from ztensor.errors import ArgumentValueError, NotRepresentableError, UnsupportedError, describe
from ztensor.io.opening import Reader
from ztensor.io.reading.portable import portable_object, stored_object
from ztensor.io.writing.planning import require_once
from ztensor.spec.container import LATEST, emitter_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ztensor.io.reading.file import FileObjects
    from ztensor.spec.container import Emitter
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


def sayable_objects(reader: Reader, emitter: Emitter) -> tuple[dict[str, FileObjects], list[Loss]]:
    """Return where each object that a version can say is copied from, and what it cannot say."""
    form = emitter.form
    chosen: dict[str, FileObjects] = {}
    lost: list[Loss] = []
    for name in reader:
        try:
            home = reader.objects.part(name)
            found = stored_object(home, name, form) or portable_object(home, name, form)
        except UnsupportedError as error:
            if reader.format == "zt":
                raise
            kind = "" if error.found is None else f", {error.found}"
            lost.append(Loss(name, f"left out: {error.message}{kind}"))
            continue
        try:
            emitter.require_name(name)
            if form.is_exact and not home.object(name).entries_once:
                require_once(home.tensor(name, copy=False))
        except NotRepresentableError as error:
            lost.append(Loss(name, f"left out: {error.message}"))
            continue
        try:
            emitter.require_object(found)
        except NotRepresentableError:
            bare = found._replace(attributes=None)
            try:
                emitter.require_object(bare)
            except NotRepresentableError as error:
                lost.append(Loss(name, f"left out: {error.message}"))
                continue
            check = functools.partial(_require_with, emitter, bare)
            kept, unsaid = sayable(check, found.attributes or {}, name)
            lost.extend(unsaid)
            tensor_object = home.object(name)._replace(attributes=kept or None)
            chosen[name] = home.with_objects({name: tensor_object})
        else:
            chosen[name] = home
    return chosen, lost


def _require_with(
    emitter: Emitter, tensor_object: TensorObject, attributes: Mapping[str, object]
) -> None:
    emitter.require_object(tensor_object._replace(attributes=attributes))


def sayable(
    check: Callable[[Mapping[str, object]], None],
    attributes: Mapping[str, object],
    name: str | None,
) -> tuple[dict[str, Any], list[Loss]]:
    """Return the attributes a version can say, and those it cannot."""
    kept: dict[str, Any] = {}
    lost = []
    for key, value in attributes.items():
        try:
            check({key: value})
        except NotRepresentableError as error:
            lost.append(Loss(name, f"attribute {describe(key)} left out: {error.message}"))
        else:
            kept[key] = value
    return kept, lost


def extra_of(reader: Reader, version: str) -> Mapping[str, object] | None:
    """Return the fields of a file's root that no version names, where the new one has a root."""
    if reader.objects.is_set or version == "0.1.0" or reader.format != "zt":
        return None
    return reader.objects.parts()[0].manifest.extra
