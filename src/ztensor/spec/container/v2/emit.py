"""The manifest of 2.x, written: one deterministic form, and the footer that says where it lies."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ztensor.errors import (
    LimitError,
    ManifestError,
    NotRepresentableError,
    Reason,
    describe,
)
from ztensor.spec.container.entries import ObjectsEmitter
from ztensor.spec.container.framing import MAGIC_2, MANIFEST_2_MOST
from ztensor.spec.container.v2.layouts import check_layout, theirs
from ztensor.spec.container.v2.object import (
    DTYPES,
    OBJECT,
    PART,
    ROOT,
    TYPES,
    check_shape,
    encoding_of,
    is_name,
    name_problem,
    types_of,
    words_of,
)
from ztensor.spec.digest import check_digest, xxh3
from ztensor.spec.model.rules import Form, align
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.errors import Problem
    from ztensor.spec.model.manifest import Component, Manifest, TensorObject
    from ztensor.spec.wire.record import Record

DEPTH = 32  # levels of nesting that every reader takes
_FOOTER = struct.Struct("<QQQII8s")

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
        self._objects = ObjectsEmitter(self._emit_object, cbor.encode_text("blob") + b"\x82")

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
        self._emit_object(tensor_object)

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where the file's own attributes cannot be said."""
        _encode(_with_names(attributes), levels=1)

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
        root = _unknown(manifest.extra, ROOT)
        if manifest.shards:
            root["shards"] = {
                name: {"size": shard.size, "digest": shard.digest}
                for name, shard in manifest.shards.items()
            }
        if manifest.attributes is not None:
            root["attributes"] = _with_names(manifest.attributes)
        names = sorted(manifest.objects, key=cbor.key_order)
        fields = {
            **{key: _encode(value, levels=1) for key, value in root.items()},
            "objects": b"".join(self._objects.emit(manifest.objects, names)),
        }
        in_order = sorted(fields, key=cbor.key_order)
        data = cbor.map_of((key, fields[key]) for key in in_order)
        if len(data) > MANIFEST_2_MOST:
            raise NotRepresentableError(
                "the manifest is longer than 2.x allows; divide the objects over several files",
                expected=f"at most {MANIFEST_2_MOST} bytes",
                found=str(len(data)),
                section="2.1 section 2.3",
            )
        return data

    def _emit_object(self, tensor_object: TensorObject) -> bytes:
        layout, attributes = theirs(tensor_object.format, tensor_object.attributes)
        fields = {
            **_unknown(tensor_object.extra, OBJECT),
            "parts": {role: _part(one) for role, one in tensor_object.components.items()},
            "shape": tensor_object.shape,
            "layout": layout,
        }
        if attributes is not None:
            fields["attributes"] = _with_names(attributes)
        return _encode(fields, levels=2)


class DataShardEmitter(Emitter):
    """Writes a file of blobs that another file tells of, and that has no manifest."""

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return the footer."""
        del manifest, manifest_offset, prev
        return _FOOTER.pack(0, 0, 0, 2, 0, MAGIC_2)


def footer(offset: int, manifest: bytes) -> bytes:
    """Return the footer of a file whose manifest lies at `offset`."""
    return _FOOTER.pack(offset, len(manifest), xxh3(manifest), 2, 0, MAGIC_2)


def _part(component: Component) -> dict[str, object]:
    dtype, logical = words_of(component)
    start = 0 if component.shard is None else component.shard.start or 0
    is_raw = component.encoding == "raw"
    optional = {
        "type": logical,
        "shard": None if component.shard is None else component.shard.name,
        "digest": component.digest,
        "encoding": None if is_raw else component.encoding.removeprefix(_WORD_OF_2),
        "decoded_length": None if is_raw else component.decoded_length or 0,
    }
    return {
        **_unknown(component.extra, PART),
        "blob": (component.offset - start, component.length),
        "dtype": dtype,
        **{key: value for key, value in optional.items() if value is not None},
    }


_WORD_OF_2 = encoding_of("raw").removesuffix("raw")


def _require_component(role: str, component: Component) -> None:
    """Raise where 2.x cannot say what a component is."""
    dtype, logical, encoding = component.dtype, component.type, component.encoding

    def refused(message: str, found: str, section: str, expected: str | None = None) -> Exception:
        return NotRepresentableError(
            message, component=role, expected=expected, found=found, section=section
        )

    if dtype not in DTYPES and dtype != "bool":
        message = (
            "the storage type is unknown, and makes a file of 2.x unreadable; exclude the object "
            "to write the others"
        )
        known = f"one of {', '.join(sorted(DTYPES))}"
        raise refused(message, describe(dtype), "2.1 appendix A", known)
    if logical is not None and (
        TYPES.get(logical, dtype) != dtype or types_of(dtype, logical) != (dtype, logical)
    ):
        message = "the logical type means something else in 2.x"
        raise refused(message, f"{describe(logical)} on {dtype}", "2.1 appendix A")
    if encoding != "raw":
        if encoding_of(encoding.removeprefix(_WORD_OF_2)) != encoding:
            raise refused("2.x has no such encoding", describe(encoding), "2.1 section 5.3")
        if component.decoded_length is None:
            message = "2.x says how long encoded data is once decoded, which nothing here tells"
            raise refused(message, describe(encoding), "2.1 section 3.4")
    if component.digest is not None:
        for problem in check_digest(component.digest, strict=True):
            message = f"2.x spells digests otherwise: {problem.message}"
            raise refused(message, describe(component.digest), "2.1 section 3.4")


def _refused(problem: Problem) -> NotRepresentableError:
    return NotRepresentableError(
        f"2.x cannot say it: {problem.message}", section=problem.section or None
    )


def _unknown(extra: Mapping[str, object] | None, record: Record) -> dict[str, object]:
    """Return fields no version names, so that editing a file loses nothing another writer put."""
    for key in extra or ():
        if key in record.fields:
            raise NotRepresentableError(
                "a field that no version named before has a meaning in 2.x", found=describe(key)
            )
    return dict(extra or {})


def _with_names(attributes: Mapping[str, object]) -> dict[str, object]:
    """Return attributes, refused where a reader would refuse their names."""
    for key in attributes:
        if not isinstance(key, str):
            raise NotRepresentableError("the name of an attribute is text", found=kind_of(key))
        if not is_name(key):
            raise _refused(name_problem(key, ("attributes",)))
    return dict(attributes)


def _encode(value: object, *, levels: int) -> bytes:
    """Return a value in the one form that 2.x takes, refused where it has none.

    Args:
        value: what to write.
        levels: in how many maps of the manifest it will be.
    """
    encoded = cbor.encode(value)
    try:
        cbor.decode(encoded, depth=DEPTH - levels, strict=True)
    except (ManifestError, LimitError) as error:
        is_deep = error.reason is Reason.LIMIT_DEPTH
        message = f"2.x takes {DEPTH} levels of nesting" if is_deep else "2.x has no such value"
        raise NotRepresentableError(
            message, expected=error.expected, found=error.found, section="2.1 section 3.1"
        ) from error
    return encoded
