"""The manifest of 2.x, written: one deterministic form, and the footer that says where it lies."""

from __future__ import annotations

import dataclasses
import struct
from typing import TYPE_CHECKING

from ztensor.container.entries import Around, emit_entries
from ztensor.container.framing import MAGIC_2, MANIFEST_2_MOST
from ztensor.container.v2.layouts import check_layout, theirs
from ztensor.container.v2.object import (
    DTYPES,
    TYPES,
    check_shape,
    encoding_of,
    is_name,
    name_problem,
    types_of,
    words_of,
)
from ztensor.digest import parse_strict_digest, xxh3
from ztensor.errors import (
    FormatError,
    LimitError,
    ManifestError,
    NotRepresentableError,
    Reason,
    describe,
)
from ztensor.model.manifest import TensorObject
from ztensor.model.rules import Form, align
from ztensor.wire import cbor
from ztensor.wire.record import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ztensor.model.manifest import Component, Manifest, Shard
    from ztensor.model.problem import Problem

DEPTH = 32  # levels of nesting that every reader takes
_FOOTER = struct.Struct("<QQQII8s")
_ROOT = frozenset({"shards", "objects", "attributes"})
_OBJECT = frozenset({"shape", "layout", "parts", "attributes"})
_PART = frozenset({"blob", "type", "dtype", "shard", "digest", "encoding", "decoded_length"})

# What the releases write by default, and no less than the least.
FORM_2 = Form(
    alignment=1 << 16,
    alignments=tuple(1 << power for power in range(12, 17)),
    checksums=("xxh3", "sha256"),
    encodings={"zstd": "zt.zstd-seekable/1"},
    indices=("u32", "u64"),
    is_exact=True,
)


