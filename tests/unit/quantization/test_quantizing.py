"""`Tensor.quantize` without a recipe: each element comes back within half a step of its group."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from tests.refusals import refused
from tests.unit.quantization.groups import assert_within_half_a_step, restore
from tests.unit.quantization.test_groups import AXES, ORDERS, PLAUSIBLE
from ztensor import Tensor
from ztensor.errors import ArgumentValueError, NotRepresentableError, Reason

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "quantized.md"
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("pack_axis", "group_axis"), AXES)
@pytest.mark.parametrize("bits", range(1, 9))
def test_round_trip_within_half_a_step(
    bits: int, pack_axis: int, group_axis: int, signed: bool, symmetric: bool, zeros: str
) -> None:
    array = np.random.default_rng(bits).standard_normal((45, 37)).astype(np.float32)
    tensor = Tensor.quantize(
        array,
        bits=bits,
        group_size=16,
        pack_axis=pack_axis,
        group_axis=group_axis,
        signed=signed,
        symmetric=symmetric,
        zeros=zeros,
        zero_offset=0 if zeros == "float" else 1,
    )
    assert all(component.ndim == 1 for component in tensor.components.values())
    assert_within_half_a_step(array, tensor.components, tensor.attributes)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("bits", "packing"), [(4, "8_per_u32"), (8, "1_per_u8"), (3, "10_per_i32"), (3, "2_per_u8")]
)
def test_round_trip_of_every_order(bits: int, packing: str, order: str) -> None:
    array = np.random.default_rng(0).standard_normal((21, 30))
    tensor = Tensor.quantize(
        array, bits=bits, packing=packing, order=order, group_size=8, zeros="packed"
    )
    assert tensor.attributes["packing"] == packing
    assert_within_half_a_step(array, tensor.components, tensor.attributes)


@given(
    seed=st.integers(0, 2**32),
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    options=st.fixed_dictionaries(
        {
            "bits": st.integers(1, 8),
            "group_size": st.integers(1, 14) | st.just(-1),
            "pack_axis": st.integers(0, 1),
            "group_axis": st.integers(0, 1),
            "scale_dtype": st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
            "symmetric": st.booleans(),
        }
    ),
    exponent=st.integers(-30, 30),
    shift=st.sampled_from([-1000.0, -1.0, 0.0, 0.5, 1000.0]),
    dtype=st.sampled_from(["float16", "float32", "float64", "bfloat16", "int8", "int32", "uint64"]),
)
@settings(max_examples=examples(200), deadline=None)
def test_round_trip_of_anything(
    seed: int, shape: tuple[int, ...], options: Any, exponent: int, shift: float, dtype: str
) -> None:
    values = (np.random.default_rng(seed).standard_normal(shape) + shift) * 2.0**exponent
    with np.errstate(all="ignore"):
        array = values.astype(getattr(ml_dtypes, dtype, dtype))
    try:
        tensor = Tensor.quantize(array, **options)
    except NotRepresentableError:
        largest = np.abs(array.astype(np.float64)).max()
        is_large = options["scale_dtype"] == "float16" and largest > 65504 / 2
        assert is_large or not np.isfinite(largest)
        return
    assert tensor.components["scales"].dtype.name == options["scale_dtype"]
    assert_within_half_a_step(array, tensor.components, tensor.attributes)


def test_the_words_of_the_specification_are_the_default() -> None:
    tensor = Tensor.quantize(np.ones((256, 16), np.float32))
    assert tensor.attributes == {"bits": 4, "packing": "8_per_i32", "group_size": 128}
    assert {role: (part.dtype.name, part.shape) for role, part in tensor.components.items()} == {
        "packed_weight": ("int32", (512,)),
        "scales": ("float16", (32,)),
        "zeros": ("float16", (32,)),
    }


@pytest.mark.parametrize(
    ("bits", "packing"),
    [
        (1, "32_per_i32"),
        (2, "16_per_i32"),
        (3, "32_per_3_i32"),
        (5, "32_per_5_i32"),
        (6, "16_per_3_i32"),
        (7, "32_per_7_i32"),
        (8, "4_per_i32"),
    ],
)
def test_words_are_filled_by_default(bits: int, packing: str) -> None:
    assert Tensor.quantize(np.ones((2, 2)), bits=bits).attributes["packing"] == packing


def test_attributes_that_differ_from_their_defaults_are_written() -> None:
    options: dict[str, Any] = {
        "bits": 4,
        "packing": "8_per_u32",
        "group_size": 32,
        "pack_axis": 1,
        "group_axis": 1,
        "order": "awq",
        "signed": True,
        "zero_offset": 1,
    }
    tensor = Tensor.quantize(np.ones((8, 8)), zeros="integer", **options)
    assert tensor.attributes == {**options, "zeros_packed": False}


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.0, 1e-6, 40000.0])
@pytest.mark.parametrize("symmetric", [False, True])
def test_constant_groups_come_back(value: float, symmetric: bool) -> None:
    array = np.full((20, 2), value, np.float32)
    tensor = Tensor.quantize(array, group_size=8, symmetric=symmetric, scale_dtype="float32")
    tolerance = abs(value) * (1 / 15 + 1e-6 if symmetric else 1e-6)  # a scale is 2 / 15 of it
    np.testing.assert_allclose(tensor.dequantize(), array, atol=tolerance, rtol=0)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_zeros_stay_zeros(symmetric: bool, signed: bool) -> None:
    array = RANDOM.standard_normal((64, 8)).astype(np.float32) + 2
    array[::3] = 0
    tensor = Tensor.quantize(array, symmetric=symmetric, signed=signed)
    assert (tensor.dequantize()[::3] == 0).all()
    if symmetric:  # all zero points are the middle
        assert set(tensor.components["zeros"].tolist()) == {0.0 if signed else 8.0}


def test_zero_points_with_the_first_gptq_offset() -> None:
    array = np.ones((8, 8))
    array[4:] = -1
    options: dict[str, Any] = {"zeros": "packed", "zero_offset": 1, "group_size": -1}
    tensor = Tensor.quantize(array, symmetric=True, **options)
    assert tensor.components["zeros"].tolist() == [0x77777777]
    assert tensor.attributes["zero_offset"] == 1
    below = Tensor.quantize(np.ones((8, 8)), **options).components["zeros"]
    assert below.view(np.uint32).tolist() == [0xFFFFFFFF]  # 0 - 1, modulo 16


def test_words_are_as_documented() -> None:
    parts = Tensor.quantize(np.arange(16, dtype=np.float32)[:, None], group_size=-1).components
    assert parts["packed_weight"].view(np.uint32).tolist() == [0x76543210, 0xFEDCBA98]
    assert parts["scales"].tolist() == [1.0]
    assert parts["zeros"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("value", "most", "dtype", "scale_dtype", "code"),
    [
        (2.5 + 1e-9, 15, "float64", "float32", 3),
        (2.5 + 1e-9, 15, "float32", "float32", 2),
        ((5 << 23) + 1, 15 << 24, "int64", "float32", 3),
        ((5 << 23) + 1, 15 << 24, "int32", "float32", 3),
        ((5 << 23) + 1, 15 << 24, "uint32", "float32", 3),
        (0.7, 7, "float32", "float64", 1),
        (0.7, 7, "float32", "float32", 2),
    ],
)
def test_numbers_are_divided_with_the_digits_they_have(
    value: float, most: float, dtype: str, scale_dtype: str, code: int
) -> None:
    """A little beside the middle of two steps, where float32 sees the middle itself."""
    array = np.array([0, value, most, 0] * 2, dtype)
    tensor = Tensor.quantize(array, bits=4, group_size=-1, scale_dtype=scale_dtype)
    assert tensor.integers().tolist() == [0, code, 15, 0] * 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("group_axis", [0, 1])
def test_nan_and_infinities_are_refused(bad: float, dtype: str, group_axis: int) -> None:
    array = np.zeros((40, 3)).astype(getattr(ml_dtypes, dtype, dtype))
    array[17, 1] = bad
    with refused(NotRepresentableError, Reason.NOT_REPRESENTABLE, match="1 of "):
        Tensor.quantize(array, group_size=16, group_axis=group_axis)


@pytest.mark.parametrize(
    "array",
    [np.ones((2, 2), bool), np.ones((2, 2), complex), np.array([["a"]]), np.float32(1), [None]],
    ids=["bool", "complex", "text", "scalar", "object"],
)
def test_only_arrays_of_numbers_are_quantized(array: Any) -> None:
    with pytest.raises(NotRepresentableError):
        Tensor.quantize(np.asarray(array))


def test_fp8_can_be_quantized() -> None:
    array = np.linspace(-4, 4, 64).astype(ml_dtypes.float8_e4m3fn).reshape(16, 4)
    tensor = Tensor.quantize(array, bits=8, group_size=4)
    assert_within_half_a_step(array.astype(np.float32), tensor.components, tensor.attributes)


@pytest.mark.parametrize(
    ("value", "scale_dtype", "fits"),
    [
        (1e6, "float16", False),
        (1e6, "bfloat16", True),
        (3e38, "float16", False),
        (3e38, "float32", True),
        (1e300, "float32", False),
        (1.7e308, "float64", True),
    ],
)
def test_scales_must_hold_the_values(value: float, scale_dtype: str, fits: bool) -> None:
    array = np.array([[value], [-value], [0.0]])
    if not fits:
        with pytest.raises(NotRepresentableError):
            Tensor.quantize(array, scale_dtype=scale_dtype)
        return
    tensor = Tensor.quantize(array, scale_dtype=scale_dtype)
    parts = {**tensor.components, "scales": tensor.components["scales"] / 4}  # below the largest
    assert_within_half_a_step(array / 4, parts, tensor.attributes)


@pytest.mark.parametrize(
    "arguments",
    [
        {"bits": 0},
        {"bits": 16},
        {"bits": "4"},
        {"group_size": 0},
        {"group_size": 1.5},
        {"packing": "7_per_i32"},
        {"packing": "tight"},
        {"packing": 8},
        {"pack_axis": 2},
        {"group_axis": -1},
        {"order": "zigzag"},
        {"bits": 3, "order": "awq"},
        {"signed": "yes"},
        {"zeros": "none"},
        {"zeros": "packed", "zero_offset": 1000},
        {"zero_offset": 1},
        {"scale_dtype": "int8"},
        {"scale_dtype": "nonsense"},
    ],
    ids=str,
)
def test_arguments_that_cannot_work(arguments: dict[str, Any]) -> None:
    with refused(ArgumentValueError, Reason.ARGUMENT):
        Tensor.quantize(np.ones((8, 8)), **arguments)


def test_the_array_is_left_alone_in_any_memory_layout() -> None:
    base = np.random.default_rng(3).standard_normal((60, 80))
    before = base.copy()
    for array in (base[::2, ::3], base.T, base[:, ::-1], base.astype(">f4")):
        tensor = Tensor.quantize(array, group_size=16)
        straight = Tensor.quantize(np.ascontiguousarray(array), group_size=16)
        for role, component in tensor.components.items():
            np.testing.assert_array_equal(component, straight.components[role])
        assert_within_half_a_step(array, tensor.components, tensor.attributes)
    np.testing.assert_array_equal(base, before)


# --- The page -------------------------------------------------------------------------------


def test_the_example_of_the_page_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # it writes files
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)  # noqa: S102 - our own page
    result = restore(names["components"], names["attributes"], names["array"].shape)
    np.testing.assert_array_equal(result, names["restored"])


@pytest.mark.parametrize("name", PLAUSIBLE)
def test_the_page_lists_every_attribute(name: str) -> None:
    assert f"| `{name}` | " in PAGE.read_text("utf-8")
