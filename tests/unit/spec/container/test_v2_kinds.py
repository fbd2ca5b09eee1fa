"""Kinds and the general reader are one in 2.x: in what they read, and in what they refuse."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.extent import amount
from tests.unit.spec.container.readings import (
    NEVER,
    PLAIN,
    REFUSED,
    compare,
    frame_2,
    outcome,
    read,
)
from ztensor.errors import Reason
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.model.objects import TableObjects
from ztensor.spec.wire import cbor
from ztensor.testing.builder_2 import File2, dense


def many(count: int = 40) -> tuple[dict[str, Any], int]:
    """Return the root of a file of many plain objects, and its size."""
    file = File2()
    objects: dict[str, Any] = {}
    kinds: list[Any] = [np.zeros((2, 3), np.float32), np.zeros(300, np.uint16), np.zeros((), "i1")]
    for number in range(count):
        objects[f"layer.{number}.weight"] = dense(
            file.part(kinds[number % 3], digest=("xxh3", "sha256", None)[number % 3]),
            kinds[number % 3].shape,
        )
    fp8 = {**file.part(np.zeros(8, np.uint8)), "type": "f8_e4m3fn"}
    packed = file.packed(bytes(96), b"x" * 40, "f32")
    objects |= {
        "fp8": dense(fp8, [8]),
        "é": dense(fp8 | {"type": "f4_e2m1"}, [15]),
        "packed": dense(packed, [24]),
        "tied": objects["layer.0.weight"],
        "n" * 30: objects["layer.1.weight"],
    }
    objects |= {
        "bool": dense(file.part(np.zeros(3, np.bool_)), [3]),
        "noted": dense(fp8, [2, 4], attributes={"a": [1, None]}),
    }
    root = {"objects": objects, "attributes": {"x": 1}, "zzzzzzzzzzzzzz": 2}
    manifest = cbor.encode(root)
    file.data += bytes(-len(file.data) % 4096)
    return root, len(file.data) + len(manifest) + 40


def test_tables_say_what_the_other_way_says() -> None:
    root, size = many()
    data = cbor.encode(root)
    assert compare(data, frame_2(data, size)) == PLAIN


@pytest.mark.slow
def test_whatever_is_wrong_is_said_in_the_same_words() -> None:
    root, size = many()
    data = cbor.encode(root)
    dice = random.Random(7)
    tables, tries = 0, amount(100, full=1500)
    for _ in range(tries):
        wrong = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2))):
            at = dice.randrange(len(wrong))
            change = dice.randrange(4)
            if change == 0:
                wrong[at] = dice.randrange(256)
            elif change == 1:
                wrong[at] ^= 1 << dice.randrange(8)
            elif change == 2:
                del wrong[at : at + dice.randrange(1, 9)]
            else:
                wrong[at:at] = wrong[dice.randrange(len(wrong)) :][: dice.randrange(1, 9)]
        tables += compare(bytes(wrong), frame_2(bytes(wrong), size)) == PLAIN
    assert tries // 75 < tables < tries // 2


def test_arrays_of_columns_are_those_of_the_file() -> None:
    file = File2()
    values = {f"w{number:04}": np.arange(number % 7 + 1, dtype=np.float32) for number in range(900)}
    objects = {name: dense(file.part(value), value.shape) for name, value in values.items()}
    data = file.seal({"objects": objects})
    with ztensor.open(data) as reader:
        assert isinstance(reader.objects.parts()[0].manifest.objects, TableObjects)
        assert reader.verify().checked == 900
    for copy in (False, True):
        loaded = ztensor.numpy.load(data) if not copy else dict(ztensor.open(data, mmap=False))
        assert list(loaded) == sorted(values)
        for name, value in values.items():
            np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"rzt.zstd-seekable/1", b"rzt-zstd-seekable/1"),
        (b"\x75xxh3:", b"\x75xxh4:"),
        (b"ddata\xa3", b"ddata\xa4"),
        (b"\x82\x02\x03", b"\x82\x02\x18\x03"),  # of a shape: a longer head than it needs
        (b"\x82\x02\x03", b"\x82\x02\x04"),
        (b"\x82\x02\x03", b"\x83\x02\x03"),
        (b"gf4_e2m1", b"gf4_e2mx"),
        (b"cf32", b"bf3"),
        (b"\x19\x10\x00", b"\x19\x10\x01"),  # off its page
        (b"\x19\x10\x00", b"\x1a\x00\x00\x10\x00"),
    ],
)
def test_what_is_of_no_kind_comes_to_the_same(old: bytes, new: bytes) -> None:
    root, size = many()
    data = cbor.encode(root)
    assert old in data
    compare(data.replace(old, new), frame_2(data.replace(old, new), size))


@pytest.mark.parametrize("digest", ["xxh3", "sha256", None])
def test_objects_whose_digests_are_of_one_kind(digest: str | None) -> None:
    file = File2()
    values = [np.arange(count, dtype=np.uint8) for count in range(1, 20)]
    objects = {f"{len(v):02}": dense(file.part(v, digest=digest), v.shape) for v in values}
    data = cbor.encode({"objects": objects})
    assert compare(data, frame_2(data, len(file.data) + len(data) + 40)) == PLAIN


def test_blobs_may_touch_and_an_empty_one_may_lie_anywhere() -> None:
    blobs = {"a": [4096, 12288], "b": [8192, 0], "c": [4096, 0], "d": [16384, 0], "e": [16384, 8]}
    objects = {name: dense({"dtype": "u8", "blob": blobs[name]}, blobs[name][1:]) for name in blobs}
    data = cbor.encode({"objects": objects})
    assert compare(data, frame_2(data, 20480 + len(data) + 40)) == PLAIN


@pytest.mark.parametrize("lengths", [(8, 4), (4, 8), (8, 8, 4), (0, 8, 4)])
def test_blobs_that_overlap_are_told_from_the_shorter_one_on(lengths: tuple[int, ...]) -> None:
    objects = {
        f"{at}": dense({"dtype": "u8", "blob": [4096, length]}, [length])
        for at, length in enumerate(lengths)
    }
    data = cbor.encode({"objects": objects})
    for least in (1, NEVER):
        _, found = outcome(data, frame_2(data, 8192 + len(data) + 40), DEFAULT_LIMITS, least)
        assert found["reason"] is Reason.BLOB_OVERLAP
        assert "found [4096, 4100] and [4096, 4104]" in found["text"]


@pytest.mark.parametrize("length", [1, 23, 24, 25, 255])
def test_names_of_tables_are_as_long_as_their_heads_say(length: int) -> None:
    entry = dense({"dtype": "u8", "blob": [4096, 0]}, [0])
    data = cbor.encode({"objects": {"n" * length: entry, "o" * length: entry}})
    assert compare(data, frame_2(data, 8192 + len(data) + 40)) == PLAIN


@pytest.mark.parametrize(
    "name",
    [
        b"\x78\x17" + b"n" * 23,
        b"\x78\x18" + b"n" * 23,
        b"\x79\0\x18" + b"n" * 24,
        b"\x58\x18" + b"n" * 24,
        b"\x41n",
        b"\x60",
        b"\x61\0",
        b"\x61\xff",
        b"\x61nn",
    ],
    ids=lambda name: name[:3].hex(),
)
@pytest.mark.parametrize("at", [0, 1])
def test_what_is_no_name_is_refused_in_the_same_words(name: bytes, at: int) -> None:
    entry = cbor.encode(dense({"dtype": "u8", "blob": [4096, 0]}, [0]))
    names = [b"\x61a", name] if at else [name, b"\x79\x01\0" + b"z" * 256]
    pairs = b"".join(one + entry for one in names)
    data = b"\xa1" + cbor.encode("objects") + b"\xa2" + pairs
    assert compare(data, frame_2(data, 8192 + len(data) + 40)) == REFUSED


def test_plain_objects_lie_between_the_first_page_and_the_footer() -> None:
    """The manifest may lie before, or between them."""
    size = 4 * 4096 + 40
    blobs = {"a": [4096, 8], "b": [12288, 4096], "c": [16384, 0]}
    objects = {name: dense({"dtype": "u8", "blob": blobs[name]}, blobs[name][1:]) for name in blobs}
    data = cbor.encode({"objects": objects})
    found = read(data, frame_2(data, size, 8192)).objects
    assert isinstance(found, TableObjects)
    assert found.table.names == ["a", "b", "c"]
    assert [one.components["data"].offset for one in found.values()] == [4096, 12288, 16384]
