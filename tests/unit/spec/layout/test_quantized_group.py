from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor import Tensor
from ztensor.errors import LayoutError, Reason, UnsupportedError
from ztensor.ext import LAYOUTS, Component, TensorObject, View

LAYOUT = LAYOUTS["quantized_group"]


def obj(**changes: Component | None) -> TensorObject:
    parts = {
        "packed_weight": Component("i32", 64, 64),
        "scales": Component("f16", 128, 8),
        "zeros": Component("f16", 192, 8),
        **changes,
    }
    given = {role: part for role, part in parts.items() if part is not None}
    return TensorObject((128, 4), "quantized_group", given, {"bits": 4})


@pytest.mark.parametrize(
    ("tensor_object", "reasons"),
    [
        (obj(), []),
        (obj(g_idx=Component("i32", 256, 512)), []),
        (obj(scales=Component("f16", 128, 99, encoding="zstd")), []),
        (obj(zeros=None), [Reason.COMPONENT_MISSING]),
        (obj(zeros=None, packed_weight=None), [Reason.COMPONENT_MISSING] * 2),
        (obj(scales=Component("f16", 128, 7)), [Reason.SIZE_MISMATCH]),
    ],
    ids=["plain", "more", "compressed", "one missing", "two missing", "half an element"],
)
def test_problems_of_an_object(tensor_object: TensorObject, reasons: list[Reason]) -> None:
    """Only the roles: no equation relates the components to the shape."""
    assert [problem.reason for problem in LAYOUT.check_object(tensor_object)] == reasons


@pytest.fixture(scope="module")
def quantized() -> tuple[np.ndarray[Any, Any], View]:
    weights = np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(64, 8)
    tensor = Tensor.quantize(weights, bits=4, group_size=16)
    components, attributes = tensor.components, tensor.attributes
    return weights, View((64, 8), components, attributes)


@pytest.mark.wing
def test_the_dense_value_is_near_the_original(
    quantized: tuple[np.ndarray[Any, Any], View],
) -> None:
    weights, view = quantized
    dense = LAYOUT.to_dense(view)
    assert dense.shape == (64, 8)
    assert dense.dtype == np.float32
    assert np.abs(dense - weights).max() < 0.04


@pytest.mark.wing
def test_all_three_parts_are_needed(quantized: tuple[np.ndarray[Any, Any], View]) -> None:
    _, view = quantized
    for missing in LAYOUT.read_order:
        arrays = {role: array for role, array in view.arrays.items() if role != missing}
        with refused(LayoutError, Reason.COMPONENT_MISSING):
            LAYOUT.to_dense(View(view.shape, arrays, view.attributes))


@pytest.mark.wing
def test_parts_that_do_not_fit_the_shape(quantized: tuple[np.ndarray[Any, Any], View]) -> None:
    _, view = quantized
    with pytest.raises(LayoutError):
        LAYOUT.to_dense(View((64, 9), view.arrays, view.attributes))


@pytest.mark.parametrize("attributes", [{}, {"bits": 4, "packing": "by moonlight"}], ids=str)
@pytest.mark.wing
def test_an_unknown_scheme_is_refused(
    quantized: tuple[np.ndarray[Any, Any], View], attributes: dict[str, Any]
) -> None:
    _, view = quantized
    with pytest.raises((LayoutError, UnsupportedError)):
        LAYOUT.to_dense(View(view.shape, view.arrays, attributes))
