from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ztensor.errors import DigestMismatchError, ManifestError, Reason, UnsupportedVersionError
from ztensor.io.reading.opened import check_layouts
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container.framing import TAIL_BYTES, Container, Frame
from ztensor.spec.container.v1 import parse_manifest
from ztensor.spec.model import dtype as model_dtype
from ztensor.spec.model.dtype import LogicalType, register_logical_type
from ztensor.spec.model.manifest import Manifest, TensorObject
from ztensor.spec.model.objects import Table, TableObjects
from ztensor.testing.builder import committed, item

END = 1 << 50  # where the blobs of these tests end
CRC = "crc32c:0x0A1B2C3D"
SHA = "sha256:" + "4f" * 32
ORDER = ("dtype", "type", "offset", "length", "uncompressed_length", "encoding", "digest")


def frame_of(data: bytes, blobs_end: int = END) -> Frame:
    return Frame(Container.V1, blobs_end, len(data), blobs_end + len(data) + TAIL_BYTES)


NEVER = 1 << 60


def parse(
    data: bytes, limits: Limits = DEFAULT_LIMITS, blobs_end: int = END, least: int = 1
) -> Manifest:
    """Read a manifest; from one object on as kinds, where nothing else is said."""
    return parse_manifest(data, frame_of(data, blobs_end), Budget(limits, len(data)), least=least)


def plain(shape: tuple[int, ...] = (2,), **fields: Any) -> dict[str, Any]:
    """Return a good plain object; fields come in the order writers give them."""
    data = {"dtype": "f32", "offset": 64, "length": 8, **fields}
    data = {key: data[key] for key in ORDER if key in data}
    return {"shape": list(shape), "format": "dense", "components": {"data": data}}


DATA = plain()["components"]["data"]


def root(objects: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"version": "1.2.0", "objects": objects, **fields}


def table_of(manifest: Manifest) -> Table:
    assert isinstance(manifest.objects, TableObjects)
    return manifest.objects.table


def only(entry: dict[str, Any], **fields: Any) -> TensorObject:
    """Return an object as the fast path reads it, which has to find it plain."""
    manifest = parse(item({**root({"w": entry}), **fields}))
    assert table_of(manifest).names == ["w"]
    assert check_layouts(manifest) == []
    return manifest.objects["w"]


def test_a_root_without_objects_is_no_root() -> None:
    for fields in ({"version": "1.2.0"}, {"version": "1.2.0", "attributes": {}}, {}):
        with pytest.raises(ManifestError) as caught:
            parse(item(fields))
        assert caught.value.reason is Reason.FIELD_MISSING


# --- Plain objects --------------------------------------------------------------------------

PLAIN: dict[str, dict[str, Any]] = {
    "bare": plain(),
    "offset of 64 bits": plain(offset=1 << 49),
    "raw spelled out": plain(encoding="raw"),
    "raw with its length twice": plain(uncompressed_length=8, encoding="raw"),
    "crc32c": plain(digest=CRC),
    "sha256": plain(digest=SHA),
    "zstd of 1.1": plain(length=99, encoding="zstd"),
    "type equals dtype": plain(type="f32"),
    "fp8": plain((8,), dtype="u8", type="f8_e4m3fnuz"),
    "fp4, padded": plain((5, 3), dtype="u8", type="f4_e2m1"),
    "fp8 of 1.1": plain((8,), dtype="f8_e4m3"),
    "complex of 1.1": plain((1,), dtype="complex64"),
}
PLAIN["everything"] = plain(
    (1,), type="complex64", length=5, uncompressed_length=8, encoding="zstd", digest=SHA
)


def test_a_registered_type_is_known_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_dtype, "LOGICAL_TYPES", dict(model_dtype.LOGICAL_TYPES))
    data = item(root({"a": plain(), "w": plain((9,), dtype="u16", type="i3_packed", length=4)}))
    assert table_of(parse(data)).names == ["a"]
    register_logical_type(LogicalType("i3_packed", "u16", "int3", elements_per_storage=5))
    manifest = parse(data)
    assert table_of(manifest).names == ["a", "w"]
    assert check_layouts(manifest) == []


