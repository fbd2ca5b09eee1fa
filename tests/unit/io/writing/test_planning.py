"""What is planned before a byte is written: sizes, indices, and what no version holds."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor import Tensor
from ztensor.errors import ArgumentValueError, LayoutError, NotRepresentableError, Reason
from ztensor.io.writing.planning import plan_of, with_indices
from ztensor.numpy import load

FOUR = np.arange(4, dtype=np.uint8)


def test_an_unknown_logical_type_may_pack_its_elements() -> None:
    """Nobody knows how many are in a byte: so any shape is written, and read back."""
    tensor = Tensor({"data": FOUR}, shape=(8,), type="unheard of")
    plan, _ = plan_of(tensor, None)
    assert (plan.shape, plan.components["data"].type) == ((8,), "unheard of")
    target = io.BytesIO()
    with ztensor.Writer(target) as writer:
        writer.write("w", tensor)
    with ztensor.open(target.getvalue()) as reader:
        assert reader.metadata("w").shape == (8,)
        assert reader.read("w").components["data"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("tensor", "is_right"),
    [
        (Tensor({"data": FOUR}, shape=(2, 2)), True),
        (Tensor({"data": FOUR}, shape=(5,)), False),
        (Tensor({"data": FOUR}, shape=(3,)), False),
        (Tensor({"data": FOUR}, shape=(5,), format="ours"), True),
        (Tensor({"data": FOUR, "more": np.ones(9)}, shape=(4,)), True),
    ],
)
def test_dense_data_has_the_elements_of_the_shape(tensor: Tensor, is_right: bool) -> None:
    if is_right:
        plan_of(tensor, None)
        return
    with refused(LayoutError, Reason.SIZE_MISMATCH):
        plan_of(tensor, None)


def test_only_a_dense_shape_tells_which_values_of_a_byte_are_real() -> None:
    odd = np.ones(3).astype(ml_dtypes.float4_e2m1fn)
    plan_of(Tensor(odd), None)
    for tensor in (
        Tensor({"data": odd}, shape=(3,), format="ours"),
        Tensor({"data": np.ones(3), "more": odd}, shape=(3,)),
    ):
        with pytest.raises(NotRepresentableError):
            plan_of(tensor, None)


def test_a_tensor_has_a_component() -> None:
    with pytest.raises((ArgumentValueError, LayoutError)):
        plan_of(Tensor({}, shape=(0,), format="sparse_coo"), None)


def csr(dtype: Any, first: int = 0) -> Tensor:
    arrays = {
        "indptr": np.array([0, 1, 2]).astype(dtype),
        "indices": np.array([first, 1]).astype(dtype),
        "values": np.ones(2, np.float32),
    }
    return Tensor(arrays, shape=(2, 3), format="sparse_csr")


@pytest.mark.parametrize("dtype", ["int32", "uint64", "int64", "uint8"])
@pytest.mark.parametrize("types", [("u64",), ("u64", "i64"), ("u64", "i32", "i64", "u32")])
def test_indices_stay_where_the_file_may_have_their_type(
    dtype: str, types: tuple[str, ...]
) -> None:
    tensor = csr(dtype)
    found = with_indices(tensor, types)
    known = {"uint64": "u64", "int64": "i64", "int32": "i32"}.get(dtype) in types
    for role in ("indptr", "indices"):
        assert found.components[role].dtype == (dtype if known else "uint64")
        assert found.components[role].tolist() == tensor.components[role].tolist()
    assert (found is tensor) is known


@pytest.mark.parametrize(
    ("tensor", "reason"),
    [(csr(np.int32, -1), Reason.INDEX_RANGE), (csr(np.float64), Reason.INDEX_DTYPE)],
)
def test_indices_are_integers_and_not_negative(tensor: Tensor, reason: Reason) -> None:
    with refused(LayoutError, reason) as caught:
        with_indices(tensor, ("u64",))
    assert caught.value.component in ("indices", "indptr")


def test_indices_of_two_types_become_one() -> None:
    arrays = dict(csr(np.int64).components)
    arrays["indptr"] = arrays["indptr"].astype(np.int32)
    mixed = Tensor(arrays, shape=(2, 3), format="sparse_csr")
    found = with_indices(mixed, ("u64", "i32", "i64"))
    assert {found.components[role].dtype.name for role in ("indptr", "indices")} == {"uint64"}
    loaded: Any = load(ztensor.numpy.save({"w": mixed}))["w"]
    assert np.array_equal(loaded.to_dense(), [[1, 0, 0], [0, 1, 0]])
