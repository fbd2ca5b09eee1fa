from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor import Tensor
from ztensor.errors import LayoutError, Reason, UnsupportedError
from ztensor.ext import LAYOUTS, View

LAYOUT = LAYOUTS["quantized_group"]


@pytest.fixture(scope="module")
def quantized() -> tuple[np.ndarray[Any, Any], View]:
    weights = np.linspace(-1, 1, 64 * 8, dtype=np.float32).reshape(64, 8)
    tensor = Tensor.quantize(weights, bits=4, group_size=16)
    components, attributes = tensor.components, tensor.attributes
    return weights, View((64, 8), components, attributes)


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
