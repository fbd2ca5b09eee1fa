"""`quantized_group` to floats and integers, by the formula; and the objects that are refused."""

from __future__ import annotations

import gc
import json
import math
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from tests.refusals import refused
from tests.tracing import traced
from tests.unit.quantization.groups import (
    PACKINGS,
    Array,
    assert_by_formula,
    assert_within_half_a_step,
    integers,
    packed,
    random_parts,
    restore,
    signed,
)
from ztensor import Tensor
from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    ZTensorError,
)
from ztensor.ext import STORAGE_TYPES

CORPUS = Path(__file__).parents[2] / "corpus"
ORDERS = ["sequential", "reversed", "awq"]
AXES = [(0, 0), (0, 1), (1, 0), (1, 1)]

# --- The formula ----------------------------------------------------------------------------


@pytest.mark.parametrize("g_idx", [False, True], ids=["runs", "g_idx"])
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize(("pack_axis", "group_axis"), AXES)
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
    parts = random_parts(bits, attributes, (13, 11), zeros=zeros, g_idx=g_idx)
    assert_by_formula(parts, attributes, (13, 11))


@pytest.mark.parametrize("offset", [-3, 0, 1, 256])
@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize(
    ("bits", "packing"), [(4, "8_per_i32"), (8, "4_per_u32"), (8, "1_per_u8"), (3, "10_per_i32")]
)
def test_every_order_sign_and_offset(
    bits: int, packing: str, zeros: str, order: str, is_signed: bool, offset: int
) -> None:
    attributes = {
        "bits": bits,
        "packing": packing,
        "group_size": 4,
        "pack_axis": 1,
        "order": order,
        "signed": is_signed,
        "zeros_packed": zeros == "packed",
        "zero_offset": offset,
    }
    parts = random_parts(offset % 7, attributes, (6, 21), zeros=zeros)
    assert_by_formula(parts, attributes, (6, 21))


@pytest.mark.parametrize(
    ("more", "scale_dtype"),
    [
        *(({"group_size": size, "group_axis": axis}, np.float16)
          for size in (1, 2, 5, 8, 13, 14, 2**70, -1) for axis in (0, 1)),
        *(({"group_size": 4}, dtype) for dtype in (
            np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn)),
        *(({"bits": 3, "packing": packing, "group_size": 7, "signed": is_signed}, np.float16)
          for packing in ("32_per_3_i32", "8_per_3_u8") for is_signed in (False, True)),
    ],
    ids=str,
)  # fmt: skip
def test_any_group_size_type_of_scales_and_integer_across_words(
    more: dict[str, Any], scale_dtype: Any
) -> None:
    attributes = {"bits": 4, "packing": "8_per_i32", **more}
    zeros = "packed" if "signed" in more else "float"
    parts = random_parts(1, attributes, (70, 9), zeros=zeros, scale_dtype=scale_dtype)
    assert_by_formula(parts, attributes, (70, 9))


@pytest.mark.parametrize(
    ("bits", "packing"),
    [(1, "8_per_u8"), (4, "4_per_u16"), (2, "16_per_i32"), (4, "8_per_i32"), (6, "4_per_3_u8")],
)
@pytest.mark.parametrize("columns", [24, 65_528, 65_529, 65_535])
def test_a_codebook_is_looked_up_in_words_of_any_width(
    bits: int, packing: str, columns: int
) -> None:
    """Whole groups of five are worked on at once, so a tile may begin within a byte."""
    attributes: dict[str, Any] = {
        "bits": bits, "packing": packing, "group_size": 5, "pack_axis": 1,
        "group_axis": 1, "element": "codebook", "shared_zero": True,
    }  # fmt: skip
    assert_by_formula(random_parts(2, attributes, (2, columns)), attributes, (2, columns))


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("bits", "packing"), PACKINGS)
def test_integers_are_the_packed_ones(
    bits: int, packing: str, order: str, pack_axis: int, is_signed: bool
) -> None:
    is_one_word = packing.count("_") == 2
    attributes = {
        "bits": bits,
        "packing": packing,
        "order": order if is_one_word else "sequential",
        "pack_axis": pack_axis,
        "signed": is_signed,
    }
    parts = random_parts(bits, attributes, (21, 19))
    found = integers(parts, attributes, (21, 19))
    assert found.dtype == (np.int8 if is_signed else np.uint8)
    codes = packed(parts["packed_weight"], attributes, (21, 19), pack_axis)
    np.testing.assert_array_equal(found, signed(codes, attributes))


