"""Floats to the stored form of named formats, by the formulas that their projects publish.

`gptq` and `awq` are the group rounding of `quantizing.py` in their conventions; their own
algorithms look at activations. The others divide each block by a scale that follows from its
largest magnitude, and round to the nearest value of a code.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentValueError, NotRepresentableError, describe
from ztensor.ext import View, numpy_dtype
from ztensor.quantization import checkpoints
from ztensor.quantization.quantizing import quantizable, quantize
from ztensor.quantization.scheme import matrix_shape
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float32]
    Codes = NDArray[np.uint8]

_ELEMENTS = 1 << 20  # worked on at once
_FP4_MAX, _E4M3_MAX = 6, 448  # the largest values of e2m1 and e4m3
_FP4_MAX_EXPONENT = 2  # of 6 = 1.5 * 2^2


def quantize_as(array: ArrayLike, recipe: str | None = None, **options: Any) -> View:
    """Return the object of an array quantized by a recipe of `RECIPES`; its components are flat.

    Args:
        array: finite numbers, of at least one dimension.
        recipe: name of the recipe; None calls `quantize`.
        options: keyword arguments of the recipe.

    Raises:
        NotRepresentableError: the array cannot be quantized so.
        ArgumentValueError: an unknown recipe, or an option that cannot work.
    """
    function = quantize if recipe is None else RECIPES.get(recipe)
    if function is None:
        raise ArgumentValueError(
            "unknown recipe", expected=f"one of {', '.join(RECIPES)}", found=describe(recipe)
        )
    try:
        inspect.signature(function).bind(array, **options)
    except TypeError as error:
        raise ArgumentValueError(f"the recipe does not take this argument: {error}") from error
    view: View = function(array, **options)
    return view._replace(arrays={role: part.reshape(-1) for role, part in view.arrays.items()})


def _gptq(array: ArrayLike, *, zero_offset: int = 1, **options: Any) -> View:
    return quantize(array, zero_offset=zero_offset, **{"zeros": "packed", **options})


def _awq(array: ArrayLike, **options: Any) -> View:
    return quantize(array, **{"zeros": "packed", "pack_axis": 1, "order": "awq", **options})


def _int8(array: ArrayLike) -> View:
    """Rows, divided by their largest magnitude, in steps of 1/127."""
    source = quantizable(array)
    rows = source.reshape(matrix_shape(source.shape) if source.ndim > 1 else (1, -1))
    absmax = _largest(rows)
    codes = np.empty(rows.shape, np.int8)
    for part in _parts(rows):
        codes[part] = np.rint(rows[part] * np.float32(127) / _divisors(absmax[part]))
    absmax = absmax if source.size else absmax[:0]
    return checkpoints.int8(codes.reshape(source.shape), absmax)


def _nf4(array: ArrayLike, *, block_size: int = 64) -> View:
    """Blocks, divided by their largest magnitude, to the nearest entry of the codebook."""
    blocks, shape = _blocks(array, block_size)
    absmax = _largest(blocks)
    between = (checkpoints.NF4[1:] + checkpoints.NF4[:-1]) / 2
    codes = _codes(blocks, absmax, lambda x: np.searchsorted(between, x).astype(np.uint8))
    packed = np.left_shift(codes[:, 0::2], 4)
    packed |= codes[:, 1::2]
    return checkpoints.nf4(packed, absmax, shape, block_size=block_size)


def _mxfp4(array: ArrayLike) -> View:
    """Blocks of 32, divided by the power of two that gives the largest e2m1's top exponent."""
    blocks, shape = _blocks(array, 32)
    exponents = np.frexp(_largest(blocks))[1] - 1 - _FP4_MAX_EXPONENT
    stored = np.clip(exponents + 127, 0, 254).astype(np.uint8)
    scales = np.ldexp(np.float32(1), stored.astype(np.int32) - 127)
    packed = _fp4_pairs(blocks, scales)
    return checkpoints.mxfp4(packed, stored, shape=shape)


def _nvfp4(array: ArrayLike) -> View:
    """Blocks of 16 with e4m3 scales, and a global scale that maps the largest scale to 448."""
    blocks, shape = _blocks(array, 16)
    largest = _largest(blocks)
    factor = largest.max(initial=0) / np.float32(_FP4_MAX * _E4M3_MAX) or np.float32(1)
    stored = np.clip(largest / _FP4_MAX / factor, 0, _E4M3_MAX)
    scales = stored.astype(numpy_dtype("float8_e4m3fn"))
    packed = _fp4_pairs(blocks, scales.astype(np.float32) * factor)
    return checkpoints.nvfp4(packed, scales, np.asarray(factor), shape=shape)


RECIPES: dict[str, Callable[..., View]] = {
    "gptq": _gptq,
    "awq": _awq,
    "int8": _int8,
    "nf4": _nf4,
    "mxfp4": _mxfp4,
    "nvfp4": _nvfp4,
}


def _blocks(array: ArrayLike, block_size: int) -> tuple[Array, tuple[int, ...]]:
    """Return an array as rows of one block each, and its shape."""
    if type(block_size) is not int or block_size < 2 or block_size % 2:
        raise ArgumentValueError(
            "a block must have an even number of elements", found=describe(block_size)
        )
    source = quantizable(array)
    if source.shape[-1] % block_size:
        raise NotRepresentableError(
            "the last dimension is not a multiple of the block size; pad it with zeros",
            expected=f"a multiple of {block_size}",
            found=str(source.shape[-1]),
        )
    return source.reshape(-1, block_size), source.shape


def _parts(blocks: Array) -> Iterator[slice]:
    step = max(1, _ELEMENTS // max(1, blocks.shape[1]))
    return (slice(start, start + step) for start in range(0, len(blocks), step))


def _largest(blocks: Array) -> Floats:
    """Return each row's largest magnitude.

    Raises:
        NotRepresentableError: one is not finite.
    """
    largest = np.empty(len(blocks), np.float32)
    with np.errstate(over="ignore"):  # checked below
        for part in _parts(blocks):
            largest[part] = np.abs(blocks[part].astype(np.float32)).max(axis=1, initial=0)
    bad = np.count_nonzero(~np.isfinite(largest))
    if bad:
        raise NotRepresentableError(
            "NaN, infinities and numbers beyond float32 cannot be quantized",
            expected="finite numbers",
            found=f"others in {bad} of {largest.size} blocks",
        )
    return largest


def _divisors(scales: Floats) -> Floats:
    """Return scales as a column to divide by; elements of a block without a scale become zeros."""
    return np.where(scales > 0, scales, np.float32(np.inf))[:, None]


def _codes(blocks: Array, scales: Floats, nearest: Callable[[Floats], Codes]) -> Codes:
    codes = np.empty(blocks.shape, np.uint8)
    for part in _parts(blocks):
        codes[part] = nearest(blocks[part].astype(np.float32) / _divisors(scales[part]))
    return codes


def _fp4_pairs(blocks: Array, scales: Floats) -> Codes:
    """Return e2m1 codes, ties to even, two in a byte, the first in the lower half."""
    fp4 = numpy_dtype("float4_e2m1fn")

    def nearest(x: Floats) -> Codes:
        return np.clip(x, -_FP4_MAX, _FP4_MAX).astype(fp4).view(np.uint8)

    codes = _codes(blocks, scales, nearest)
    packed: Codes = np.left_shift(codes[:, 1::2], 4)
    packed |= codes[:, 0::2]
    return packed
