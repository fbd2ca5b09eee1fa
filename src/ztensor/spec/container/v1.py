"""The manifest of 1.1 and 1.2: one container, one schema (1.2 section 1, 1.1 part II).

1.2 added optional fields and logical types to 1.1 and changed the spelling of fp8 and complex.
Libraries that append keep the old version text and add new fields, so a reader accepts both
spellings in every file, and only the major number of the version text matters. Files are written
as one or the other, by the two emitters at the end.

| root | 1.1 | 1.2 |
| --- | --- | --- |
| `version` text, `attributes` map, `objects` map | yes | yes |
| `commit` map, last: `prev`, `end`, `digest` | ours, ignorable | ours, ignorable |

| component | 1.1 | 1.2 |
| --- | --- | --- |
| `dtype`, `offset`, `length`, `encoding`, `digest` | yes | yes |
| `type`, `uncompressed_length` | no; dtype words `f8_e4m3`, ... | yes |

A further encoding would make released readers refuse the whole file, a further layout only its
objects. So the encodings `Form.of_dense` are written as layouts: an object with the encoding's name
as `format`, its stored bytes as raw `u8` elements, and the attributes `dtype` and `type`.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

from ztensor.errors import (
    DigestMismatchError,
    Problem,
    Reason,
    UnsupportedVersionError,
    describe,
)
from ztensor.limits import Budget
from ztensor.spec.container.entries import Emitter, named, refused, with_unknown
from ztensor.spec.container.framing import FORM_1, FORM_1_1, MAGIC_1, RESERVED, TAIL_BYTES, Frame
from ztensor.spec.container.walk import (
    LEAST_OBJECTS,
    Path,
    Root,
    check_blob,
    parse_components,
    require_none,
)
from ztensor.spec.digest import ALGORITHMS
from ztensor.spec.model.dtype import decoded_size
from ztensor.spec.model.manifest import Commit, Component, Manifest, TensorObject
from ztensor.spec.wire import cbor
from ztensor.spec.wire.record import ATTRIBUTES, ManifestForm, Record, kind_of

ROOT = Record(
    "a map as the manifest's root",
    "1.2 section 1, Root",
    {"version": str, "objects": dict, "attributes": ATTRIBUTES, "commit": object},
    optional=("attributes", "commit"),
)
OBJECT = Record(
    "a map describing one object",
    "1.2 section 1, Object",
    {"shape": list, "format": str, "components": dict, "attributes": ATTRIBUTES},
    optional=("attributes",),
)
# The text gives null as the default of most optional fields; for `encoding` it must mean `raw`.
COMPONENT = Record(
    "a map describing one blob",
    "1.2 section 1, Component",
    {
        "dtype": str, "offset": int, "length": int, "type": str,
        "encoding": str, "digest": str, "uncompressed_length": int,
    },
    optional=("type", "encoding", "digest", "uncompressed_length"),
)  # fmt: skip
# 1.1 part II, section 4 lists these as dtypes; 1.2 has a storage and a logical type for each.
WORDS_OF_1_1 = {
    "f8_e4m3": ("u8", "f8_e4m3fn"),
    "f8_e5m2": ("u8", "f8_e5m2"),
    "complex64": ("f32", "complex64"),
    "complex128": ("f64", "complex128"),
}
_SPELLED_IN_1_1 = {pair: word for word, pair in WORDS_OF_1_1.items()}
_TEXT_OF_1_1 = cbor.encode("version") + b"\x651.1"
_MAJOR = re.compile(r"(\d+)(?:\.|\Z)")


def _are_unique(names: list[str]) -> bool:
    """Return whether no name is repeated."""
    # Writers sort names: comparing neighbours is four times faster than hashing.
    is_sorted = all(map(operator.lt, names, islice(names, 1, None)))
    return is_sorted or len(set(names)) == len(names)


FORM = ManifestForm(
    root=ROOT,
    object=OBJECT,
    start=b"\xa3" + cbor.encode("shape"),
    place=cbor.encode("offset"),
    between=cbor.encode("length"),
    are_names=_are_unique,
)


def parse_manifest(
    data: bytes, frame: Frame, budget: Budget, *, least_objects: int = LEAST_OBJECTS
) -> Manifest:
    """Parse the manifest.

    Args:
        data: the manifest's bytes.
        frame: their extent in the file.
        budget: the file's budget; of its limits, `depth` is used.
        least_objects: threshold of bulk parsing.

    Raises:
        ManifestError: it is not one well-formed CBOR map, or breaks rules (all are listed).
        UnsupportedVersionError: its major version is not 1.
        LimitError: it nests too deep.
    """
    left = budget.bytes_left
    decoder = cbor.Decoder(data, budget, depth=budget.limits.depth)

    def read(*, is_1_1: bool) -> Root:
        budget.release_to(left)
        parse = functools.partial(_parse_object, frame.manifest_offset, is_1_1)
        blobs_end = frame.manifest_offset
        return Root(
            decoder, FORM, lambda *_: parse, blobs_end=blobs_end, least_objects=least_objects
        )

    guess = _TEXT_OF_1_1 in data[:64]
    root = read(is_1_1=guess)
    version = root.fields.get("version")
    is_1_1 = isinstance(version, str) and version.startswith("1.1")
    if is_1_1 is not guess:
        root = read(is_1_1=is_1_1)
    commit = parse_commit(root.fields.get("commit"), data)
    major = _MAJOR.match(version) if isinstance(version, str) else None
    if major is not None and major[1].lstrip("0") != "1":
        raise UnsupportedVersionError(
            "the manifest is of another major version; a newer reader is needed",
            expected="1.x",
            found=describe(version),
            section="1.2 appendix, Version Policy",
        )
    require_none(root.problems)
    version, _, attributes, _, extra = root.values
    return Manifest(version, root.objects, attributes, commit, extra)


def _parse_object(
    blobs_end: int,
    is_1_1: bool,  # noqa: FBT001  # bound once by functools.partial
    fields: list[Any],
    path: Path,
    problems: list[Problem],
) -> TensorObject:
    shape, layout, entries, attributes, extra = fields

    def parse(_: str, fields: list[Any], path: Path, problems: list[Problem]) -> Component:
        dtype, offset, length, logical, encoding, digest, decoded_length, extra = fields
        if logical is None:
            dtype, logical = WORDS_OF_1_1.get(dtype, (dtype, None))
        elif logical == dtype:  # "When absent, the logical type equals dtype."
            logical = None
        known = dtype, offset, length, logical, encoding or "raw", digest, decoded_length
        component = Component(*known, digest_may_cover_decoded=is_1_1, extra=extra)
        problems += check_blob(component, blobs_end, path)
        return component

    components = parse_components(entries, COMPONENT, (*path, "components"), problems, parse)
    tensor_object = TensorObject(shape, layout, components, attributes, extra)
    return _dense(tensor_object) if layout in FORM_1.of_dense else tensor_object


def _dense(entry: TensorObject) -> TensorObject:
    """Return the dense tensor of an object with an encoding as layout; itself if malformed."""
    left = dict(entry.attributes or {})
    dtype, logical = left.pop("dtype", None), left.pop("type", None)
    if not isinstance(dtype, str) or not isinstance(logical, str | None):
        return entry
    length = decoded_size(dtype, logical, entry.shape)
    match entry.components:
        case {"data": Component(dtype="u8", type=None, encoding="raw") as data, **others}:
            if others or length is None:
                return entry
            known = dtype, data.offset, data.length, logical, entry.format, data.digest, length
            components = {"data": Component(*known, extra=data.extra)}
            return entry._replace(format="dense", components=components, attributes=left or None)
    return entry


def _encoded(entry: TensorObject) -> TensorObject:
    """Return the object of 1.x for a dense tensor with such an encoding: the inverse of `_dense`.

    Raises:
        NotRepresentableError: the tensor has an attribute `dtype` or `type` of its own.
    """
    data, own = entry.components["data"], named(entry.attributes) or {}
    if not RESERVED.isdisjoint(own):
        message = f"has no place for the attributes dtype and type of {data.encoding}"
        raise refused(Emitter12.version, message, describe(list(own)), "1.2 section 1, Object")
    types = {"dtype": data.dtype, "type": data.type}
    own |= {key: word for key, word in types.items() if word is not None}
    stored = data._replace(dtype="u8", type=None, encoding="raw", decoded_length=None)
    return entry._replace(format=data.encoding, components={"data": stored}, attributes=own)


# --- The commit record -------------------------------------------------------------------------

# 1.x has no digest of the manifest. We add the root field `commit`, which other readers ignore. Its
# digest is the crc32c of the manifest in which the digest's own eight digits are zeros. The field
# is written last, so those digits are the last eight bytes of the manifest.
_CHECK = ALGORITHMS["crc32c"]
_NO_DIGITS = b"0" * _CHECK.digits
# The fixed bytes of the record; patterns of a number between them, and of a damaged one.
_PREV, _END = cbor.encode("prev"), cbor.encode("end")
_DIGEST = cbor.encode("digest") + cbor.encode(_CHECK.spell("0" * 8))[:-8]
_UINT = rb"(?:[\0-\x17]|\x18.|\x19.{2}|\x1a.{4}|\x1b.{8})"
_ANY = rb"(?:.|..|.{3}|.{5}|.{9})"


def parse_commit(value: object, data: bytes) -> Commit | None:
    """Return our commit record; None if the manifest has none, or one of another writer.

    Args:
        value: the field `commit`; None if it is absent.
        data: the manifest's bytes.

    Raises:
        DigestMismatchError: the manifest does not match the record's digest.
    """
    fields = value if isinstance(value, dict) else {}
    prev, end, text = fields.get("prev"), fields.get("end"), fields.get("digest")
    is_ours = (
        isinstance(text, str) and text.startswith("crc32c:0x") and data.endswith(cbor.encode(text))
    )
    is_whole = is_ours and type(prev) is int and type(end) is int
    if not is_whole and not _is_nearly_ours(data):
        # Another writer may use the name for something else, or have rewritten the manifest and
        # kept the field: that is not damage.
        return None
    expected = _CHECK.of((memoryview(data)[: -_CHECK.digits], _NO_DIGITS))
    if is_whole and text == expected:
        return Commit(prev, end)  # type: ignore[arg-type]  # `is_whole`: both are integers
    raise DigestMismatchError(
        "the manifest does not match the digest in its commit record; it is damaged",
        reason=Reason.MANIFEST_DIGEST,
        algorithm=_CHECK.name,
        expected=describe(text) if is_ours else "a commit record that is whole",
        found=expected,
        actual=expected,
    )


def _is_nearly_ours(data: bytes) -> bool:
    """Return whether a manifest ends with our record, with at most one of its parts damaged.

    Otherwise damage to the record itself would disable the check of the whole manifest.
    """
    tail = data[-60:]  # the longest record has fewer bytes
    if _PREV not in tail and _END not in tail:
        return False
    marks = (cbor.encode("commit") + b"\xa3", _PREV, _END, _DIGEST)
    first, prev, end, digest = ((re.escape(mark), b".{%d}" % len(mark)) for mark in marks)
    parts = [first, prev, (_UINT, _ANY), end, (_UINT, _ANY), digest]
    for wrong in range(len(parts)):
        pattern = b"".join(part[at == wrong] for at, part in enumerate(parts))
        if re.search(pattern + rb".{8}\Z", tail, re.DOTALL):
            return True
    return False


def with_commit(fields: dict[str, object], manifest_offset: int, prev: int) -> bytes:
    """Return the manifest with its commit record, the size field and the footer magic."""
    start = cbor.encode(cbor.Fields({**fields, "commit": cbor.Encoded()}))
    record = cbor.Fields(prev=prev, end=0, digest=_CHECK.spell("0" * _CHECK.digits))
    # `end` depends on the record's length, and that on the head of `end`. Both only grow, so a few
    # rounds reach the fixed point.
    for _ in range(5):
        commit = cbor.encode(record)
        record["end"] = manifest_offset + len(start) + len(commit) + TAIL_BYTES
    digits = _CHECK.of((start, commit))[-_CHECK.digits :].encode("ascii")
    size = (len(start) + len(commit)).to_bytes(8, "little")
    return b"".join((start, commit[: -_CHECK.digits], digits, size, MAGIC_1))


# --- Writing -----------------------------------------------------------------------------------


class Emitter12(Emitter):
    """Writer of 1.2.0: objects and roles are sorted, fields are in the released writers' order."""

    version = "1.2.0"
    magic = MAGIC_1
    place = cbor.encode("offset")

    def emit(self, manifest: Manifest, manifest_offset: int, *, prev: int = 0) -> bytes:
        """Return manifest, size field and footer magic; the version text is kept."""
        root = {
            "version": manifest.version,
            "attributes": named(manifest.attributes),
            "objects": self._emit_objects(manifest.objects, sorted(manifest.objects)),
            "commit": None,
        }
        return with_commit(with_unknown(root, manifest.extra), manifest_offset, prev)

    def entry(self, tensor_object: TensorObject) -> Mapping[str, Any]:
        """Return the fields of an object."""
        match tensor_object:
            case TensorObject(format="dense", components={"data": data, **others}) if not others:
                if data.encoding in FORM_1.of_dense:
                    tensor_object = _encoded(tensor_object)
        parts = sorted(tensor_object.components.items())
        known = {
            "shape": tensor_object.shape,
            "format": tensor_object.format,
            "attributes": named(tensor_object.attributes),
            "components": cbor.Fields((role, self._component(part)) for role, part in parts),
        }
        return cbor.Fields(with_unknown(known, tensor_object.extra))

    def _component(self, component: Component) -> Mapping[str, object]:
        is_raw = component.encoding == "raw"
        known = {
            "dtype": component.dtype,
            "type": component.type,
            "offset": component.offset,
            "length": component.length,
            "uncompressed_length": None if is_raw else component.decoded_length,
            "encoding": None if is_raw else component.encoding,
            "digest": component.digest,
        }
        return cbor.Fields(with_unknown(known, component.extra))


class Emitter11(Emitter12):
    """Writer of 1.1.0: dtype words for fp8 and complex, no `type`, no `uncompressed_length`."""

    version = "1.1.0"
    form = FORM_1_1

    def _component(self, component: Component) -> Mapping[str, object]:
        dtype, logical = component.dtype, component.type
        word = dtype if logical is None else _SPELLED_IN_1_1.get((dtype, logical))
        if word is None:
            message = "has no such logical type; write version 1.2.0, or pass the storage elements"
            raise refused(self.version, message, describe(logical), "1.1 part II, section 4")
        return super()._component(component._replace(dtype=word, type=None, decoded_length=None))

    def require_attributes(self, attributes: Mapping[str, object]) -> None:
        """Raise if a value is not text: release 1.1.1 would open no tensor of the file."""
        for key, value in attributes.items():
            if not isinstance(value, str):
                message = "has text attributes only: its release reads no others; write 1.2.0"
                found = f"{kind_of(value)} as {describe(key)}"
                raise refused(self.version, message, found, "1.1 part II, section 1")
        super().require_attributes(attributes)
