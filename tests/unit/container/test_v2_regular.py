"""Columns and the way item by item are one: in what they read, and in what they refuse."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.container.framing import Container, Frame, locate
from ztensor.container.v2 import schema
from ztensor.digest import xxh3
from ztensor.errors import ZTensorError
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.model.manifest import Manifest
from ztensor.model.table import TableObjects
from ztensor.testing.builder_2 import File2, dense
from ztensor.wire import cbor

CORPUS = Path(__file__).parents[2] / "corpus2"


def parse(data: bytes, size: int, *, columns: bool) -> Manifest:
    frame = Frame(Container.V2, size - 40 - len(data), len(data), size, xxh3(data))
    usual, schema.REGULAR_BYTES = schema.REGULAR_BYTES, 0 if columns else 1 << 62
    try:
        return schema.parse_manifest(data, frame, Budget(DEFAULT_LIMITS, size))
    finally:
        schema.REGULAR_BYTES = usual


def outcome(data: bytes, size: int, *, columns: bool) -> tuple[Any, bool]:
    """Return what a manifest says, or why it is refused, and whether columns were read."""
    try:
        found = parse(data, size, columns=columns)
    except ZTensorError as error:
        return (error.reason, str(error)), False
    is_table = isinstance(found.objects, TableObjects)
    return (repr(dict(found.objects)), repr(found.attributes), found.extra, found.shards), is_table


def many(count: int = 40) -> tuple[dict[str, Any], int]:
    """Return the root of a file of many plain objects and a few others, and its size."""
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
        "bool": dense(file.part(np.zeros(3, np.bool_)), [3]),
        "tied": objects["layer.0.weight"],
        "noted": dense(fp8, [2, 4], attributes={"a": [1, None]}),
    }
    root = {"objects": objects, "attributes": {"x": 1}, "zzzzzzzzzzzzzz": 2}
    manifest = cbor.encode(root)
    file.data += bytes(-len(file.data) % 4096)
    return root, len(file.data) + len(manifest) + 40


def test_columns_say_what_the_other_way_says() -> None:
    root, size = many()
    data = cbor.encode(root)
    found, is_table = outcome(data, size, columns=True)
    assert is_table
    expected, is_other_table = outcome(data, size, columns=False)
    assert not is_other_table
    assert found == expected


def test_whatever_is_wrong_is_said_in_the_same_words() -> None:
    root, size = many()
    data = cbor.encode(root)
    dice = random.Random(7)
    seen, tables = set(), 0
    for _ in range(1500):
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
        found, is_table = outcome(bytes(wrong), size, columns=True)
        expected, _ = outcome(bytes(wrong), size, columns=False)
        assert found == expected
        tables += is_table
        seen.add(found[0] if len(found) == 2 else None)
    assert tables > 20
    assert len(seen) > 8


@pytest.mark.parametrize("folder", ["real", "spec", "border", "reject"])
def test_every_file_of_the_corpus_by_both_ways(folder: str) -> None:
    for path in sorted((CORPUS / folder).rglob("*.zt")):
        file = path.read_bytes()
        try:
            frame = locate(file[:8], file[-40:], len(file))
        except ZTensorError:
            continue
        manifest = file[frame.manifest_offset :][: frame.manifest_length]
        if frame.container is Container.V2 and manifest:
            one, other = (outcome(manifest, len(file), columns=way) for way in (True, False))
            assert one[0] == other[0], path


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
