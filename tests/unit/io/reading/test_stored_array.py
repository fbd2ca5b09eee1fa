"""Slices of a component: element types that are registered late, views, and entry points."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.tracing import traced
from tests.unit.io.reading.counted import Counted, reader_of
from ztensor import LogicalType, register_logical_type
from ztensor.ext import (
    Component,
    Encoding,
    FileObjects,
    Manifest,
    ObjectReader,
    Stored,
    TensorObject,
    source_of,
)
from ztensor.limits import Limits
from ztensor.numpy import save, save_file
from ztensor.spec.encoding.raw import Raw
from ztensor.testing.builder import draft


def test_types_of_a_file_that_nobody_knows_are_not_kept() -> None:
    made = draft("1.2.0")
    for number in range(500):
        fields = {"dtype": "i32", "type": f"{number}".ljust(4000, "x")}
        made.add(f"odd{number}", [2], {"data": (fields, bytes(8))})
    data = made.to_bytes()

    def slice_all() -> None:
        with ztensor.open(data) as reader:
            for name in reader:
                if name.startswith("odd"):
                    assert reader.get_slice(name)[1:].tolist() == [0]

    gc.collect()
    with traced() as memory:
        slice_all()
        gc.collect()
        assert memory()[0] < 500_000


W = np.arange(24, dtype=np.float32).reshape(4, 3, 2)


@pytest.mark.parametrize(
    ("key", "is_view"),
    [
        (..., True),
        ((..., 0), True),
        ((1, 2, 0, ...), True),
        ((None, slice(1, 3)), True),
        ((slice(None), None, 1), True),
        (2, True),
        ([0, 1], False),
        ((slice(None), [0, 2]), False),
    ],
    ids=str,
)
def test_a_part_is_a_view_of_the_file_where_numpy_gives_one(
    tmp_path: Path, key: Any, is_view: bool
) -> None:
    save_file({"w": W}, tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        whole, part = reader["w"], reader.get_slice("w")[key]
        assert np.array_equal(part, W[key])
        assert np.shares_memory(part, whole) is is_view


class Unmapped(Counted):
    """Counts the bytes that are read, and is not mapped."""

    def view(self) -> memoryview | None:
        return None


@pytest.mark.usefixtures("registry")
def test_of_elements_of_two_numbers_those_that_are_wanted_are_read() -> None:
    register_logical_type(LogicalType("my_pair", "f32", "complex64", storage_per_element=2))
    value = (np.arange(60_000).reshape(50, 1200) * (1 + 2j)).astype(np.complex64)
    made = draft("1.2.0")
    made.add("w", [50, 1200], {"data": ({"dtype": "f32", "type": "my_pair"}, value.tobytes())})
    source = Unmapped(made.to_bytes())
    reader = reader_of(source)
    for key, rows in ((3, 1), (slice(7, 31), 24), ([49, 0], 2)):
        source.count = 0
        assert np.array_equal(reader.get_slice("w")[key], value[key])
        assert source.count == rows * 1200 * 8


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("length", [3, 4, 5])
def test_a_part_as_long_as_another_axis_is_not_the_whole_axis(axis: int, length: int) -> None:
    value = np.arange(216).reshape(6, 6, 6)[:4, :5, :]
    source = Unmapped(save({"w": value}))
    reader = reader_of(source)
    for first in (slice(0, length), slice(None)):
        key = [first] * 3
        key[axis] = slice(0, length)
        assert np.array_equal(reader.get_slice("w")[tuple(key)], value[tuple(key)])


class Boxes(Raw):
    """An encoding that reads any box of an array, and never the whole."""

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Any
    ) -> bool:
        first, second = (slice(at, at + size) for at, size in zip(offsets, sizes, strict=True))
        target[...] = np.arange(stored.length, dtype=np.uint8).reshape(5, 20)[first, second]
        return True


def test_where_an_encoding_reads_boxes_no_more_is_read() -> None:
    part = Component("u8", 0, 100, None, "boxes", decoded_length=100)
    objects = {"w": TensorObject((5, 20), "dense", {"data": part})}
    encodings: dict[str, Any] = {"boxes": Boxes()}
    file = FileObjects(
        source_of(bytes(100), mapped=True), Manifest("", objects, None), encodings=encodings
    )
    found = ObjectReader(file).get_slice("w")[2:4, 5:9]
    assert found.tolist() == [[45, 46, 47, 48], [65, 66, 67, 68]]


class Streamed(Encoding):
    """An encoding of ascending numbers, which only streams, in chunks of three million bytes."""

    name = "streamed"

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        raise AssertionError("it decodes the whole")

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        assert expected_length is not None
        for start in range(0, expected_length, 3_000_000):
            stop = min(start + 3_000_000, expected_length)
            yield np.arange(start // 4, stop // 4, dtype=np.uint32).view(np.uint8).data


@pytest.mark.parametrize(
    "key",
    [slice(7, 9), slice(749_998, 750_003), slice(None, None, 749_999), [0, 749_999, 17_999_999]],
    ids=str,
)
def test_a_long_component_of_another_format_is_streamed(key: Any) -> None:
    count = 18_000_000  # more bytes than are kept decoded
    part = Component("u32", 0, 8, None, "streamed", decoded_length=4 * count)
    objects = {"w": TensorObject((count,), "dense", {"data": part})}
    encodings: dict[str, Any] = {"streamed": Streamed()}
    file = FileObjects(
        source_of(bytes(8), mapped=True), Manifest("", objects, None), encodings=encodings
    )
    found = ObjectReader(file).get_slice("w")[key]
    assert np.array_equal(found, np.arange(count, dtype=np.uint32)[key])
