"""SciPy's sparse matrices and arrays as tensors, and back; see `ztensor.io.frameworks`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    MissingDependencyError,
    NotRepresentableError,
    UsageError,
    describe,
)
from ztensor.ext import STORAGE_TYPES, spell

# float16 is missing there; what ml_dtypes adds may look like a float and is not known either.
_SCIPY_TYPES = frozenset(
    {t.long_name for t in STORAGE_TYPES.values() if t.name not in ("f16", "bf16")}
    | {"complex64", "complex128"}
)


def is_value(value: object) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy's."""
    return isinstance(getattr(value, "format", None), str) and hasattr(value, "tocsr")


def stored(matrix: Any) -> Tensor:
    """Return a sparse matrix or array as a tensor; see `ztensor.Tensor.from_scipy`.

    Raises:
        ArgumentTypeError: it is not a matrix of SciPy.
        NotRepresentableError: its element type cannot be stored.
    """
    kind = getattr(matrix, "format", None)
    if not isinstance(kind, str) or not hasattr(matrix, "tocsr"):
        raise ArgumentTypeError(
            "not a SciPy sparse matrix",
            expected="a scipy.sparse array",
            found=describe(matrix, 40),
        )
    spell(matrix.dtype)
    if kind == "coo":
        coordinates = getattr(matrix, "coords", None)
        axes = coordinates if coordinates is not None else (matrix.row, matrix.col)
        return Tensor.coo(matrix.data, axes, matrix.shape)
    if kind != "csr":
        matrix = matrix.tocsr()
    return Tensor.csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape)


def value_of(tensor: Tensor, *, device: Any = "cpu") -> Any:
    """Return a sparse tensor as one of SciPy's arrays; see `ztensor.Tensor.to_scipy`.

    Raises:
        UsageError: the tensor is not sparse.
        LayoutError: a structural rule of the layout is broken.
        NotRepresentableError: SciPy has no such element type.
        MissingDependencyError: SciPy is not installed.
    """
    del device  # it has the CPU only
    if tensor.format not in ("sparse_csr", "sparse_coo"):
        raise UsageError(
            "only sparse tensors become SciPy matrices", found=f"format {describe(tensor.format)}"
        )
    values = tensor.components.get("values", np.zeros(0)).reshape(-1)
    tensor.require_valid()
    try:
        import scipy.sparse
    except ImportError as error:
        raise MissingDependencyError("to_scipy() needs SciPy", install="scipy") from error
    if values.dtype.name not in _SCIPY_TYPES:
        raise NotRepresentableError(
            "SciPy has no sparse matrices of this element type; use to_dense(), or convert "
            "the component 'values' with astype('float32')",
            found=values.dtype.name,
        )
    # As SciPy chooses: 32 bits if they hold every index and position.
    most = max((*tensor.shape, values.size))
    kept = np.int32 if most <= np.iinfo(np.int32).max else np.int64
    shape: Any = tensor.shape  # SciPy's stubs know two dimensions; it checks the rest itself
    try:
        if tensor.format == "sparse_csr":
            return scipy.sparse.csr_array(
                (
                    values,
                    tensor.components["indices"].astype(kept),
                    tensor.components["indptr"].astype(kept),
                ),
                shape=shape,
            )
        coords = tensor.components["coords"].astype(kept)
        axes: Any = tuple(coords.reshape(len(shape), values.size))
        return scipy.sparse.coo_array((values, axes), shape=shape)
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise NotRepresentableError(
            f"SciPy cannot hold a sparse array of shape {describe(tensor.shape)}: {error}"
        ) from error
