from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from ztensor.buffers import empty_array, zeros_array
from ztensor.errors import LayoutError, LimitError, Reason
from ztensor.spec.layout import LAYOUTS, View
from ztensor.spec.layout.dense import Dense
from ztensor.spec.model.manifest import Component, TensorObject

DENSE = Dense()


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
        ((0,), raw("f32", 0), 0),
        ((2, 3), raw("f32", 24), 24),
        ((2, 3), raw("bool", 6), 6),
        ((2, 3), raw("u8", 6, "f8_e5m2"), 6),
        ((2, 3), raw("f32", 48, "complex64"), 48),
        ((2, 3), raw("f64", 96, "complex128"), 96),
        ((), raw("u8", 1, "f4_e2m1"), 1),
        ((3,), raw("u8", 2, "f4_e2m1"), 2),
        ((3, 3), raw("u8", 5, "f4_e2m1"), 5),
        ((2, 3), zstd("f32", None), 24),
        ((2, 3), zstd("f32", 24), 24),
        ((2**40, 0), raw("f32", 0), 0),
        ((5,), raw("odd", 7), 7),  # unknown: the manifest alone tells
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
        ((), raw("f32", 0)),
        ((2, 3), raw("f32", 20)),
        ((2, 3), raw("f32", 28)),
        ((2, 3), raw("f32", 23)),
        ((2, 3), raw("f32", 24, "complex64")),
        ((3,), raw("u8", 3, "f4_e2m1")),
        ((2**64 - 1, 2**64 - 1), raw("u8", 1)),
        ((2, 3), zstd("f32", 20)),
        ((2, 3), raw("f32", 24, decoded_length=20)),
    ],
    ids=str,
)
def test_another_size_is_seen_in_the_manifest(shape: tuple[int, ...], component: Component) -> None:
    problems = DENSE.check_object(obj(shape, component))
    assert [problem.reason for problem in problems] == [Reason.SIZE_MISMATCH]
    assert problems[0].component == "data"
    assert str(problems[0]).isascii()


def test_the_data_must_be_there() -> None:
    (problem,) = DENSE.check_object(obj((1,), values=raw("u8", 1)))
    assert (problem.reason, problem.component) == (Reason.COMPONENT_MISSING, "data")


def test_other_components_are_kept_and_checked_for_whole_elements() -> None:
    assert DENSE.check_object(obj((1,), raw("u8", 1), scale=raw("f32", 12))) == []
    (problem,) = DENSE.check_object(obj((1,), raw("u8", 1), scale=raw("f32", 13)))
    assert (problem.reason, problem.component) == (Reason.SIZE_MISMATCH, "scale")
    assert DENSE.expected_length(obj((1,), raw("u8", 1), scale=raw("f32", 12)), "scale") == 12


def view(shape: tuple[int, ...], data: Any) -> View:
    return View(shape, {"data": np.asarray(data)}, {})


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)], ids=str)
def test_one_element_in_any_shape(shape: tuple[int, ...]) -> None:
    array = DENSE.to_dense(view(shape, [7]))
    assert isinstance(array, np.ndarray)
    assert (array.shape, array.reshape(-1).tolist()) == (shape, [7])


def test_it_is_a_view() -> None:
    data = np.arange(6)
    assert np.shares_memory(DENSE.to_dense(view((2, 3), data)), data)
    fitting = data.reshape(2, 3)
    assert DENSE.to_dense(view((2, 3), fitting)) is fitting


def test_the_padding_of_packed_elements_is_no_element() -> None:
    data = np.zeros(4, ml_dtypes.float4_e2m1fn)
    assert DENSE.to_dense(view((3,), data)).shape == (3,)
    for count in (2, 5):
        with pytest.raises(LayoutError):
            DENSE.to_dense(view((count,), data))


@pytest.mark.parametrize(
    ("shape", "data", "reason"),
    [((3,), [1, 2], Reason.SIZE_MISMATCH), ((), [], Reason.SIZE_MISMATCH)],
)
def test_elements_that_do_not_fill_the_shape(
    shape: tuple[int, ...], data: list[int], reason: Reason
) -> None:
    with refused(LayoutError, reason):
        DENSE.to_dense(view(shape, data))


def test_no_data() -> None:
    with refused(LayoutError, Reason.COMPONENT_MISSING):
        DENSE.to_dense(View((1,), {"values": np.zeros(1)}, {}))


@pytest.mark.parametrize("make", [empty_array, zeros_array])
@pytest.mark.parametrize("shape", [(2**62,), (2**63, 0), (2**40, 2**40)], ids=str)
def test_memory_nobody_has_is_an_error_of_ours(make: Any, shape: tuple[int, ...]) -> None:
    with refused(LimitError, Reason.LIMIT_DECODED):
        make(shape, np.dtype(np.float64))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [((1,) * 65, Reason.LIMIT_RANK), ((0, 2**63), Reason.LIMIT_DECODED)],
    ids=["rank", "a dimension beyond 63 bits"],
)
def test_what_numpy_cannot_hold(shape: tuple[int, ...], reason: Reason) -> None:
    data = np.zeros(1 if 0 not in shape else 0)
    with refused(LimitError, reason):
        DENSE.to_dense(View(shape, {"data": data}, {}))


def test_an_array_has_as_many_dimensions_as_numpy_holds() -> None:
    most = 64 if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else 32
    data = np.arange(1.0)
    assert LAYOUTS["dense"].to_dense(View((1,) * most, {"data": data}, {})).ndim == most
    with refused(LimitError, Reason.LIMIT_RANK):
        LAYOUTS["dense"].to_dense(View((1,) * 65, {"data": data}, {}))
