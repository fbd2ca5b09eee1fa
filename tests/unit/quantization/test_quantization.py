from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import math
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.extent import examples
from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    LimitError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    ZTensorError,
)
from ztensor.io.tensor import Tensor
from ztensor.quantization.dequantizing import dequantize, integers
from ztensor.quantization.namespace import NumpyNamespace
from ztensor.quantization.scheme import GroupScheme, Packing, require_sizes
from ztensor.spec.model.dtype import STORAGE_TYPES

if TYPE_CHECKING:
    Array = NDArray[Any]

I32 = np.dtype(np.int32)
CORPUS = Path(__file__).parents[2] / "corpus"


def quantize(array: Any, **scheme: Any) -> tuple[Mapping[str, Any], dict[str, Any]]:
    tensor = Tensor.quantize(array, **scheme)
    return tensor.components, dict(tensor.attributes)


def scheme_of(
    attributes: Mapping[str, object], shape: Sequence[int], dtype: np.dtype[Any] = I32
) -> GroupScheme:
    return GroupScheme.from_attributes(attributes, dtype, shape)


def restore(
    components: Mapping[str, Array],
    attributes: Mapping[str, object],
    shape: Sequence[int],
    **k: Any,
) -> Array:
    scheme = scheme_of(attributes, shape, components["packed_weight"].dtype)
    names = ("packed_weight", "scales", "zeros")
    for name in ("codebook", "global_scale"):
        k.setdefault(name, components.get(name))
    array: Array = dequantize(scheme, shape, *(components[name] for name in names), **k)
    return array


# --- The slow formula: Python integers, one element at a time -----------------------------------


ELEMENTS = {"f4_e2m1": ml_dtypes.float4_e2m1fn, "f8_e5m2": ml_dtypes.float8_e5m2}
ORDERS: dict[str, Callable[[int], list[int]]] = {
    "sequential": lambda count: list(range(count)),
    "reversed": lambda count: list(range(count - 1, -1, -1)),
    "awq": lambda count: (
        [i for i in range(count) if i % 2 == 0] + [i for i in range(count) if i % 2 == 1]
    ),
}


def stored_integer(line: list[int], index: int, attributes: Mapping[str, Any]) -> int:
    """Return the unsigned integer number `index` of a line of words."""
    count, *words, container = attributes["packing"].replace("_per", "").split("_")
    in_block = int(words[0]) if words else 1
    width = int(container[1:])
    bits: int = attributes["bits"]
    block, element = divmod(index, int(count))
    run = line[block * in_block : (block + 1) * in_block]
    bits_of_block = sum((word & ((1 << width) - 1)) << (width * i) for i, word in enumerate(run))
    place = ORDERS[attributes.get("order", "sequential")](int(count)).index(element)
    return (bits_of_block >> (place * bits)) & ((1 << bits) - 1)


def with_sign(value: int, attributes: Mapping[str, Any]) -> int:
    bits: int = attributes["bits"]
    if attributes.get("signed") and value >= 2 ** (bits - 1):
        return value - (1 << bits)
    return value


