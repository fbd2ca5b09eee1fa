"""Build a good file of any version, and break one rule of it on request.

    build("1.2.0")                             bytes of a good file, which holds `VALUES`
    build("1.2.0", broken="offset_alignment")  the same with one thing wrong
    RULES["offset_alignment"].reason           the reason code of a reader; `stage` is when

Files follow the specifications alone and use neither the library's writer nor its schemas, so that
the library is not tested against itself.
"""

from __future__ import annotations

import array
import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentValueError, Reason, describe
from ztensor.ext import ALGORITHMS, cbor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERSIONS = ("0.1.0", "1.1.0", "1.2.0")
SINCE_1 = ("1.1.0", "1.2.0")


# --- CBOR, also where it is wrong -----------------------------------------------------------


class Raw(bytes):
    """Bytes that go into the CBOR as they are."""


def head(major: int, argument: int) -> bytes:
    """Return the shortest head of an item; an argument below 0 or beyond 64 bits is cut to them."""
    argument &= (1 << 64) - 1
    if argument < 24:
        return bytes([major << 5 | argument])
    power = next(power for power in range(4) if argument < 1 << (8 << power))
    return bytes([major << 5 | 24 + power]) + argument.to_bytes(1 << power, "big")


def item(value: object, head: Callable[[int, int], bytes] = head) -> bytes:
    """Return `value` as CBOR, in the order it is given and with keys as often as they are given.

    Args:
        value: what `ztensor.spec.wire.cbor.decode` returns, and `Raw`.
        head: gives the heads; another one may write them longer than they need to be.
    """
    if value is None or isinstance(value, bool):
        return {False: b"\xf4", True: b"\xf5", None: b"\xf6"}[value]
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, str):
        text = value.encode("utf-8", "surrogatepass")
        return head(3, len(text)) + text
    if isinstance(value, float):
        return b"\xfb" + np.array(value, ">f8").tobytes()
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, cbor.Tag):
        return head(6, value.number) + item(value.value, head)
    if isinstance(value, cbor.Simple):
        return bytes([0xE0 | value.value] if value.value < 24 else [0xF8, value.value])
    if isinstance(value, (dict, cbor.Pairs)):
        pairs = list(value.items() if isinstance(value, dict) else value)
        return head(5, len(pairs)) + b"".join(
            item(key, head) + item(element, head) for key, element in pairs
        )
    if isinstance(value, (list, tuple)):
        return head(4, len(value)) + b"".join(item(element, head) for element in value)
    raise ArgumentValueError("no CBOR item", found=describe(type(value).__name__))


# --- The frame ------------------------------------------------------------------------------

_CRC32C = ALGORITHMS["crc32c"]
_BLANK = "crc32c:0x00000000"


def sealed(blobs: bytes, manifest: bytes, *, size: int | None = None, footer: bytes = b"") -> bytes:
    """Return a file from its three parts.

    Args:
        blobs: everything before the manifest, the header magic included.
        manifest: the CBOR item.
        size: value of the size field; the manifest's true length by default.
        footer: bytes after the size field: the magic since 1.1, none in 0.1.
    """
    field = len(manifest) if size is None else size
    return blobs + manifest + field.to_bytes(8, "little") + footer


def committed(root: object, blobs_end: int, encode: Callable[[object], bytes] = item) -> bytes:
    """Return a manifest of 1.x as CBOR, with the true digest in our writer's `commit` field.

    A root without that field, or where it is not the last one, is encoded as it is.

    Args:
        root: the manifest.
        blobs_end: offset of the manifest.
        encode: how values become CBOR.
    """
    fields: dict[Any, Any] = root if isinstance(root, dict) else {}
    commit = fields.get("commit")
    if not isinstance(commit, dict) or not isinstance(commit.get("digest"), str):
        return encode(root)
    end = 0
    while True:  # the file contains its length, which settles after a round or two
        record = {"prev": commit.get("prev", 0), "end": end, "digest": _BLANK}
        data = encode({**fields, "commit": record})
        reached = blobs_end + len(data) + 16
        if reached <= end or not data.endswith(_BLANK.encode()):
            break
        end = reached
    digits = _CRC32C.of([data])[-_CRC32C.digits :]
    return data[: -_CRC32C.digits] + digits.encode()