@pytest.mark.parametrize(("offset", "length"), [(END - 64, 64), (END, 0)])
def test_a_plain_object_may_end_where_the_manifest_begins(offset: int, length: int) -> None:
    entry = plain((length // 4,), offset=offset, length=length)
    assert only(entry).components["data"].offset == offset


# --- Names ----------------------------------------------------------------------------------


# --- Objects between that are not plain -----------------------------------------------------

OTHERS: dict[str, dict[str, Any]] = {
    "attributes": {**plain(), "attributes": {"scale": 2, "shape": [1]}},
    "another key order": dict(reversed(plain().items())),
    "unknown field": {**plain(), "note": 1},
    "unknown layout": {"shape": [], "format": "of_tomorrow", "components": {}},
    "unknown dtype": plain(dtype="i2"),
    "unknown type": plain(type="posit32"),
    "unknown encoding": plain(encoding="lz4"),
    "two components": {**plain(), "components": dict.fromkeys(("data", "mask"), DATA)},
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_few_other_objects_are_read_between(name: str, place: int) -> None:
    names = ["a", "b", "c"]
    names.insert(place, "other")
    objects = {key: OTHERS[name] if key == "other" else plain() for key in names}
    manifest = parse(item(root(objects)))
    assert list(manifest.objects) == names
    assert table_of(manifest).names == ["a", "b", "c"]
    assert check_layouts(manifest) == []
    alone = parse(item(root({"other": OTHERS[name]})), least=NEVER)
    assert manifest.objects["other"] == alone.objects["other"]


@pytest.mark.parametrize("kind", ["attributes", "unknown dtype"])
def test_many_other_objects_are_for_the_general_decoder(kind: str) -> None:
    """Those that begin like plain ones are noticed later than others."""
    other = OTHERS[kind]
    names = [f"{number:03}" for number in range(400)]
    for count, is_regular in ((16 + 400 // 16, True), (18 + 400 // 16, False)):
        objects = {name: other if at < count else plain() for at, name in enumerate(names)}
        assert isinstance(parse(item(root(objects))).objects, TableObjects) is is_regular


# --- What is wrong is for the general decoder -----------------------------------------------

WRONG: list[dict[str, Any]] = [
    plain(offset=65),
    plain(offset=0),
    plain(offset=END - 64, length=128, shape=()),
    plain(length=(1 << 64) - 1),
    plain(offset=(1 << 64) - 64),
    plain(digest="crc32c:0x0A1B2C3"),
    plain(digest="crc32c:0x0A1B2C3G"),
    plain(offset=-64),
    plain(length=4),
    plain(length=12),
    plain((1 << 32, 1 << 32), length=0),
    plain((1 << 63, 2), length=0),
    plain((1 << 50, 1 << 50, 0, 3), length=8),
    plain(uncompressed_length=9, encoding="raw"),
    plain(length=99, uncompressed_length=9, encoding="zstd"),
    plain((5,), dtype="u8", type="f4_e2m1", length=2),
]


def test_a_damaged_manifest_is_noticed_by_its_digest() -> None:
    fields = {"prev": 0, "end": 0, "digest": CRC}
    data = committed(root({"a": plain(), "b": plain()}, commit=fields), END)
    manifest = parse(data)
    assert table_of(manifest).names == ["a", "b"]
    assert manifest.commit is not None
    changed = data.replace(item("b"), item("c"), 1)
    with pytest.raises(DigestMismatchError):
        parse(changed)


def test_another_major_version_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        parse(item({**root({"a": plain()}), "version": "2.0.0"}))


# --- The root -------------------------------------------------------------------------------

ROOTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "released": lambda objects: {"version": "1.2.0", "objects": objects},
    "attributes": lambda objects: {
        "version": "1.2.0",
        "attributes": {"a": [1]},
        "objects": objects,
    },
    "null attributes": lambda objects: {"version": "1.2.0", "attributes": None, "objects": objects},
    "objects first": lambda objects: {"objects": objects, "version": "1.1.0"},
    "unknown fields": lambda objects: {"x": {"shape": 1}, **root(objects), "y": [b"\xa3\x65shape"]},
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots(name: str) -> None:
    data = item(ROOTS[name]({"a": plain(), "b": plain()}))
    fast = parse(data)
    assert table_of(fast).names == ["a", "b"]
    assert fast == parse(data, least=NEVER)


ONE = item(root({"a": plain()}))
TWO = item(root({"a": plain(), "é": plain()}))
ENTRY = item(plain())
OBJECTS = b"\xa1" + item("objects")
IRREGULAR: dict[str, bytes] = {
    "empty": b"",
    "no map": item([1]),
    "no objects": item({"version": "1.2.0"}),
    "objects of another type": item({"version": "1.2.0", "objects": [1]}),
    "no object": item(root({})),
    "no plain object": item(root({"a": OTHERS["attributes"]})),
    "self-described": b"\xd9\xd9\xf7" + ONE,
    "indefinite root": b"\xbf" + ONE[1:] + b"\xff",
    "indefinite objects": OBJECTS + b"\xbf" + item("a") + ENTRY + b"\xff",
    "objects twice": b"\xa2" + 2 * item({"objects": {"a": plain()}})[1:],
    "more bytes": ONE + b"\x00",
    "more objects than there are": ONE.replace(b"objects\xa1", b"objects\xa2"),
    "fewer objects than there are": TWO.replace(b"objects\xa2", b"objects\xa1"),
    "a huge number of objects": OBJECTS + b"\xbb" + b"\xff" * 8,
    "a key that is no text": b"\xa1\x01" + item({"a": plain()}),
    "a name that is no text": OBJECTS + b"\xa2\x01" + ENTRY + item("a") + ENTRY,
    "a first name that is not UTF-8": OBJECTS + b"\xa1\x61\xff" + ENTRY,
    "a name that is not UTF-8": TWO.replace("é".encode(), b"\xff\xff"),
}


for number, entry in enumerate(WRONG):
    IRREGULAR[f"an object that breaks a rule {number}"] = item(root({"a": plain(), "b": entry}))
for place, hidden in enumerate((item("x") + ENTRY, {"x": plain()}, [plain(), plain()])):
    IRREGULAR[f"an object inside another {place}"] = item(
        root({"a": plain(), "b": {**plain(), "attributes": {"copy": hidden}}, "c": plain()})
    )
for names in ("aa", "baa", "aba"):
    IRREGULAR[f"a name twice {names}"] = (
        OBJECTS + bytes((0xA0 + len(names),)) + b"".join(item(name) + ENTRY for name in names)
    )


@pytest.mark.parametrize("name", IRREGULAR)
def test_an_irregular_manifest_comes_to_the_same_both_ways(name: str) -> None:
    assert outcome(IRREGULAR[name], 1) == outcome(IRREGULAR[name], NEVER)


def outcome(data: bytes, least: int) -> object:
    try:
        manifest = parse(data, least=least)
    except ManifestError as error:
        return error.reason, str(error)
    return manifest, check_layouts(manifest)


# --- The mapping ----------------------------------------------------------------------------


@pytest.fixture
def objects() -> TableObjects:
    entries = {"b": plain(), "other": OTHERS["attributes"], "a": plain((2, 1), digest=CRC)}
    found = parse(item(root(entries))).objects
    assert isinstance(found, TableObjects)
    return found


def test_it_answers_like_a_dict(objects: TableObjects) -> None:
    as_dict = dict(objects)
    assert list(as_dict) == list(objects) == list(objects.keys()) == ["b", "other", "a"]
    assert len(objects) == 3
    assert objects == as_dict
    assert as_dict == objects
    assert objects != {**as_dict, "a": as_dict["b"]}
    assert objects != {}
    assert list(objects.items()) == list(as_dict.items())
    assert list(objects.values()) == list(as_dict.values())
    for name in ("a", "b", "other"):
        assert name in objects
        assert objects.get(name) == objects[name]
    for other in ("c", "", 1, None):
        assert other not in objects
    assert objects.get("c") is None
    with pytest.raises(KeyError):
        objects["c"]


def test_only_the_other_objects_have_layouts_to_check(objects: TableObjects) -> None:
    assert list(objects.others) == ["other"]


SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((), 4),
    ((0,), 0),
    ((1, 2, 3, 4, 5, 6, 7, 8), 161280),
    ((1 << 63, 0, (1 << 64) - 1), 0),
    ((1 << 20, 1 << 20), 1 << 42),
    ((23, 24, 255), 563_040),
]
NAMES = ["", "\0", "digest", "encoding", "é", "重み", "a" * 23, "a" * 24, "a" * 255, "a" * 70000]
NAMES += ["\x65shape", "x\x65shape", "uncompressed_length"]


@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_columns_say_what_the_objects_say(version: str) -> None:
    entries = dict(PLAIN)
    for number, (shape, length) in enumerate(SHAPES):
        entries[f"shape {number}"] = plain(shape, length=length)
    for number, logical in enumerate(model_dtype.LOGICAL_TYPES.values()):
        width = logical.storage_count(1) * model_dtype.STORAGE_TYPES[logical.dtype].width
        of = {"dtype": logical.dtype, "type": logical.name, "length": width}
        entries[f"type {number}"] = plain((1,), **of)
    entries |= {name: plain() for name in NAMES}
    data = item(root({**entries, "other": OTHERS["attributes"]}, version=version))
    manifest = parse(data)
    table = table_of(manifest)
    assert table.names == list(entries)
    others = manifest.objects.others  # type: ignore[attr-defined]  # table_of looked at the type
    assert list(others) == ["other"]
    general = parse(data, least=NEVER)
    for row, name in enumerate(table.names):
        assert table.object(row) == general.objects[name]
    for column in (table.offsets, table.lengths, table.kind_of, table.digests):
        assert column.dtype == np.int64


@pytest.mark.slow
def test_opening_needs_little_memory() -> None:
    """An object costs a few numbers, its name and its part of the manifest."""
    count = 20_000
    data = item(
        root({f"model.layers.{number:05}.weight": plain(digest=CRC) for number in range(count)})
    )
    parse(data)
    tracemalloc.start()
    try:
        manifest = parse(data)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(manifest.objects) == count
    assert kept < 300 * count
    assert peak < 600 * count