def slow_element(
    row: int,
    column: int,
    shape: tuple[int, int],
    parts: Mapping[str, list[Any]],
    attributes: Mapping[str, Any],
    word_shapes: Mapping[str, tuple[int, ...]],
) -> tuple[float, float, float]:
    """Return what q stands for, zero and scale of one element, from flat components."""

    def line(role: str, axis: int, other: int) -> list[int]:
        rows, columns = word_shapes[role]
        flat = parts[role]
        if axis == 0:
            return [flat[r * columns + other] for r in range(rows)]
        return [flat[other * columns + c] for c in range(columns)]

    pack_axis, group_axis = attributes.get("pack_axis", 0), attributes.get("group_axis", 0)
    place = (row, column)
    q = stored_integer(
        line("packed_weight", pack_axis, place[1 - pack_axis]), place[pack_axis], attributes
    )
    element = attributes.get("element", "integer")
    value: float = with_sign(q, attributes)
    if element == "codebook":
        value = parts["codebook"][q]
    elif element != "integer":
        value = float(np.array(q, np.uint8).view(ELEMENTS[element]))

    size = attributes.get("group_size", -1)
    size = shape[group_axis] if size == -1 else size
    group = parts["g_idx"][place[group_axis]] if "g_idx" in parts else place[group_axis] // size
    groups = -(-shape[group_axis] // size)
    other = place[1 - group_axis]
    at = group * shape[1] + other if group_axis == 0 else other * groups + group
    scale = parts["scales"][at]
    if "global_scale" in parts:
        scale = np.float32(scale) * np.float32(parts["global_scale"][0])
    offset = attributes.get("zero_offset", 0)
    shared = attributes.get("shared_zero", False)
    at = 0 if shared else at
    if isinstance(parts["zeros"][0], float):
        return value, parts["zeros"][at], scale
    if shared or not attributes.get("zeros_packed", True):
        return value, float(parts["zeros"][at] + offset), scale
    stored = stored_integer(line("zeros", 1 - group_axis, group), other, attributes)
    zero = with_sign((stored + offset) % 2 ** attributes["bits"], attributes)
    return value, float(zero), scale


def slow_dequantize(
    components: Mapping[str, Array], attributes: Mapping[str, Any], shape: tuple[int, int]
) -> Array:
    scheme = scheme_of(attributes, shape)
    word_shapes = {
        "packed_weight": scheme.shapes(shape)["packed_weight"],
        "zeros": scheme.shapes(shape, np.dtype("i4"))["zeros"],
    }
    parts = {
        role: (array if array.dtype.kind in "iu" else array.astype(np.float64)).reshape(-1).tolist()
        for role, array in components.items()
    }
    result = np.empty(shape, np.float32)
    with np.errstate(all="ignore"):  # fp8 has NaN and infinities
        for row, column in itertools.product(range(shape[0]), range(shape[1])):
            q, zero, scale = slow_element(row, column, shape, parts, attributes, word_shapes)
            result[row, column] = np.float32(np.float32(q) - np.float32(zero)) * np.float32(scale)
    return result


def random_components(
    rng: np.random.Generator,
    attributes: Mapping[str, Any],
    shape: tuple[int, int],
    *,
    zeros: str = "float",
    scale_dtype: Any = np.float16,
    g_idx: bool = False,
) -> dict[str, Array]:
    """Return components whose every bit is random, unused ones included."""
    scheme = scheme_of(attributes, shape)
    container = np.dtype(STORAGE_TYPES[scheme.packing.container].long_name)

    def words(word_shape: tuple[int, ...]) -> Array:
        raw = rng.integers(0, 256, math.prod(word_shape) * container.itemsize, np.uint8)
        return raw.view(container)

    by_group = math.prod(scheme.shapes(shape)["scales"])
    components = {
        "packed_weight": words(scheme.shapes(shape)["packed_weight"]),
        "scales": rng.standard_normal(by_group).astype(scale_dtype),
    }
    if zeros == "packed":
        components["zeros"] = words(scheme.shapes(shape, np.dtype("i4"))["zeros"])
    elif zeros == "integer":
        components["zeros"] = rng.integers(-200, 200, by_group).astype(np.int16)
    else:
        components["zeros"] = (rng.standard_normal(by_group) * 8).astype(scale_dtype)
    if scheme.shared_zero:
        components["zeros"] = components["zeros"][:1]
    if scheme.element == "codebook":
        components["codebook"] = rng.standard_normal(1 << scheme.bits).astype(scale_dtype)
    if scheme.element != "integer":
        components["global_scale"] = rng.random(1).astype(np.float32)
    if g_idx:
        groups = scheme.shapes(shape)["scales"][scheme.group_axis]
        components["g_idx"] = rng.integers(0, groups, shape[scheme.group_axis]).astype(np.int32)
    return components


def assert_like_the_slow_formula(
    components: Mapping[str, Array], attributes: Mapping[str, Any], shape: tuple[int, int]
) -> None:
    fast = restore(components, attributes, shape, g_idx=components.get("g_idx"))
    assert fast.dtype == np.float32
    assert fast.flags.c_contiguous
    assert fast.shape == shape
    np.testing.assert_array_equal(fast, slow_dequantize(components, attributes, shape))


PACKINGS = [
    (1, "8_per_u8"),
    (1, "64_per_i64"),
    (2, "8_per_u16"),
    (2, "16_per_i32"),
    (3, "2_per_u8"),
    (3, "10_per_i32"),
    (3, "8_per_3_u8"),
    (3, "32_per_3_i32"),
    (3, "64_per_3_u64"),
    (4, "2_per_u8"),
    (4, "2_per_i8"),
    (4, "8_per_i32"),
    (4, "8_per_u32"),
    (4, "16_per_u64"),
    (5, "6_per_i32"),
    (5, "8_per_5_i8"),
    (6, "4_per_3_u8"),
    (6, "16_per_3_i32"),
    (7, "16_per_7_i16"),
    (8, "1_per_u8"),
    (8, "1_per_i8"),
    (8, "4_per_i32"),
]


@pytest.mark.parametrize("g_idx", [False, True], ids=["runs", "g_idx"])
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize("group_axis", [0, 1])
@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize(("bits", "packing"), PACKINGS)
def test_every_packing_axis_and_kind_of_zeros(
    bits: int, packing: str, pack_axis: int, group_axis: int, zeros: str, g_idx: bool
) -> None:
    attributes = {
        "bits": bits,
        "packing": packing,
        "group_size": 5,
        "pack_axis": pack_axis,
        "group_axis": group_axis,
        "zeros_packed": zeros == "packed",
        "zero_offset": 0 if zeros == "float" else 1,
    }
    rng = np.random.default_rng(bits * 100 + len(packing))
    shape = (13, 11)
    components = random_components(rng, attributes, shape, zeros=zeros, g_idx=g_idx)
    assert_like_the_slow_formula(components, attributes, shape)


@pytest.mark.parametrize("offset", [-3, 0, 1, 256])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("order", ["sequential", "reversed", "awq"])
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize(
    ("bits", "packing"), [(4, "8_per_i32"), (8, "4_per_u32"), (8, "1_per_u8"), (3, "10_per_i32")]
)
def test_every_order_sign_and_offset(
    bits: int, packing: str, zeros: str, order: str, signed: bool, offset: int
) -> None:
    attributes = {
        "bits": bits,
        "packing": packing,
        "group_size": 4,
        "pack_axis": 1,
        "order": order,
        "signed": signed,
        "zeros_packed": zeros == "packed",
        "zero_offset": offset,
    }
    rng = np.random.default_rng(offset % 7)
    components = random_components(rng, attributes, (6, 21), zeros=zeros)
    assert_like_the_slow_formula(components, attributes, (6, 21))


@pytest.mark.parametrize(
    ("more", "scale_dtype"),
    [
        *(({"group_size": size, "group_axis": axis}, np.float16)
          for size in (1, 2, 5, 8, 13, 14, 2**70, -1) for axis in (0, 1)),
        *(({"group_size": 4}, dtype) for dtype in (np.float32, np.float64, ml_dtypes.bfloat16)),
        ({"group_size": 4}, ml_dtypes.float8_e4m3fn),
        *(({"bits": 3, "packing": packing, "group_size": 7, "signed": signed}, np.float16)
          for packing in ("32_per_3_i32", "8_per_3_u8") for signed in (False, True)),
    ],
    ids=str,
)  # fmt: skip
def test_any_group_size_type_of_scales_and_integer_across_words(
    more: dict[str, Any], scale_dtype: Any
) -> None:
    attributes = {"bits": 4, "packing": "8_per_i32", **more}
    rng = np.random.default_rng(1)
    zeros = "packed" if "signed" in more else "float"
    components = random_components(rng, attributes, (70, 9), zeros=zeros, scale_dtype=scale_dtype)
    assert_like_the_slow_formula(components, attributes, (70, 9))


# --- The conventions of published checkpoints ---------------------------------------------------


def corpus_objects() -> list[Any]:
    entries = json.loads((CORPUS / "corpus.json").read_text("utf-8"))["files"]
    found = [
        pytest.param(described, id=f"{entry['path']}-{name}")
        for entry in entries
        for name, described in entry.get("objects", {}).items()
        if described["format"] == "quantized_group"
    ]
    assert found
    return found


@pytest.mark.parametrize("described", corpus_objects())
def test_the_sizes_of_every_file_of_the_corpus_fit(described: dict[str, Any]) -> None:
    rng = np.random.default_rng(8)
    parts: dict[str, Array] = {}
    for role, component in described["components"].items():
        name = STORAGE_TYPES[component["dtype"]].long_name
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        raw = rng.integers(0, 256, component["nbytes"], np.uint8)
        parts[role] = np.zeros_like(raw.view(dtype)) if role == "g_idx" else raw.view(dtype)
    shape = tuple(described["shape"])
    result = restore(parts, described["attributes"], shape, g_idx=parts.get("g_idx"))
    assert result.shape == shape
    assert np.isfinite(result).any()


# --- Results ------------------------------------------------------------------------------------


ATTRIBUTES = {"bits": 4, "packing": "8_per_i32", "group_size": 8}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float16, np.float16),
        ("float32", np.float32),
        (np.float64, np.float64),
        (">f4", np.float32),
        ("bfloat16", ml_dtypes.bfloat16),
        (ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ],
)
def test_result_types(dtype: Any, expected: Any) -> None:
    components = random_components(np.random.default_rng(9), ATTRIBUTES, (16, 3))
    exact = restore(components, ATTRIBUTES, (16, 3), dtype=np.float64)
    result = restore(components, ATTRIBUTES, (16, 3), dtype=dtype)
    assert result.dtype == np.dtype(expected)
    if dtype is not np.float64:  # all narrower ones are rounded from float32
        exact = exact.astype(np.float32).astype(expected)
    np.testing.assert_array_equal(result, exact)


