"""Manifests of 1.x of many plain objects are read as kinds, and say what the objects say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tracing import traced
from tests.unit.spec.container.readings import (
    DECLINED,
    END,
    PLAIN,
    compare,
    frame_1,
    read,
)
from ztensor import LogicalType, register_logical_type
from ztensor.ext import LOGICAL_TYPES, STORAGE_TYPES
from ztensor.spec.model.manifest import Manifest
from ztensor.spec.model.objects import Table, TableObjects
from ztensor.testing.builder import committed, item

CRC = "crc32c:0x0A1B2C3D"
SHA = "sha256:" + "4f" * 32
ORDER = ("dtype", "type", "offset", "length", "uncompressed_length", "encoding", "digest")


def parse(data: bytes) -> Manifest:
    return read(data, frame_1(data))


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


GOOD: dict[str, dict[str, Any]] = {
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
GOOD["everything"] = plain(
    (1,), type="complex64", length=5, uncompressed_length=8, encoding="zstd", digest=SHA
)


@pytest.mark.usefixtures("registry")
def test_a_registered_type_is_known_from_then_on() -> None:
    data = item(root({"a": plain(), "w": plain((9,), dtype="u16", type="i3_packed", length=4)}))
    assert table_of(parse(data)).names == ["a"]
    register_logical_type(LogicalType("i3_packed", "u16", "int3", elements_per_storage=5))
    assert table_of(parse(data)).names == ["a", "w"]


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
    assert compare(item(root(objects))) == PLAIN
    assert table_of(parse(item(root(objects)))).names == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["attributes", "unknown dtype"])
def test_many_other_objects_are_for_the_general_decoder(kind: str) -> None:
    """Those that begin like plain ones are noticed later than others."""
    names = [f"{number:03}" for number in range(400)]
    for count, expected in ((16 + 400 // 16, PLAIN), (18 + 400 // 16, DECLINED)):
        objects = {name: OTHERS[kind] if at < count else plain() for at, name in enumerate(names)}
        assert compare(item(root(objects))) == expected


# --- What is odd comes to the same both ways --------------------------------------------------

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


COMMITTED = committed(
    root({"a": plain(), "b": plain()}, commit={"prev": 0, "end": 0, "digest": CRC}), END
)
ONE = item(root({"a": plain()}))
TWO = item(root({"a": plain(), "é": plain()}))
ENTRY = item(plain())
OBJECTS = b"\xa1" + item("objects")
ROOTS: dict[str, Any] = {
    "released": root({"a": plain()}),
    "attributes": {"version": "1.2.0", "attributes": {"a": [1]}, "objects": {"a": plain()}},
    "null attributes": {"version": "1.2.0", "attributes": None, "objects": {"a": plain()}},
    "objects first": {"objects": {"a": plain()}, "version": "1.1.0"},
    "unknown fields": {"x": {"shape": 1}, **root({"a": plain()}), "y": [b"\xa3\x65shape"]},
    "blobs up to the manifest": root(
        {"a": plain((16,), offset=END - 64, length=64), "b": plain((0,), offset=END, length=0)}
    ),
}
REGULAR = {name: item(value) for name, value in ROOTS.items()} | {"a commit record": COMMITTED}
IRREGULAR: dict[str, bytes] = {
    "a damaged commit record": COMMITTED.replace(item("b"), item("c"), 1),
    "another major version": item({**root({"a": plain()}), "version": "2.0.0"}),
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


@pytest.mark.parametrize("name", REGULAR)
def test_a_regular_manifest_is_read_as_kinds(name: str) -> None:
    assert compare(REGULAR[name]) == PLAIN


@pytest.mark.parametrize("name", IRREGULAR)
def test_an_irregular_manifest_comes_to_the_same_both_ways(name: str) -> None:
    compare(IRREGULAR[name])


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
    entries = dict(GOOD)
    for number, (shape, length) in enumerate(SHAPES):
        entries[f"shape {number}"] = plain(shape, length=length)
    for number, logical in enumerate(LOGICAL_TYPES.values()):
        width = logical.storage_count(1) * STORAGE_TYPES[logical.dtype].width
        of = {"dtype": logical.dtype, "type": logical.name, "length": width}
        entries[f"type {number}"] = plain((1,), **of)
    entries |= {name: plain() for name in NAMES}
    data = item(root({**entries, "other": OTHERS["attributes"]}, version=version))
    assert compare(data) == PLAIN
    table = table_of(parse(data))
    assert table.names == list(entries)
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
    with traced() as memory:
        manifest = parse(data)
        kept, peak = memory()
    assert len(manifest.objects) == count
    assert kept < 300 * count
    assert peak < 600 * count
