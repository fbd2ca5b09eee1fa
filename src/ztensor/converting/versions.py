"""What a version of zTensor can say of a file, and which version a file is written in."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from ztensor.container import EMITTERS, LATEST
from ztensor.converting.report import Loss
from ztensor.errors import NotRepresentableError, UnsupportedError, describe
from ztensor.opening import Reader
from ztensor.reading.portable import portable_object, stored_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.container import Emitter
    from ztensor.model.manifest import TensorObject
    from ztensor.reading.file import FileObjects


def version_of(reader: Reader) -> str:
    """Return the version a file has, or the latest where that cannot say what it says."""
    version = max(file.version for file in reader.objects.parts())
    if version not in EMITTERS:
        return LATEST
    emitter = EMITTERS[version]()
    lost = sayable(emitter.check_attributes, reader.attributes, None)[1]
    return LATEST if lost or sayable_objects(reader, emitter)[1] else version


def sayable_objects(reader: Reader, emitter: Emitter) -> tuple[dict[str, FileObjects], list[Loss]]:
    """Return where each object that a version can say is copied from, and what it cannot say."""
    chosen: dict[str, FileObjects] = {}
    lost: list[Loss] = []
    for name in reader:
        try:
            home = reader.objects.part(name)
            found = stored_object(home, name) or portable_object(home, name)
        except UnsupportedError as error:
            if reader.format == "zt":
                raise
            kind = "" if error.found is None else f", {error.found}"
            lost.append(Loss(name, f"left out: {error.message}{kind}"))
            continue
        try:
            name.encode("utf-8")
            emitter.check_object(found)
        except UnicodeEncodeError:
            lost.append(Loss(name, "left out: the name holds a lone surrogate"))
            continue
        except NotRepresentableError:
            bare = dataclasses.replace(found, attributes=None)
            try:
                emitter.check_object(bare)
            except NotRepresentableError as error:
                lost.append(Loss(name, f"left out: {error.message}"))
                continue
            check = functools.partial(_check_with, emitter, bare)
            kept, unsaid = sayable(check, found.attributes or {}, name)
            lost.extend(unsaid)
            tensor_object = dataclasses.replace(home.object(name), attributes=kept or None)
            chosen[name] = home.with_objects({name: tensor_object})
        else:
            chosen[name] = home
    return chosen, lost


def _check_with(
    emitter: Emitter, tensor_object: TensorObject, attributes: Mapping[str, object]
) -> None:
    emitter.check_object(dataclasses.replace(tensor_object, attributes=attributes))


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