def test_float64_results_keep_the_digits_of_float64_scales() -> None:
    parts: dict[str, Array] = {
        "packed_weight": np.full(1, 3, np.int32),
        "scales": np.full(1, 1 / 3),
        "zeros": np.full(1, 0.1),
    }
    (result,) = restore(parts, {"bits": 4}, (1,), dtype=np.float64)
    assert result == (3 - 0.1) * (1 / 3)


@pytest.mark.parametrize("dtype", ["int32", "float8_e4m3fn", "complex64", "nonsense", object()])
def test_other_result_types_are_the_callers_mistake(dtype: Any) -> None:
    components = random_components(np.random.default_rng(0), ATTRIBUTES, (16, 3))
    with refused(ArgumentValueError, Reason.ARGUMENT):
        restore(components, ATTRIBUTES, (16, 3), dtype=dtype)


def test_infinities_and_nan_come_through_without_a_warning() -> None:
    parts: dict[str, Array] = {
        "packed_weight": np.array([0x3210, 0x3210, 0x3210, 0x3210], np.int32),
        "scales": np.array([np.nan, np.inf, 1, 3e38], np.float32),
        "zeros": np.array([0, 1, np.inf, -1e38], np.float32),
    }
    result = restore(parts, {"bits": 4, "group_size": 4}, (4, 4))
    assert np.isnan(result[:, 0]).all()
    np.testing.assert_array_equal(result[:, 1][[0, 2, 3]], [-np.inf, np.inf, np.inf])
    assert np.isnan(result[1, 1])  # nothing times infinity
    np.testing.assert_array_equal(result[:, 2], [-np.inf] * 4)
    np.testing.assert_array_equal(result[:, 3], [np.inf] * 4)
    half = restore(parts, {"bits": 4, "group_size": 4}, (4, 4), dtype=np.float16)
    np.testing.assert_array_equal(half[:, 3], [np.inf] * 4)


def test_components_may_be_shaped_strided_and_of_the_other_byte_order() -> None:
    attributes = {**ATTRIBUTES, "zero_offset": 1}
    rng = np.random.default_rng(10)
    flat = random_components(rng, attributes, (16, 5), zeros="packed", g_idx=True)
    expected = restore(flat, attributes, (16, 5), g_idx=flat["g_idx"])
    twice = {role: array.repeat(2)[::2] for role, array in flat.items()}
    swapped = {role: array.astype(array.dtype.newbyteorder()) for role, array in flat.items()}
    shaped = flat | {"packed_weight": flat["packed_weight"].reshape(2, 5)}
    for parts in (twice, swapped, shaped):
        result = restore(parts, attributes, (16, 5), g_idx=parts["g_idx"])
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("group_axis", [0, 1])
@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize("shape", [(24,), (2, 3, 4), (24, 1), (1, 24), (2, 2, 3, 2)])
def test_later_dimensions_together_are_the_columns(
    shape: tuple[int, ...], pack_axis: int, group_axis: int
) -> None:
    attributes = {**ATTRIBUTES, "pack_axis": pack_axis, "group_axis": group_axis}
    matrix = (shape[0], math.prod(shape[1:]))
    components = random_components(np.random.default_rng(11), attributes, matrix)
    result = restore(components, attributes, shape)
    assert result.shape == shape
    np.testing.assert_array_equal(result.reshape(matrix), restore(components, attributes, matrix))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 2), (0, 0)])
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize("axis", [0, 1])
def test_empty_arrays(shape: tuple[int, ...], zeros: str, axis: int) -> None:
    components, attributes = quantize(
        np.empty(shape, np.float32), zeros=zeros, pack_axis=axis, group_axis=1 - axis
    )
    assert restore(components, attributes, shape).shape == shape
    given = np.zeros(shape[1 - axis] if len(shape) > 1 - axis else 1, np.int64)
    if shape[0] and axis == 1:  # no group is there for these rows only when there are no columns
        assert restore(components, attributes, shape, g_idx=given).shape == shape


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 0), (0, 2**64), (0,) * 65])
def test_a_shape_no_array_can_have_is_refused(shape: tuple[int, ...]) -> None:
    nothing = np.empty(0, np.int32)
    scheme = scheme_of({"bits": 4}, shape)
    with refused(LimitError, Reason.LIMIT_DECODED):
        dequantize(scheme, shape, nothing, nothing.astype(np.float16), nothing)


