"""One torch tensor to its stored form, an array or a `Tensor`, and back.

Elements are never converted. Types that torch and NumPy share are passed as they are; types of
ml_dtypes as integers of their width, which both libraries view as the right type.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ztensor import Tensor
from ztensor.errors import (
    ArgumentTypeError,
    LimitError,
    NotRepresentableError,
    Reason,
    UnsupportedError,
    UsageError,
    ZTensorError,
    describe,
)
from ztensor.ext import (
    BY_LONG_NAME,
    LAYOUTS,
    LOGICAL_TYPES,
    Blocks,
    Component,
    Quantized,
    numpy_dtype,
    typed_array,
)
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence


# Errors by which torch refuses a call; its releases differ.
TORCH_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, OverflowError, AssertionError)

# Two 4-bit values in each element; for NumPy each value is an element.
PACKED = "float4_e2m1fn"
# The types of ml_dtypes, which are passed as integers of their width.
_CARRIED = frozenset({
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu", PACKED,
})  # fmt: skip
_CARRIERS: dict[int, tuple[np.dtype[Any], Any]] = {
    1: (np.dtype(np.uint8), torch.uint8),
    2: (np.dtype(np.int16), torch.int16),
}
# Long names to the types that this release of torch has. The list is explicit: torch has further
# types with names of ml_dtypes, but another memory layout.
_TORCH_DTYPES: dict[str, Any] = {
    name: getattr(torch, spelled)
    for name in (*BY_LONG_NAME, "complex64", "complex128", *_CARRIED)
    if hasattr(torch, spelled := f"{name}_x2" if name == PACKED else name)
}
_NAMES: dict[Any, str] = {dtype: name for name, dtype in _TORCH_DTYPES.items()}
_INDEX_ADVICE = "to_scipy() and to_dense() give it to NumPy"
SPARSE = ("sparse_csr", "sparse_coo")
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class _Form(NamedTuple):
    """Torch's type of elements, and the integers by which both libraries share them, or None."""

    dtype: Any
    carrier: np.dtype[Any] | None
    is_packed: bool


_FORMS: dict[np.dtype[Any], _Form] = {}


@functools.lru_cache(64)
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return the name of a type; NumPy composes it on each access, in 20 us."""
    return dtype.name


def torch_dtype(dtype: np.dtype[Any]) -> Any:
    """Return torch's type for a NumPy or ml_dtypes type, in any byte order.

    Raises:
        UnsupportedError: this release of torch has none.
    """
    torch_type = _TORCH_DTYPES.get(_name_of(dtype))
    if torch_type is None:
        raise UnsupportedError(
            f"torch {torch.__version__} has no such element type; read_numpy(name) gives the "
            "array, and its astype('float32') an array torch takes",
            reason=Reason.UNKNOWN_TYPE,
            expected=f"one of {', '.join(_TORCH_DTYPES)}",
            found=dtype.name,
        )
    return torch_type


def numpy_type(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy element type that a `torch.dtype` is written as.

    Raises:
        NotRepresentableError: zTensor has no such element type.
    """
    name = _NAMES.get(dtype)
    if name is None:
        raise NotRepresentableError(
            "zTensor has no such element type",
            expected=f"one of {', '.join(map(str, _NAMES))}",
            found=str(dtype),
        )
    return numpy_dtype(name)


def is_packed(dtype: Any) -> bool:
    """Return whether each element of a `torch.dtype` holds two, along the last dimension."""
    return PACKED in _TORCH_DTYPES and dtype is _TORCH_DTYPES[PACKED]