# --- A good file ----------------------------------------------------------------------------

# The elements of a good file's objects, as nested lists; 0.1 has the first five objects.
VALUES: Mapping[str, Any] = {
    "matrix": [[1, -2, 3], [4, 5, -6]],
    "scalar": 7,
    "flags": [True, False, True, True],
    "empty": [],
    "packed": [258, -1, 3],
    "small": [1.0, -2.0],
    "wave": [1 + 2j],
    "rows": [[0.5, 0.0, 2.0], [0.0, 0.0, -1.0]],
    "points": [[0, 9], [8, 0]],
    "groups": [[1.0], [2.0]],
}
_CODES = {"f32": "f", "i16": "h", "i32": "i", "u8": "B", "bool": "B", "u64": "Q"}
_LONG = {"f32": "float32", "i16": "int16", "i32": "int32", "u8": "uint8", "bool": "bool"}


def stored(dtype: str, *values: float) -> bytes:
    """Return elements of a storage type as stored bytes, little-endian."""
    elements = array.array(_CODES[dtype], values)
    if sys.byteorder == "big":
        elements.byteswap()
    return elements.tobytes()


def zstd_frame(content: bytes, *, block_type: int = 0) -> bytes:
    """Return a frame of one raw block that declares its content size; up to 255 bytes."""
    block = 1 | block_type << 1 | len(content) << 3
    return b"\x28\xb5\x2f\xfd\x20" + bytes([len(content)]) + block.to_bytes(3, "little") + content


@dataclasses.dataclass(slots=True)
class Draft:
    """A file before it is bytes; a rule is broken by changing it.

    Missing offsets, lengths and digests are filled in at the end; values that a rule set stay.

    Attributes:
        version: the version text.
        header: the first bytes.
        root: fields of the root beside `objects` (1.x).
        objects: name to the object's fields, `components` among them; in 0.1 to the entry's.
        blobs: (name, role) to stored bytes.
        changed_cbor: a last change to the manifest's bytes.
        size: value of the size field; the manifest's true length by default.
        footer: bytes after the size field.
        changed_file: a last change to the whole file.
    """

    version: str
    header: bytes
    root: dict[str, Any]
    objects: dict[str, Any] = dataclasses.field(default_factory=dict)
    blobs: dict[tuple[str, str], bytes] = dataclasses.field(default_factory=dict)
    changed_cbor: Callable[[bytes], bytes] = bytes
    size: int | None = None
    footer: bytes = b""
    changed_file: Callable[[bytes], bytes] = bytes

    @property
    def is_0_1(self) -> bool:
        """Return whether objects are entries of 0.1."""
        return self.version == "0.1.0"

    def add(self, name: str, shape: list[int], parts: Mapping[str, Any], **fields: Any) -> None:
        """Add an object; a part is (component fields, stored bytes)."""
        components = {role: dict(part[0]) for role, part in parts.items()}
        self.blobs.update({(name, role): part[1] for role, part in parts.items()})
        if not self.is_0_1:
            fields = {"format": "dense", **fields}
            self.objects[name] = {"shape": shape, **fields, "components": components}
            return
        entry = {"name": name, "shape": shape, "encoding": "raw", "layout": "dense", **fields}
        entry.update(components["data"])
        entry["dtype"] = _LONG[entry["dtype"]]
        self.objects[name] = entry

    def component(self, name: str, role: str = "data") -> dict[str, Any]:
        """Return a component's fields; in 0.1 they are the entry's."""
        fields: dict[str, Any] = self.objects[name]
        if not self.is_0_1:
            fields = fields["components"][role]
        return fields

    def to_bytes(self) -> bytes:
        """Return the file."""
        blobs = bytearray(self.header)
        length, digest = ("size", "checksum") if self.is_0_1 else ("length", "digest")
        for (name, role), data in self.blobs.items():
            blobs += bytes(-len(blobs) % 64)
            fields = self.component(name, role)
            fields.setdefault("offset", len(blobs))
            fields.setdefault(length, len(data))
            fields.setdefault(digest, _CRC32C.of([data]))
            blobs += data
        if self.is_0_1:
            manifest = item(list(self.objects.values()))
        else:
            commit = {"prev": 0, "end": 0, "digest": _BLANK}
            root = {**self.root, "objects": self.objects, "commit": commit}
            manifest = committed(root, len(blobs))
        manifest = self.changed_cbor(manifest)
        return self.changed_file(sealed(bytes(blobs), manifest, size=self.size, footer=self.footer))