# --- Tiles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1030, 1000), (3, 300_001), (300_001, 3)], ids=str)
@pytest.mark.parametrize(("pack_axis", "group_axis"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("packing", ["8_per_i32", "2_per_u8"])
def test_arrays_of_more_than_one_tile_have_no_seam(
    packing: str, pack_axis: int, group_axis: int, shape: tuple[int, int]
) -> None:
    """Neither quantized nor restored, by however many threads, nor by the number of a group."""
    array = np.random.default_rng(13).standard_normal(shape).astype(np.float32)
    axes: dict[str, Any] = {"pack_axis": pack_axis, "group_axis": group_axis}
    parts, attributes = quantize(array, packing=packing, group_size=20, zeros="packed", **axes)
    assert_within_half_a_step(array, parts, attributes)
    expected = restore(parts, attributes, shape)
    g_idx = np.arange(shape[group_axis]) // 20
    np.testing.assert_array_equal(restore(parts, attributes, shape, g_idx=g_idx), expected)
    for threads in (1, 5):
        found = restore(parts, attributes, shape, xp=NumpyNamespace(threads))
        np.testing.assert_array_equal(found, expected)
    whole = integers(scheme_of(attributes, shape), shape, parts["packed_weight"])
    ones = np.ones_like(parts["scales"])
    plain = {"packed_weight": parts["packed_weight"], "scales": ones, "zeros": 0 * ones}
    np.testing.assert_array_equal(restore(plain, attributes, shape), whole)


@pytest.mark.parametrize("group_size", [1, 128, -1])
@pytest.mark.parametrize("zeros", ["float", "packed"])
@pytest.mark.parametrize("shape", [(2048, 2048), (8, 1 << 19), (1 << 19, 8)], ids=str)
def test_memory_beside_the_result_is_bounded(
    shape: tuple[int, int], zeros: str, group_size: int
) -> None:
    attributes = {"bits": 4, "packing": "8_per_i32", "group_size": group_size}
    parts = random_components(np.random.default_rng(15), attributes, shape, zeros=zeros)
    with traced() as memory:
        result = restore(parts, attributes, shape, dtype=np.float16)
        peak = memory()[1]
    assert peak - result.nbytes < 16 << 20


# --- Attributes ---------------------------------------------------------------------------------


def test_defaults() -> None:
    scheme = scheme_of({"bits": 4}, (64, 16))
    assert scheme == GroupScheme(bits=4, packing=Packing(8, "i32"))
    assert scheme.to_attributes() == {"bits": 4, "packing": "8_per_i32", "group_size": -1}
    assert scheme.shapes((64, 16))["scales"] == (1, 16)


@pytest.mark.parametrize(
    ("dtype", "bits", "name"),
    [
        ("int32", 4, "8_per_i32"),
        ("uint8", 8, "1_per_u8"),
        ("int16", 2, "8_per_i16"),
        ("uint64", 1, "64_per_u64"),
        (">i4", 4, "8_per_i32"),
    ],
)
def test_a_missing_packing_fills_the_words(dtype: str, bits: int, name: str) -> None:
    scheme = scheme_of({"bits": bits, "packing": None}, (8, 8), np.dtype(dtype))
    assert str(scheme.packing) == name


def test_attributes_written_are_attributes_read() -> None:
    attributes: dict[str, object] = {
        "bits": 4,
        "packing": "8_per_u32",
        "group_size": 32,
        "pack_axis": 1,
        "group_axis": 1,
        "order": "awq",
        "signed": True,
        "zero_offset": 1,
        "zeros_packed": False,
        "shared_zero": True,
        "desc_act": True,
    }
    assert scheme_of(attributes, (8, 8)).to_attributes() == attributes


def test_attributes_of_others_are_ignored() -> None:
    attributes: dict[Any, object] = {"bits": 4, "sym": True, "quant_method": "gptq", 7: [1]}
    assert scheme_of(attributes, (8, 8)) == scheme_of({"bits": 4}, (8, 8))


WRONG_ATTRIBUTES: list[tuple[str, dict[str, object] | Any]] = [
    ("no attributes", None),
    ("not a map", [4, 128]),
    ("bits missing", {"group_size": 128, "packing": "8_per_i32"}),
    ("bits null", {"bits": None}),
    ("bits text", {"bits": "4"}),
    ("bits float", {"bits": 4.0}),
    ("bits true", {"bits": True}),
    ("bits zero", {"bits": 0}),
    ("bits negative", {"bits": -4}),
    ("bits nine", {"bits": 9}),
    ("bits huge", {"bits": 10**5000}),
    ("bits list", {"bits": [4]}),
    ("group zero", {"bits": 4, "group_size": 0}),
    ("group -2", {"bits": 4, "group_size": -2}),
    ("group float", {"bits": 4, "group_size": 128.0}),
    ("group text", {"bits": 4, "group_size": "128"}),
    ("group true", {"bits": 4, "group_size": True}),
    ("packing integer", {"bits": 4, "packing": 8}),
    ("packing bytes", {"bits": 4, "packing": b"8_per_i32"}),
    ("packing too few", {"bits": 4, "packing": "4_per_i32"}),
    ("packing too many", {"bits": 4, "packing": "16_per_i32"}),
    ("packing not the shortest", {"bits": 3, "packing": "64_per_6_i32"}),
    ("packing words uneven", {"bits": 3, "packing": "21_per_2_i32"}),
    ("packing missing for 3 bits", {"bits": 3}),
    ("pack_axis 2", {"bits": 4, "pack_axis": 2}),
    ("pack_axis -1", {"bits": 4, "pack_axis": -1}),
    ("pack_axis true", {"bits": 4, "pack_axis": True}),
    ("group_axis text", {"bits": 4, "group_axis": "0"}),
    ("order number", {"bits": 4, "order": 1}),
    ("order list", {"bits": 4, "order": [0, 2, 4, 6, 1, 3, 5, 7]}),
    ("order across words", {"bits": 3, "packing": "32_per_3_i32", "order": "awq"}),
    ("signed 1", {"bits": 4, "signed": 1}),
    ("zero_offset float", {"bits": 4, "zero_offset": 1.0}),
    ("zero_offset nan", {"bits": 4, "zero_offset": math.nan}),
    ("zero_offset huge", {"bits": 4, "zero_offset": 2**64}),
    ("zero_offset -257", {"bits": 4, "zero_offset": -257}),
    ("zeros_packed text", {"bits": 4, "zeros_packed": "yes"}),
    ("desc_act 0", {"bits": 4, "desc_act": 0}),
    ("shared_zero 1", {"bits": 4, "shared_zero": 1}),
    ("element number", {"bits": 4, "element": 4}),
    ("element list", {"bits": 4, "element": ["integer"]}),
    ("element signed", {"bits": 4, "element": "f4_e2m1", "signed": True}),
    ("codebook signed", {"bits": 4, "element": "codebook", "signed": True}),
    ("desc_act map", {"bits": 4, "desc_act": {}}),
]


@pytest.mark.parametrize(
    "attributes", [a for _, a in WRONG_ATTRIBUTES], ids=[name for name, _ in WRONG_ATTRIBUTES]
)
def test_wrong_attributes(attributes: Any) -> None:
    with refused(LayoutError, Reason.QUANTIZATION) as caught:
        scheme_of(attributes, (64, 16))
    assert caught.value.section == "1.2 section 3, quantized_group"
    assert caught.value.expected
    assert caught.value.found
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "attributes",
    [
        {"bits": 4, "packing": name}
        for name in (
            "",
            "marlin",
            "8_per_f32",
            "8_per_i128",
            "8_per_int32",
            "08_per_i32",
            "0_per_i32",
            "8_per_1_i32",
            "8_per_10_i32",
            "800_per_i32",
            " 8_per_i32",
            "8_per_i32\n",
            "٨_per_i32",
            "9" * 10**6,
        )
    ]
    + [{"bits": 4, "order": name} for name in ("", "AWQ", "C", "x" * 10**6)]
    + [{"bits": 4, "element": name} for name in ("", "nf4", "f8_e4m3fn", "complex64", "f32")]
    + [{"bits": 8, "packing": "1_per_u8", "element": "f4_e2m1"}],
    ids=lambda attributes: str(attributes)[:50],
)
def test_unknown_names(attributes: Any) -> None:
    with refused(UnsupportedError, Reason.UNKNOWN_LAYOUT) as caught:
        scheme_of(attributes, (64, 16))
    assert len(str(caught.value)) < 400


def test_words_that_are_no_integers_suggest_no_packing() -> None:
    with refused(LayoutError, Reason.QUANTIZATION) as caught:
        scheme_of({"bits": 4}, (8, 8), np.dtype(np.float32))
    assert caught.value.component == "packed_weight"


def test_a_scalar_has_no_groups() -> None:
    with refused(LayoutError, Reason.LAYOUT_RANK):
        scheme_of({"bits": 4}, ())


SHAPE = (64, 16)
GOOD: dict[str, tuple[int, str]] = {
    "packed_weight": (128, "int32"),
    "scales": (32, "float16"),
    "zeros": (32, "float16"),
}
QUANTIZATION, MISSING = Reason.QUANTIZATION, Reason.COMPONENT_MISSING
WRONG_SIZES: list[tuple[str, dict[str, Any], dict[str, Any], Reason]] = [
    ("packed_weight", {}, {"packed_weight": None}, MISSING),
    ("scales", {}, {"scales": None}, MISSING),
    ("zeros", {}, {"zeros": None}, MISSING),
    ("g_idx", {"desc_act": True}, {}, MISSING),
    ("packed_weight", {}, {"packed_weight": (127, "int32")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (129, "int32")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (0, "int32")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (128, "uint8")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (512, "uint8")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (128, "float32")}, QUANTIZATION),
    ("packed_weight", {"bits": 2}, {}, QUANTIZATION),
    ("scales", {}, {"scales": (31, "float16")}, QUANTIZATION),
    ("scales", {}, {"scales": (32, "int16")}, QUANTIZATION),
    ("scales", {}, {"scales": (32, "complex64")}, QUANTIZATION),
    ("scales", {}, {"scales": (32, "bool")}, QUANTIZATION),
    ("scales", {"group_size": 16}, {}, QUANTIZATION),
    ("scales", {"group_size": -1}, {}, QUANTIZATION),
    ("scales", {"group_axis": 1, "group_size": 3}, {}, QUANTIZATION),
    ("zeros", {}, {"zeros": (33, "float16")}, QUANTIZATION),
    ("zeros", {}, {"zeros": (32, "bool")}, QUANTIZATION),
    ("zeros", {}, {"zeros": (32, "complex64")}, QUANTIZATION),
    ("zeros", {}, {"zeros": (32, "int32")}, QUANTIZATION),
    ("zeros", {}, {"zeros": (4, "uint8")}, QUANTIZATION),
    ("zeros", {"zeros_packed": False}, {"zeros": (4, "int32")}, QUANTIZATION),
    ("g_idx", {}, {"g_idx": (63, "int32")}, QUANTIZATION),
    ("g_idx", {"group_axis": 1, "group_size": 8}, {"scales": (128, "float16"),
     "zeros": (128, "float16"), "g_idx": (64, "int32")}, QUANTIZATION),
    ("g_idx", {}, {"g_idx": (64, "float32")}, Reason.INDEX_DTYPE),
    ("zeros", {}, {"zeros": (1, "float16")}, QUANTIZATION),
    ("zeros", {"shared_zero": True}, {}, QUANTIZATION),
    ("codebook", {"element": "codebook"}, {}, MISSING),
    ("codebook", {"element": "codebook"}, {"codebook": (15, "float32")}, QUANTIZATION),
    ("codebook", {"element": "codebook"}, {"codebook": (16, "int8")}, QUANTIZATION),
    ("global_scale", {}, {"global_scale": (2, "float32")}, QUANTIZATION),
    ("global_scale", {}, {"global_scale": (0, "float32")}, QUANTIZATION),
    ("global_scale", {}, {"global_scale": (1, "int32")}, QUANTIZATION),
]  # fmt: skip


def sized(
    changes: Mapping[str, tuple[int, str] | None],
) -> tuple[dict[str, int], dict[str, np.dtype[Any]]]:
    parts = {role: part for role, part in {**GOOD, **changes}.items() if part is not None}
    return (
        {role: count for role, (count, _) in parts.items()},
        {role: np.dtype(getattr(ml_dtypes, name, name)) for role, (_, name) in parts.items()},
    )


@pytest.mark.parametrize(
    ("role", "attributes", "changes", "reason"),
    WRONG_SIZES,
    ids=[f"{role}-{attributes}-{changes}" for role, attributes, changes, _ in WRONG_SIZES],
)
def test_wrong_components(
    role: str, attributes: dict[str, Any], changes: dict[str, Any], reason: Reason
) -> None:
    scheme = scheme_of({"bits": 4, "group_size": 32, **attributes}, SHAPE)
    with refused(LayoutError, reason) as caught:
        require_sizes(scheme, SHAPE, *sized(changes))
    assert caught.value.component == role


@pytest.mark.parametrize(
    ("attributes", "changes"),
    [
        ({}, {}),
        ({}, {"packed_weight": (128, "uint32")}),
        ({}, {"zeros": (4, "int32")}),
        ({}, {"zeros": (4, "uint32")}),
        ({}, {"zeros": (32, "float64")}),
        ({"zeros_packed": False}, {"zeros": (32, "int8")}),
        ({"zeros_packed": False}, {"zeros": (32, "float32")}),
        ({"desc_act": True}, {"g_idx": (64, "uint64")}),
        ({"desc_act": True, "group_size": 64}, {"scales": (16, "float16"), "zeros": (2, "int32")}),
        ({"desc_act": False}, {"g_idx": (64, "int32"), "bias": (3, "bool")}),
        ({"shared_zero": True}, {"zeros": (1, "float32")}),
        ({"shared_zero": True}, {"zeros": (1, "int8")}),
        ({"element": "codebook"}, {"codebook": (16, "bfloat16")}),
        ({"element": "f4_e2m1"}, {"global_scale": (1, "float64")}),
        ({}, {"codebook": (3, "bool")}),
    ],
)
def test_components_that_fit(attributes: dict[str, Any], changes: dict[str, Any]) -> None:
    require_sizes(
        scheme_of({"bits": 4, "group_size": 32, **attributes}, SHAPE), SHAPE, *sized(changes)
    )


def test_sizes_are_compared_before_anything_is_allocated() -> None:
    shape = (2**40, 2**20)
    scheme = scheme_of({"bits": 4, "group_size": 128}, shape)
    small = np.zeros(8, np.int32)
    with refused(LayoutError, Reason.QUANTIZATION):
        dequantize(scheme, shape, small, small.astype(np.float16), small)


def test_a_shape_of_many_digits_gives_a_message() -> None:
    shape = (2**64 - 1,) * 1000
    with pytest.raises(LayoutError) as caught:
        require_sizes(scheme_of({"bits": 4}, shape), shape, *sized({}))
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("dtype", "value"), [("int32", -1), ("int32", 2), ("uint64", 2**64 - 1), ("int64", -(2**63))]
)
def test_group_numbers_are_in_range(dtype: str, value: int) -> None:
    parts = random_components(np.random.default_rng(0), ATTRIBUTES, (16, 3), zeros="packed")
    g_idx = np.zeros(16, dtype)
    g_idx[5] = value
    with refused(LayoutError, Reason.INDEX_RANGE) as caught:
        restore(parts, ATTRIBUTES, (16, 3), g_idx=g_idx)
    assert caught.value.component == "g_idx"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