class Emitter:
    """Writes 2.1, which 2.0 differs from in no byte."""

    version = "2.1"
    magic = MAGIC_2

    def __init__(self, form: Form = FORM_2) -> None:
        """Take what blobs are like; the manifest lies as they do."""
        self.form = form
        self._arounds: dict[tuple[object, ...], Around] = {}

    # --- What it can say --------------------------------------------------------------------

    def require_name(self, name: str) -> None:
        """Raise where an object, or a part of one, cannot be called so.

        Raises:
            NotRepresentableError: it cannot.
        """
        cbor.encode_text(name)  # no lone surrogates
        if not is_name(name):
            raise _refused(name_problem(name, ()))

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise where 2.x cannot say what the object is, before a byte of it is written.

        Raises:
            NotRepresentableError: names what cannot be said.
        """
        for problem in check_shape(tensor_object.shape):
            raise _refused(problem)
        if not tensor_object.components:
            raise NotRepresentableError(
                "an object of 2.x has at least one part", section="2.1 section 3.3"
            )
        layout, attributes = theirs(tensor_object.format, tensor_object.attributes)
        for role, component in tensor_object.components.items():
            self.require_name(role)
            _require_component(role, component)
        for problem in check_layout(
            layout, tensor_object.shape, tensor_object.components, attributes
        ):
            raise _refused(problem)
        self._emit_any(tensor_object)

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where the file's own attributes cannot be said."""
        _encode_attributes(attributes, levels=1)

    # --- What follows the last blob ---------------------------------------------------------

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return padding, manifest and footer, ready to follow the last blob.

        Args:
            manifest: what to write.
            manifest_offset: where the result will lie.
            prev: length of the file before; 2.x has no place for it.
        """
        del prev
        offset = align(manifest_offset, self.form.alignment)
        data = self.manifest(manifest)
        return b"".join((bytes(offset - manifest_offset), data, footer(offset, data)))

    def manifest(self, manifest: Manifest) -> bytes:
        """Return the manifest: the same one gives the same bytes.

        Raises:
            NotRepresentableError: it is longer than 1 GiB, or says what 2.x cannot.
        """
        fields: dict[str, bytes | list[bytes]] = _unknown(manifest.extra, _ROOT)
        if manifest.shards:
            fields["shards"] = _map(
                {name: _shard(shard) for name, shard in manifest.shards.items()}
            )
        fields["objects"] = self._emit_objects(manifest.objects)
        if manifest.attributes is not None:
            fields["attributes"] = _encode_attributes(manifest.attributes, levels=1)
        data = b"".join(
            cbor.map_parts((key, fields[key]) for key in sorted(fields, key=cbor.key_order))
        )
        if len(data) > MANIFEST_2_MOST:
            raise NotRepresentableError(
                "the manifest is longer than 2.x allows; divide the objects over several files",
                expected=f"at most {MANIFEST_2_MOST} bytes",
                found=str(len(data)),
                section="2.1 section 2.3",
            )
        return data

    def _emit_objects(self, objects: Mapping[str, TensorObject]) -> list[bytes]:
        names = sorted(objects, key=cbor.key_order)
        return [*emit_entries(objects, names, self._around, self._emit_object)]

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        component = tensor_object.components.get("data")
        is_plain = (
            tensor_object.format == "dense"
            and component is not None
            and len(tensor_object.components) == 1
            and component.encoding == "raw"
            and component.extra is None
            and component.shard is None
            and tensor_object.attributes is None
            and tensor_object.extra is None
        )
        if component is None or not is_plain:
            return self._emit_any(tensor_object)
        return self._around(tensor_object).entry(component.offset, component.digest)

    def _around(self, plain: TensorObject) -> Around:
        """Return what is around offset and digest of a plain object, made once for its kind."""
        component = plain.components["data"]
        shown = component.digest and (component.digest.partition(":")[0], len(component.digest))
        key = (plain.shape, component.dtype, component.type, component.length, shown)
        around = self._arounds.get(key)
        if around is None:
            sample = dataclasses.replace(component, offset=0)
            whole = self._emit_any(TensorObject(plain.shape, "dense", {"data": sample}))
            start = whole.index(cbor.encode_text("blob") + b"\x82") + 6
            before, rest = whole[:start], whole[start + 1 :]
            digest = (component.digest or "").encode("ascii")
            between, behind = rest, b""
            if digest:
                between, _, behind = rest.partition(digest)
            around = self._arounds[key] = Around(before, between, behind)
        return around

    def _emit_any(self, tensor_object: TensorObject) -> bytes:
        layout, attributes = theirs(tensor_object.format, tensor_object.attributes)
        parts = {
            role: _map(_part(component)) for role, component in tensor_object.components.items()
        }
        fields: dict[str, bytes | list[bytes]] = {
            **_unknown(tensor_object.extra, _OBJECT),
            "parts": _map(parts),
            "shape": cbor.array_of(map(cbor.encode_uint, tensor_object.shape)),
            "layout": cbor.encode_text(layout),
        }
        if attributes is not None:
            fields["attributes"] = _encode_attributes(attributes, levels=3)
        return _map(fields)


class DataShardEmitter(Emitter):
    """Writes a file of blobs that another file tells of, and that has no manifest."""

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return the footer."""
        del manifest, manifest_offset, prev
        return _FOOTER.pack(0, 0, 0, 2, 0, MAGIC_2)


def footer(offset: int, manifest: bytes) -> bytes:
    """Return the footer of a file whose manifest lies at `offset`."""
    return _FOOTER.pack(offset, len(manifest), xxh3(manifest), 2, 0, MAGIC_2)


def _part(component: Component) -> dict[str, bytes | list[bytes]]:
    dtype, logical = words_of(component)
    start = 0 if component.shard is None else component.shard.start or 0
    blob = (component.offset - start, component.length)
    fields: dict[str, bytes | list[bytes]] = {
        **_unknown(component.extra, _PART),
        "blob": cbor.array_of(map(cbor.encode_uint, blob)),
        "dtype": cbor.encode_text(dtype),
    }
    if logical is not None:
        fields["type"] = cbor.encode_text(logical)
    if component.shard is not None:
        fields["shard"] = cbor.encode_text(component.shard.name)
    if component.digest is not None:
        fields["digest"] = cbor.encode_text(component.digest)
    if component.encoding != "raw":
        fields["encoding"] = cbor.encode_text(component.encoding.removeprefix(_WORD_OF_2))
        fields["decoded_length"] = cbor.encode_uint(component.decoded_length or 0)
    return fields