def draft(version: str) -> Draft:
    """Return a good file of a version, to be changed.

    Raises:
        ArgumentValueError: the version is not in `VERSIONS`.
    """
    if version not in VERSIONS:
        raise ArgumentValueError(
            "unknown version", expected=f"one of {', '.join(VERSIONS)}", found=describe(version)
        )
    if version == "0.1.0":
        new = Draft(version, b"ZTEN0001", {})
    else:
        root = {"version": version, "attributes": {"made for": "tests"}}
        new = Draft(version, b"ZTEN1000", root, footer=b"ZTEN1000")

    def dense(name: str, shape: list[int], dtype: str, *values: float, **fields: Any) -> None:
        new.add(name, shape, {"data": ({"dtype": dtype, **fields}, stored(dtype, *values))})

    dense("matrix", [2, 3], "i32", 1, -2, 3, 4, 5, -6)
    dense("scalar", [], "u8", 7)
    dense("flags", [4], "bool", 1, 0, 1, 1)
    dense("empty", [0, 3], "f32")
    frame = zstd_frame(stored("i16", 258, -1, 3))
    fields: dict[str, Any] = {"dtype": "i16", "encoding": "zstd"}
    if version == "1.2.0":
        fields["uncompressed_length"] = 6
    new.add("packed", [3], {"data": (fields, frame)})
    if new.is_0_1:
        return new
    if version == "1.1.0":
        small, wave = {"dtype": "f8_e4m3"}, {"dtype": "complex64"}
    else:
        small = {"dtype": "u8", "type": "f8_e4m3fn"}
        wave = {"dtype": "f32", "type": "complex64"}
    new.add("small", [2], {"data": (small, b"\x38\xc0")})
    new.add("wave", [1], {"data": (wave, stored("f32", 1, 2))})
    u64 = {"dtype": "u64"}
    rows = {
        "indices": (u64, stored("u64", 0, 2, 2)),
        "indptr": (u64, stored("u64", 0, 2, 3)),
        "values": ({"dtype": "f32"}, stored("f32", 0.5, 2, -1)),
    }
    new.add("rows", [2, 3], rows, format="sparse_csr")
    points = {
        "coords": (u64, stored("u64", 1, 0, 0, 1)),
        "values": ({"dtype": "i32"}, stored("i32", 8, 9)),
    }
    new.add("points", [2, 2], points, format="sparse_coo")
    groups = {
        "packed_weight": ({"dtype": "u8"}, b"\x53"),
        "scales": ({"dtype": "f32"}, stored("f32", 0.5)),
        "zeros": ({"dtype": "f32"}, stored("f32", 1)),
    }
    scheme = {"bits": 4, "group_size": 2, "packing": "2_per_u8"}
    new.add("groups", [2, 1], groups, format="quantized_group", attributes=scheme)
    return new


