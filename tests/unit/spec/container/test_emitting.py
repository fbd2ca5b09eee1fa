"""Manifests of every version, written: parsed they are the same, and the rest is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cbor2
import pytest

from tests.unit.spec.container.parsing import END, nested, parse, parse_file
from ztensor.errors import NotRepresentableError
from ztensor.ext import EMITTERS, Component, Manifest, TensorObject, cbor
from ztensor.spec.model import manifest as model

CORPUS_2 = Path(__file__).parents[3] / "corpus2"
ACCEPTED_2 = [
    entry["path"]
    for entry in json.loads((CORPUS_2 / "corpus.json").read_text("utf-8"))["files"]
    if entry["expect"] == "accept"
]
XXH3 = "xxh3:" + "0" * 16
CONTAINERS = {"0.1.0": ("0.1", 8), "1.1.0": ("1", 16), "1.2.0": ("1", 16), "2.1": ("2", 40)}


def emitted(manifest: Manifest, version: str) -> bytes:
    """Return the bytes of a manifest, without the tail behind it."""
    data: bytes = EMITTERS[version]().emit(manifest, END)
    offset = int.from_bytes(data[-40:-32], "little") - END if version == "2.1" else 0
    return data[offset : -CONTAINERS[version][1]]


def again(manifest: Manifest, version: str) -> Manifest:
    return parse(CONTAINERS[version][0], emitted(manifest, version), end=1 << 20)


def plain(length: int = 8, **fields: Any) -> TensorObject:
    component = Component("f32", 1 << 16, length, **fields)
    return TensorObject((length // 4,), "dense", {"data": component})


def of_roles(*roles: str, **fields: Any) -> TensorObject:
    return plain()._replace(components=dict.fromkeys(roles, Component("f32", 1 << 16, 8, **fields)))


# --- Round trips ----------------------------------------------------------------------------

RICH = TensorObject(
    (3, 0, 2**64 - 1),
    "sparse_csr",
    {
        "values": Component(
            "u8", 128, 5, "f8_e4m3fn", "zstd", "crc32c:0x00000001", 9, extra={"later": 1}
        ),
        "indptr": Component("u64", 64, 0),
        "späte": Component("no such", 64, 1, "open", "lz4", "md5:00"),
    },
    {"bits": 4, "nested": {"a": [1.5, None, b"\x00", True]}},
    {"note": "kept"},
)
# No number of a shape may be taken for the bytes of a field, which are copied from a template.
KEY = b"\x66offset"
SPELLING = TensorObject(
    (int.from_bytes(b"\x01" + KEY, "big"), 2**64 - 1, 0),
    "dense",
    {"data": Component("f32", 64, 0)},
)
OLD = {
    "z": plain(nonzero_is_true=True),
    "a": plain(encoding="zstd", digest="crc32c:0x00000001", nonzero_is_true=True)._replace(
        attributes={"k": [1, {"a": None}]}
    ),
    "": plain(2, nonzero_is_true=True)._replace(shape=(0,)),
    "é\0": plain(byte_order="big", nonzero_is_true=True),
}
ROUND: dict[str, tuple[str, Manifest]] = {
    "0.1, nothing": ("0.1.0", Manifest("0.1.0", {})),
    "0.1": ("0.1.0", Manifest("0.1.0", OLD)),
    "nothing": ("1.2.0", Manifest("1.2.0", {})),
    "one": ("1.2.0", Manifest("1.2.0", {"w": plain()})),
    "no attributes": ("1.2.0", Manifest("1.2.0", {}, {})),
    "a later minor": ("1.2.0", Manifest("1.2.7", {"w": plain()})),
    "rich": (
        "1.2.0",
        Manifest("1.2.0", {"": RICH, "b\0": plain(), "é": plain()}, {"k": [1]}, None, {"x": {}}),
    ),
    "a shape like a field": ("1.2.0", Manifest("1.2.0", {"w": SPELLING})),
    "deep attributes": (
        "1.2.0",
        Manifest("1.2.0", {"w": plain()._replace(attributes={"a": nested(60)})}, {"a": nested(62)}),
    ),
}


@pytest.mark.parametrize("case", ROUND)
def test_a_written_manifest_is_parsed_as_it_was(case: str) -> None:
    version, manifest = ROUND[case]
    emitter = EMITTERS[version]()
    for tensor_object in manifest.objects.values():
        emitter.require_object(tensor_object)
    emitter.require_attributes(manifest.attributes or {})
    found = again(manifest, version)
    assert found._replace(commit=None) == manifest
    if version == "0.1.0":
        assert list(found.objects) == list(manifest.objects)  # the order of writing
        size = EMITTERS[version]().emit(manifest, END)[-8:]
        assert int.from_bytes(size, "little") == len(emitted(manifest, version))


def without_odd_keys(value: Any) -> Any:
    """Return a manifest of 2.x without unknown fields whose key is not text: they are dropped."""
    if isinstance(value, cbor.Pairs):
        value = {key: item for key, item in value if isinstance(key, str)}
    if isinstance(value, dict):
        return {key: without_odd_keys(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("path", ACCEPTED_2)
def test_a_manifest_of_2_x_is_written_as_it_was(path: str) -> None:
    data = (CORPUS_2 / path).read_bytes()
    manifest, text = parse_file(data)
    emitter: Any = EMITTERS["2.1"]()
    for tensor_object in manifest.objects.values():
        emitter.require_object(tensor_object)
    emitter.require_attributes(manifest.attributes or {})
    written = emitter.manifest(manifest)
    expected = without_odd_keys(cbor.decode(text))
    if expected.get("shards") == {}:
        del expected["shards"]  # an empty table is left out
    assert written == cbor.encode(expected)
    if len(written) == len(text):
        assert written == text


# --- Objects written from templates ----------------------------------------------------------

# Objects that differ in one thing, the place of it in the manifest, and its value in each.
APART: dict[str, tuple[str, list[TensorObject], tuple[str, ...], list[object]]] = {
    "encodings": (
        "1.2.0",
        [plain(encoding=word) for word in ("zstd", "lz4", "zstd")],
        ("components", "data", "encoding"),
        ["zstd", "lz4", "zstd"],
    ),
    "decoded lengths": (
        "1.2.0",
        [plain(encoding="zstd", decoded_length=length) for length in (8, 9)],
        ("components", "data", "uncompressed_length"),
        [8, 9],
    ),
    "digests": (
        "1.2.0",
        [plain(digest=f"crc32c:0x0000000{value}") for value in (1, 2)],
        ("components", "data", "digest"),
        ["crc32c:0x00000001", "crc32c:0x00000002"],
    ),
    "another component": ("1.2.0", [of_roles("mask")], ("components", "mask", "length"), [8]),
    "decoded lengths of 2": (
        "2.1",
        [plain(encoding="acme.rle/3", decoded_length=length) for length in (8, 9)],
        ("parts", "data", "decoded_length"),
        [8, 9],
    ),
    "shards": (
        "2.1",
        [plain(shard=model.Shard(name, 4096, "", 0)) for name in ("one", "two")],
        ("parts", "data", "shard"),
        ["one", "two"],
    ),
    "another part": ("2.1", [of_roles("mask")], ("parts", "mask", "blob"), [[1 << 16, 8]]),
}
for version, word, layout in (("1.2.0", "components", "format"), ("2.1", "parts", "layout")):
    APART |= {
        f"unknown fields of components, {version}": (
            version,
            [plain(extra={"later": value}) for value in (1, 2)],
            (word, "data", "later"),
            [1, 2],
        ),
        f"unknown fields, {version}": (
            version,
            [plain()._replace(extra={"later": value}) for value in (1, 2)],
            ("later",),
            [1, 2],
        ),
        f"attributes, {version}": (
            version,
            [plain()._replace(attributes={"a": value}) for value in (1, 2)],
            ("attributes", "a"),
            [1, 2],
        ),
        f"layouts, {version}": (
            version,
            [plain()._replace(format=name) for name in ("a.b/1", "a.c/1")],
            (layout,),
            ["a.b/1", "a.c/1"],
        ),
        f"more components, {version}": (
            version,
            [of_roles("data", "mask"), of_roles("data", "mask", "scale")],
            (word, "mask", "dtype"),
            ["f32", "f32"],
        ),
    }


@pytest.mark.parametrize("case", APART)
def test_a_difference_between_objects_is_written(case: str) -> None:
    version, objects, path, expected = APART[case]
    between = {f"{at}": tensor_object for at, tensor_object in enumerate(objects)}
    text = emitted(Manifest(version, {"a": plain(), **between, "b": plain()}), version)
    written = cbor2.loads(text)["objects"]
    for at, value in enumerate(expected):
        found = written[f"{at}"]
        assert list(found[path[0]]) == sorted(objects[at].components) if len(path) == 3 else found
        for step in path:
            found = found[step]
        assert found == value
    alone = cbor2.loads(emitted(Manifest(version, {"a": plain()}), version))["objects"]["a"]
    assert written["a"] == written["b"] == alone


# --- Refused --------------------------------------------------------------------------------

DATA = Component("u8", 0, 0)


def one(**changes: Any) -> TensorObject:
    return TensorObject((1,), "dense", {"data": DATA})._replace(**changes)


SIZES = {"elems_per_block": 32, "block_bytes": 18}
SPARSE = {"values": Component("f32", 0, 4), "coords": Component("i64", 0, 16)}
REFUSED: dict[str, tuple[tuple[str, ...], TensorObject]] = {
    "sparse": (("0.1.0",), one(format="sparse_coo", components={"values": DATA, "coords": DATA})),
    "another layout": (("0.1.0",), one(format="blocks")),
    "two components": (("0.1.0",), one(components={"data": DATA, "more": DATA})),
    "a logical type": (("0.1.0",), one(components={"data": DATA._replace(type="f8_e5m2")})),
    "a field's name": (("0.1.0",), one(attributes={"name": "x"})),
    "a type of 1.2": (("1.1.0",), one(components={"data": DATA._replace(type="f4_e2m1")})),
    "an unknown type": (("1.1.0",), one(components={"data": DATA._replace(type="other")})),
}
NOWHERE: dict[str, dict[str, Any]] = {
    "a key that is no text": {"attributes": {1: "x"}},
    "a value of no type": {"attributes": {"a": object()}},
    "a number beyond 64 bits": {"attributes": {"a": 2**64}},
    "a surrogate": {"attributes": {"a": "\ud800"}},
    "nesting": {"attributes": {"a": nested(63)}},
    "a shape beyond 64 bits": {"shape": (2**64,)},
    "a surrogate in a layout": {"format": "\ud800"},
    "a surrogate in a role": {"components": {"\ud800": DATA}},
    "a surrogate in a type": {"components": {"data": DATA._replace(type="\ud800")}},
}
for name, changes in NOWHERE.items():
    REFUSED[name] = (("0.1.0", "1.1.0", "1.2.0"), one(**changes))


def attribute(value: object, name: str = "a") -> TensorObject:
    return plain()._replace(attributes={name: value})


REFUSED |= {
    f"2: {name}": (("2.1",), tensor_object)
    for name, tensor_object in {
        "a tag": attribute(cbor.Tag(55799, 1)),
        "undefined": attribute(cbor.UNDEFINED),
        "a simple value": attribute(cbor.Simple(5)),
        "nesting": attribute(nested(29)),
        "an empty attribute name": attribute(1, ""),
        "an attribute with NUL": attribute(1, "a\0"),
        "a long attribute name": attribute(1, "é" * 513),
        "an unknown storage type": one(components={"data": Component("i4", 0, 1)}),
        "another bool": one(components={"data": Component("u8", 0, 1, "bool")}),
        "a type on another storage": one(components={"data": Component("u16", 0, 2, "f8_e5m2")}),
        "rank 65": plain()._replace(shape=(1,) * 65),
        "a product beyond u64": plain()._replace(shape=(1 << 63, 2, 0)),
        "no part": plain()._replace(components={}),
        "another part": of_roles("data", "more"),
        "zstd of 1.x": plain(encoding="zstd", decoded_length=8),
        "no decoded length": plain(encoding="acme.rle/3"),
        "a field with a meaning": plain()._replace(extra={"layout": 1}),
        "indices that may be negative": TensorObject((2, 3), "sparse_coo", SPARSE),
        "a layout of 2.x in 1.x": plain()._replace(format="zt.sparse_csr/1"),
        "sizes of blocks as attributes": TensorObject(
            (32,), "gguf.q8_0", {"data": Component("u8", 0, 34)}, {"block_bytes": 34}
        ),
        "all sizes of blocks": TensorObject(
            (32,), "gguf.q4_0", {"data": Component("u8", 0, 18)}, SIZES
        ),
        "crc32c": plain(digest="crc32c:0x0A1B2C3D"),
        # Words that would be read as another layout.
        **{
            f"the layout {word}": one(format=word, components={"data": Component("u8", 0, 1)})
            for word in ("pyztensor.other/1", "zt.sparse_coo/1", "2.x dense", "2.x a/1")
        },
    }.items()
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_object_that_a_version_cannot_represent_is_refused(case: str) -> None:
    versions, tensor_object = REFUSED[case]
    for version in versions:
        with pytest.raises(NotRepresentableError) as caught:
            EMITTERS[version]().require_object(tensor_object)
        if version == "1.1.0" and len(versions) == 1:
            assert "1.2.0" in str(caught.value)  # the version that has it
            EMITTERS["1.2.0"]().require_object(tensor_object)


@pytest.mark.parametrize(
    ("version", "good", "wrong"),
    [
        ("0.1.0", {}, {"license": "x"}),
        # Release 1.1.1 opens no tensor of a file with other attributes than text.
        *(("1.1.0", {"k": "v"}, {"k": value}) for value in (1, None, ["a"], b"a", {"a": "b"})),
        ("1.2.0", {"a": nested(62)}, {"a": nested(63)}),
        ("2.1", {"a": 1}, {"": 1}),
        ("2.1", {"a": nested(30)}, {"a": nested(31)}),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_attributes_that_a_version_cannot_hold_are_refused(
    version: str, good: dict[str, object], wrong: dict[str, object]
) -> None:
    EMITTERS[version]().require_attributes(good)
    with pytest.raises(NotRepresentableError) as caught:
        EMITTERS[version]().require_attributes(wrong)
    assert version != "0.1.0" or "1.2.0" in str(caught.value)


def test_a_manifest_of_2_x_has_a_longest_length() -> None:
    """The 1 GiB of the text (2.1 section 2.3), as a few bytes."""
    emitter: Any = EMITTERS["2.1"]()
    assert emitter.manifest_most == 1 << 30
    manifest = Manifest("2", {"w": plain(digest=XXH3)})
    emitter.manifest_most = len(emitter.manifest(manifest))
    emitter.manifest(manifest)
    emitter.manifest_most -= 1
    with pytest.raises(NotRepresentableError) as caught:
        emitter.manifest(manifest)
    assert caught.value.expected == f"at most {emitter.manifest_most} bytes"
