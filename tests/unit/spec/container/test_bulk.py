"""Manifests of plain objects are parsed in bulk, with the outcome of parsing one by one.

Both ways are reachable by a file: the number of its objects decides. Here the threshold is 1.
`tests/property/test_kinds.py` compares the corpora and changed manifests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from tests.tracing import traced
from tests.unit.spec.container.parsing import (
    BULK,
    GENERAL,
    NEVER,
    REFUSED,
    compare,
    frame_of,
    outcome,
    read,
    table_of,
)
from ztensor import LogicalType, register_logical_type
from ztensor.errors import LimitError, Reason
from ztensor.ext import Manifest, cbor
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.container import framing
from ztensor.testing.builder import item
from ztensor.testing.builder_2 import File2, dense

END = 1 << 50  # where the blobs of 1.x end here
CRC = "crc32c:0x0A1B2C3D"


ORDER = ("dtype", "type", "offset", "length", "uncompressed_length", "encoding", "digest")


def in_1(data: bytes) -> framing.Frame:
    return frame_of("1", data, END)


def in_2(data: bytes, size: int = 20480) -> framing.Frame:
    """Return the frame of a manifest behind `size` bytes of blobs."""
    return frame_of("2", data, size)


def parsed(data: bytes, frame: framing.Frame) -> Manifest:
    return read(data, frame, DEFAULT_LIMITS, 1)


def plain(shape: tuple[int, ...] = (2,), **fields: Any) -> dict[str, Any]:
    """Return a good plain object; fields come in the order of the writers."""
    data = {"dtype": "f32", "offset": 64, "length": 8, **fields}
    data = {key: data[key] for key in ORDER if key in data}
    return {"shape": list(shape), "format": "dense", "components": {"data": data}}


def root(objects: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"version": "1.2.0", "objects": objects, **fields}


# --- 1.x ------------------------------------------------------------------------------------


OTHERS: dict[str, dict[str, Any]] = {
    "attributes": {**plain(), "attributes": {"scale": 2, "shape": [1]}},
    "unknown dtype": plain(dtype="i2"),
}


@pytest.mark.parametrize("kind", ["attributes", "unknown dtype"])
def test_many_other_objects_are_parsed_one_by_one(kind: str) -> None:
    """Objects that begin like plain ones are noticed later than others."""
    names = [f"{number:03}" for number in range(400)]
    for count, expected in ((16 + 400 // 16, BULK), (18 + 400 // 16, GENERAL)):
        objects = {name: OTHERS[kind] if at < count else plain() for at, name in enumerate(names)}
        data = item(root(objects))
        assert compare(data, in_1(data)) == expected


def test_encoded_objects_are_in_the_table_too() -> None:
    encoded = plain((9,), length=8, uncompressed_length=36, encoding="zstd")
    names = [f"w{number:02}" for number in range(40)]
    data = item(root({name: encoded if at % 2 else plain() for at, name in enumerate(names)}))
    assert table_of(parsed(data, in_1(data))).names == names


@pytest.mark.usefixtures("registry")
def test_a_registered_type_is_known_from_then_on() -> None:
    data = item(root({"a": plain(), "w": plain((9,), dtype="u16", type="i3_packed", length=4)}))
    assert table_of(parsed(data, in_1(data))).names == ["a"]
    register_logical_type(LogicalType("i3_packed", "u16", "int3", elements_per_storage=5))
    assert table_of(parsed(data, in_1(data))).names == ["a", "w"]


@pytest.mark.slow
def test_opening_needs_little_memory() -> None:
    """An object costs a few numbers, its name and its part of the manifest."""
    count = 20_000
    data = item(
        root({f"model.layers.{number:05}.weight": plain(digest=CRC) for number in range(count)})
    )
    parsed(data, in_1(data))
    with traced() as memory:
        manifest = parsed(data, in_1(data))
        kept, peak = memory()
    assert len(manifest.objects) == count
    assert kept < 300 * count
    assert peak < 600 * count


# --- 2.x ------------------------------------------------------------------------------------


def wide_names(count: int) -> bytes:
    """Return a file of long names with one character that Python stores in four bytes."""
    zeros = np.zeros(0, np.float32)
    return ztensor.numpy.save({f"\U0001f600{'x' * 240}{number}": zeros for number in range(count)})


def long_names(count: int) -> bytes:
    """Return a file of long names of letters of one byte."""
    return File2().seal({"objects": {f"{'x' * 100}{number:05}": EMPTY for number in range(count)}})


def empty_blobs(count: int) -> bytes:
    """Return a file of 2.x whose objects have short names and no bytes."""
    return File2().seal({"objects": {f"{number:x}": EMPTY for number in range(count)}})


@pytest.mark.parametrize(
    ("make", "floor"),
    [(wide_names, 2000), (long_names, 1100), (empty_blobs, 540)],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_bulk_parsing_takes_is_charged(make: Callable[[int], bytes], floor: int) -> None:
    """`floor` bytes an object and the length of the file are too few, a tenth more is enough."""
    count = 2000
    data = make(count)
    with refused(LimitError, Reason.LIMIT_COST):
        ztensor.open(data, limits=Limits(cost_floor=floor * count, cost_factor=1))
    ztensor.open(data, limits=Limits(cost_floor=floor * count * 11 // 10, cost_factor=1)).close()


def test_kinds_that_differ_late_are_kept_apart() -> None:
    """Types of one width of name, each with two digests and without."""
    file, objects = File2(), {}
    algorithms = ("xxh3", "sha256", None)
    for number in range(360):
        values = np.zeros(2, ("f2", "f4", "f8")[number % 3])
        part = file.part(values, digest=algorithms[number // 3 % 3])
        objects[f"w{number:03}"] = dense(part, [2])
    manifest = cbor.encode({"objects": objects})
    assert compare(manifest, in_2(manifest, len(file.data) + -len(file.data) % 4096)) == BULK


def many(count: int = 40) -> tuple[bytes, int]:
    """Return the manifest of a file of many plain objects, and the length of its blobs."""
    file = File2()
    arrays: list[Any] = [np.zeros((2, 3), np.float32), np.zeros(300, np.uint16), np.zeros((), "i1")]
    objects: dict[str, Any] = {}
    for number in range(count):
        array, digest = arrays[number % 3], ("xxh3", "sha256", None)[number % 3]
        objects[f"layer.{number}.weight"] = dense(file.part(array, digest=digest), array.shape)
    fp8 = {**file.part(np.zeros(8, np.uint8)), "type": "f8_e4m3fn"}
    objects |= {
        "fp8": dense(fp8, [8]),
        "é": dense(fp8 | {"type": "f4_e2m1"}, [15]),
        "packed": dense(file.packed(bytes(96), b"x" * 40, "f32"), [24]),
        "tied": objects["layer.0.weight"],
        "n" * 30: objects["layer.1.weight"],
        "bool": dense(file.part(np.zeros(3, np.bool_)), [3]),
        "noted": dense(fp8, [2, 4], attributes={"a": [1, None]}),
    }
    manifest = cbor.encode({"objects": objects, "attributes": {"x": 1}, "zzzzzzzzzzzzzz": 2})
    return manifest, len(file.data) + -len(file.data) % 4096


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("number", [600, 24])
def test_numbers_are_as_short_as_they_can_be(number: int, width: int) -> None:
    data, size = many()
    short = item(number)
    at = data.index(short, data.index(b"layer.1.w") if number == 600 else data.index(b"layer.9"))
    long = bytes([0x18 + width.bit_length() - 1]) + number.to_bytes(width, "big")
    changed = data[:at] + long + data[at + len(short) :]
    assert compare(changed, in_2(changed, size)) == (BULK if long == short else REFUSED)


EMPTY = dense({"dtype": "u8", "blob": [4096, 0]}, [0])
BLOBS = {"a": [4096, 12288], "b": [8192, 0], "c": [4096, 0], "d": [16384, 0], "e": [16384, 8]}
REGULAR_2: dict[str, tuple[bytes, int]] = {
    "many": many(),
    "touching blobs, and empty ones anywhere": (
        cbor.encode(
            {"objects": {n: dense({"dtype": "u8", "blob": b}, b[1:]) for n, b in BLOBS.items()}}
        ),
        20480,
    ),
    **{
        f"names of {length} bytes": (
            cbor.encode({"objects": {"n" * length: EMPTY, "o" * length: EMPTY}}),
            8192,
        )
        for length in (1, 23, 24, 25, 255)
    },
}


@pytest.mark.parametrize("name", REGULAR_2)
def test_a_manifest_of_2_x_has_the_same_outcome_both_ways(name: str) -> None:
    data, size = REGULAR_2[name]
    assert compare(data, in_2(data, size)) == BULK


@pytest.mark.parametrize("lengths", [(8, 4), (4, 8), (8, 8, 4), (0, 8, 4)])
def test_overlapping_blobs_are_reported_alike(lengths: tuple[int, ...]) -> None:
    objects = {
        f"{at}": dense({"dtype": "u8", "blob": [4096, length]}, [length])
        for at, length in enumerate(lengths)
    }
    data = cbor.encode({"objects": objects})
    for least_objects in (1, NEVER):
        _, found = outcome(data, in_2(data), DEFAULT_LIMITS, least_objects)
        assert found["reason"] is Reason.BLOB_OVERLAP
        assert "found [4096, 4100] and [4096, 4104]" in found["text"]
