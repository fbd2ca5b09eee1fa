"""Make tensors from the arrays of other libraries and of quantized checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ztensor.errors import ArgumentTypeError, describe
from ztensor.io.frameworks import FRAMEWORKS
from ztensor.io.tensor.arrays import as_array, as_index, shape_of
from ztensor.registry import Registry
from ztensor.spec.layout import View

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import scipy.sparse

    from ztensor.accepted import TensorLike, TorchTensor


_NOTHING: Mapping[str, Any] = {}

# Functions that quantize floats, or combine the arrays of a quantized checkpoint.
QUANTIZERS: Registry[str, Callable[..., Any]] = Registry(
    {"quantize": "ztensor.quantization.recipes:quantize_as"}
    | {
        kind: f"ztensor.quantization.checkpoints:{kind}"
        for kind in ("gptq", "awq", "int8", "nf4", "mxfp4", "nvfp4")
    }
)


class Constructors:
    """The class methods of `Tensor` that make tensors."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __init__(self, *_: Any, **__: Any) -> None: ...
        def require_valid(self) -> None: ...  # noqa: D102  # `Tensor` has both

    @classmethod
    def from_scipy(
        cls,
        matrix: scipy.sparse.sparray | scipy.sparse.spmatrix,
        *,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return a sparse tensor over a SciPy sparse matrix or array.

        CSR becomes `sparse_csr`; COO of any number of dimensions `sparse_coo`; other kinds are
        converted to CSR. Values are shared with the matrix; indices become uint64.

        Raises:
            ArgumentTypeError: `matrix` is not a SciPy sparse matrix.
            NotRepresentableError: the element type cannot be stored.
        """
        return cls._stored(FRAMEWORKS["scipy"].loaded().stored(matrix), attributes)

    @classmethod
    def from_torch(
        cls, tensor: TorchTensor, *, attributes: Mapping[str, object] | None = None
    ) -> Self:
        """Return a `Tensor` over a torch tensor: dense, `sparse_csr` or `sparse_coo`.

        Elements are shared with tensors on the CPU and copied from other devices; sparse indices
        become uint64.

        Raises:
            ArgumentTypeError: `tensor` is not a torch tensor.
            NotRepresentableError: the tensor has no data, or its element type or layout cannot be
                stored; the message names an alternative.
            MissingDependencyError: PyTorch is not installed.
        """
        return cls._stored(FRAMEWORKS["torch"].loaded().stored(tensor), attributes)

    @classmethod
    def _stored(cls, value: Any, attributes: Mapping[str, object] | None) -> Self:
        """Return the array or tensor that an adapter returned, with attributes."""
        if not isinstance(value, np.ndarray):
            return cls(
                value.components, shape=value.shape, format=value.format, attributes=attributes
            )
        return cls(value, attributes=attributes)

    @classmethod
    def csr(
        cls,
        values: TensorLike,
        indices: TensorLike,
        indptr: TensorLike,
        shape: Sequence[int],
        *,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return a `sparse_csr` tensor from its three arrays; indices become uint64.

        Raises:
            LayoutError: the arrays do not make a matrix of that shape.
        """
        components = {
            "indices": as_index("indices", indices),
            "indptr": as_index("indptr", indptr),
            "values": as_array("values", values).reshape(-1),
        }
        tensor = cls(components, shape=shape, format="sparse_csr", attributes=attributes)
        tensor.require_valid()
        return tensor

    @classmethod
    def coo(
        cls,
        values: TensorLike,
        coords: TensorLike | Sequence[TensorLike],
        shape: Sequence[int],
        *,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return a `sparse_coo` tensor; indices become uint64.

        Args:
            values: (nnz,) values.
            coords: (ndim, nnz) indices, or one array for each axis.
            shape: the logical shape.
            attributes: the object's own key-value pairs.

        Raises:
            LayoutError: a coordinate is outside the shape, or counts differ.
        """
        if not hasattr(coords, "__iter__"):
            raise ArgumentTypeError(
                "coords must be an array, or a list of one array per axis",
                found=describe(coords, 40),
            )
        axes = [as_index("coords", axis).reshape(-1) for axis in coords]
        components = {
            "coords": np.concatenate(axes) if axes else np.zeros(0, np.uint64),
            "values": as_array("values", values).reshape(-1),
        }
        tensor = cls(components, shape=shape, format="sparse_coo", attributes=attributes)
        tensor.require_valid()
        return tensor

    @classmethod
    def quantize(
        cls,
        array: TensorLike,
        recipe: str | None = None,
        *,
        attributes: Mapping[str, object] | None = None,
        **scheme: Any,
    ) -> Self:
        """Return a `quantized_group` tensor that approximates a float array.

        Without a recipe each element is rounded to the nearest step between its group's minimum
        and maximum; the error of `dequantize()` is at most about half a step.

        Args:
            array: (K, N) finite floats, of NumPy or torch; without a recipe groups run along K.
            recipe: `gptq`, `awq`, `int8`, `nf4`, `mxfp4` or `nvfp4`, with the published formulas;
                `gptq` and `awq` only define the storage.
            attributes: further attributes of the object.
            scheme: `bits` (4), `group_size` (128; -1 for the whole axis), `packing`, `pack_axis`,
                `group_axis`, `symmetric`, `scale_dtype`, `zeros` and more, and `block_size` of
                `nf4`; see the page on quantized tensors.

        Raises:
            NotRepresentableError: the array cannot be quantized with this scheme.
            ArgumentValueError: an unknown recipe, or an invalid scheme.
        """
        array = as_array("data", array)
        return cls._quantized(QUANTIZERS["quantize"](array, recipe, **scheme), attributes)

    @classmethod
    def from_gptq(
        cls,
        qweight: TensorLike,
        qzeros: TensorLike,
        scales: TensorLike,
        g_idx: TensorLike | None = None,
        *,
        bits: int = 4,
        group_size: int | None = None,
        checkpoint_format: str = "gptq",
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the weight of a GPTQ layer as one tensor, without a copy.

        Args:
            qweight: (in * bits / 32, out) words, usually int32.
            qzeros: (groups, out * bits / 32) words.
            scales: (groups, out) floats.
            g_idx: (in,) the group of each row; not kept if groups are consecutive rows.
            bits: bits per weight.
            group_size: rows per group; None divides the rows evenly.
            checkpoint_format: `"gptq"` (zero points are stored minus one) or `"gptq_v2"`.
            attributes: further attributes of the object.

        Returns:
            A tensor of the shape (in, out): the transpose of a linear layer's weight.

        Raises:
            ArgumentValueError: the arrays do not fit each other.
        """
        arrays = {"qweight": qweight, "qzeros": qzeros, "scales": scales, "g_idx": g_idx}
        how = {"bits": bits, "group_size": group_size, "checkpoint_format": checkpoint_format}
        return cls._of_checkpoint("gptq", arrays, attributes, how)

    @classmethod
    def from_awq(
        cls,
        qweight: TensorLike,
        qzeros: TensorLike,
        scales: TensorLike,
        *,
        bits: int = 4,
        group_size: int | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return the weight of an AWQ ("gemm") layer as one tensor, without a copy.

        Args:
            qweight: (in, out * bits / 32) words, usually int32.
            qzeros: (groups, out * bits / 32) words.
            scales: (groups, out) floats.
            bits: bits per weight.
            group_size: rows per group; None divides the rows evenly.
            attributes: further attributes of the object.

        Returns:
            A tensor of the shape (in, out): the transpose of a linear layer's weight.

        Raises:
            ArgumentValueError: the arrays do not fit each other.
        """
        arrays = {"qweight": qweight, "qzeros": qzeros, "scales": scales}
        how = {"bits": bits, "group_size": group_size}
        return cls._of_checkpoint("awq", arrays, attributes, how)

    @classmethod
    def from_int8(
        cls,
        weight: TensorLike,
        absmax: TensorLike,
        *,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return int8 rows and their largest magnitudes, as in bitsandbytes, as one tensor.

        Dequantized elements are `weight * absmax / 127`.

        Args:
            weight: (out, in) int8 (`CB`, or the layer's `weight`).
            absmax: (out,) floats (`SCB`).
            attributes: further attributes of the object.

        Raises:
            ArgumentValueError: the arrays do not fit each other.
        """
        return cls._of_checkpoint("int8", {"weight": weight, "absmax": absmax}, attributes)

    @classmethod
    def from_nf4(
        cls,
        weight: TensorLike,
        absmax: TensorLike,
        shape: Sequence[int],
        *,
        block_size: int = 64,
        codebook: TensorLike | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return 4-bit codes and magnitudes of blocks, as in bitsandbytes, as one tensor.

        Dequantized elements are `codebook[code] * absmax`. Nested (quantized) magnitudes must be
        dequantized first; the page on quantized tensors shows how.

        Args:
            weight: bytes of two codes each, the first in the upper half.
            absmax: one float per block of the flattened weight.
            shape: the weight's shape.
            block_size: elements per block.
            codebook: (16,) floats (`quant_map`); None uses NF4's.
            attributes: further attributes of the object.

        Raises:
            ArgumentValueError: the arrays do not fit each other, or a block crosses a row.
        """
        arrays = {"weight": weight, "absmax": absmax, "codebook": codebook}
        how = {"shape": shape_of(shape), "block_size": block_size}
        return cls._of_checkpoint("nf4", arrays, attributes, how)

    @classmethod
    def from_mxfp4(
        cls,
        blocks: TensorLike,
        scales: TensorLike,
        *,
        shape: Sequence[int] | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return MXFP4 codes and their blocks' exponents as one tensor, without a copy.

        Dequantized elements are `e2m1 * 2**(scale - 127)`.

        Args:
            blocks: (..., N / 32, 16) or (..., N / 2) bytes of two codes each, the first in the
                lower half.
            scales: (..., N / 32) bytes, or float8_e8m0fnu.
            shape: the weight's shape; None takes (..., N) from the scales.
            attributes: further attributes of the object.

        Raises:
            ArgumentValueError: the arrays do not fit each other.
        """
        how = {"shape": None if shape is None else shape_of(shape)}
        return cls._of_checkpoint("mxfp4", {"blocks": blocks, "scales": scales}, attributes, how)

    @classmethod
    def from_nvfp4(
        cls,
        weight: TensorLike,
        scales: TensorLike,
        global_scale: TensorLike,
        *,
        shape: Sequence[int] | None = None,
        attributes: Mapping[str, object] | None = None,
    ) -> Self:
        """Return NVFP4 codes and their two scales as one tensor.

        Dequantized elements are `e2m1 * (scale * global_scale)`.

        Args:
            weight: (..., N / 2) bytes of two codes each, the first in the lower half.
            scales: (..., N / 16) float8_e4m3fn, or its bytes.
            global_scale: the factor of all scales, kept as float32. Pass the reciprocal if the
                checkpoint divides by it, as compressed-tensors does.
            shape: the weight's shape; None takes (..., N) from the scales.
            attributes: further attributes of the object.

        Raises:
            ArgumentValueError: the arrays do not fit each other.
        """
        arrays = {"weight": weight, "scales": scales, "global_scale": global_scale}
        how = {"shape": None if shape is None else shape_of(shape)}
        return cls._of_checkpoint("nvfp4", arrays, attributes, how)

    @classmethod
    def _of_checkpoint(
        cls,
        recipe: str,
        arrays: Mapping[str, TensorLike | None],
        attributes: Mapping[str, object] | None,
        how: Mapping[str, Any] = _NOTHING,
    ) -> Self:
        """Combine the arrays of a checkpoint by a recipe."""
        given = {
            role: None if array is None else as_array(role, array) for role, array in arrays.items()
        }
        return cls._quantized(QUANTIZERS[recipe](**given, **how), attributes)

    @classmethod
    def _quantized(cls, view: View, attributes: Mapping[str, object] | None) -> Self:
        own = {**view.attributes, **(attributes or {})}
        return cls(view.arrays, shape=view.shape, format="quantized_group", attributes=own)
