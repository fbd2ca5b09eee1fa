"""The manifest of 1.1 and 1.2, written: the same manifest gives the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import NotRepresentableError, describe
from ztensor.spec.container.entries import ObjectsEmitter
from ztensor.spec.container.framing import MAGIC_1
from ztensor.spec.container.v1.commit import with_commit
from ztensor.spec.container.v1.schema import WORDS_OF_1_1
from ztensor.spec.model.dtype import STORAGE_TYPES
from ztensor.spec.model.rules import FORM_1
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.spec.model.manifest import Component, Manifest, TensorObject

_SPELLED_IN_1_1 = {pair: word for word, pair in WORDS_OF_1_1.items()}


class Emitter12:
    """Writes 1.2.0."""

    version = "1.2.0"
    magic = MAGIC_1
    form = FORM_1
    writes_decoded_length = True

    def __init__(self) -> None:
        self._objects = ObjectsEmitter(self._emit_object, cbor.encode_text("offset"))

    def require_name(self, name: str) -> None:
        """Raise where no object can be called so: where it is no text in UTF-8."""
        if not name.isascii():
            cbor.encode_text(name)

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise where the version cannot say what the object is, before a byte of it is written.

        Raises:
            NotRepresentableError: names what cannot be said and the version that can.
        """
        self._emit_object(tensor_object)

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where the file's own attributes cannot be said."""
        _encode_attributes(attributes, levels=1)

    def _spell(self, component: Component) -> tuple[str, str | None]:
        return component.dtype, component.type

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return manifest, size field and footer magic, ready to follow the last blob.

        Objects and roles come in order of their UTF-8 bytes, fields in the order released
        writers use, unknown ones behind; the same manifest gives the same bytes.

        Args:
            manifest: what to write; the version text is kept, `commit` is the emitter's own.
            manifest_offset: where the result will lie in the file.
            prev: length of the file before this commit, 0 for a new one.
        """
        fields = [("version", cbor.encode_text(manifest.version))]
        if manifest.attributes is not None:
            fields.append(("attributes", _encode_attributes(manifest.attributes, levels=1)))
        names = sorted(manifest.objects)  # by code points, which is by UTF-8 bytes
        fields.append(("objects", self._objects.emit(manifest.objects, names)))
        fields.extend(_unknown(manifest.extra))
        return with_commit(fields, manifest_offset, prev)

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        components = tensor_object.components
        fields = [
            ("shape", cbor.array_of(map(cbor.encode_uint, tensor_object.shape))),
            ("format", cbor.encode_text(tensor_object.format)),
        ]
        if tensor_object.attributes is not None:
            fields.append(("attributes", _encode_attributes(tensor_object.attributes, levels=3)))
        emitted = ((role, self._emit_component(components[role])) for role in sorted(components))
        fields.append(("components", cbor.map_of(emitted)))
        return cbor.map_of([*fields, *_unknown(tensor_object.extra)])

    def _emit_component(self, component: Component) -> bytes:
        dtype, logical = self._spell(component)
        is_encoded = component.encoding != "raw"
        known = {
            "dtype": dtype,
            "type": logical,
            "offset": component.offset,
            "length": component.length,
            "uncompressed_length": component.decoded_length
            if is_encoded and self.writes_decoded_length
            else None,
            "encoding": component.encoding if is_encoded else None,
            "digest": component.digest,
        }
        fields = [(key, cbor.encode(value)) for key, value in known.items() if value is not None]
        return cbor.map_of([*fields, *_unknown(component.extra)])


class Emitter11(Emitter12):
    """Writes 1.1.0: its own words for fp8 and complex, no `type`, no `uncompressed_length`."""

    version = "1.1.0"
    writes_decoded_length = False

    def _spell(self, component: Component) -> tuple[str, str | None]:
        if component.type is None:
            return component.dtype, None
        word = _SPELLED_IN_1_1.get((component.dtype, component.type))
        if word is None:
            raise NotRepresentableError(
                f"version 1.1.0 has no logical type {describe(component.type)}; write version "
                f"1.2.0, or pass the {STORAGE_TYPES[component.dtype].long_name} bytes",
                expected=f"one of {', '.join(WORDS_OF_1_1)}",
                found=describe(component.type),
                section="1.1 part II, section 4",
            )
        return word, None

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where an attribute is not text: release 1.1.1 then opens no tensor of the file."""
        for key, value in attributes.items():
            if not isinstance(value, str):
                raise NotRepresentableError(
                    f"attribute {describe(key)} of a 1.1.0 file must be text, since the released "
                    "1.1 library reads nothing else there; write version 1.2.0",
                    found=kind_of(value),
                    section="1.1 part II, section 1",
                )
        super().require_attributes(attributes)


def _unknown(extra: Mapping[str, object] | None) -> list[tuple[str, bytes]]:
    """Return fields no version names, so that editing a file loses nothing another writer put."""
    return [(key, cbor.encode(value)) for key, value in sorted((extra or {}).items())]


def _encode_attributes(attributes: Mapping[str, object], *, levels: int) -> bytes:
    """Return attributes as CBOR, refused where a reader would lose them or find them too deep.

    Args:
        attributes: what to write.
        levels: how many maps of the manifest they lie in.
    """
    for key in attributes:
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
    value: object = dict(attributes)
    for _ in range(levels):
        value = [value]  # one byte each, so that the whole depth is counted
    return cbor.encode(value)[levels:]