@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize(("pack_axis", "group_axis"), AXES)
@pytest.mark.parametrize(("bits", "packing"), PACKINGS)
def test_torch_computes_the_same(
    bits: int, packing: str, pack_axis: int, group_axis: int, zeros: str
) -> None:
    """Every bit; all orders, signs and scale types in turn."""
    module: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)
    is_one_word = packing.count("_") == 2
    attributes: dict[str, Any] = {
        "bits": bits,
        "packing": packing,
        "group_size": 5,
        "pack_axis": pack_axis,
        "group_axis": group_axis,
        "zeros_packed": zeros == "packed",
        "zero_offset": 0 if zeros == "float" else 3,
        "order": ORDERS[(bits + pack_axis) % 3] if is_one_word else "sequential",
        "signed": bits % 3 == 0,
        "element": "codebook" if bits % 3 == 1 else "integer",
    }
    scale_dtype = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64][bits % 4]
    parts = random_parts(
        bits, attributes, (37, 43), zeros=zeros, g_idx=pack_axis == 1, scale_dtype=scale_dtype
    )
    tensor = Tensor(parts, shape=(37, 43), format="quantized_group", attributes=attributes)
    for dtype in ("float32", "float16"):
        found = module.dequantize(tensor, dtype).numpy()
        np.testing.assert_array_equal(found, tensor.dequantize(dtype))


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
    "order": st.sampled_from(ORDERS),
    "signed": st.booleans(),
    "zero_offset": st.integers(-256, 256),
    "zeros_packed": st.booleans(),
    "shared_zero": st.booleans(),
    "desc_act": st.booleans(),
    "element": st.sampled_from(["integer", "codebook", "f4_e2m1", "f8_e5m2"]),
}


@given(
    attributes=st.fixed_dictionaries(
        {},
        optional={name: PLAUSIBLE[name] for name in PLAUSIBLE if name not in ("bits", "packing")},
    ),
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    packing=st.sampled_from(PACKINGS),
    zeros=st.sampled_from(["float", "packed", "integer"]),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(100), deadline=None)
def test_any_scheme_follows_the_formula(
    attributes: dict[str, Any],
    shape: tuple[int, int],
    packing: tuple[int, str],
    zeros: str,
    seed: int,
) -> None:
    bits, name = packing
    attributes |= {"bits": bits, "packing": name, "zeros_packed": zeros != "integer"}
    attributes["group_size"] = attributes.get("group_size") or -1
    if name.count("_") > 2:
        attributes["order"] = "sequential"
    if {"f4_e2m1": 4, "f8_e5m2": 8}.get(attributes.get("element", ""), bits) != bits:
        del attributes["element"]
    if attributes.get("element", "integer") != "integer":
        attributes["signed"] = False
    g_idx = attributes.get("desc_act", False)
    assert_by_formula(
        random_parts(seed, attributes, shape, zeros=zeros, g_idx=g_idx), attributes, shape
    )


@pytest.mark.slow  # random attributes seldom get past the first rule
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
    parts = {
        role: np.zeros(data.draw(st.integers(0, 12)), data.draw(dtypes))
        for role in ("packed_weight", "scales", "zeros")
    }
    try:
        assert restore(parts, attributes, shape).shape == tuple(shape)
    except ZTensorError as error:
        caught = error
    else:
        return
    assert caught.reason is not None
    assert len(str(caught)) < 1000


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
    random = np.random.default_rng(8)
    parts: dict[str, Array] = {}
    for role, component in described["components"].items():
        name = STORAGE_TYPES[component["dtype"]].long_name
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        raw = random.integers(0, 256, component["nbytes"], np.uint8)
        parts[role] = np.zeros_like(raw.view(dtype)) if role == "g_idx" else raw.view(dtype)
    found = restore(parts, described["attributes"], described["shape"])
    assert np.isfinite(found).any()


