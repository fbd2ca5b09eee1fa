"""The manifest of 2.x, written: every file of the corpus anew, and what is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.spec.container.readings import nested
from ztensor.errors import NotRepresentableError
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.numpy import save
from ztensor.spec.container.framing import locate
from ztensor.spec.container.v2 import emit
from ztensor.spec.container.v2.emit import Emitter21 as Emitter
from ztensor.spec.container.v2.schema import parse_manifest
from ztensor.spec.model.manifest import Component, Manifest, Shard, TensorObject, WrittenObjects
from ztensor.spec.wire import cbor

CORPUS = Path(__file__).parents[3] / "corpus2"
ACCEPTED = [
    entry["path"]
    for entry in json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
    if entry["expect"] == "accept"
]


def manifest_of(data: bytes) -> tuple[Manifest, bytes]:
    frame = locate(data[:8], data[-40:], len(data))
    text = data[frame.manifest_offset :][: frame.manifest_length]
    return parse_manifest(text, frame, Budget(DEFAULT_LIMITS, len(data))), text


def without_odd_keys(value: Any) -> Any:
    """Return a manifest without the unknown fields whose key is no text, which are not kept."""
    if isinstance(value, cbor.Pairs):
        value = {key: item for key, item in value if isinstance(key, str)}
    if isinstance(value, dict):
        return {key: without_odd_keys(item) for key, item in value.items()}
    return value


@pytest.mark.parametrize("path", ACCEPTED)
def test_a_manifest_is_written_as_it_was(path: str) -> None:
    data = (CORPUS / path).read_bytes()
    manifest, text = manifest_of(data)
    emitter = Emitter()
    for tensor_object in manifest.objects.values():
        emitter.require_object(tensor_object)
    emitter.require_attributes(manifest.attributes or {})
    written = emitter.manifest(manifest)
    expected = without_odd_keys(cbor.decode(text))
    if expected.get("shards") == {}:
        del expected["shards"]  # an empty table is as good as none
    assert written == cbor.encode(expected)
    if len(written) == len(text):
        assert written == text
        offset = int.from_bytes(data[-40:-32], "little")
        assert emit.footer(offset, written)[:28] == data[-40:-12]


def plain(length: int = 8, **fields: Any) -> TensorObject:
    component = Component("f32", 1 << 16, length, digest="xxh3:" + "0" * 16, **fields)
    return TensorObject((length // 4,), "dense", {"data": component})


@pytest.mark.parametrize("digest", ["xxh3:" + "0" * 16, None], ids=str)
def test_entries_of_a_kind_are_written_as_objects_are(digest: str | None) -> None:
    written = WrittenObjects()
    for length in (4, 8):
        kind = plain(length)
        part = kind.components["data"]._replace(digest=digest)
        written.kinds.append(kind._replace(components={"data": part}))
    for number, name in enumerate(["b", "aa", "é", "c" * 30, "a"]):
        own = None if digest is None else f"xxh3:{number:016x}"
        written.data[name] = number % 2, (number + 1) << 14, own
    written["z"] = plain()
    one_by_one = {name: written[name] for name in written}
    emitter = Emitter()
    text = emitter.manifest(Manifest("2", written))
    assert text == emitter.manifest(Manifest("2", one_by_one))
    assert list(cbor.decode(text, strict=True)["objects"]) == [  # type: ignore[index]
        "a", "b", "z", "aa", "é", "c" * 30,
    ]  # fmt: skip


def test_padding_manifest_and_footer_follow_the_last_blob() -> None:
    emitter = Emitter()
    emitter.form = emitter.form._replace(alignment=4096)
    tail = emitter.emit(Manifest("2", {"w": plain()}), 70000)
    offset = -(-70000 // 4096) * 4096
    assert not any(tail[: offset - 70000])
    assert int.from_bytes(tail[-40:-32], "little") == offset
    assert int.from_bytes(tail[-32:-24], "little") == len(tail) - (offset - 70000) - 40


def attribute(value: object) -> TensorObject:
    return plain()._replace(attributes={"a": value})


REFUSED: dict[str, TensorObject] = {
    "a tag": attribute(cbor.Tag(55799, 1)),
    "undefined": attribute(cbor.UNDEFINED),
    "a simple value": attribute(cbor.Simple(5)),
    "nests too deep": attribute(nested(29)),
    "an empty attribute name": plain()._replace(attributes={"": 1}),
    "an attribute with NUL": plain()._replace(attributes={"a\0": 1}),
    "a long attribute name": plain()._replace(attributes={"é" * 513: 1}),
    "an unknown storage type": TensorObject((2,), "dense", {"data": Component("i4", 0, 1)}),
    "another bool": TensorObject((2,), "dense", {"data": Component("u8", 0, 2, "bool")}),
    "a type on another storage": TensorObject(
        (2,), "dense", {"data": Component("u16", 0, 4, "f8_e5m2")}
    ),
    "rank 65": plain()._replace(shape=(1,) * 65),
    "a product beyond u64": plain()._replace(shape=(1 << 63, 2, 0)),
    "no part": plain()._replace(components={}),
    "another part": TensorObject(
        (2,), "dense", {"data": Component("f32", 0, 8), "more": Component("f32", 0, 8)}
    ),
    "zstd of 1.x": plain(encoding="zstd", decoded_length=8),
    "no decoded length": plain(encoding="acme.rle/3"),
    "a field with a meaning": plain()._replace(extra={"layout": 1}),
    "indices that may be negative": TensorObject(
        (2, 3),
        "sparse_coo",
        {"values": Component("f32", 0, 4), "coords": Component("i64", 0, 16)},
    ),
    "a layout of 2.x in 1.x": plain()._replace(format="zt.sparse_csr/1"),
    "sizes of blocks as attributes": TensorObject(
        (32,), "gguf.q8_0", {"data": Component("u8", 0, 34)}, {"block_bytes": 34}
    ),
    "crc32c": TensorObject(
        (2,), "dense", {"data": Component("f32", 0, 8, digest="crc32c:0x0A1B2C3D")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_2_x_cannot_say_is_refused(case: str) -> None:
    with pytest.raises(NotRepresentableError):
        Emitter().require_object(REFUSED[case])


@pytest.mark.parametrize("name", ["", "a\0b", "é" * 513])
def test_names_that_2_x_has_not(name: str) -> None:
    with pytest.raises(NotRepresentableError, match="name"):
        Emitter().require_name(name)
    one = np.zeros(2, np.float32)
    for tensors in (
        {name: one},
        {"w": ztensor.Tensor({"data": one, name: one}, shape=(2,), format="acme.pair/1")},
    ):
        with pytest.raises(NotRepresentableError):
            save(tensors, version="2.1")


WORDS = [
    "dense", "sparse_csr", "sparse_coo", "quantized_group", "gguf.q8_0", "gguf.tq1_0",
    "zt.quant_group/1", "zt.mx/1", "x.y/3", "foo", "2.x foo", "scipy.sparse_csc",
]  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_every_layout_is_read_as_it_was_written(word: str) -> None:
    from ztensor.spec.container.v2.words import ours, theirs

    layout, attributes = theirs(word, {"k": 1})
    assert ours(layout, attributes) == (word, {"k": 1})
    if word not in ("dense", "2.x foo"):
        assert "/" in layout


def test_the_deepest_attributes_are_read() -> None:
    emitter = Emitter()
    deepest = attribute(nested(28))
    emitter.require_object(deepest)
    tail = emitter.emit(Manifest("2", {"w": deepest}, {"a": nested(30)}), 1 << 17)
    data = emitter.magic + bytes((1 << 17) - 8) + tail
    with ztensor.open(data) as reader:
        assert reader.metadata("w").attributes == deepest.attributes


# What tells two objects apart, where what one has stands in the manifest, and for each what.
APART: dict[str, tuple[list[TensorObject], tuple[str, ...], list[object]]] = {
    "decoded lengths": (
        [plain(encoding="acme.rle/3", decoded_length=length) for length in (8, 9)],
        ("parts", "data", "decoded_length"),
        [8, 9],
    ),
    "shards": (
        [plain(shard=Shard(name, 4096, "", 0)) for name in ("one", "two")],
        ("parts", "data", "shard"),
        ["one", "two"],
    ),
    "unknown fields of parts": (
        [plain(extra={"later": value}) for value in (1, 2)],
        ("parts", "data", "later"),
        [1, 2],
    ),
    "unknown fields": (
        [plain()._replace(extra={"later": value}) for value in (1, 2)],
        ("later",),
        [1, 2],
    ),
    "attributes": ([attribute(1), attribute(2)], ("attributes", "a"), [1, 2]),
    "layouts": (
        [plain()._replace(format=word) for word in ("a.b/1", "a.c/1")],
        ("layout",),
        ["a.b/1", "a.c/1"],
    ),
    "more parts": (
        [
            plain()._replace(components=dict.fromkeys(roles, Component("f32", 0, 8)))
            for roles in (("data", "mask"), ("data", "mask", "scale"))
        ],
        ("parts", "mask", "dtype"),
        ["f32", "f32"],
    ),
    "another part": (
        [plain()._replace(components={"mask": Component("f32", 0, 8)})],
        ("parts", "mask", "blob"),
        [[0, 8]],
    ),
}


@pytest.mark.parametrize("case", APART)
def test_what_tells_objects_apart_is_written_of_each(case: str) -> None:
    objects, path, expected = APART[case]
    between = {f"{at}": one for at, one in enumerate(objects)}
    text = Emitter().manifest(Manifest("2", {"a": plain(), **between, "b": plain()}))
    root: Any = cbor.decode(text, strict=True)
    for at, value in enumerate(expected):
        found = root["objects"][f"{at}"]
        assert list(found["parts"]) == list(objects[at].components)
        for step in path:
            found = found[step]
        assert found == value
    digest = "xxh3:" + "0" * 16
    data = {"blob": [1 << 16, 8], "dtype": "f32", "digest": digest}
    for name in ("a", "b"):
        assert root["objects"][name] == {"parts": {"data": data}, "shape": [2], "layout": "dense"}


def test_a_manifest_is_as_long_as_readers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest("2", {"w": plain()})
    length = len(Emitter().manifest(manifest))
    monkeypatch.setattr(emit, "MANIFEST_2_MOST", length)
    assert len(Emitter().manifest(manifest)) == length
    monkeypatch.setattr(emit, "MANIFEST_2_MOST", length - 1)
    with pytest.raises(NotRepresentableError, match="divide the objects") as caught:
        Emitter().manifest(manifest)
    assert (caught.value.expected, caught.value.found) == (
        f"at most {length - 1} bytes",
        f"{length}",
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [(nested(29), "32 levels"), (cbor.Tag(1, 1), "not allowed")],
    ids=["deep", "tag"],
)
def test_what_is_wrong_with_an_attribute_is_said(value: object, message: str) -> None:
    with pytest.raises(NotRepresentableError, match=message):
        Emitter().require_object(attribute(value))