# --- Rules to break -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the format, and how to break it.

    Attributes:
        name: the argument of `build(broken=...)`.
        reason: the reason code of a reader's error.
        stage: the moment it is seen: `open`, `read` (copying), `dense` (`to_dense()`), `verify`.
        object_name: the object that breaks the rule; None if the file does.
        versions: those that have the rule.
        apply: breaks it.
    """

    name: str
    reason: Reason
    stage: str
    object_name: str | None
    versions: tuple[str, ...]
    apply: Callable[[Draft], object]


RULES: dict[str, Rule] = {}


def _rule(
    name: str,
    apply: Callable[[Draft], object],
    *,
    reason: Reason | None = None,
    stage: str = "open",
    about: str | None = None,
    versions: tuple[str, ...] = VERSIONS,
) -> None:
    RULES[name] = Rule(name, reason or Reason(name), stage, about, versions, apply)


def _set(name: str, role: str = "data", /, **fields: Any) -> Callable[[Draft], object]:
    return lambda draft: draft.component(name, role).update(fields)


def _store(name: str, role: str, data: bytes) -> Callable[[Draft], object]:
    return lambda draft: draft.blobs.update({(name, role): data})


def _length(value: int) -> Callable[[Draft], object]:
    return lambda draft: draft.component("matrix").update(
        {"size" if draft.is_0_1 else "length": value}
    )


def _digest(name: str, text: str) -> Callable[[Draft], object]:
    return lambda draft: draft.component(name).update(
        {"checksum" if draft.is_0_1 else "digest": text}
    )


def _object(name: str, /, **fields: Any) -> Callable[[Draft], object]:
    return lambda draft: draft.objects[name].update(fields)


def _both(*changes: Callable[[Draft], object]) -> Callable[[Draft], object]:
    return lambda draft: [change(draft) for change in changes]


def _field(name: str, value: Any) -> Callable[[Draft], object]:
    return lambda draft: setattr(draft, name, value)


def _cbor(change: Callable[[bytes], bytes]) -> Callable[[Draft], object]:
    return _field("changed_cbor", change)


def _file(change: Callable[[bytes], bytes]) -> Callable[[Draft], object]:
    return _field("changed_file", change)


# The container.
_rule("not_ztensor", _field("header", b"\x7fELF\x02\x01\x01\0"))
_rule("header_magic", _field("header", b"ZTEN1O00"))
_rule("footer_magic", _field("footer", b"ZTEN1O00"), versions=SINCE_1)
_rule("torn", _file(lambda data: data[:-3]), reason=Reason.FOOTER_MAGIC, versions=SINCE_1)
_rule("truncated", _file(lambda data: data[:12]))
_rule("manifest_size", _field("size", 1 << 40))
_rule("unknown_version", lambda draft: draft.root.update(version="2.0.0"), versions=SINCE_1)
_rule(
    "manifest_digest",
    _cbor(lambda data: data.replace(b"made for", b"made off")),
    versions=SINCE_1,
)
# CBOR.
_rule("cbor_truncated", _cbor(lambda data: data[:-1]))
_rule("cbor_trailing", _cbor(lambda data: data + b"\0"))
_rule("cbor_malformed", _object("matrix", shape=Raw(b"\x1c")))
_rule("cbor_utf8", _object("matrix", comment=Raw(b"\x61\xff")))
_rule("cbor_duplicate_key", _object("matrix", comment=Raw(b"\xa2\x61a\x01\x61a\x01")))
_rule("limit_depth", _object("matrix", comment=Raw(b"\x81" * 100 + b"\0")))
# Fields.
_rule("field_missing", lambda draft: draft.objects["matrix"].pop("shape"), about="matrix")
_rule("field_type", _object("matrix", shape="2 x 3"), about="matrix")
_rule("field_value", _object("matrix", shape=[-2, 3]), about="matrix")
_rule("duplicate_name", _object("scalar", name="matrix"), about="matrix", versions=("0.1.0",))
_rule(
    "endianness",
    _object("matrix", data_endianness="middle"),
    reason=Reason.FIELD_VALUE,
    about="matrix",
    versions=("0.1.0",),
)
# Places and sizes.
_rule("offset_alignment", _set("matrix", offset=65), about="matrix")
_rule("offset_zero", _set("matrix", offset=0), reason=Reason.OUT_OF_BOUNDS, about="matrix")
_rule("out_of_bounds", _length(1 << 63), about="matrix")
_rule("size_mismatch", _object("matrix", shape=[2, 4]), about="matrix")
_rule(
    "uncompressed_length",
    _set("packed", uncompressed_length=8),
    reason=Reason.SIZE_MISMATCH,
    about="packed",
    versions=("1.2.0",),
)
_rule("limit_rank", _object("scalar", shape=[1] * 65), stage="dense", about="scalar")
# Types.
_rule("unknown_dtype", _set("matrix", dtype="i128"), stage="read", about="matrix")
_rule(
    "type_mismatch",
    _set("matrix", type="complex64"),
    stage="read",
    about="matrix",
    versions=("1.2.0",),
)
_rule(
    "unknown_type",
    _both(_set("matrix", type="i2"), _object("matrix", shape=[96])),
    stage="dense",
    about="matrix",
    versions=("1.2.0",),
)
_rule(
    "bool_value", _store("flags", "data", b"\1\0\2\1"), stage="verify", about="flags",
    versions=SINCE_1,
)  # fmt: skip
# Stored bytes.
_rule("digest_malformed", _digest("matrix", "crc32c:0x123"), about="matrix")
_rule("digest_mismatch", _digest("matrix", "crc32c:0x12345678"), stage="read", about="matrix")
_rule("unknown_encoding", _set("matrix", encoding="lz4"), stage="read", about="matrix")
_FRAME = zstd_frame(stored("i16", 258, -1, 3))
for _name, _data in (
    ("encoding_malformed", zstd_frame(b"abcdef", block_type=3)),
    ("encoding_truncated", _FRAME[:-1]),
    ("decoded_short", zstd_frame(b"abcd")),
    ("decoded_long", _FRAME + _FRAME),
):
    _rule(_name, _store("packed", "data", _data), stage="read", about="packed")
_rule(
    "limit_window",
    _store("packed", "data", b"\x28\xb5\x2f\xfd\x00\x90" + _FRAME[6:]),  # 2^28
    stage="read",
    about="packed",
)
# Layouts.
for _name, _about, _apply in (
    ("component_missing", "rows", lambda draft: _drop(draft, "rows", "indptr")),
    ("layout_rank", "rows", _object("rows", shape=[2, 3, 1])),
    ("layout_count", "rows", _store("rows", "values", stored("f32", 1, 2))),
    ("index_dtype", "points", _set("points", "coords", dtype="f32")),
):
    _rule(_name, _apply, about=_about, versions=SINCE_1)
_rule(
    "index_pointers", _store("rows", "indptr", stored("u64", 0, 4, 3)), stage="read", about="rows",
    versions=SINCE_1,
)  # fmt: skip
_rule(
    "index_range", _store("points", "coords", stored("u64", 1, 0, 0, 2)), stage="read",
    about="points", versions=SINCE_1,
)  # fmt: skip
_rule(
    "quantization", _object("groups", attributes={"bits": 9}), stage="dense", about="groups",
    versions=SINCE_1,
)  # fmt: skip
_rule(
    "unknown_layout", _object("points", format="sparse_blocks"), stage="dense", about="points",
    versions=SINCE_1,
)  # fmt: skip


def _drop(draft: Draft, name: str, role: str) -> None:
    del draft.objects[name]["components"][role]
    del draft.blobs[name, role]


def build(version: str = "1.2.0", *, broken: str | None = None) -> bytes:
    """Return a file of a version: a good one, or one that breaks one rule.

    Args:
        version: one of `VERSIONS`.
        broken: the name of a rule in `RULES` that the version has.

    Raises:
        ArgumentValueError: the version is unknown, or does not have the rule.
    """
    new = draft(version)
    if broken is not None:
        rule = RULES.get(broken)
        if rule is None or version not in rule.versions:
            known = [rule.name for rule in RULES.values() if version in rule.versions]
            raise ArgumentValueError(
                f"version {version} has no such rule",
                expected=f"one of {', '.join(known)}",
                found=describe(broken),
            )
        rule.apply(new)
    return new.to_bytes()