def torch_shape(dtype: np.dtype[Any], shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the torch tensor that holds an array's elements.

    Raises:
        UnsupportedError: 4-bit elements, which torch packs in pairs, do not come in pairs.
    """
    if dtype.name != PACKED:
        return tuple(shape)
    if not shape or shape[-1] % 2:
        raise UnsupportedError(
            "torch packs two 4-bit elements into one, along the last dimension; read_numpy(name) "
            "gives the array",
            expected="an even last dimension",
            found=f"shape {describe(tuple(shape))}",
        )
    return (*shape[:-1], shape[-1] // 2)


def first_line(error: BaseException) -> str:
    """Return the first line of an error of torch, without its stack and advice to developers."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


# --- To torch -------------------------------------------------------------------------------


def array_to_torch(array: Array) -> Any:
    """Return a dense array as a torch tensor on the CPU: a view if possible, else a copy.

    Raises:
        UnsupportedError: torch has no such element type.
    """
    view = view_in_torch(array)
    if view is not None:
        return view
    form = _FORMS[array.dtype]
    if form.is_packed:
        packed = Blocks.whole(array).reshape(torch_shape(array.dtype, array.shape))
        return torch.from_numpy(packed).view(form.dtype)
    copied = np.array(array, array.dtype.newbyteorder("="), order="C")
    if form.carrier is not None:
        return torch.from_numpy(copied.view(form.carrier)).view(form.dtype)
    return torch.from_numpy(copied)


def view_in_torch(array: Array) -> Any:
    """Return a torch tensor over the memory of a dense array; None if torch has no such view.

    It cannot if the array is read-only, byte-swapped, of negative strides, of packed 4-bit elements
    or at an address that is not a multiple of the element size: the vector code of torch assumes
    alignment and ends the process without it.

    Raises:
        UnsupportedError: torch has no such element type.
    """
    form = _FORMS.get(array.dtype)
    if form is None:
        form = _new_form(array.dtype)
    if not (array.flags.writeable and array.dtype.isnative) or form.is_packed:
        return None
    try:
        tensor = torch.from_numpy(array if form.carrier is None else array.view(form.carrier))
    except ValueError:  # torch has no negative strides
        return None
    if tensor.data_ptr() % array.itemsize:
        return None
    return tensor if form.carrier is None else tensor.view(form.dtype)


def _new_form(dtype: np.dtype[Any]) -> _Form:
    carrier: np.dtype[Any] | None = None
    if dtype.name in _CARRIED:
        carrier = _CARRIERS[dtype.itemsize][0]
    form = _FORMS[dtype] = _Form(torch_dtype(dtype), carrier, dtype.name == PACKED)
    return form


def writable_array(tensor: Any, dtype: np.dtype[Any]) -> Array | None:
    """Return an array over the memory of a torch tensor, with its strides, to be filled.

    None if the tensor has another type or device, is sparse, is a lazy conjugation, or has elements
    that share memory.
    """
    name = _name_of(dtype)
    if not tensor.is_cpu or tensor.layout is not torch.strided or name == PACKED:
        return None
    if tensor.dtype is not _TORCH_DTYPES.get(name) or tensor.is_conj() or tensor.is_neg():
        return None
    if 0 in tensor.stride() and tensor.numel() > 1:
        return None
    if name in _CARRIED:
        tensor = tensor.view(_CARRIERS[dtype.itemsize][1])
    array: Array = tensor.numpy()
    return array.view(dtype)


def to_torch(tensor: Tensor) -> Any:
    """Return a dense tensor as a torch tensor, a sparse one as a sparse torch tensor.

    Memory is shared where torch can; see `array_to_torch`.

    Raises:
        UsageError: the tensor is of another layout; the message says what to call.
        UnsupportedError: torch has no such element type, or cannot hold the shape.
        LayoutError: a structural rule of the layout is broken.
    """
    if tensor.format == "dense":
        return array_to_torch(tensor.numpy())
    if tensor.format not in SPARSE:
        raise UsageError(
            f"torch has no layout {describe(tensor.format)}; "
            + (
                "ztensor.torch.dequantize(tensor) gives its values"
                if isinstance(LAYOUTS.get(tensor.format), Quantized)
                else "its arrays are in .components"
            )
        )
    tensor.require_valid()
    values = tensor.components["values"].reshape(-1)
    if values.dtype.name == PACKED:
        raise UnsupportedError(
            f"torch has no sparse tensors of packed elements; {_INDEX_ADVICE}",
            reason=Reason.UNKNOWN_TYPE,
            found=PACKED,
        )
    options = {"size": tensor.shape, "device": "cpu"}
    try:
        if tensor.format == "sparse_csr":
            # torch checks what zTensor does not ask: sorted columns, each once in a row.
            return torch.sparse_csr_tensor(
                _index_to_torch(tensor.components["indptr"]),
                _index_to_torch(tensor.components["indices"]),
                array_to_torch(values),
                check_invariants=True,
                **options,
            )
        coords = tensor.components["coords"].reshape(len(tensor.shape), values.size)
        return torch.sparse_coo_tensor(
            _index_to_torch(coords),
            array_to_torch(values),
            check_invariants=False,  # they were checked above
            is_coalesced=_is_coalesced(coords),
            **options,
        )
    except ZTensorError:
        raise
    except TORCH_ERRORS as error:
        raise UnsupportedError(
            f"torch refuses the sparse tensor: {first_line(error)}; {_INDEX_ADVICE}",
            found=f"shape {describe(tensor.shape)}",
        ) from error


def _index_to_torch(indices: Array) -> Any:
    # Indices within a shape that torch can hold are the same number, signed or not.
    signed = indices.view(np.int64) if indices.dtype == np.uint64 else indices.astype(np.int64)
    return array_to_torch(signed)


def _is_coalesced(coords: Array) -> bool:
    """Return whether coordinates are sorted and unique."""
    rises = np.zeros(max(coords.shape[1] - 1, 0), bool)
    for axis in coords[::-1]:
        rises = (axis[1:] > axis[:-1]) | ((axis[1:] == axis[:-1]) & rises)
    return bool(rises.all())


def empty(dtype: np.dtype[Any], shape: Sequence[int], device: Any) -> Any:
    """Return an uninitialised torch tensor for an array's elements on a device.

    Raises:
        UnsupportedError: torch has no such element type.
        LimitError: torch or the device cannot hold it.
    """
    kind, size = torch_dtype(dtype), torch_shape(dtype, shape)
    try:
        return torch.empty(size, dtype=kind, device=device)
    except TORCH_ERRORS as error:
        raise LimitError(
            f"torch cannot make the tensor on {describe(str(device))}: {first_line(error)}",
            reason=Reason.LIMIT_DECODED,
            found=f"shape {describe(tuple(size))} of {dtype.name}",
        ) from error


# --- From torch -----------------------------------------------------------------------------


def from_torch(tensor: Any) -> Array | Tensor:
    """Return the stored form of a torch tensor: an array, or a `Tensor` if it is sparse.

    The array shares memory with a tensor on the CPU of any strides; other tensors are copied.
    Gradients are dropped, lazy conjugations and negations resolved.

    Raises:
        ArgumentTypeError: it is not a torch tensor.
        NotRepresentableError: it has no elements of its own (meta, lazy and wrapping tensors), or
            zTensor has no such element type or layout; the message says what would work.
    """
    if type(tensor) not in PLAIN:
        tensor = _without_subclass(tensor)
    if tensor.layout is not torch.strided:
        return _sparse(tensor)
    name = _NAMES.get(tensor.dtype)
    if name is None:
        raise _no_type(tensor)
    array: Array
    try:
        array = _carried(tensor, name) if name in _CARRIED else tensor.numpy(force=True)
    except ZTensorError:
        raise
    except TORCH_ERRORS as error:
        raise _no_array(tensor, error) from error
    if array.size and tensor.is_cpu and _end_in_storage(tensor) > tensor.untyped_storage().nbytes():
        raise NotRepresentableError("the tensor's storage was freed, with elements to save")
    return array


def _end_in_storage(tensor: Any) -> int:
    """Return the end of the last element in the storage, in bytes; strides are never negative."""
    count = tensor.numel()
    if not tensor.is_contiguous():
        count = 1 + sum(
            (n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)
        )
    end: int = (tensor.storage_offset() + count) * tensor.itemsize
    return end


def _carried(tensor: Any, name: str) -> Array:
    """Return elements of a type of ml_dtypes, which torch gives as integers."""
    carrier = _CARRIERS[tensor.dtype.itemsize][1]
    bits: Array = tensor.detach().resolve_neg().view(carrier).numpy(force=True)
    if name != PACKED:
        return bits.view(numpy_dtype(name))
    if not bits.ndim:
        raise NotRepresentableError(
            "a scalar of packed elements holds two of them; save tensor.reshape(1)"
        )
    logical = LOGICAL_TYPES["f4_e2m1"]
    flat = np.ascontiguousarray(bits).reshape(-1)
    unpacked = typed_array(Component(logical.dtype, 0, 0, logical.name), flat)
    return unpacked.reshape(*bits.shape[:-1], 2 * bits.shape[-1])


def _without_subclass(tensor: Any) -> Any:
    """Return a tensor of a subclass as `torch.Tensor`.

    Raises:
        ArgumentTypeError: it is not a torch tensor.
        NotRepresentableError: the subclass keeps its elements elsewhere, or has none yet.
    """
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError("not a torch tensor", found=describe(tensor, 40))
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise NotRepresentableError(
            "the tensor's class keeps its elements elsewhere; save a plain tensor, such as "
            + ("tensor.full_tensor()" if hasattr(tensor, "full_tensor") else "those it is made of"),
            expected="torch.Tensor or torch.nn.Parameter",
            found=f"{kind.__module__}.{kind.__qualname__}",
        )
    if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
        raise NotRepresentableError(
            "the parameter of a lazy module has no elements yet; run the module once before saving"
        )
    return tensor.as_subclass(torch.Tensor)


def _sparse(tensor: Any) -> Tensor:
    tensor = tensor.detach()
    is_coo = tensor.layout is torch.sparse_coo
    if not is_coo and tensor.layout is not torch.sparse_csr:
        compressed = (torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
        call = "to_sparse_csr" if tensor.layout in compressed else "to_dense"
        raise NotRepresentableError(
            f"no layout holds the tensor; save tensor.{call}()",
            expected="torch.strided, torch.sparse_csr or torch.sparse_coo",
            found=str(tensor.layout),
        )
    if tensor.is_meta:
        raise _no_array(tensor, RuntimeError())
    values = tensor._values() if is_coo else tensor.values()
    if values.ndim != 1 or tensor.dtype is _TORCH_DTYPES.get(PACKED):
        raise NotRepresentableError(
            "sparse objects hold one number for each entry; save tensor.to_dense(), "
            "or each matrix of a batch by itself",
            expected="values of 1 dimension",
            found=f"{values.ndim} dimensions of {tensor.dtype}",
        )
    arrays: dict[str, Any] = {"values": from_torch(values)}
    if is_coo:
        arrays["coords"] = _index_from_torch(tensor._indices())
    else:
        arrays["indices"] = _index_from_torch(tensor.col_indices())
        arrays["indptr"] = _index_from_torch(tensor.crow_indices())
    stored = Tensor(
        arrays, shape=tuple(tensor.shape), format="sparse_coo" if is_coo else "sparse_csr"
    )
    stored.require_valid()
    return stored


def _index_from_torch(indices: Any) -> Array:
    # A negative index becomes a huge one, and is refused as such.
    array = np.ascontiguousarray(indices.numpy(force=True)).reshape(-1)
    return array.astype(np.int64, copy=False).view(np.uint64)


def _no_type(tensor: Any) -> NotRepresentableError:
    if tensor.dtype is torch.complex32:
        advice = "save tensor.to(torch.complex64), which loses nothing"
    elif tensor.is_quantized:
        advice = "save tensor.dequantize(), or tensor.int_repr() and its scales by themselves"
    else:
        advice = "convert it with tensor.to(), or save its bytes: tensor.view(torch.uint8)"
    return NotRepresentableError(
        f"no zTensor type holds the elements; {advice}",
        expected=f"one of {', '.join(map(str, _NAMES))}",
        found=str(tensor.dtype),
    )


def _no_array(tensor: Any, error: BaseException) -> NotRepresentableError:
    if tensor.is_meta:
        return NotRepresentableError(
            "a tensor on the meta device has no elements to save; give the model its weights first"
        )
    if tensor.is_nested:
        return NotRepresentableError(
            "no layout holds nested tensors; save tensor.to_padded_tensor(0.0), "
            "or each part of tensor.unbind() by itself"
        )
    return NotRepresentableError(f"torch gives no elements to save: {first_line(error)}")
