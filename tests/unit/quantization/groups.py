"""Objects of `quantized_group`, and their floats by the formula of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ztensor.ext import LAYOUTS, View

Array = NDArray[Any]

LAYOUT: Any = LAYOUTS["quantized_group"]
ELEMENTS = {"f4_e2m1": ml_dtypes.float4_e2m1fn, "f8_e5m2": ml_dtypes.float8_e5m2}
PACKINGS = [
    (1, "8_per_u8"), (1, "64_per_i64"), (2, "8_per_u16"), (2, "16_per_i32"), (3, "2_per_u8"),
    (3, "10_per_i32"), (3, "8_per_3_u8"), (3, "32_per_3_i32"), (3, "64_per_3_u64"), (4, "2_per_u8"),
    (4, "2_per_i8"), (4, "8_per_i32"), (4, "8_per_u32"), (4, "16_per_u64"), (5, "6_per_i32"),
    (5, "8_per_5_i8"), (6, "4_per_3_u8"), (6, "16_per_3_i32"), (7, "16_per_7_i16"), (8, "1_per_u8"),
    (8, "1_per_i8"), (8, "4_per_i32"),
]  # fmt: skip


def restore(
    parts: Mapping[str, Array], attributes: Any, shape: Sequence[int], **options: Any
) -> Array:
    """Return the floats that the library makes of an object."""
    found: Array = LAYOUT.dequantize(View(tuple(shape), parts, attributes), **options)
    return found


def integers(parts: Mapping[str, Array], attributes: Any, shape: Sequence[int]) -> Array:
    """Return the codes that the library finds in an object."""
    found: Array = LAYOUT.integers(View(tuple(shape), parts, attributes))
    return found


def packing_of(name: str) -> tuple[int, int, np.dtype[Any]]:
    """Return the integers of a block, its words, and the type of a word."""
    count, *words, word = name.replace("_per", "").split("_")
    return int(count), int(words[0]) if words else 1, np.dtype(f"{word[0]}{int(word[1:]) // 8}")


def order_of(attributes: Mapping[str, Any], count: int) -> list[int]:
    """Return the element of each place of a word, the lowest bits first."""
    every = list(range(count))
    orders = {"sequential": every, "reversed": every[::-1], "awq": every[::2] + every[1::2]}
    return orders[attributes.get("order", "sequential")]


def codes_of(lines: Array, attributes: Mapping[str, Any], length: int) -> Array:
    """Return the first integers of each line of words, bit by bit."""
    count, in_block, word = packing_of(attributes["packing"])
    bits: int = attributes["bits"]
    little = np.ascontiguousarray(lines.astype(word.newbyteorder("<")))
    flat = np.unpackbits(little.view(np.uint8).reshape(len(lines), -1), axis=1, bitorder="little")
    blocks = flat.reshape(len(lines), -1, in_block * word.itemsize * 8)[:, :, : count * bits]
    places = blocks.reshape(len(lines), -1, count, bits) @ (1 << np.arange(bits))
    codes = np.empty_like(places)
    codes[:, :, order_of(attributes, count)] = places
    return codes.reshape(len(lines), -1)[:, :length]


def signed(codes: Array, attributes: Mapping[str, Any]) -> Array:
    """Return integers as the object's sign has them."""
    half = 1 << attributes["bits"] - 1
    return (codes ^ half) - half if attributes.get("signed") else codes


def packed(words: Array, attributes: Mapping[str, Any], shape: tuple[int, int], axis: int) -> Array:
    """Return the matrix of integers that are packed along an axis."""
    lines = words.reshape(shape[0], -1) if axis else words.reshape(-1, shape[1]).T
    codes = codes_of(lines, attributes, shape[axis])
    return codes if axis else codes.T


