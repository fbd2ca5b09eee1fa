"""One JAX value to its stored form and back, and onto a device."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    MissingDependencyError,
    NotRepresentableError,
    UsageError,
    describe,
)
from ztensor.typing import Array, JaxDevice

try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    raise MissingDependencyError("ztensor.jax needs JAX", install="jax") from error


# Arrays up to this size are copied into JAX: half the time of calls that may share memory.
_SMALL_BYTES = 64 << 10
_ALIGNMENT = 64  # of memory that JAX can share


# --- From JAX -------------------------------------------------------------------------------


def is_value(value: object) -> bool:
    """Return whether a value is an array of JAX, dense or sparse."""
    sparse = sys.modules.get("jax.experimental.sparse")  # a sparse value's module is imported
    return isinstance(value, jax.Array) or (
        sparse is not None and isinstance(value, sparse.JAXSparse)
    )


def stored(value: Any) -> Array | Tensor:
    """Return the stored form of a JAX array: an array, or a `Tensor` if it is sparse.

    Raises:
        ArgumentTypeError: it is traced or deleted.
        NotRepresentableError: it cannot be stored; the message has an alternative.
    """
    if isinstance(value, jax.Array):
        require_readable(value)
        _require_here(value)
        return np.asarray(value)
    return _stored_sparse(value)


def require_readable(array: Any) -> None:
    """Raise if the elements of a JAX array cannot be read in any process.

    Raises:
        ArgumentTypeError: it is traced or deleted.
        NotRepresentableError: it is a PRNG key.
    """
    if isinstance(array, jax.core.Tracer):
        raise ArgumentTypeError(
            "the value is traced and has no elements yet; save outside of jit, grad and vmap",
        )
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        raise NotRepresentableError(
            "a PRNG key is not an array; save jax.random.key_data(key), and make the key again "
            "with jax.random.wrap_key_data",
            found=describe(str(array.dtype)),
        )
    if array.is_deleted():
        raise ArgumentTypeError(
            "the array was deleted, as a donated argument is; save it before that call",
        )


def _require_here(array: Any) -> None:
    """Raise if other processes hold some of the elements."""
    if not (array.is_fully_addressable or array.is_fully_replicated):
        raise NotRepresentableError(
            "other processes hold shards of the array; save_sharded saves them from there",
            found=describe(str(array.sharding), 200),
        )


def _stored_sparse(matrix: Any) -> Tensor:
    from jax.experimental import sparse

    if not isinstance(matrix, (sparse.BCOO, sparse.BCSR)) or matrix.n_batch or matrix.n_dense:
        raise NotRepresentableError(
            "only BCOO and BCSR without batch and dense dimensions can be stored; use "
            "bcoo_update_layout(matrix, n_batch=0, n_dense=0), or todense()",
            found=describe(matrix),
        )
    require_readable(matrix.data)
    _require_here(matrix.data)
    values, indices = np.asarray(matrix.data), np.asarray(matrix.indices)
    if isinstance(matrix, sparse.BCSR):
        pointers = np.asarray(matrix.indptr)
        count = int(pointers[-1])  # followed by padding
        return Tensor.csr(values[:count], indices[:count], pointers, matrix.shape)
    inside = (indices < np.array(matrix.shape, indices.dtype)).all(1)
    if not inside.all():  # padding has indices outside the shape
        values, indices = values[inside], indices[inside]
    return Tensor.coo(values, indices.T, matrix.shape)


# --- To JAX ---------------------------------------------------------------------------------


def value_of(tensor: Tensor, *, device: JaxDevice | None = None) -> jax.Array | Any:
    """Return a tensor as a JAX value; see `ztensor.Tensor.jax`."""
    value = tensor.numpy() if tensor.format == "dense" else tensor
    value = placed({"": value}, named_device(device))[""]
    if isinstance(value, Tensor):
        raise no_jax_value(tensor)
    return value


def placed(values: dict[str, Any], target: Any, file: str | None = None) -> dict[str, Any]:
    """Return arrays and tensors as JAX values; other layouts are unchanged."""
    dtypes: dict[np.dtype[Any], str] = {}  # with the first name of each
    large = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            dtypes.setdefault(value.dtype, name)
            if target is not None or value.nbytes > _SMALL_BYTES:
                large.append(name)
    for dtype, name in dtypes.items():
        require_held(dtype, name, file)
    moved = dict(zip(large, jax.device_put([values[name] for name in large], target), strict=True))
    return {
        name: moved[name]
        if name in moved
        else jnp.array(value)
        if isinstance(value, np.ndarray)
        else _sparse(name, value, target, file)
        for name, value in values.items()
    }


def is_copied(value: Any) -> bool:
    """Return whether JAX may copy a value on the CPU: it shares aligned arrays only.

    Args:
        value: an array, or a `Tensor`, which is always copied.
    """
    if not isinstance(value, np.ndarray) or value.nbytes <= _SMALL_BYTES:
        return True
    place: int = value.__array_interface__["data"][0]
    return bool(place % _ALIGNMENT)


def is_on_cpu(target: Any) -> bool:
    """Return whether a device, None for JAX's default, is the CPU; for others files are read."""
    return bool((jax.default_backend() if target is None else target.platform) == "cpu")


