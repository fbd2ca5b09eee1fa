"""Parts of a component: what its elements are is looked up where that may have changed."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

import ztensor
from ztensor.model.dtype import LogicalType, register_logical_type
from ztensor.testing.builder import draft

if TYPE_CHECKING:
    pass


@pytest.mark.usefixtures("registry")
def test_a_type_that_is_registered_later_is_known_then() -> None:
    made = draft("1.2.0")
    made.component("matrix")["type"] = "my_bits"
    with ztensor.open(made.to_bytes()) as reader:
        before = reader.get_slice("matrix")
        assert before.dtype == reader["matrix"].dtype == "int32"
        assert before[:1].dtype == "int32"
    register_logical_type(LogicalType("my_bits", "i32", "uint32"))
    with ztensor.open(made.to_bytes()) as reader:
        after = reader.get_slice("matrix")
        assert after.dtype == reader["matrix"].dtype == "uint32"
        assert after[:1].tobytes() == reader["matrix"][:1].tobytes()


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
    tracemalloc.start()
    try:
        slice_all()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()