# --- Results --------------------------------------------------------------------------------

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
    parts = random_parts(9, ATTRIBUTES, (16, 3))
    exact = restore(parts, ATTRIBUTES, (16, 3), dtype=np.float64)
    result = restore(parts, ATTRIBUTES, (16, 3), dtype=dtype)
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
    parts = random_parts(0, ATTRIBUTES, (16, 3))
    with refused(ArgumentValueError, Reason.ARGUMENT):
        restore(parts, ATTRIBUTES, (16, 3), dtype=dtype)


def test_infinities_and_nan_come_through_without_a_warning() -> None:
    attributes = {"bits": 4, "group_size": 4}
    parts: dict[str, Array] = {
        "packed_weight": np.full(4, 0x3210, np.int32),
        "scales": np.array([np.nan, np.inf, 1, 3e38], np.float32),
        "zeros": np.array([0, 1, np.inf, -1e38], np.float32),
    }
    result = restore(parts, attributes, (4, 4))
    assert np.isnan(result[:, 0]).all()
    np.testing.assert_array_equal(result[:, 1], [-np.inf, np.nan, np.inf, np.inf])
    np.testing.assert_array_equal(result[:, 2:], [[-np.inf, np.inf]] * 4)
    half = restore(parts, attributes, (4, 4), dtype=np.float16)
    np.testing.assert_array_equal(half[:, 3], [np.inf] * 4)


def test_components_may_be_shaped_strided_and_of_the_other_byte_order() -> None:
    attributes = {**ATTRIBUTES, "zero_offset": 1}
    flat = random_parts(10, attributes, (16, 5), zeros="packed", g_idx=True)
    expected = restore(flat, attributes, (16, 5))
    twice = {role: array.repeat(2)[::2] for role, array in flat.items()}
    swapped = {role: array.astype(array.dtype.newbyteorder()) for role, array in flat.items()}
    shaped = flat | {"packed_weight": flat["packed_weight"].reshape(2, 5)}
    for parts in (twice, swapped, shaped):
        np.testing.assert_array_equal(restore(parts, attributes, (16, 5)), expected)


@pytest.mark.parametrize(("pack_axis", "group_axis"), AXES)
@pytest.mark.parametrize("shape", [(24,), (2, 3, 4), (24, 1), (1, 24), (2, 2, 3, 2)])
def test_later_dimensions_together_are_the_columns(
    shape: tuple[int, ...], pack_axis: int, group_axis: int
) -> None:
    attributes = {**ATTRIBUTES, "pack_axis": pack_axis, "group_axis": group_axis}
    matrix = (shape[0], math.prod(shape[1:]))
    parts = random_parts(11, attributes, matrix)
    result = restore(parts, attributes, shape)
    np.testing.assert_array_equal(result, restore(parts, attributes, matrix).reshape(shape))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (3, 0, 2), (0, 0)])
@pytest.mark.parametrize("zeros", ["float", "packed", "integer"])
@pytest.mark.parametrize("axis", [0, 1])
def test_empty_arrays(shape: tuple[int, ...], zeros: str, axis: int) -> None:
    nothing = np.empty(shape, np.float32)
    tensor = Tensor.quantize(nothing, zeros=zeros, pack_axis=axis, group_axis=1 - axis)
    assert tensor.dequantize().shape == tensor.integers().shape == shape
    if shape[0] and axis == 1:  # rows without columns have no groups
        g_idx = np.zeros(shape[0], np.int64)
        parts: dict[str, Any] = {**tensor.components, "g_idx": g_idx}
        assert restore(parts, tensor.attributes, shape).shape == shape


@pytest.mark.parametrize("shape", [(0, 2**62), (2**62, 0), (0, 2**64), (0,) * 65])
def test_a_shape_no_array_can_have_is_refused(shape: tuple[int, ...]) -> None:
    nothing = np.empty(0, np.int32)
    scales: Array = nothing.astype(np.float16)
    parts: dict[str, Array] = {"packed_weight": nothing, "scales": scales, "zeros": nothing}
    with refused(LimitError, Reason.LIMIT_DECODED):
        restore(parts, {"bits": 4}, shape)


