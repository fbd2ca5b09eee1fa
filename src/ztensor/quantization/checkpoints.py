"""Quantized weights of published checkpoints as `quantized_group` objects.

Nothing is computed: the tensors of a checkpoint become components as they are, and the conventions
of the project's code become attributes. `docs/guides/quantized.md` has the tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    FormatError,
    UnsupportedError,
    describe,
)
from ztensor.ext import View, element_count, numpy_dtype
from ztensor.quantization.dequantizing import require_fit, scheme_of
from ztensor.quantization.scheme import CODEBOOK, Packing
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


# 4-bit NormalFloat: quantiles of the normal distribution, and zero (QLoRA, appendix E).
NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
        *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
        *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    np.float32,
)
# Added to the zero points that a GPTQ checkpoint stores, by its format.
_GPTQ_OFFSETS = {"gptq": 1, "gptq_v2": 0}


def gptq(
    qweight: Array,
    qzeros: Array,
    scales: Array,
    g_idx: Array | None = None,
    *,
    checkpoint_format: str = "gptq",
    **options: Any,
) -> View:
    """Return the object of a GPTQ layer; see `Tensor.from_gptq`."""
    if checkpoint_format not in _GPTQ_OFFSETS:
        raise ArgumentValueError(
            "unknown checkpoint_format of GPTQ",
            expected=" or ".join(map(repr, _GPTQ_OFFSETS)),
            found=describe(checkpoint_format),
        )
    offset = _GPTQ_OFFSETS[checkpoint_format]
    own = {"zero_offset": offset} if offset else {}
    view = _layer(qweight, qzeros, scales, 0, own, **options)
    rows = view.shape[0]
    group = _group_size(options.get("group_size"), rows, len(scales))
    if g_idx is None or np.array_equal(g_idx, np.arange(rows) // (rows if group == -1 else group)):
        return _fitting(*view)
    return _fitting(
        view.shape, {**view.arrays, "g_idx": g_idx}, {**view.attributes, "desc_act": True}
    )


def awq(qweight: Array, qzeros: Array, scales: Array, **options: Any) -> View:
    """Return the object of an AWQ layer; see `Tensor.from_awq`."""
    own = {"pack_axis": 1, "order": "awq"}
    return _fitting(*_layer(qweight, qzeros, scales, 1, own, **options))


def _layer(
    qweight: Array,
    qzeros: Array,
    scales: Array,
    pack_axis: int,
    own: Mapping[str, object],
    *,
    bits: int = 4,
    group_size: int | None = None,
) -> View:
    """Return the object of a layer with grouped rows; `own`: further attributes."""
    for name, array in (("qweight", qweight), ("qzeros", qzeros), ("scales", scales)):
        if array.ndim != 2:
            raise ArgumentValueError(
                f"{name} is a matrix", expected="two dimensions", found=describe(array.shape)
            )
    _require_integer("bits", bits, 1, 8)
    rows, columns = qweight.shape
    per_axis = qweight.itemsize * 8
    shape = (rows, columns * per_axis // bits) if pack_axis else (rows * per_axis // bits, columns)
    attributes = {
        "bits": bits,
        "group_size": _group_size(group_size, shape[0], len(scales)),
        "packing": _packing(bits, qweight),
        **own,
    }
    return View(shape, {"packed_weight": qweight, "scales": scales, "zeros": qzeros}, attributes)


def int8(weight: Array, absmax: Array) -> View:
    """Return the object of int8 rows and their largest magnitudes; see `Tensor.from_int8`."""
    arrays = {"global_scale": np.array([1 / 127], np.float32)}
    return _symmetric(
        weight, absmax, weight.shape, -1, arrays, bits=8, packing="1_per_i8", signed=True
    )


def nf4(
    weight: Array,
    absmax: Array,
    shape: Sequence[int],
    *,
    block_size: int = 64,
    codebook: Array | None = None,
) -> View:
    """Return the object of 4-bit codes and their blocks' magnitudes; see `Tensor.from_nf4`."""
    shape = tuple(shape)
    _require_integer("block_size", block_size, 1, 1 << 31)
    if len(shape) > 1 and shape[0] > 1 and element_count(shape[1:]) % block_size:
        raise ArgumentValueError(
            "a block crosses the end of a row, which the attributes cannot describe",
            expected=f"rows of a multiple of {block_size} elements, or the shape [1, count]",
            found=f"the shape {describe(shape)}",
        )
    arrays = {"codebook": NF4 if codebook is None else codebook}
    return _symmetric(weight, absmax, shape, block_size, arrays, order="reversed", element=CODEBOOK)