PLAUSIBLE: dict[str, st.SearchStrategy[object]] = {
    "bits": st.integers(1, 8),
    "packing": st.sampled_from([name for _, name in PACKINGS]),
    "group_size": st.integers(-1, 9),
    "pack_axis": st.integers(0, 1),
    "group_axis": st.integers(0, 1),
    "order": st.sampled_from(sorted(ORDERS)),
    "signed": st.booleans(),
    "zero_offset": st.integers(-256, 256),
    "zeros_packed": st.booleans(),
    "shared_zero": st.booleans(),
    "desc_act": st.booleans(),
    "element": st.sampled_from(["integer", "codebook", "f4_e2m1", "f8_e5m2"]),
}


@pytest.mark.slow
@given(
    attributes=st.fixed_dictionaries(
        {}, optional={name: strategy | ANYTHING for name, strategy in PLAUSIBLE.items()}
    ),
    shape=st.lists(st.integers(0, 9), max_size=3),
    data=st.data(),
)
@settings(max_examples=examples(100), deadline=None)
def test_anything_gives_a_result_or_an_error_of_ours(
    attributes: dict[str, object], shape: list[int], data: st.DataObject
) -> None:
    dtypes = st.sampled_from(["int32", "uint8", "float16", "int64", "bool"])
    parts = [np.zeros(data.draw(st.integers(0, 12)), data.draw(dtypes)) for _ in range(3)]
    try:
        scheme = GroupScheme.from_attributes(attributes, parts[0].dtype, shape)
        assert dequantize(scheme, shape, *parts).shape == tuple(shape)
    except ZTensorError as error:
        caught = error
    else:
        return
    assert caught.reason is not None
    assert len(str(caught)) < 1000