@pytest.mark.parametrize("recipe", [None, "gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4"])
def test_the_result_is_freed_with_its_last_reference(recipe: str | None) -> None:
    """Else a loop over the tensors of a model holds all, until the collector of cycles comes."""
    options: dict[str, Any] = {} if recipe else {"bits": 4, "group_size": 32}
    tensor = Tensor.quantize(np.ones((64, 128), np.float32), recipe, **options)
    gc.collect()
    gc.disable()
    try:
        result = weakref.ref(tensor.dequantize())
        assert result() is None
    finally:
        gc.enable()


# --- Tiles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1030, 1000), (3, 300_001), (300_001, 3)], ids=str)
@pytest.mark.parametrize(("pack_axis", "group_axis"), AXES)
@pytest.mark.parametrize("packing", ["8_per_i32", "2_per_u8"])
def test_arrays_of_more_than_one_tile_have_no_seam(
    packing: str, pack_axis: int, group_axis: int, shape: tuple[int, int]
) -> None:
    """Neither quantized nor restored, by however many threads, nor by the number of a group."""
    array = np.random.default_rng(13).standard_normal(shape).astype(np.float32)
    axes: dict[str, Any] = {"pack_axis": pack_axis, "group_axis": group_axis}
    tensor = Tensor.quantize(array, packing=packing, group_size=20, zeros="packed", **axes)
    parts, attributes = tensor.components, tensor.attributes
    assert_within_half_a_step(array, parts, attributes)
    expected = restore(parts, attributes, shape)
    g_idx = np.arange(shape[group_axis]) // 20
    np.testing.assert_array_equal(restore({**parts, "g_idx": g_idx}, attributes, shape), expected)
    for threads in (1, 5):
        np.testing.assert_array_equal(restore(parts, attributes, shape, threads=threads), expected)
    ones = np.ones_like(parts["scales"])
    bare = {"packed_weight": parts["packed_weight"], "scales": ones, "zeros": 0 * ones}
    np.testing.assert_array_equal(restore(bare, attributes, shape), tensor.integers())


@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize("columns", [32768, 32769, 40008, 300_001])
def test_lines_that_are_cut_leave_no_seam(columns: int, pack_axis: int) -> None:
    """Also in libraries that see pairs of bytes only where rows begin at even ones."""
    module: Any = pytest.importorskip("ztensor.torch", exc_type=ImportError)
    array = np.random.default_rng(3).integers(0, 16, (3, columns)).astype(np.float32)
    array[:, 0], array[:, 1] = 0, 15  # steps of 1
    options: dict[str, Any] = {"group_size": -1, "group_axis": 1, "pack_axis": pack_axis}
    tensor = Tensor.quantize(array, packing="2_per_u8", **options)
    np.testing.assert_array_equal(tensor.integers(), array)
    np.testing.assert_array_equal(tensor.dequantize(), array)
    np.testing.assert_array_equal(module.dequantize(tensor).numpy(), array)


@pytest.mark.parametrize("group_size", [1, 128, -1])
@pytest.mark.parametrize("zeros", ["float", "packed"])
@pytest.mark.parametrize("shape", [(2048, 2048), (8, 1 << 19), (1 << 19, 8)], ids=str)
def test_memory_beside_the_result_is_bounded(
    shape: tuple[int, int], zeros: str, group_size: int
) -> None:
    attributes = {"bits": 4, "packing": "8_per_i32", "group_size": group_size}
    parts = random_parts(15, attributes, shape, zeros=zeros)
    with traced() as memory:
        result = restore(parts, attributes, shape, dtype=np.float16)
        peak = memory()[1]
    assert peak - result.nbytes < 16 << 20


