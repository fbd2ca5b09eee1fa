"""Allocate memory: aligned so that copies from files are fast, with our error if it fails.

Systems copy with the processor's string instruction. On common processors (AMD since Zen 3) it is
four times slower if the destination is 1 to 31 bytes ahead of the source, modulo pages of 4 KiB.
NumPy's large arrays begin 16 bytes into a page, and page-aligned blobs at its start. So large
memory here begins at a multiple of 64, as blobs do.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ztensor.errors import LimitError, Reason, describe
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import ALIGNMENT

Array = np.ndarray[Any, Any]

_BYTES = np.dtype(np.uint8)
# Below this length the difference is not measurable.
LEAST_BYTES = 32 << 10


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any] = _BYTES) -> Array:
    """Return a new uninitialised array; a large one begins at a multiple of 64.

    Raises:
        LimitError: the array library or the memory cannot hold it.
    """
    try:
        nbytes = element_count(shape) * dtype.itemsize
        if nbytes < LEAST_BYTES or dtype.hasobject:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, _aligned(nbytes))
    except (MemoryError, ValueError, OverflowError, TypeError) as error:
        raise too_large(shape, dtype) from error


def zeros_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array of zeros.

    Raises:
        LimitError: the array library or the memory cannot hold it.
    """
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError, OverflowError) as error:
        raise too_large(shape, dtype) from error


def too_large(shape: tuple[int, ...], dtype: np.dtype[Any]) -> LimitError:
    """Return the error for an array that cannot be allocated."""
    return LimitError(
        "the array is larger than this machine or NumPy can hold; read its components or slices",
        reason=Reason.LIMIT_DECODED,
        found=f"shape {describe(shape)} of {dtype.name}, "
        f"{describe(element_count(shape) * dtype.itemsize)} bytes",
    )


def new_bytes(length: int) -> memoryview:
    """Return new bytes, uninitialised and writable; many begin at a multiple of 64.

    Raises:
        LimitError: the memory cannot hold them.
    """
    return empty_array((length,), _BYTES).data


def aligned(length: int) -> Array:
    """Return new uninitialised bytes that begin at a multiple of 64, as blobs do in files.

    Raises:
        LimitError: the memory cannot hold them.
    """
    try:
        return _aligned(length)
    except (MemoryError, ValueError, OverflowError) as error:
        raise too_large((length,), _BYTES) from error


def _aligned(length: int) -> Array:
    memory = np.empty(length + ALIGNMENT, _BYTES)
    shift = -_address(memory.data) % ALIGNMENT
    return memory[shift : shift + length]


def _address(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))  # ten times faster than NumPy
