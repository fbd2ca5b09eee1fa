"""The base class of emitters, which write manifests, and their common map of objects.

A version's emitter gives the fields of an object. Plain objects of one shape, dtype and length
differ only in offset and digest: the bytes template those are encoded once and copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ztensor.errors import NotRepresentableError, describe
from ztensor.spec.container.framing import FORM_1, Form
from ztensor.spec.model.manifest import Entry, Manifest, TensorObject, WrittenObjects
from ztensor.spec.wire import cbor
from ztensor.spec.wire.deterministic import ENCODE_DEPTH, encode_text, head
from ztensor.spec.wire.record import kind_of

_MARK = 1 << 63  # an impossible offset, to find its place in the encoded bytes


class Emitter:
    """A writer of manifests of one version.

    Attributes:
        version: the version text written into files.
        magic: the first bytes of a file.
        form: the rules for its blobs.
        place: the encoded bytes before the offset of a blob.
        levels: number of items of the manifest template an object.
    """

    version: str
    magic: bytes
    form: Form = FORM_1
    place: bytes
    levels = 2

    def __init__(self) -> None:
        self._templates: dict[tuple[object, ...], tuple[bytes, bytes, bytes]] = {}

    def require_name(self, name: str) -> None:
        """Raise `NotRepresentableError` for a name that the version cannot hold."""
        if not name.isascii():
            cbor.encode(name)

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise `NotRepresentableError` for an object that the version cannot represent."""
        self._emit_object(tensor_object)

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise `NotRepresentableError` for attributes that a file of the version cannot hold."""
        cbor.encode(named(attributes), ENCODE_DEPTH - 1)

    def entry(self, tensor_object: TensorObject) -> Mapping[str, Any]:
        """Return the version's fields of an object.

        Raises:
            NotRepresentableError: the version cannot represent the object.
        """
        raise NotImplementedError

    def object_of(self, entry: Mapping[str, Any]) -> TensorObject:
        """Return the object of the version's fields: the inverse of `entry`. Only in 2.x.

        Raises:
            NotRepresentableError: readers of the version would refuse it.
        """
        raise NotImplementedError

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return all bytes behind the last blob, deterministically.

        Args:
            manifest: the content of the file.
            manifest_offset: the file offset of the result.
            prev: length of the file before this state; 0 for a new file.
        """
        raise NotImplementedError

    def _emit_objects(
        self, objects: Mapping[str, TensorObject], names: Sequence[str]
    ) -> cbor.Encoded:
        """Encode the map of objects; a plain object takes 1 us instead of 15."""
        entries: Mapping[str, Entry] = objects
        kinds: list[tuple[bytes, bytes, bytes]] = []
        if isinstance(objects, WrittenObjects):
            entries, kinds = objects.data, [self._template(kind) for kind in objects.kinds]
        parts = [head(cbor.MAP, len(names))]
        for name in names:
            parts.append(encode_text(name))
            entry = entries[name]
            if not isinstance(entry, TensorObject):
                number, offset, digest = entry
                before, between, behind = kinds[number]
            elif (data := entry.only_data) is not None and data.encoding == "raw":
                offset, digest = data.offset, data.digest
                before, between, behind = self._template(entry)
            else:
                parts.append(self._emit_object(entry))
                continue
            parts += before, head(0, offset), between, (digest or "").encode(), behind
        return cbor.Encoded(b"".join(parts))

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        return cbor.encode(self.entry(tensor_object), ENCODE_DEPTH - self.levels)

    def _template(self, plain: TensorObject) -> tuple[bytes, bytes, bytes]:
        """Return a plain object's bytes before the offset, up to the digest, and behind it."""
        component = plain.components["data"]
        digest = (component.digest or "").encode()
        key = (plain.shape, component.dtype, component.type, component.length, len(digest))
        template = self._templates.get(key)
        if template is None:
            sample = component._replace(offset=_MARK)
            whole = self._emit_object(TensorObject(plain.shape, "dense", {"data": sample}))
            before, rest = whole.split(self.place + head(0, _MARK), 1)
            between, _, behind = rest.partition(digest) if digest else (rest, b"", b"")
            template = self._templates[key] = before + self.place, between, behind
        return template


def named(attributes: Mapping[str, object] | None) -> dict[str, object] | None:
    """Return attributes as a dict, after a check that all names are text.

    Raises:
        NotRepresentableError: a name is not text: readers would drop the attribute.
    """
    for key in attributes or ():
        if not isinstance(key, str):
            raise NotRepresentableError("an attribute's name must be text", found=kind_of(key))
    return None if attributes is None else dict(attributes)


def with_unknown(
    known: Mapping[str, object], extra: Mapping[str, object] | None
) -> dict[str, object]:
    """Return the fields to write: the present known ones, then the unknown ones, sorted.

    Args:
        known: all fields of the version; None for an absent one.
        extra: unknown fields from another writer; None if there are none.

    Raises:
        NotRepresentableError: an unknown field has the name of a known one of this version.
    """
    fields = {key: value for key, value in known.items() if value is not None}
    for key, value in sorted(extra.items()) if extra else ():
        if key in known:
            raise NotRepresentableError(
                "the unknown field has the name of a field of this version", found=describe(key)
            )
        fields[key] = value
    return fields


def refused(version: str, message: str, found: str, section: str) -> NotRepresentableError:
    """Return the error for content that a version cannot represent."""
    return NotRepresentableError(f"version {version} {message}", found=found, section=section)
