"""Objects of 1.x that are written from fragments: none of them gets what is another's."""

from __future__ import annotations

from typing import Any

import cbor2
import pytest

from ztensor.spec.container import EMITTERS
from ztensor.spec.container.framing import TAIL_BYTES
from ztensor.spec.model.manifest import Component, Manifest, TensorObject, WrittenObjects

END = 4096


def emitted(objects: WrittenObjects | dict[str, TensorObject], version: str = "1.2.0") -> Any:
    return EMITTERS[version]().emit(Manifest(version, objects), END)[:-TAIL_BYTES]


def plain(length: int = 8, **fields: Any) -> TensorObject:
    component = Component("f32", 64, length, **fields)
    return TensorObject((length // 4,), "dense", {"data": component})


def of_roles(*roles: str, **fields: Any) -> TensorObject:
    return plain()._replace(components=dict.fromkeys(roles, Component("f32", 64, 8, **fields)))


# What tells two objects apart, where what one has stands in the manifest, and for each what.
APART: dict[str, tuple[list[TensorObject], tuple[str, ...], list[object]]] = {
    "encodings": (
        [plain(encoding=word) for word in ("zstd", "lz4", "zstd")],
        ("components", "data", "encoding"),
        ["zstd", "lz4", "zstd"],
    ),
    "decoded lengths": (
        [plain(encoding="zstd", decoded_length=length) for length in (8, 9)],
        ("components", "data", "uncompressed_length"),
        [8, 9],
    ),
    "unknown fields of components": (
        [plain(extra={"later": value}) for value in (1, 2)],
        ("components", "data", "later"),
        [1, 2],
    ),
    "unknown fields": (
        [plain()._replace(extra={"later": value}) for value in (1, 2)],
        ("later",),
        [1, 2],
    ),
    "attributes": (
        [plain()._replace(attributes={"a": value}) for value in (1, 2)],
        ("attributes", "a"),
        [1, 2],
    ),
    "layouts": (
        [plain()._replace(format=word) for word in ("one", "two")],
        ("format",),
        ["one", "two"],
    ),
    "more components": (
        [of_roles("data", "mask"), of_roles("data", "mask", "scale")],
        ("components", "mask", "offset"),
        [64, 64],
    ),
    "another component": ([of_roles("mask")], ("components", "mask", "length"), [8]),
    "digests": (
        [plain(digest=f"crc32c:0x0000000{value}") for value in (1, 2)],
        ("components", "data", "digest"),
        ["crc32c:0x00000001", "crc32c:0x00000002"],
    ),
}


@pytest.mark.parametrize("case", APART)
def test_what_tells_objects_apart_is_written_of_each(case: str) -> None:
    objects, path, expected = APART[case]
    between = {f"{at}": one for at, one in enumerate(objects)}
    manifest = cbor2.loads(emitted({"a": plain(), **between, "b": plain()}))
    for at, value in enumerate(expected):
        found = manifest["objects"][f"{at}"]
        assert list(found["components"]) == sorted(objects[at].components)
        for step in path:
            found = found[step]
        assert found == value
    for name in ("a", "b"):
        assert manifest["objects"][name] == {
            "shape": [2],
            "format": "dense",
            "components": {"data": {"dtype": "f32", "offset": 64, "length": 8}},
        }


@pytest.mark.parametrize("digest", ["crc32c:0x00000000", None], ids=str)
@pytest.mark.parametrize("version", ["1.1.0", "1.2.0"])
def test_entries_of_a_kind_are_written_as_objects_are(digest: str | None, version: str) -> None:
    written = WrittenObjects()
    written.kinds += [plain(length, digest=digest) for length in (4, 8)]
    for number, name in enumerate(["b", "aa", "é", "c" * 30, "a"]):
        own = None if digest is None else f"crc32c:0x{number:08X}"
        written.data[name] = number % 2, (number + 1) << 14, own
    written["z"] = plain()
    one_by_one = {name: written[name] for name in written}
    data = emitted(written, version)
    assert data == emitted(one_by_one, version)
    objects = cbor2.loads(data)["objects"]
    assert list(objects) == sorted(one_by_one)
    digests = [one["components"]["data"].get("digest") for one in objects.values()]
    assert digests == [one.components["data"].digest for _, one in sorted(one_by_one.items())]