def require_held(dtype: np.dtype[Any], name: str, file: str | None) -> None:
    """Raise if JAX would change elements of this type, or lacks the type."""
    try:
        held = jax.device_put(np.zeros(0, dtype)).dtype
    except (TypeError, ValueError, RuntimeError) as error:
        raise NotRepresentableError(
            f"JAX has no elements of this type; load it with ztensor.numpy and convert it: {error}",
            file=file,
            object_name=name or None,
            found=dtype.name,
        ) from error
    if held != dtype:
        raise NotRepresentableError(
            f"JAX would narrow the elements to {held}; load under jax.enable_x64(True) or set "
            "JAX_ENABLE_X64=1, or load with ztensor.numpy and convert them there",
            file=file,
            object_name=name or None,
            found=dtype.name,
        )


def _sparse(name: str, tensor: Tensor, target: Any, file: str | None) -> Any:
    """Return a sparse tensor as BCOO or BCSR, and any other tensor unchanged."""
    if tensor.format not in ("sparse_csr", "sparse_coo"):
        return tensor
    from jax.experimental import sparse

    tensor.require_valid()  # JAX drops entries outside the shape
    values = tensor.components["values"].reshape(-1)
    shape = tuple(tensor.shape)  # a built-in tuple: JAX compares it
    largest = max(*shape, values.size, 0)
    index = np.dtype(np.int32 if largest <= np.iinfo(np.int32).max else np.int64)
    for dtype in (values.dtype, index):
        require_held(dtype, name, file)
    if tensor.format == "sparse_csr":
        columns, pointers = (
            tensor.components[role].reshape(-1).astype(index) for role in ("indices", "indptr")
        )
        parts = jax.device_put((values, columns, pointers), target)
        return sparse.BCSR(parts, shape=shape)
    coords = tensor.components["coords"].astype(index).reshape(len(shape), values.size)
    is_sorted, is_unique = _order(coords)
    parts = jax.device_put((values, np.ascontiguousarray(coords.T)), target)
    return sparse.BCOO(parts, shape=shape, indices_sorted=is_sorted, unique_indices=is_unique)


def _order(coords: Array) -> tuple[bool, bool]:
    """Return whether coordinates are sorted, and whether they are also unique."""
    before = np.zeros(max(coords.shape[1] - 1, 0), np.bool_)
    same = ~before
    for axis in coords:
        before |= same & (axis[:-1] < axis[1:])
        same &= axis[:-1] == axis[1:]
    return bool((before | same).all()), bool(before.all())


def no_jax_value(tensor: Tensor) -> UsageError:
    """Return the error for a tensor of a layout that JAX has no value for."""
    return UsageError(
        "JAX has no value for this layout; "
        + ("use dequantize(), or " if tensor.format == "quantized_group" else "use ")
        + "the arrays in .components",
        found=f"format {describe(tensor.format)}",
    )


def named_device(device: Any) -> Any:
    """Return a device for a device, its name, or None, which stays None.

    Raises:
        ArgumentTypeError: it is neither a device nor a name.
        ArgumentValueError: no device has this name.
    """
    if device is None or isinstance(device, jax.Device):
        return device
    if not isinstance(device, str):
        raise ArgumentTypeError(
            "device must be a jax.Device or its name; pass shardings as sharding",
            found=describe(device, 60),
        )
    platform, _, index = device.partition(":")
    try:
        return jax.local_devices(backend=platform)[int(index or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        raise ArgumentValueError(
            "unknown device",
            expected=f"one of {', '.join(f'{each.platform}:{each.id}' for each in jax.devices())}",
            found=describe(device),
        ) from error
