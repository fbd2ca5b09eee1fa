"""Floats to packed integers: each element rounded to the nearest step of its group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentValueError,
    LayoutError,
    NotRepresentableError,
    UnsupportedError,
)
from ztensor.ext import STORAGE_TYPES, View
from ztensor.options import require_choice
from ztensor.quantization.dequantizing import group_cubes
from ztensor.quantization.scheme import (
    ORDERS,
    GroupScheme,
    Packing,
    float_dtype,
    is_float,
    matrix_shape,
    require_rule,
)
from ztensor.typing import Array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray


# Elements of a tile; lines are contiguous, so they are cut only when very long.
_TILE = 1 << 18
_LINE = 1 << 15


def quantize(
    array: ArrayLike,
    *,
    bits: int = 4,
    group_size: int = 128,
    packing: str | None = None,
    pack_axis: int = 0,
    group_axis: int = 0,
    order: str = "sequential",
    signed: bool = False,
    symmetric: bool = False,
    zeros: str = "float",
    zero_offset: int = 0,
    scale_dtype: DTypeLike = "float16",
) -> View:
    """Return the object of `array`, each element rounded to the nearest step of its group.

    A group's steps reach from its smallest to its largest element, zero always among them, so
    zeros stay zeros. The scale is rounded up, never down, to `scale_dtype`; every element comes
    back within half a (stored) scale.

    Args:
        array: finite numbers, of at least one dimension. The first dimension is the rows, the
            others together are the columns.
        bits: bits of one integer, 1 to 8.
        group_size: elements that share a scale; -1 for the whole axis.
        packing: a name such as `8_per_i32`; by default 32-bit words without unused bits.
        pack_axis: 0 to pack along the rows, as GPTQ does; 1 along the columns, as AWQ does.
        group_axis: 0 to group along the rows, 1 along the columns.
        order: order in a word: `sequential`, `reversed` or `awq`.
        signed: store integers in two's complement.
        symmetric: steps reach as far below zero as above; all zero points are then the same.
        zeros: zero points as `float` (of `scale_dtype`), `packed` like the weights, or `integer`
            (one `int16` each).
        zero_offset: added by readers to zero points that are stored as integers.
        scale_dtype: `float16`, `bfloat16`, `float32` or `float64`.

    Returns:
        An object with the components `packed_weight`, `scales` and `zeros`.

    Raises:
        NotRepresentableError: NaN or infinities, values too large for `scale_dtype`, complex
            numbers or other types, a scalar.
        ArgumentValueError: an argument that cannot work.
    """
    require_choice("zeros", zeros, ("float", "packed", "integer"))
    if zeros == "float" and zero_offset:
        raise ArgumentValueError(
            "zero_offset is for zero points stored as integers",
            expected="zeros='packed' or 'integer', or zero_offset=0",
        )
    source = quantizable(array)
    shape = source.shape
    scale_type = float_dtype(scale_dtype)
    try:
        require_rule("bits", bits)
        scheme = GroupScheme(
            bits=bits,
            packing=Packing.dense(bits, "i32") if packing is None else Packing.parse(packing),
            group_size=group_size,
            pack_axis=pack_axis,
            group_axis=group_axis,
            order=order,
            signed=signed,
            zero_offset=zero_offset,
            zeros_packed=zeros != "integer",
        )
    except (LayoutError, UnsupportedError) as error:
        raise ArgumentValueError(
            error.message, expected=error.expected, found=error.found
        ) from error

    # Packed words are filled through views with the grouped axis first, as in dequantize.
    def grouped_first(component: Array) -> Array:
        return component.T if group_axis else component

    word = np.dtype(f"u{scheme.packing.width // 8}")
    shapes = scheme.shapes(shape, word)
    words, by_group = np.zeros(shapes["packed_weight"], word), shapes["scales"]
    stored_scales, points = np.zeros(by_group, scale_type), np.zeros(by_group, np.int16)
    if source.size:
        matrix = grouped_first(source.reshape(matrix_shape(shape)))
        group = scheme.group_length(shape)
        wide = source.dtype.itemsize * 8 >= 64 or source.dtype.name in ("int32", "uint32")
        compute = np.float64 if wide or scale_type == np.float64 else np.float32
        with np.errstate(all="ignore"):  # overflow is checked and refused
            scale, point = _steps(scheme, matrix, group, scale_type, symmetric=symmetric)
            grouped_first(stored_scales)[...] = scale
            grouped_first(points)[...] = point
            _round(scheme, matrix, group, scale.astype(compute), point, grouped_first(words))

    container = STORAGE_TYPES[scheme.packing.container].long_name
    components = {
        "packed_weight": words.view(container),
        "scales": stored_scales,
        "zeros": points.astype(scale_type),
    }
    if zeros == "integer":
        components["zeros"] = points - np.int16(zero_offset)
    elif zeros == "packed":
        packed = np.zeros(shapes["zeros"], word)
        _pack(scheme, (grouped_first(points) - zero_offset).T, grouped_first(packed).T)
        components["zeros"] = packed.view(container)
    return View(shape, components, scheme.to_attributes())


def quantizable(array: ArrayLike) -> Array:
    """Return an array of real numbers; fp8 as float32.

    Raises:
        NotRepresentableError: other elements, or a scalar.
    """
    source = np.asarray(array)
    if source.ndim == 0 or not (source.dtype.kind in "iu" or is_float(source.dtype)):
        raise NotRepresentableError(
            "only real numbers of at least one dimension can be quantized in groups",
            expected="floats or integers",
            found=f"{source.dtype.name} of shape {list(source.shape)}",
        )
    return source.astype(np.float32) if source.dtype.name.startswith("float8") else source


def _steps(
    scheme: GroupScheme, matrix: Array, group: int, scale_type: np.dtype[Any], *, symmetric: bool
) -> tuple[Array, NDArray[np.int16]]:
    """Return each group's scale, of `scale_type`, and zero point; the first axis is grouped."""
    low = np.empty((-(-len(matrix) // group), matrix.shape[1]))
    high = np.empty_like(low)
    for cube, numbers in group_cubes(matrix, group):
        low[numbers], high[numbers] = cube.min(axis=1), cube.max(axis=1)
    bad = ~(np.isfinite(low) & np.isfinite(high))
    if bad.any():
        raise NotRepresentableError(
            "NaN and infinities cannot be quantized",
            expected="finite numbers",
            found=f"others in {np.count_nonzero(bad)} of {bad.size} groups",
        )
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    if symmetric:
        high = np.maximum(-low, high)
        low = -high
    levels = (1 << scheme.bits) - 1
    exact = high / levels - low / levels  # divided first, since the difference may overflow
    scale = exact.astype(scale_type)
    short = scale.astype(np.float64) < exact
    scale[short] = np.nextafter(scale[short], scale_type.type(np.inf))
    scale[exact == 0] = 1
    if not np.isfinite(scale).all():
        raise NotRepresentableError(
            f"the values are too large for scales of {scale_type.name}",
            expected="smaller values or a wider scale_dtype",
            found=f"a scale of {exact.max():g}",
        )
    lowest = -(1 << (scheme.bits - 1)) if scheme.signed else 0
    if symmetric:
        return scale, np.full(scale.shape, lowest + (1 << (scheme.bits - 1)), np.int16)
    return scale, (lowest + np.rint(-low / scale.astype(np.float64))).astype(np.int16)


def _round(
    scheme: GroupScheme,
    matrix: Array,
    group: int,
    scale: Array,
    point: NDArray[np.int16],
    words: Array,
) -> None:
    """Write the nearest steps of `matrix` into `words`; the first axis is the grouped one."""
    lowest = -(1 << (scheme.bits - 1)) if scheme.signed else 0
    highest = lowest + (1 << scheme.bits) - 1
    packed_first = scheme.pack_axis == scheme.group_axis
    count, step = scheme.packing.count, scheme.packing.words
    rows, columns = matrix.shape
    # Tiles begin at the start of a block; no count is above 64.
    width = min(columns, _LINE) if scheme.group_axis == 0 else max(64, _TILE // min(rows, _LINE))
    height = max(64, _TILE // width) // count * count
    width = max(count, width // count * count)
    for top in range(0, rows, height):
        groups = np.arange(top, min(top + height, rows)) // group
        for left in range(0, columns, width):
            tile = matrix[top : top + height, left : left + width].astype(scale.dtype, order="C")
            tile /= scale[groups, left : left + width]
            tile += point[groups, left : left + width]
            np.rint(tile, out=tile)
            np.clip(tile, lowest, highest, out=tile)
            steps = tile.astype(np.int16)
            if packed_first:
                _pack(scheme, steps, words[top // count * step :, left : left + width])
            else:
                _pack(scheme, steps.T, words[top : top + height, left // count * step :].T)


def _pack(scheme: GroupScheme, values: NDArray[np.int16], words: Array) -> None:
    """Add the lowest bits of `values` to `words`, which are zero; both along the first axis."""
    bits, width = scheme.bits, scheme.packing.width
    count, step = scheme.packing.count, scheme.packing.words
    for place, element in enumerate(ORDERS[scheme.order](count)):
        part = values[element::count].astype(words.dtype) & words.dtype.type((1 << bits) - 1)
        word, shift = divmod(place * bits, width)
        words[word::step][: len(part)] |= part << shift
        if shift + bits > width:
            words[word + 1 :: step][: len(part)] |= part >> (width - shift)
