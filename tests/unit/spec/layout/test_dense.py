from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import LayoutError, LimitError, Reason
from ztensor.ext import LAYOUTS, Component, TensorObject, View, empty_array

DENSE: Any = LAYOUTS["dense"]


def obj(shape: tuple[int, ...], data: Component | None = None, **more: Component) -> TensorObject:
    return TensorObject(shape, "dense", {**({} if data is None else {"data": data}), **more})


def raw(dtype: str, length: int, type: str | None = None, **more: Any) -> Component:
    return Component(dtype, 64, length, type, **more)


def zstd(dtype: str, decoded: int | None, type: str | None = None) -> Component:
    return Component(dtype, 64, 17, type, "zstd", None, decoded)


@pytest.mark.parametrize(
    ("shape", "component", "expected"),
    [
        ((), raw("f32", 4), 4),
        ((2, 3), raw("f32", 48, "complex64"), 48),
        ((), raw("u8", 1, "f4_e2m1"), 1),
        ((3, 3), raw("u8", 5, "f4_e2m1"), 5),
        ((2, 3), zstd("f32", None), 24),
        ((5,), raw("odd", 7), 7),  # an unknown type: as the manifest says
        ((5,), zstd("odd", 9), 9),
        ((5,), zstd("odd", None), None),
        ((5,), raw("u8", 7, "unheard of"), 7),
        ((5,), raw("i16", 8, "f8_e5m2"), 8),  # refused when it is read
    ],
    ids=str,
)
def test_the_size_equation(
    shape: tuple[int, ...], component: Component, expected: int | None
) -> None:
    tensor_object = obj(shape, component)
    assert DENSE.expected_length(tensor_object, "data") == expected
    assert DENSE.check_object(tensor_object) == []


@pytest.mark.parametrize(
    ("shape", "component"),
    [
        ((), raw("f32", 8)),
        ((2, 3), raw("f32", 28)),
        ((3,), raw("u8", 3, "f4_e2m1")),
        ((2**64 - 1, 2**64 - 1), raw("u8", 1)),
        ((2, 3), zstd("f32", 20)),
        ((2, 3), raw("f32", 24, decoded_length=20)),
    ],
    ids=str,
)
def test_a_wrong_size_is_a_problem(shape: tuple[int, ...], component: Component) -> None:
    problems = DENSE.check_object(obj(shape, component))
    assert [problem.reason for problem in problems] == [Reason.SIZE_MISMATCH]
    assert problems[0].component == "data"
    assert str(problems[0]).isascii()


def test_other_components_are_checked_for_whole_elements() -> None:
    assert DENSE.check_object(obj((1,), raw("u8", 1), scale=raw("f32", 12))) == []
    (problem,) = DENSE.check_object(obj((1,), raw("u8", 1), scale=raw("f32", 13)))
    assert (problem.reason, problem.component) == (Reason.SIZE_MISMATCH, "scale")
    assert DENSE.expected_length(obj((1,), raw("u8", 1), scale=raw("f32", 12)), "scale") == 12


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
