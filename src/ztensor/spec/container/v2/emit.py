"""The manifest of 2.x, written: one deterministic form, and the footer that says where it is.

What 2.x can say of an object is what is read back of it: `schema.py` has the rules, for both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ztensor.errors import (
    LimitError,
    ManifestError,
    NotRepresentableError,
    Problem,
    Reason,
    describe,
)
from ztensor.spec.container.entries import ObjectsEmitter
from ztensor.spec.container.framing import FOOTER_2, MAGIC_2, MANIFEST_2_MOST, PAGE_2, Form
from ztensor.spec.container.v2.schema import DEPTH, ROOT, check_names, parse_object
from ztensor.spec.container.v2.words import theirs, word_of, words_of
from ztensor.spec.digest import xxh3
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject, align
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import read_fields

# What objects are written and read back in, to see whether they are the same: any place will do.
_ANYWHERE: Mapping[str | None, Shard] = {None: Shard("", PAGE_2 + FOOTER_2.size, "", 0)}

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
        self._objects = ObjectsEmitter(_emit_object, cbor.encode_text("blob") + b"\x82")

    def require_name(self, name: str) -> None:
        """Raise where an object, or a part of one, cannot be called so.

        Raises:
            NotRepresentableError: it cannot.
        """
        cbor.encode_text(name)  # no lone surrogates
        _require_none(check_names([name]))

    def require_object(self, tensor_object: TensorObject) -> None:
        """Raise where 2.x cannot say what the object is, before a byte of it is written.

        Raises:
            NotRepresentableError: names what cannot be said.
        """
        components = {
            role: component._replace(offset=PAGE_2, length=0, shard=None)
            for role, component in tensor_object.components.items()
        }
        data = _emit_object(tensor_object._replace(components=components))
        problems: list[Problem] = []
        found = parse_object(_ANYWHERE, "any", _read_back(data, levels=2), problems)
        _require_none(problems)
        read = {} if found is None else _words(found)
        for what, word in _words(tensor_object).items():
            if read.get(what) != word:
                raise NotRepresentableError(
                    f"the {what} would be read as another in 2.x",
                    expected=describe(word),
                    found=describe(read.get(what)),
                    section="2.1 section 3.3",
                )

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise where the file's own attributes cannot be said."""
        root = {"objects": {}, "attributes": _read_back(cbor.encode(dict(attributes)), levels=1)}
        problems: list[Problem] = []
        if read_fields(root, ROOT, (), problems):
            problems = check_names(attributes, ("attributes",))
        _require_none(problems)

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
        root = dict(manifest.extra or {})
        for key in root.keys() & ROOT.fields.keys():
            raise NotRepresentableError("an unknown field would be known in 2.x", found=key)
        if manifest.shards:
            root["shards"] = {
                name: {"size": shard.size, "digest": shard.digest}
                for name, shard in manifest.shards.items()
            }
        if manifest.attributes is not None:
            root["attributes"] = dict(manifest.attributes)
        fields = {key: cbor.encode(value) for key, value in root.items()}
        for encoded in fields.values():
            _read_back(encoded, levels=1)
        names = sorted(manifest.objects, key=cbor.key_order)
        fields["objects"] = self._objects.emit(manifest.objects, names)
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


class DataShardEmitter(Emitter):
    """Writes a file of blobs that another file tells of, and that has no manifest."""

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return the footer."""
        del manifest, manifest_offset, prev
        return FOOTER_2.pack(0, 0, 0, 2, 0, MAGIC_2)


def footer(offset: int, manifest: bytes) -> bytes:
    """Return the footer of a file whose manifest lies at `offset`."""
    return FOOTER_2.pack(offset, len(manifest), xxh3(manifest), 2, 0, MAGIC_2)


def _emit_object(tensor_object: TensorObject) -> bytes:
    layout, attributes = theirs(tensor_object.format, tensor_object.attributes)
    parts = {role: _emit_part(part) for role, part in tensor_object.components.items()}
    known = {"parts": parts, "shape": tensor_object.shape, "layout": layout}
    if attributes is not None:
        known["attributes"] = dict(attributes)
    return cbor.encode({**(tensor_object.extra or {}), **known})


def _emit_part(component: Component) -> dict[str, object]:
    dtype, logical = words_of(component)
    encoding, shard = word_of(component.encoding), component.shard
    start = 0 if shard is None else shard.start or 0
    known = {
        "dtype": dtype,
        "blob": (component.offset - start, component.length),
        "type": logical,
        "shard": None if shard is None else shard.name,
        "encoding": encoding,
        "decoded_length": None if encoding is None else component.decoded_length,
        "digest": component.digest,
    }
    fields = {key: value for key, value in known.items() if value is not None}
    return {**(component.extra or {}), **fields}


def _words(tensor_object: TensorObject) -> dict[str, object]:
    """Return what an object says by what says it, without values of attributes and fields."""
    words: dict[str, object] = {
        "shape": tuple(tensor_object.shape),
        "layout": tensor_object.format,
        "attributes": sorted(tensor_object.attributes or ()),
        "unknown fields": sorted(tensor_object.extra or ()),
    }
    for role, part in tensor_object.components.items():
        extra = sorted(part.extra or ())
        words[f"part {role}"] = part.dtype, part.type, part.encoding, part.digest, extra
    return words


def _require_none(problems: Sequence[Problem]) -> None:
    for problem in problems:
        raise NotRepresentableError(
            f"2.x cannot say it: {problem.message}",
            component=problem.component,
            section=problem.section,
        )


def _read_back(encoded: bytes, *, levels: int) -> object:
    """Return a value as readers of 2.x have it, refused where it has no form that they take.

    Args:
        encoded: what is written.
        levels: in how many maps of the manifest it will be.
    """
    try:
        return cbor.decode(encoded, depth=DEPTH - levels, strict=True)
    except (ManifestError, LimitError) as error:
        is_deep = error.reason is Reason.LIMIT_DEPTH
        message = f"2.x takes {DEPTH} levels of nesting" if is_deep else "2.x has no such value"
        raise NotRepresentableError(
            message, expected=error.expected, found=error.found, section="2.1 section 3.1"
        ) from error
