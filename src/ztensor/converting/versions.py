"""What a version of zTensor can say of a file, and which version a file is written in."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

from ztensor.container import EMITTERS, LATEST
from ztensor.converting.report import Loss
from ztensor.errors import NotRepresentableError, UnsupportedError, describe
from ztensor.opening import Reader
from ztensor.reading.reader import ManifestReader
from ztensor.sharded import ShardedReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.container import Emitter
    from ztensor.model.manifest import TensorObject


def version_of(reader: Reader) -> str:
    """Return the version a file has, or the latest where that cannot say what it says."""
    versions = {reader.version}
    if isinstance(reader, ShardedReader):
        versions = {reader.shard(file).version for file in reader.files}
    version = max(versions)
    if version not in EMITTERS:
        return LATEST
    emitter = EMITTERS[version]()
    lost = sayable(emitter.check_attributes, reader.attributes, None)[1]
    return LATEST if lost or sayable_objects(reader, emitter)[1] else version


def sayable_objects(
    reader: Reader, emitter: Emitter
) -> tuple[dict[str, ManifestReader], list[Loss]]:
    """Return where each object that a version can say is copied from, and what it cannot say."""
    chosen: dict[str, ManifestReader] = {}
    lost: list[Loss] = []
    for name in reader:
        try:
            found = reader._stored_object(name) or reader._portable_object(name)
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
            home = reader.reader_of(name)
            check = functools.partial(_check_with, emitter, bare)
            kept, unsaid = sayable(check, found.attributes or {}, name)
            lost.extend(unsaid)
            tensor_object = dataclasses.replace(home._object(name), attributes=kept or None)
            chosen[name] = home._with_objects({name: tensor_object})
        else:
            chosen[name] = reader
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
    if isinstance(reader, ShardedReader) or version == "0.1.0" or reader.format != "zt":
        return None
    return reader._manifest.extra