# --- Attributes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "bits", "packing"),
    [
        ("int32", 4, "8_per_i32"),
        ("uint8", 8, "1_per_u8"),
        ("int16", 2, "8_per_i16"),
        ("uint64", 1, "64_per_u64"),
        (">i4", 4, "8_per_i32"),
    ],
)
def test_a_missing_packing_fills_the_words(dtype: str, bits: int, packing: str) -> None:
    parts = random_parts(4, {"bits": bits, "packing": packing}, (32, 8))
    parts["packed_weight"] = parts["packed_weight"].astype(dtype)
    others = {"packing": None, "group_size": None, "sym": True, "quant_method": "gptq", 7: [1]}
    found = restore(parts, {"bits": bits, **others}, (32, 8))
    defaults = {"bits": bits, "packing": packing, "group_size": -1, "zero_offset": 0}
    np.testing.assert_array_equal(found, restore(parts, defaults, (32, 8)))


WRONG_ATTRIBUTES: list[tuple[str, dict[str, object] | Any]] = [
    ("no attributes", None),
    ("not a map", [4, 128]),
    ("bits missing", {"bits": None, "packing": "8_per_i32"}),
    ("bits text", {"bits": "4"}),
    ("bits float", {"bits": 4.0}),
    ("bits true", {"bits": True}),
    ("bits zero", {"bits": 0}),
    ("bits negative", {"bits": -4}),
    ("bits nine", {"bits": 9}),
    ("bits huge", {"bits": 10**5000}),
    ("bits list", {"bits": [4]}),
    ("group zero", {"group_size": 0}),
    ("group -2", {"group_size": -2}),
    ("group float", {"group_size": 128.0}),
    ("group text", {"group_size": "128"}),
    ("group true", {"group_size": True}),
    ("packing integer", {"packing": 8}),
    ("packing bytes", {"packing": b"8_per_i32"}),
    ("packing too few", {"packing": "4_per_i32"}),
    ("packing too many", {"packing": "16_per_i32"}),
    ("packing not the shortest", {"bits": 3, "packing": "64_per_6_i32"}),
    ("packing words uneven", {"bits": 3, "packing": "21_per_2_i32"}),
    ("packing missing for 3 bits", {"bits": 3}),
    ("pack_axis 2", {"pack_axis": 2}),
    ("pack_axis -1", {"pack_axis": -1}),
    ("pack_axis true", {"pack_axis": True}),
    ("group_axis text", {"group_axis": "0"}),
    ("order number", {"order": 1}),
    ("order list", {"order": [0, 2, 4, 6, 1, 3, 5, 7]}),
    ("order across words", {"bits": 3, "packing": "32_per_3_i32", "order": "awq"}),
    ("signed 1", {"signed": 1}),
    ("zero_offset float", {"zero_offset": 1.0}),
    ("zero_offset nan", {"zero_offset": math.nan}),
    ("zero_offset huge", {"zero_offset": 2**64}),
    ("zero_offset -257", {"zero_offset": -257}),
    ("zeros_packed text", {"zeros_packed": "yes"}),
    ("desc_act 0", {"desc_act": 0}),
    ("desc_act map", {"desc_act": {}}),
    ("shared_zero 1", {"shared_zero": 1}),
    ("element number", {"element": 4}),
    ("element list", {"element": ["integer"]}),
    ("element signed", {"element": "f4_e2m1", "signed": True}),
    ("codebook signed", {"element": "codebook", "signed": True}),
]

SHAPE = (64, 16)
GOOD: dict[str, tuple[int, str] | None] = {
    "packed_weight": (128, "int32"),
    "scales": (32, "float16"),
    "zeros": (32, "float16"),
}


def arrays(changes: Mapping[str, tuple[int, str] | None]) -> dict[str, Array]:
    parts = {role: part for role, part in {**GOOD, **changes}.items() if part is not None}
    return {
        role: np.zeros(count, getattr(ml_dtypes, name, name))
        for role, (count, name) in parts.items()
    }


@pytest.mark.parametrize(
    "attributes", [a for _, a in WRONG_ATTRIBUTES], ids=[name for name, _ in WRONG_ATTRIBUTES]
)
def test_wrong_attributes(attributes: Any) -> None:
    if isinstance(attributes, dict):
        attributes = {"bits": 4, **attributes}
    with refused(LayoutError, Reason.QUANTIZATION) as caught:
        restore(arrays({}), attributes, SHAPE)
    assert caught.value.section == "1.2 section 3, quantized_group"
    assert caught.value.expected
    assert caught.value.found
    assert len(str(caught.value)) < 400