_WORD_OF_2 = encoding_of("raw").removesuffix("raw")


def _shard(shard: Shard) -> bytes:
    return _map({"size": cbor.encode_uint(shard.size), "digest": cbor.encode_text(shard.digest)})


def _map(fields: Mapping[str, bytes | list[bytes]]) -> bytes:
    return b"".join(
        cbor.map_parts((key, fields[key]) for key in sorted(fields, key=cbor.key_order))
    )


def _require_component(role: str, component: Component) -> None:
    """Raise where 2.x cannot say what a component is."""
    if component.dtype not in DTYPES and component.dtype != "bool":
        raise NotRepresentableError(
            "the storage type is unknown, and makes a file of 2.x unreadable; exclude the object "
            "to write the others",
            component=role,
            expected=f"one of {', '.join(sorted(DTYPES))}",
            found=describe(component.dtype),
            section="2.1 appendix A",
        )
    logical = component.type
    if logical is not None and (
        TYPES.get(logical, component.dtype) != component.dtype
        or types_of(component.dtype, logical) != (component.dtype, logical)
    ):
        raise NotRepresentableError(
            "the logical type means something else in 2.x",
            component=role,
            found=f"{describe(logical)} on {component.dtype}",
            section="2.1 appendix A",
        )
    if encoding_of(component.encoding.removeprefix(_WORD_OF_2)) != component.encoding and (
        component.encoding != "raw"
    ):
        raise NotRepresentableError(
            "2.x has no such encoding",
            component=role,
            found=describe(component.encoding),
            section="2.1 section 5.3",
        )
    if component.encoding != "raw" and component.decoded_length is None:
        raise NotRepresentableError(
            "2.x says how long encoded data is once decoded, which nothing here tells",
            component=role,
            found=describe(component.encoding),
            section="2.1 section 3.4",
        )
    if component.digest is not None:
        try:
            parse_strict_digest(component.digest)
        except FormatError as error:
            raise NotRepresentableError(
                "2.x spells digests otherwise",
                component=role,
                expected=error.expected,
                found=describe(component.digest),
                section="2.1 section 3.4",
            ) from error


def _refused(problem: Problem) -> NotRepresentableError:
    return NotRepresentableError(
        f"2.x cannot say it: {problem.message}", section=problem.section or None
    )


def _unknown(
    extra: Mapping[str, object] | None, known: Iterable[str]
) -> dict[str, bytes | list[bytes]]:
    """Return fields no version names, so that editing a file loses nothing another writer put."""
    fields: dict[str, bytes | list[bytes]] = {}
    for key, value in (extra or {}).items():
        if key in known:
            raise NotRepresentableError(
                "a field that no version named before has a meaning in 2.x", found=describe(key)
            )
        fields[key] = _encode_plain(value, levels=0)
    return fields


def _encode_attributes(attributes: Mapping[str, object], *, levels: int) -> bytes:
    """Return attributes as CBOR, refused where a reader would refuse them.

    Args:
        attributes: what to write.
        levels: how many maps of the manifest they lie in.
    """
    for key in attributes:
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
        if not is_name(key):
            raise _refused(name_problem(key, ("attributes",)))
    return _encode_plain(dict(attributes), levels=levels)


def _encode_plain(value: object, *, levels: int) -> bytes:
    """Return a value in the one form that 2.x takes, refused where it has none."""
    encoded = cbor.encode(value)
    try:
        cbor.decode(encoded, depth=DEPTH - levels, strict=True)
    except (ManifestError, LimitError) as error:
        raise _not_plain(error) from error
    return encoded


def _not_plain(error: ManifestError | LimitError) -> NotRepresentableError:
    is_deep = error.reason is Reason.LIMIT_DEPTH
    message = f"2.x takes {DEPTH} levels of nesting" if is_deep else "2.x has no such value"
    return NotRepresentableError(
        message, expected=error.expected, found=error.found, section="2.1 section 3.1"
    )
