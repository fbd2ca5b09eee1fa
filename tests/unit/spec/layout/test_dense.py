from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import LayoutError, LimitError, Reason
from ztensor.ext import LAYOUTS, View, empty_array

DENSE: Any = LAYOUTS["dense"]


def view(shape: tuple[int, ...], data: Any) -> View:
    return View(shape, {"data": np.asarray(data)}, {})


def test_padding_of_packed_elements_is_not_an_element() -> None:
    data = np.zeros(4, ml_dtypes.float4_e2m1fn)
    assert DENSE.to_dense(view((3,), data)).shape == (3,)
    for count in (2, 5):
        with pytest.raises(LayoutError):
            DENSE.to_dense(view((count,), data))


@pytest.mark.parametrize("shape", [(2**62,), (2**63, 0), (2**40, 2**40)], ids=str)
def test_an_array_that_does_not_fit_into_memory_is_refused(shape: tuple[int, ...]) -> None:
    with refused(LimitError, Reason.LIMIT_DECODED):
        empty_array(shape, np.dtype(np.float64))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
def test_the_dense_value_is_a_view(shape: tuple[int, ...]) -> None:
    data = np.array([7])
    array = DENSE.to_dense(view(shape, data))
    assert (array.shape, array.reshape(-1).tolist()) == (shape, [7])
    assert np.shares_memory(array, data)


MOST_RANK = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32


@pytest.mark.parametrize(
    ("shape", "arrays", "kind", "reason"),
    [
        ((3,), {"data": np.ones(2)}, LayoutError, Reason.SIZE_MISMATCH),
        ((), {"data": np.ones(0)}, LayoutError, Reason.SIZE_MISMATCH),
        ((1,), {"values": np.ones(1)}, LayoutError, Reason.COMPONENT_MISSING),
        ((1,) * MOST_RANK, {"data": np.ones(1)}, None, None),
        ((1,) * 65, {"data": np.ones(1)}, LimitError, Reason.LIMIT_RANK),
        ((0, 2**63), {"data": np.ones(0)}, LimitError, Reason.LIMIT_DECODED),
    ],
    ids=["few elements", "no elements", "no data", "most dimensions", "rank", "dimension"],
)
def test_arrays_that_do_not_make_a_dense_value(
    shape: tuple[int, ...],
    arrays: dict[str, Any],
    kind: type[LayoutError | LimitError] | None,
    reason: Reason | None,
) -> None:
    if kind is None:
        assert DENSE.to_dense(View(shape, arrays, {})).shape == shape
        return
    with refused(kind, reason):
        DENSE.to_dense(View(shape, arrays, {}))
