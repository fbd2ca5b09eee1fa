"""Objects and attributes that a version of zTensor can represent, and losses of the others."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor.converting.report import Loss
from ztensor.errors import NotRepresentableError, UnsupportedError, describe
from ztensor.ext import EMITTERS, FileObjects, Portable, TensorObject

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def representable_objects(
    reader: Reader, version: str
) -> tuple[dict[str, FileObjects], list[Loss]]:
    """Return the objects that a version can represent, with their files, and the losses."""
    emitter = EMITTERS.named(version)
    portable = Portable(emitter.form)
    chosen: dict[str, FileObjects] = {}
    lost: list[Loss] = []
    for name in reader:
        try:
            home = reader.objects.part(name)
            written = portable.object(home, name)
        except UnsupportedError as error:
            if reader.format == "zt":
                raise
            kind = "" if error.found is None else f", {error.found}"
            lost.append(Loss(name, f"left out: {error.message}{kind}"))
            continue
        try:
            emitter.require_name(name)
            portable.require_once(home, name)
        except NotRepresentableError as error:
            lost.append(Loss(name, f"left out: {error.message}"))
            continue
        try:
            emitter.require_object(written)
        except NotRepresentableError:
            bare = written._replace(attributes=None)
            try:
                emitter.require_object(bare)
            except NotRepresentableError as error:
                lost.append(Loss(name, f"left out: {error.message}"))
                continue
            check = functools.partial(_require_with, emitter.require_object, bare)
            kept, dropped = representable(check, written.attributes or {}, name)
            lost.extend(dropped)
            tensor_object = home.object(name)._replace(attributes=kept or None)
            chosen[name] = home.changed(objects={name: tensor_object})
        else:
            chosen[name] = home
    return chosen, lost


def _require_with(
    require: Callable[[TensorObject], None],
    tensor_object: TensorObject,
    attributes: Mapping[str, object],
) -> None:
    require(tensor_object._replace(attributes=attributes))


def representable(
    check: Callable[[Mapping[str, object]], None],
    attributes: Mapping[str, object],
    name: str | None,
) -> tuple[dict[str, Any], list[Loss]]:
    """Return the attributes that a version can represent, and the losses."""
    kept: dict[str, Any] = {}
    lost = []
    for key, value in attributes.items():
        try:
            check({key: value})
        except NotRepresentableError as error:
            sentence = f"attribute {describe(key)} left out: {error.message}"
            lost.append(Loss(name, sentence, f"attribute left out: {error.message}"))
        else:
            kept[key] = value
    return kept, lost


def extra_of(reader: Reader, version: str) -> Mapping[str, object] | None:
    """Return the unknown fields of a file's root; None if the new file cannot have them."""
    if reader.objects.is_set or version == "0.1.0" or reader.format != "zt":
        return None
    return reader.objects.parts()[0].manifest.extra