def expected(
    parts: Mapping[str, Array], attributes: Mapping[str, Any], shape: tuple[int, int]
) -> Array:
    """Return the floats by the formula: `(q - zero) * scale`, in float32."""
    axis, size = attributes.get("group_axis", 0), attributes.get("group_size", -1)
    size = shape[axis] if size == -1 else size
    groups = parts.get("g_idx", np.array([at // size for at in range(shape[axis])]))
    by_group = (-(-shape[0] // size), shape[1]) if axis == 0 else (shape[0], -(-shape[1] // size))

    def of_each(values: Array) -> Array:
        matrix = values.reshape(by_group)
        return matrix[groups] if axis == 0 else matrix[:, groups]

    codes = packed(parts["packed_weight"], attributes, shape, attributes.get("pack_axis", 0))
    element = attributes.get("element", "integer")
    if element == "codebook":
        values = parts["codebook"].astype(np.float64)[codes]
    elif element in ELEMENTS:
        values = codes.astype(np.uint8).view(ELEMENTS[element]).astype(np.float64)
    else:
        values = signed(codes, attributes)
    scale = parts["scales"].astype(np.float32)
    if "global_scale" in parts:
        scale = scale * parts["global_scale"].astype(np.float32)
    zeros, offset = parts["zeros"], attributes.get("zero_offset", 0)
    is_packed = attributes.get("zeros_packed", True) and not attributes.get("shared_zero")
    if zeros.dtype.kind not in "iu":
        zero = zeros.astype(np.float64)
    elif is_packed:
        stored = packed(zeros, attributes, by_group, 1 - axis)
        zero = signed((stored + offset) % (1 << attributes["bits"]), attributes)
    else:
        zero = zeros.astype(np.int64) + offset
    points = zero if attributes.get("shared_zero") else of_each(zero)
    with np.errstate(all="ignore"):  # fp8 has NaN and infinities
        return (values.astype(np.float32) - points.astype(np.float32)) * of_each(scale)


def random_parts(
    seed: int,
    attributes: Mapping[str, Any],
    shape: tuple[int, int],
    *,
    zeros: str = "float",
    scale_dtype: Any = np.float16,
    g_idx: bool = False,
) -> dict[str, Array]:
    """Return components of random bits, also in unused places."""
    random = np.random.default_rng(seed)
    count, in_block, word = packing_of(attributes["packing"])
    axis, size = attributes.get("group_axis", 0), attributes.get("group_size", -1)
    group = shape[axis] if size == -1 else min(size, shape[axis])
    groups = -(-shape[axis] // max(group, 1))

    def words(along: int, across: int) -> Array:
        number = -(-along // count) * in_block * across * word.itemsize
        return random.integers(0, 256, number, np.uint8).view(word)

    other = shape[1 - axis]
    pack_axis = attributes.get("pack_axis", 0)
    parts = {
        "packed_weight": words(shape[pack_axis], shape[1 - pack_axis]),
        "scales": random.standard_normal(groups * other).astype(scale_dtype),
    }
    if zeros == "packed":
        parts["zeros"] = words(other, groups)
    elif zeros == "integer":
        parts["zeros"] = random.integers(-200, 200, groups * other).astype(np.int16)
    else:
        parts["zeros"] = (random.standard_normal(groups * other) * 8).astype(scale_dtype)
    if attributes.get("shared_zero"):
        parts["zeros"] = parts["zeros"][:1]
    element = attributes.get("element", "integer")
    if element == "codebook":
        parts["codebook"] = random.standard_normal(1 << attributes["bits"]).astype(scale_dtype)
    if element != "integer":
        parts["global_scale"] = random.random(1).astype(np.float32)
    if g_idx:
        parts["g_idx"] = random.integers(0, groups, shape[axis]).astype(np.int32)
    return parts


def assert_by_formula(
    parts: Mapping[str, Array], attributes: Mapping[str, Any], shape: tuple[int, int]
) -> None:
    """Compare the library with the formula."""
    found = restore(parts, attributes, shape)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected(parts, attributes, shape), strict=True)


def assert_within_half_a_step(
    array: Array, parts: Mapping[str, Array], attributes: Mapping[str, Any]
) -> None:
    """Compare an object with the array it was quantized from."""
    found = restore(parts, attributes, array.shape, dtype=np.float64)
    matrix = array.reshape(len(array), math.prod(array.shape[1:])).astype(np.float64)
    axis, size = attributes.get("group_axis", 0), attributes["group_size"]
    lines = [slice(None)] * 2
    lines[axis] = slice(0, matrix.shape[axis])
    group = matrix.shape[axis] if size == -1 else size
    by_group = list(matrix.shape)
    by_group[axis] = -(-by_group[axis] // group)
    scales = parts["scales"].astype(np.float64).reshape(by_group)
    step = scales.repeat(min(group, matrix.shape[axis]), axis)[tuple(lines)]
    # Beside half a step: what float32 rounds off while dividing, at most 2^8 steps of 2^-24.
    assert (np.abs(found.reshape(matrix.shape) - matrix) <= step * (0.5 + 2**-14)).all()
