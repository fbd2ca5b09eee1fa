"""The encoding of numbers in the pickle itself, and conditions for views."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ztensor.errors import LayoutError, Reason, UnsupportedError, describe
from ztensor.ext import LOGICAL_TYPES, STORAGE_TYPES, Encoding, Stored
from ztensor.formats.pt.values import NumpyArray, SparseTensor, TorchTensor
from ztensor.limits import Limits
from ztensor.typing import Array

ByteOrder = Literal["little", "big"]


class Held(Encoding):
    """Numbers in the pickle itself, repeated `times`."""

    def __init__(
        self, name: str, array: NumpyArray | Array, times: int = 1, *, has_sum: bool = False
    ) -> None:
        self.name = name
        self.has_sum = has_sum  # the pickle's
        self._array = array
        self._times = times
        self.nbytes = array.nbytes * times

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly."""
        del stored, limits
        self.require_equal_length(
            destination.nbytes, self.nbytes, "the length of numbers in the pickle differs"
        )
        if self.nbytes:
            array = self._array
            elements = array.elements() if isinstance(array, NumpyArray) else array
            rows: Array = np.frombuffer(destination, np.uint8).reshape(self._times, -1)
            rows[...] = elements.reshape(-1).view(np.uint8)


def has_gaps(steps: list[tuple[int, int]]) -> bool:
    """Return whether elements are not contiguous in C order."""
    expected = 1
    for count, step in reversed(steps):
        if step != expected:
            return True
        expected *= count
    return False


def flagged_dtype(tensor: TorchTensor) -> str:
    """Return NumPy's name of an element type that can be conjugated and negated.

    Raises:
        UnsupportedError: it cannot.
    """
    element = tensor.element
    logical = None if element.type is None else LOGICAL_TYPES.get(element.type)
    name = None if logical is None else logical.long_name
    if element.type is None and element.dtype in STORAGE_TYPES:
        name = STORAGE_TYPES[element.dtype].long_name
    if name is None or name not in ("complex64", "complex128", "float16", "float32", "float64"):
        raise UnsupportedError(
            "only floats and complex numbers can be stored conjugated or negated",
            reason=Reason.UNKNOWN_TYPE,
            found=describe(element.type or element.dtype),
        )
    return name


def require_coordinates(tensor: SparseTensor) -> None:
    """Raise unless every value, which may have dimensions of its own, has coordinates.

    Raises:
        LayoutError: the shapes of coordinates and values do not match.
    """
    coordinates, values = tensor.indices[0].size, tensor.values.size
    if values and coordinates == (len(tensor.size) - len(values) + 1, values[0]):
        return
    raise LayoutError(
        "the shapes of a sparse tensor's coordinates and values do not match",
        reason=Reason.LAYOUT_COUNT,
        expected=f"coordinates of {describe(tensor.size)} for values of {describe(values)}",
        found=describe(coordinates),
    )
