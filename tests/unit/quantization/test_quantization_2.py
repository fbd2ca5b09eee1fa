"""Quantized objects at the edges: single groups, short blocks, wide numbers, cut lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ztensor.errors import ArgumentValueError, LayoutError
from ztensor.io.tensor import Tensor
from ztensor.quantization.dequantizing import dequantize, integers
from ztensor.quantization.scheme import GroupScheme

RNG = np.random.default_rng(11)


def quantize(array: Any, **scheme: Any) -> tuple[Mapping[str, Any], dict[str, Any]]:
    tensor = Tensor.quantize(array, **scheme)
    return tensor.components, dict(tensor.attributes)


@pytest.mark.parametrize(
    ("groups", "expected"), [(0, -1), (1, -1), (2, 8), (4, 4), (16, 1), (3, None), (5, None)]
)
def test_the_scales_tell_how_long_a_group_is(groups: int, expected: int | None) -> None:
    """One group is the whole axis, however long it is."""
    shape = (16, 8) if groups else (0, 8)
    parts: tuple[Any, ...] = (
        RNG.integers(-9, 9, (shape[0], 1)).astype(np.int32),
        np.zeros((groups, 1), np.int32),
        np.ones((groups, 8), np.float16),
    )
    if expected is None:
        with pytest.raises(ArgumentValueError, match="group_size="):
            Tensor.from_awq(*parts)
        return
    assert Tensor.from_awq(*parts).attributes["group_size"] == expected


@pytest.mark.parametrize(
    ("shape", "is_told"), [((1, 100), True), ((100,), True), ((2, 96), False), ((2, 128), True)]
)
def test_blocks_of_nf4_may_end_early_in_a_single_row(shape: tuple[int, ...], is_told: bool) -> None:
    count = int(np.prod(shape))
    weight = RNG.integers(0, 256, (count // 2, 1)).astype(np.uint8)
    absmax = np.ones(-(-count // 64), np.float32)
    if not is_told:
        with pytest.raises(ArgumentValueError, match="block"):
            Tensor.from_nf4(weight, absmax, shape)
        return
    codes = np.stack([weight >> 4, weight & 15], axis=-1).reshape(shape)
    assert np.array_equal(Tensor.from_nf4(weight, absmax, shape).integers(), codes)


@pytest.mark.parametrize("block_size", [-2, 0, 1, 3, True, 2.0])
def test_blocks_are_of_an_even_number_of_elements(block_size: Any) -> None:
    array = RNG.standard_normal((4, 12)).astype(np.float32)
    with pytest.raises(ArgumentValueError, match="even number"):
        Tensor.quantize(array, "nf4", block_size=block_size)
    pairs = Tensor.quantize(array, "nf4", block_size=2)
    assert np.array_equal(pairs.components["scales"], np.abs(array.reshape(-1, 2)).max(axis=1))


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
    parts, attributes = quantize(array, bits=4, group_size=-1, scale_dtype=scale_dtype)
    scheme = GroupScheme.from_attributes(attributes, parts["packed_weight"].dtype, array.shape)
    found = integers(scheme, array.shape, parts["packed_weight"])
    assert found.tolist() == [0, code, 15, 0] * 2


@pytest.mark.parametrize(
    ("shape", "scales"),
    [((6,), [5.0]), ((1, 6), [5.0]), ((2, 3), [2.0, 5.0]), ((6, 1), [*range(6)])],
)
def test_int8_scales_rows_and_a_single_row_is_one(
    shape: tuple[int, ...], scales: list[float]
) -> None:
    array = np.arange(6, dtype=np.float32).reshape(shape)
    tensor = Tensor.quantize(array, "int8")
    assert tensor.components["scales"].tolist() == scales
    assert np.abs(tensor.dequantize() - array).max() < 0.02


def test_a_missing_attribute_is_nothing() -> None:
    for attributes, found in (({}, "nothing"), ({"bits": "4"}, "'4'"), ({"bits": 9}, "9")):
        with pytest.raises(LayoutError, match="'bits'") as caught:
            GroupScheme.from_attributes(attributes, np.dtype(np.int32), (16, 8))
        assert caught.value.found == found


@pytest.mark.parametrize("pack_axis", [0, 1])
@pytest.mark.parametrize("columns", [32768, 32769, 40008])
def test_lines_that_are_cut_leave_no_seam(columns: int, pack_axis: int) -> None:
    """Also in libraries that see pairs of bytes only where rows begin at even ones."""
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    module: Any = pytest.importorskip("ztensor.torch.quantized")
    shape = (3, columns)
    array = RNG.integers(0, 16, shape).astype(np.float32)
    array[:, 0], array[:, 1] = 0, 15  # steps of 1
    parts, attributes = quantize(
        array, group_size=-1, group_axis=1, pack_axis=pack_axis, packing="2_per_u8"
    )
    scheme = GroupScheme.from_attributes(attributes, parts["packed_weight"].dtype, shape)
    xp = module.TorchNamespace(torch.device("cpu"))
    expected = integers(scheme, shape, parts["packed_weight"])
    found = integers(scheme, shape, parts["packed_weight"], xp=xp)
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(expected, array)
    made = dequantize(scheme, shape, parts["packed_weight"], parts["scales"], parts["zeros"])
    np.testing.assert_array_equal(made, array)


@pytest.mark.parametrize("word", ["u8", "u16", "i16", "u32", "i32", "u64"])
@pytest.mark.parametrize("bits", [2, 4])
def test_a_codebook_is_looked_up_in_words_of_any_width(word: str, bits: int) -> None:
    dtype = np.dtype(word[0] + str(int(word[1:]) // 8))
    count = dtype.itemsize * 8 // bits
    codes = RNG.integers(0, 1 << bits, (3, 6, count)).astype(np.uint64)
    places = np.arange(count, dtype=np.uint64) * np.uint64(bits)
    words = (codes << places).sum(axis=-1, dtype=np.uint64).astype(f"u{dtype.itemsize}")
    shape = (3, 6 * count)
    attributes: dict[str, object] = {
        "bits": bits, "packing": f"{count}_per_{word}", "group_size": -1, "pack_axis": 1,
        "group_axis": 0, "element": "codebook", "shared_zero": True,
    }  # fmt: skip
    packed = words.view(dtype)
    scheme = GroupScheme.from_attributes(attributes, packed.dtype, shape)
    codebook = RNG.standard_normal(1 << bits).astype(np.float32)
    scales = np.ones(shape[1], np.float32)
    found = dequantize(scheme, shape, packed, scales, np.zeros(1, np.float32), codebook=codebook)
    np.testing.assert_array_equal(found, codebook[codes.astype(int)].reshape(shape))


@pytest.mark.parametrize("columns", [65_528, 65_529, 65_530, 65_535])
def test_a_codebook_is_looked_up_where_lines_are_cut_within_a_byte(columns: int) -> None:
    """Whole groups of five are worked on at once, so that a part may begin within a byte."""
    codes = RNG.integers(0, 16, (2, columns + columns % 2)).astype(np.uint8)
    shape = (2, columns)
    attributes: dict[str, object] = {
        "bits": 4, "packing": "2_per_u8", "group_size": 5, "pack_axis": 1,
        "group_axis": 1, "element": "codebook", "shared_zero": True,
    }  # fmt: skip
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    scheme = GroupScheme.from_attributes(attributes, packed.dtype, shape)
    codebook = RNG.standard_normal(16).astype(np.float32)
    scales = RNG.standard_normal((2, -(-columns // 5))).astype(np.float32)
    found = dequantize(scheme, shape, packed, scales, np.zeros(1, np.float32), codebook=codebook)
    expected = codebook[codes[:, :columns]] * np.repeat(scales, 5, axis=1)[:, :columns]
    np.testing.assert_array_equal(found, expected)
