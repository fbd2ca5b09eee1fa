"""Export arrays by DLPack, the buffer protocol and `__array__`.

NumPy exports neither bfloat16 nor fp8 by DLPack. Here NumPy exports their bits as unsigned
integers, and the type code in the capsule is overwritten. NumPy still owns and frees the memory.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import ArgumentTypeError, BufferExportError, describe

if TYPE_CHECKING:
    from ztensor.spec.layout.base import Array

CPU = (1, 0)  # kDLCPU and its only index

# DLPack's type codes for types of ml_dtypes. Types of less than a byte are missing: ml_dtypes uses
# a byte per element, DLPack packs them.
_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
_NUMPY_KNOWS_VERSIONS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


# Where the code is in a capsule of that name. `DLTensor` begins with a pointer, then the device's
# type, its number and the rank, 4 bytes each. `DLManagedTensorVersioned` has before it major and
# minor version, two pointers, and flags of 8 bytes.
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_OFFSETS = {b"dltensor": _POINTER + 12, b"dltensor_versioned": 16 + 3 * _POINTER + 12}


def to_dlpack(
    array: Array,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return an array as a DLPack capsule, which keeps its memory alive.

    Args:
        array: any element type NumPy can export, bfloat16 and fp8.
        stream: must be None: the CPU has no streams.
        max_version: the newest version the consumer understands; from (1, 0) on the capsule has a
            read-only flag.
        dl_device: the device for the consumer: the CPU, or None.
        copy: True exports new, writable memory; False the array's own. None copies only an array
            whose address is not a multiple of its elements' width.

    Raises:
        BufferExportError: DLPack, or the consumer's version of it, cannot describe the array.
    """
    if dl_device is not None and tuple(dl_device) != CPU:
        raise BufferExportError(
            "the array is in the CPU's memory; take it there and move it with the library's own "
            "call",
            expected=f"dl_device {CPU} or None",
            found=describe(dl_device),
        )
    if stream is not None:
        raise BufferExportError(
            "the CPU has no streams", expected="stream None", found=describe(stream)
        )
    if array.size and array.__array_interface__["data"][0] % array.itemsize:
        if copy is False:
            raise BufferExportError(
                "the array is unaligned, which DLPack does not allow; export it with copy=None or "
                "copy=True"
            )
        array = array.copy()
    code = _CODES.get(array.dtype.name)
    exported = array if code is None else array.view(f"u{array.itemsize}")
    try:
        capsule = _capsule(exported, max_version, copy)
    except (BufferError, TypeError) as error:
        raise BufferExportError(
            _why_not(array, max_version) or f"NumPy cannot export the array: {error}",
            found=f"{array.dtype.name} of shape {describe(array.shape)}",
        ) from error
    if code is not None:
        _set_code(capsule, code)
    return capsule


class DLPackExporter:
    """Adds DLPack to a class whose `_exported` returns an array on the CPU."""

    __slots__ = ()

    if TYPE_CHECKING:  # not an abstract base: isinstance() would slow down saving many tensors

        def _exported(self) -> Array:
            """Return the array for a protocol.

            Raises:
                BufferExportError: there is none.
            """
            ...

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return the array of a dense object as a DLPack capsule, bfloat16 and fp8 included.

        The capsule shares the memory and keeps it alive, unless `copy` is True. From version
        (1, 0) of the protocol on it says whether the memory is read-only.

        Raises:
            BufferExportError: the object is not dense, or DLPack cannot describe its elements; also
                a `BufferError`.
            LayoutError: the data does not have the shape's number of elements.
        """
        return to_dlpack(
            self._exported(),
            stream=stream,
            max_version=max_version,
            dl_device=dl_device,
            copy=copy,
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's name of the CPU."""
        return CPU


def _capsule(array: Array, max_version: tuple[int, int] | None, copy: bool | None) -> Any:  # noqa: FBT001  # as the protocol has it
    if _NUMPY_KNOWS_VERSIONS:
        return array.__dlpack__(max_version=max_version, copy=copy)
    return (array.copy() if copy else array).__dlpack__()


def _why_not(array: Array, max_version: tuple[int, int] | None) -> str | None:
    if array.dtype.isbuiltin == 2 and array.dtype.name not in _CODES:
        return "DLPack has no such elements of a byte each; use astype('float32') or view('uint8')"
    if not array.flags.writeable and (max_version is None or tuple(max_version) < (1, 0)):
        return (
            "the memory is read-only, and the consumer's version of DLPack has no flag for that; "
            "copy it first"
        )
    return None


def _set_code(capsule: Any, code: int) -> None:
    """Write the type code into a capsule that is not consumed yet."""
    for name, offset in _OFFSETS.items():
        if _is_valid(capsule, name):
            ctypes.c_uint8.from_address(_pointer(capsule, name) + offset).value = code


# Functions of the interpreter; PyDLL calls keep the GIL and propagate exceptions.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def to_buffer(array: Array) -> memoryview:
    """Return a view of an array for the buffer protocol.

    Raises:
        BufferExportError: the protocol has no code for the element type.
    """
    require_buffer_type(array.dtype)
    return array.data


def require_buffer_type(dtype: np.dtype[Any]) -> None:
    """Require an element type that the buffer protocol can describe.

    Raises:
        BufferExportError: bfloat16, fp8 or fp4.
    """
    if dtype.isbuiltin == 2:  # a type of ml_dtypes
        raise BufferExportError(
            "the buffer protocol has no code for the element type; take the bytes with "
            f"memoryview(array.view('uint{8 * dtype.itemsize}')), or use DLPack",
            found=dtype.name,
        )


def as_type(array: Array, dtype: Any, *, copy: bool) -> Array:
    """Return the result of `__array__`: converted to `dtype` if given, copied if `copy`.

    Raises:
        ArgumentTypeError: `dtype` is not an element type, or cannot hold the values.
    """
    try:
        if copy or (dtype is not None and np.dtype(dtype) != array.dtype):
            return array.astype(array.dtype if dtype is None else dtype)
    except (TypeError, ValueError) as error:
        raise ArgumentTypeError(
            f"{array.dtype.name} cannot be converted", found=describe(dtype)
        ) from error
    return array
