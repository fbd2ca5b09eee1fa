"""Rows of objects that are not dense: which can be selected, and what says that they can not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor.errors import LayoutError, Problem
from ztensor.ext import LAYOUTS, Layout, Rows, TensorObject, View
from ztensor.numpy import save
from ztensor.spec.layout.base import Indices, Part, check_components
from ztensor.testing.builder import draft, stored, zstd_frame
from ztensor.typing import Array


@pytest.mark.parametrize("key", [slice(1, None), [1, 0], [-1]], ids=str)
@pytest.mark.parametrize("order", [("indices", "values"), ("values", "indices")])
def test_the_last_pointer_is_compared_with_either_count(order: tuple[str, str], key: Any) -> None:
    """One of both is compressed, without a decoded length."""
    made = draft("1.1.0")
    numbers = {"indices": ("u64", (0, 2, 2)), "values": ("f32", (0.5, 2, -1))}
    packed = order[0]
    dtype, some = numbers[packed]
    made.objects["rows"]["components"][packed] = {"dtype": dtype, "encoding": "zstd"}
    made.blobs["rows", packed] = zstd_frame(stored(dtype, *some))
    with ztensor.open(made.to_bytes()) as reader:
        found: Any = reader.get_slice("rows")[key]
        assert found.components["values"].tolist()[0] == -1
    made.objects["rows"]["components"]["indptr"].pop("digest", None)
    made.blobs["rows", "indptr"] = stored("u64", 0, 2, 2)
    with ztensor.open(made.to_bytes()) as reader, pytest.raises(LayoutError) as caught:
        reader.get_slice("rows")[key]
    assert (caught.value.component, caught.value.found) == ("indptr", "2")


@pytest.mark.wing
@pytest.mark.parametrize(("has_zeros", "unit"), [(False, 1), (True, 4)])
def test_rows_are_cut_where_words_of_zeros_end(has_zeros: bool, unit: int) -> None:
    """A row has two words of codes; four rows have one word of zeros."""
    scheme: dict[str, Any] = {
        "axis": 1,
        "bits": 4,
        "group_size": 8,
        "packing": {"word": "u16", "order": "lsb_first", "per_word": 4},
        "scale_form": "f32_factors",
        "zero_point": {"form": "none"},
    }
    parts: dict[str, Any] = {"data": np.arange(16, dtype=np.uint16)}
    parts["scales"] = np.arange(1, 9, dtype=np.float32)
    if has_zeros:
        scheme["zero_point"] = {"form": "tensor", "packing": "same_as_data"}
        parts["zeros"] = np.array([0x1234, 0x5678], np.uint16)
    tensor = Tensor(parts, shape=(8, 8), format="zt.quant_group/1", attributes=scheme)
    expected = tensor.dequantize()
    with ztensor.open(save({"w": tensor}, version="2.1")) as reader:
        part: Any = reader.get_slice("w")
        assert part.row_unit == unit
        for start in range(0, 8, unit):
            rows = slice(start, start + unit)
            assert np.array_equal(part[rows].dequantize(), expected[rows])


@pytest.mark.wing
def test_rows_of_groups_with_unknown_decoded_lengths() -> None:
    """A file of 1.1 may have a layout of 2.x; compressed components have no decoded length."""
    made = draft("1.1.0")
    scheme = {
        "axis": 1,
        "bits": 8,
        "group_size": 2,
        "packing": {"word": "u8", "order": "lsb_first", "per_word": 1},
        "scale_form": "f32_factors",
        "zero_point": {"form": "none"},
    }
    parts = {
        "data": ({"dtype": "u8", "encoding": "zstd"}, zstd_frame(bytes(range(8)))),
        "scales": ({"dtype": "f32", "encoding": "zstd"}, zstd_frame(stored("f32", 1, 2, 3, 4))),
    }
    made.add("w", [4, 2], parts, format="zt.quant_group/1", attributes=scheme)
    with ztensor.open(made.to_bytes()) as reader:
        expected = reader.read("w").dequantize()
        part: Any = reader.get_slice("w")
        assert np.array_equal(part[1:3].dequantize(), expected[1:3])


class Steps(Layout):
    """A layout of another package, which says where its rows are: each begins at its number."""

    name = "steps"
    main_role = "data"
    read_order = ("data",)

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        return check_components(tensor_object, self.read_order, "ours")

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        return None

    def require_valid(self, view: View) -> None:
        """Accept any."""

    def to_dense(self, view: View) -> Array:
        rows, columns = view.shape
        return np.stack([view.arrays["data"][row : row + columns] for row in range(rows)])

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        return StepRows(tensor_object, part)


class StepRows(Rows):
    def cut(self, rows: Indices) -> dict[str, Array]:
        length, width = self.shape
        return {"data": self.part("data", (length + width - 1,))[rows[0] : rows[-1] + width]}


@pytest.fixture
def steps() -> Iterator[None]:
    LAYOUTS["steps"] = Steps()
    yield
    del LAYOUTS["steps"]


@pytest.mark.usefixtures("steps")
def test_a_layout_says_where_its_rows_are() -> None:
    tensor = Tensor({"data": np.arange(8)}, shape=(6, 3), format="steps")
    expected = tensor.to_dense()
    with ztensor.open(save({"w": tensor}, compression=True)) as reader:
        part: Any = reader.get_slice("w")
        assert part[2:4].components["data"].tolist() == [2, 3, 4, 5]
        assert np.array_equal(part[2:4].to_dense(), expected[2:4])