UNKNOWN: dict[str, tuple[str, ...]] = {
    "packing": (
        "", "marlin", "8_per_f32", "8_per_i128", "8_per_int32", "08_per_i32", "0_per_i32",
        "8_per_1_i32", "8_per_10_i32", "800_per_i32", " 8_per_i32", "8_per_i32\n", "٨_per_i32",
        "9" * 10**6,
    ),
    "order": ("", "AWQ", "C", "x" * 10**6),
    "element": ("", "nf4", "f8_e4m3fn", "complex64", "f32"),  # of no 4 bits
}  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "value"),
    [(attribute, value) for attribute, values in UNKNOWN.items() for value in values],
    ids=lambda text: text[:20],
)
def test_unknown_names(attribute: str, value: str) -> None:
    with refused(UnsupportedError, Reason.UNKNOWN_LAYOUT) as caught:
        restore(arrays({}), {"bits": 4, attribute: value}, SHAPE)
    assert len(str(caught.value)) < 400


def test_a_scalar_has_no_groups() -> None:
    with refused(LayoutError, Reason.LAYOUT_RANK):
        restore(arrays({}), {"bits": 4}, ())


# --- Components -----------------------------------------------------------------------------

QUANTIZATION, MISSING = Reason.QUANTIZATION, Reason.COMPONENT_MISSING
WRONG_SIZES: list[tuple[str, dict[str, Any], dict[str, Any], Reason]] = [
    ("g_idx", {"desc_act": True}, {}, MISSING),
    ("packed_weight", {}, {"packed_weight": (127, "int32")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (129, "int32")}, QUANTIZATION),
    ("packed_weight", {}, {"packed_weight": (0, "int32")}, QUANTIZATION),
    ("packed_weight", {"packing": "8_per_i32"}, {"packed_weight": (512, "uint8")}, QUANTIZATION),
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


@pytest.mark.parametrize(
    ("role", "attributes", "changes", "reason"),
    WRONG_SIZES,
    ids=[f"{role}-{attributes}-{changes}" for role, attributes, changes, _ in WRONG_SIZES],
)
def test_wrong_components(
    role: str, attributes: dict[str, Any], changes: dict[str, Any], reason: Reason
) -> None:
    with refused(LayoutError, reason) as caught:
        restore(arrays(changes), {"bits": 4, "group_size": 32, **attributes}, SHAPE)
    assert caught.value.component == role


@pytest.mark.parametrize("role", GOOD)
def test_a_missing_component(role: str) -> None:
    with refused(LayoutError, Reason.COMPONENT_MISSING):
        restore(arrays({role: None}), {"bits": 4, "group_size": 32}, SHAPE)


@pytest.mark.parametrize(
    ("attributes", "changes"),
    [
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
    ids=str,
)
def test_components_that_fit(attributes: dict[str, Any], changes: dict[str, Any]) -> None:
    found = restore(arrays(changes), {"bits": 4, "group_size": 32, **attributes}, SHAPE)
    assert not found.any()


@pytest.mark.parametrize(
    "shape", [(2**40, 2**20), (2**64 - 1,) * 1000], ids=["large", "many digits"]
)
def test_sizes_are_compared_before_anything_is_allocated(shape: tuple[int, ...]) -> None:
    with refused(LayoutError, Reason.QUANTIZATION) as caught:
        restore(arrays({}), {"bits": 4, "group_size": 128}, shape)
    assert len(str(caught.value)) < 400
    with refused(LayoutError, Reason.QUANTIZATION):
        integers(arrays({}), {"bits": 4}, shape)


@pytest.mark.parametrize(
    ("dtype", "value"), [("int32", -1), ("int32", 2), ("uint64", 2**64 - 1), ("int64", -(2**63))]
)
def test_group_numbers_are_in_range(dtype: str, value: int) -> None:
    parts = random_parts(0, ATTRIBUTES, (16, 3), zeros="packed")
    parts["g_idx"] = np.zeros(16, dtype)
    parts["g_idx"][5] = value
    with refused(LayoutError, Reason.INDEX_RANGE) as caught:
        restore(parts, ATTRIBUTES, (16, 3))
    assert caught.value.component == "g_idx"