@given(
    attributes=st.fixed_dictionaries(
        {"bits": PLAUSIBLE["bits"]},
        optional={name: PLAUSIBLE[name] for name in PLAUSIBLE if name not in ("bits", "packing")},
    ),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    container=st.sampled_from(["u8", "i16", "i32", "u64"]),
    zeros=st.sampled_from(["float", "packed", "integer"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(100), deadline=None)
def test_any_scheme_is_the_slow_formula(
    attributes: dict[str, Any], shape: tuple[int, int], container: str, zeros: str, seed: int
) -> None:
    dense = Packing.dense(attributes["bits"], container)
    order = "sequential" if dense.words > 1 else attributes.get("order", "sequential")
    attributes = {
        **attributes,
        "packing": str(dense),
        "order": order,
        "zeros_packed": zeros != "integer",
        "group_size": attributes.get("group_size") or -1,
    }
    width = {"f4_e2m1": 4, "f8_e5m2": 8}.get(attributes.get("element", ""))
    if width not in (None, attributes["bits"]):
        del attributes["element"]
    if attributes.get("element", "integer") != "integer":
        attributes["signed"] = False
    rng = np.random.default_rng(seed)
    g_idx = attributes.get("desc_act", False)
    components = random_components(rng, attributes, shape, zeros=zeros, g_idx=g_idx)
    assert_like_the_slow_formula(components, attributes, shape)


# --- Integers, threads, other array libraries ---------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize(
    ("bits", "packing", "order"),
    [
        (bits, packing, order)
        for bits, packing in PACKINGS
        for order in ORDERS
        if order == "sequential" or packing.count("_") == 2
    ],
)
def test_integers_are_the_packed_ones(
    bits: int, packing: str, order: str, pack_axis: int, signed: bool
) -> None:
    attributes = {
        "bits": bits,
        "packing": packing,
        "order": order,
        "pack_axis": pack_axis,
        "signed": signed,
    }
    shape = (21, 19)
    scheme = scheme_of(attributes, shape)
    parts = random_components(np.random.default_rng(bits), attributes, shape)
    words = parts["packed_weight"].reshape(scheme.shapes(shape)["packed_weight"])
    found = integers(scheme, shape, parts["packed_weight"])
    assert found.dtype == (np.int8 if signed else np.uint8)
    for row, column in itertools.product(range(shape[0]), range(shape[1])):
        line, index = (words[:, column], row) if pack_axis == 0 else (words[row], column)
        stored = stored_integer(line.tolist(), index, attributes)
        assert found[row, column] == with_sign(stored, attributes)


def test_integers_need_their_words() -> None:
    scheme = scheme_of({"bits": 4}, SHAPE)
    for words in (np.zeros(127, np.int32), np.zeros(128, np.int16), np.zeros(128, np.float32)):
        with pytest.raises(LayoutError) as caught:
            integers(scheme, SHAPE, words)
        assert caught.value.component == "packed_weight"
    assert integers(scheme, (0, 16), np.zeros(0, np.int32)).shape == (0, 16)


@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize(("pack_axis", "group_axis"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("packing", PACKINGS, ids=lambda packing: packing[1])
def test_torch_gives_what_numpy_gives(
    packing: tuple[int, str], pack_axis: int, group_axis: int, zeros: str
) -> None:
    """The same arithmetic, in every bit; all orders, signs and scale types in turn."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    module: Any = pytest.importorskip("ztensor.torch.quantized")
    bits, name = packing
    one_word = name.count("_") == 2
    attributes: dict[str, Any] = {
        "bits": bits,
        "packing": name,
        "group_size": 5,
        "pack_axis": pack_axis,
        "group_axis": group_axis,
        "zeros_packed": zeros == "packed",
        "zero_offset": 0 if zeros == "float" else 3,
        "order": sorted(ORDERS)[(bits + pack_axis) % 3] if one_word else "sequential",
        "signed": bits % 3 == 0,
        "element": "codebook" if bits % 3 == 1 else "integer",
    }
    rng = np.random.default_rng(bits)
    scale_dtype = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64][bits % 4]
    shape = (37, 43)
    parts = random_components(
        rng, attributes, shape, zeros=zeros, g_idx=pack_axis == 1, scale_dtype=scale_dtype
    )
    xp = module.TorchNamespace(torch.device("cpu"))
    xp.tile = 1 << 8
    scheme = scheme_of(attributes, shape)
    found = integers(scheme, shape, parts["packed_weight"], xp=xp)
    np.testing.assert_array_equal(found.numpy(), integers(scheme, shape, parts["packed_weight"]))
    for dtype in ("float32", "float16"):
        k: dict[str, Any] = {"g_idx": parts.get("g_idx"), "dtype": dtype}
        expected = restore(parts, attributes, shape, **k)
        made: Any = restore(parts, attributes, shape, xp=xp, **k)
        np.testing.assert_array_equal(made.numpy(), expected)


# --- Quantizing ---------------------------------------------------------------------------------


def assert_within_half_a_step(
    array: Array, components: Mapping[str, Array], attributes: Mapping[str, Any]
) -> None:
    result = restore(components, attributes, array.shape, dtype=np.float64)
    matrix = array.reshape(len(array), -1).astype(np.float64)
    scheme = scheme_of(attributes, array.shape, components["packed_weight"].dtype)
    scales = components["scales"].astype(np.float64).reshape(scheme.shapes(array.shape)["scales"])
    group, axis = scheme.group_length(array.shape), scheme.group_axis
    step = scales.repeat(group, axis)[: matrix.shape[0], : matrix.shape[1]]
    error = np.abs(result.reshape(matrix.shape) - matrix)
    # Beside half a step: what float32 rounds off while dividing, at most 2^8 steps of 2^-24.
    assert (error <= step * (0.5 + 2**-14)).all()


@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("pack_axis", "group_axis"), [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("bits", range(1, 9))
def test_round_trip_within_half_a_step(
    bits: int, pack_axis: int, group_axis: int, signed: bool, symmetric: bool, zeros: str
) -> None:
    array = np.random.default_rng(bits).standard_normal((45, 37)).astype(np.float32)
    components, attributes = quantize(
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
    assert all(component.ndim == 1 for component in components.values())
    assert_within_half_a_step(array, components, attributes)


@pytest.mark.parametrize("order", ["sequential", "reversed", "awq"])
@pytest.mark.parametrize(
    ("bits", "packing"), [(4, "8_per_u32"), (8, "1_per_u8"), (3, "10_per_i32"), (3, "2_per_u8")]
)
def test_round_trip_of_every_order(bits: int, packing: str, order: str) -> None:
    array = np.random.default_rng(0).standard_normal((21, 30))
    components, attributes = quantize(
        array, bits=bits, packing=packing, order=order, group_size=8, zeros="packed"
    )
    assert attributes["packing"] == packing
    assert_within_half_a_step(array, components, attributes)


@given(
    seed=st.integers(0, 2**32),
    shape=st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple),
    bits=st.integers(1, 8),
    group_size=st.integers(1, 14) | st.just(-1),
    axes=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    exponent=st.integers(-30, 30),
    shift=st.sampled_from([-1000.0, -1.0, 0.0, 0.5, 1000.0]),
    dtype=st.sampled_from(["float16", "float32", "float64", "bfloat16", "int8", "int32", "uint64"]),
    scale_dtype=st.sampled_from(["float16", "bfloat16", "float32", "float64"]),
    symmetric=st.booleans(),
)
@settings(max_examples=examples(200), deadline=None)
def test_round_trip_of_anything(
    seed: int,
    shape: tuple[int, ...],
    bits: int,
    group_size: int,
    axes: tuple[int, int],
    exponent: int,
    shift: float,
    dtype: str,
    scale_dtype: str,
    symmetric: bool,
) -> None:
    values = (np.random.default_rng(seed).standard_normal(shape) + shift) * 2.0**exponent
    with np.errstate(all="ignore"):
        array = values.astype(getattr(ml_dtypes, dtype, dtype))
    try:
        components, attributes = quantize(
            array,
            bits=bits,
            group_size=group_size,
            pack_axis=axes[0],
            group_axis=axes[1],
            scale_dtype=scale_dtype,
            symmetric=symmetric,
        )
    except NotRepresentableError:
        largest = np.abs(array.astype(np.float64)).max()
        assert not np.isfinite(largest) or (scale_dtype == "float16" and largest > 65504 / 2)
        return
    assert components["scales"].dtype == getattr(ml_dtypes, scale_dtype, scale_dtype)
    assert_within_half_a_step(array, components, attributes)


def test_the_words_of_the_specification_are_the_default() -> None:
    components, attributes = quantize(np.ones((256, 16), np.float32))
    assert attributes == {"bits": 4, "packing": "8_per_i32", "group_size": 128}
    assert {role: (part.dtype.name, part.shape) for role, part in components.items()} == {
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
    assert quantize(np.ones((2, 2)), bits=bits)[1]["packing"] == packing


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -3.0, 1e-6, 40000.0])
@pytest.mark.parametrize("symmetric", [False, True])
def test_constant_groups_come_back(value: float, symmetric: bool) -> None:
    array = np.full((20, 2), value, np.float32)
    components, attributes = quantize(
        array, group_size=8, symmetric=symmetric, scale_dtype="float32"
    )
    result = restore(components, attributes, array.shape)
    tolerance = abs(value) * (1 / 15 + 1e-6 if symmetric else 1e-6)  # a scale is 2 / 15 of it
    np.testing.assert_allclose(result, array, atol=tolerance, rtol=0)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_zeros_stay_zeros(symmetric: bool, signed: bool) -> None:
    array = np.random.default_rng(1).standard_normal((64, 8)).astype(np.float32) + 2
    array[::3] = 0
    components, attributes = quantize(array, symmetric=symmetric, signed=signed)
    assert (restore(components, attributes, array.shape)[::3] == 0).all()


def test_symmetric_zero_points_are_all_the_middle() -> None:
    array = np.random.default_rng(2).standard_normal((64, 8))
    assert set(quantize(array, symmetric=True)[0]["zeros"].tolist()) == {8.0}
    assert set(quantize(array, symmetric=True, signed=True)[0]["zeros"].tolist()) == {0.0}


def test_zero_points_with_the_first_gptq_offset() -> None:
    array = np.ones((8, 8))
    array[4:] = -1
    components, attributes = quantize(
        array, symmetric=True, zeros="packed", zero_offset=1, group_size=-1
    )
    assert components["zeros"].tolist() == [0x77777777]
    assert attributes["zero_offset"] == 1
    below, _ = quantize(np.ones((8, 8)), zeros="packed", zero_offset=1, group_size=-1)
    assert below["zeros"].view(np.uint32).tolist() == [0xFFFFFFFF]  # 0 - 1, modulo 16


def test_words_are_as_documented() -> None:
    array = np.arange(16, dtype=np.float32)[:, None]
    components, _ = quantize(array, group_size=-1)
    low, high = components["packed_weight"].view(np.uint32).tolist()
    assert (low, high) == (0x76543210, 0xFEDCBA98)
    assert components["scales"].tolist() == [1.0]
    assert components["zeros"].tolist() == [0.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("group_axis", [0, 1])
def test_nan_and_infinities_are_refused(bad: float, dtype: str, group_axis: int) -> None:
    array = np.zeros((40, 3)).astype(getattr(ml_dtypes, dtype, dtype))
    array[17, 1] = bad
    with refused(NotRepresentableError, Reason.NOT_REPRESENTABLE, match="1 of "):
        quantize(array, group_size=16, group_axis=group_axis)


@pytest.mark.parametrize(
    "array",
    [np.ones((2, 2), bool), np.ones((2, 2), complex), np.array([["a"]]), np.float32(1), [None]],
    ids=["bool", "complex", "text", "scalar", "object"],
)
def test_what_is_no_array_of_numbers_is_refused(array: Any) -> None:
    with pytest.raises(NotRepresentableError):
        quantize(array)


def test_fp8_can_be_quantized() -> None:
    array = np.linspace(-4, 4, 64).astype(ml_dtypes.float8_e4m3fn).reshape(16, 4)
    components, attributes = quantize(array, bits=8, group_size=4)
    assert_within_half_a_step(array.astype(np.float32), components, attributes)


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
    if fits:
        components, attributes = quantize(array, scale_dtype=scale_dtype)
        assert_within_half_a_step(array / 4, {**components, "scales": components["scales"] / 4},
                                  attributes)  # fmt: skip
        return
    with pytest.raises(NotRepresentableError, match="scale_dtype"):
        quantize(array, scale_dtype=scale_dtype)


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
        quantize(np.ones((8, 8)), **arguments)


def test_the_array_is_left_alone_whatever_its_layout() -> None:
    base = np.random.default_rng(3).standard_normal((60, 80))
    before = base.copy()
    for array in (base[::2, ::3], base.T, base[:, ::-1], base.astype(">f4")):
        components, attributes = quantize(array, group_size=16)
        straight, _ = quantize(np.ascontiguousarray(array), group_size=16)
        for role, component in components.items():
            np.testing.assert_array_equal(component, straight[role])
        assert_within_half_a_step(array, components, attributes)
    np.testing.assert_array_equal(base, before)


def test_the_example_of_the_page_is_what_we_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # it writes files
    page = (Path(__file__).parents[3] / "docs" / "guides" / "quantized.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)  # noqa: S102 - our own page
    result = restore(names["components"], names["attributes"], names["array"].shape)
    np.testing.assert_array_equal(result, names["restored"])


def test_the_page_lists_every_attribute() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "quantized.md").read_text("utf-8")
    for name in PLAUSIBLE:
        assert f"| `{name}` | " in page
    assert set(PLAUSIBLE) == {field.name for field in dataclasses.fields(GroupScheme)}


@pytest.mark.parametrize("recipe", [None, "gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4"])
def test_the_result_goes_when_nobody_has_it(recipe: str | None) -> None:
    """Else a loop over the tensors of a model holds all, until the collector of cycles comes."""
    how: dict[str, Any] = {} if recipe else {"bits": 4, "group_size": 32}
    tensor = Tensor.quantize(np.ones((64, 128), np.float32), recipe, **how)
    gc.collect()
    gc.disable()
    try:
        result = weakref.ref(tensor.dequantize())
        assert result() is None
    finally:
        gc.enable()
