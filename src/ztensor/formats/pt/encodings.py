"""Numbers that are stored in the pickle itself."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ztensor.ext import Encoding, Stored, require_equal_length
from ztensor.formats.pt.values import NumpyArray
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
        require_equal_length(
            destination.nbytes, self.nbytes, "the length of numbers in the pickle differs"
        )
        if self.nbytes:
            array = self._array
            elements = array.elements() if isinstance(array, NumpyArray) else array
            rows: Array = np.frombuffer(destination, np.uint8).reshape(self._times, -1)
            rows[...] = elements.reshape(-1).view(np.uint8)
