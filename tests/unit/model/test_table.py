"""Objects as rows of a table are those that were put in."""

from __future__ import annotations

import dataclasses

import numpy as np

from ztensor.model.manifest import Component, TensorObject
from ztensor.model.table import Table


def test_a_row_says_how_long_it_is_decoded_where_the_file_does() -> None:
    numbers = np.array([64, 128, 192], np.int64)
    kinds = [(("u8", None), (0,)), (("f32", "complex64"), (2, 1))]
    plain = Table.of_raw(["a", "b", "c"], kinds, [0, 1, 0], numbers, numbers)
    table = dataclasses.replace(
        plain, is_raw=np.array([True, False, False]), decoded_lengths=np.array([-1, 16, 0])
    )
    assert [table.object(row) for row in range(3)] == [
        TensorObject((0,), "dense", {"data": Component("u8", 64, 64)}),
        TensorObject(
            (2, 1),
            "dense",
            {"data": Component("f32", 128, 128, "complex64", "zstd", decoded_length=16)},
        ),
        TensorObject(
            (0,), "dense", {"data": Component("u8", 192, 192, None, "zstd", decoded_length=0)}
        ),
    ]
