"""Objects as rows of a table are those that were put in."""

from __future__ import annotations

import numpy as np

from ztensor.model.manifest import Component, TensorObject
from ztensor.model.table import Table


def test_a_row_is_its_kind_at_its_own_place_with_its_own_digest() -> None:
    kinds = [
        TensorObject((2,), "dense", {"data": Component("u8", 0, 2, digest="crc32c:0x00000000")}),
        TensorObject((2, 1), "dense", {"data": Component("f32", 0, 9, "complex64", "zstd")}),
    ]
    numbers = np.array([64, 128, 192], np.int64)
    lengths = np.array([2, 7, 2], np.int64)
    text = b"crc32c:0x0A1B2C3D crc32c:0xABCDEF09"
    digests = np.array([0, 0, 18], np.int64)
    table = Table(["a", "b", "c"], kinds, np.array([0, 1, 0]), numbers, lengths, digests, text)
    assert [table.object(row) for row in range(len(table))] == [
        TensorObject((2,), "dense", {"data": Component("u8", 64, 2, digest="crc32c:0x0A1B2C3D")}),
        TensorObject((2, 1), "dense", {"data": Component("f32", 128, 7, "complex64", "zstd")}),
        TensorObject((2,), "dense", {"data": Component("u8", 192, 2, digest="crc32c:0xABCDEF09")}),
    ]
    assert table.is_raw().tolist() == [True, False, True]


def test_raw_objects_need_types_and_shapes_alone() -> None:
    numbers = np.array([64, 128], np.int64)
    table = Table.of_raw(["a", "b"], [(("f32", None), (2,))], [0, 0], numbers, numbers // 8)
    assert table.object(1) == TensorObject((2,), "dense", {"data": Component("f32", 128, 16)})