def mxfp4(blocks: Array, scales: Array, *, shape: Sequence[int] | None = None) -> View:
    """Return the object of MXFP4 blocks and their exponents; see `Tensor.from_mxfp4`."""
    return _fp4(blocks, scales, 32, "float8_e8m0fnu", shape, {})


def nvfp4(
    weight: Array, scales: Array, global_scale: Array, *, shape: Sequence[int] | None = None
) -> View:
    """Return the object of NVFP4 codes and their two scales; see `Tensor.from_nvfp4`."""
    try:
        factor = np.asarray(global_scale, np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            "the global scale is a number", found=describe(global_scale)
        ) from error
    return _fp4(weight, scales, 16, "float8_e4m3fn", shape, {"global_scale": factor})


def _fp4(
    packed: Array,
    scales: Array,
    block_size: int,
    scale_type: str,
    shape: Sequence[int] | None,
    arrays: Mapping[str, Array],
) -> View:
    if scales.dtype == np.uint8:
        scales = scales.view(numpy_dtype(scale_type))
    if scales.dtype.name != scale_type:
        raise ArgumentValueError(
            "the scales are of another type",
            expected=f"{scale_type}, or its bytes as uint8",
            found=scales.dtype.name,
        )
    if shape is None:
        if scales.ndim == 0:
            raise ArgumentValueError("scales have at least one dimension", found="a scalar")
        shape = (*scales.shape[:-1], scales.shape[-1] * block_size)
    return _symmetric(packed, scales, tuple(shape), block_size, arrays, element="f4_e2m1")


def _symmetric(
    packed: Array,
    scales: Array,
    shape: tuple[int, ...],
    block_size: int,
    arrays: Mapping[str, Array],
    **own: object,
) -> View:
    """Return an object with blocks along the later dimensions and the zero point 0.

    Args:
        packed: the codes; 4-bit pairs unless `own` says otherwise.
        scales: one for each block.
        shape: the object's shape.
        block_size: elements in a block; -1 for the whole axis.
        arrays: further components.
        own: further attributes.
    """
    axis = min(1, len(shape) - 1)
    attributes = {
        "bits": 4,
        "group_size": block_size,
        "packing": "2_per_u8",
        "pack_axis": axis,
        "group_axis": axis,
        "shared_zero": True,
        **own,
    }
    zeros = np.zeros(1, np.float32)
    components = {"packed_weight": packed, "scales": scales, "zeros": zeros, **arrays}
    return _fitting(shape, components, attributes)


def _packing(bits: int, words: Array) -> str:
    if words.dtype.kind not in "iu":
        raise ArgumentValueError("weights are packed in integers", found=words.dtype.name)
    container = f"{words.dtype.kind}{words.itemsize * 8}"
    return str(Packing.dense(bits, container))


def _group_size(given: int | None, length: int, groups: int) -> int:
    if given is not None:
        if given != -1:
            _require_integer("group_size", given, 1, max(length, 1))
        return given
    if groups <= 1:
        return -1
    if length % groups:
        raise ArgumentValueError(
            "the count of scales does not determine the group size",
            expected="group_size=",
            found=f"{groups} groups of {length} rows",
        )
    return length // groups


def _require_integer(name: str, value: int, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise ArgumentValueError(
            f"{name} is out of range",
            expected=f"an integer from {low} to {high}",
            found=describe(value),
        )


def _fitting(
    shape: tuple[int, ...], arrays: Mapping[str, Array], attributes: Mapping[str, object]
) -> View:
    """Return an object after comparing its components with its attributes.

    Raises:
        ArgumentValueError: they do not.
    """
    view = View(shape, arrays, attributes)
    try:
        require_fit(scheme_of(view), view.shape, view.arrays)
    except (FormatError, UnsupportedError) as error:
        raise ArgumentValueError(
            error.message,
            component=error.component,
            expected=error.expected,
            found=error.found,
        ) from error
    return view
