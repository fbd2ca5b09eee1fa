"""Floats of a reader as codes in groups: an object is quantized completely when it is read."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from ztensor import Tensor
from ztensor.errors import ArgumentValueError, describe
from ztensor.ext import FileObjects, Lock
from ztensor.quantization.scheme import GroupScheme, Packing
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORD = re.compile(r"int([2-8])(?:[ _-]g([1-9][0-9]{0,5}))?")
_GROUP = 128
_ROWS = 1 << 20  # elements that are compared at once


def scheme_of(word: object) -> GroupScheme:
    """Return the scheme of a name such as `int4` or `int4 g64`.

    Groups run along the last axis: the input of a linear layer of PyTorch.

    Raises:
        ArgumentValueError: the name has another form.
    """
    match = _WORD.fullmatch(word) if isinstance(word, str) else None
    if match is None:
        raise ArgumentValueError(
            "unknown quantization",
            expected="int2 to int8, optionally with a group size, such as 'int4 g64'",
            found=describe(word, 40),
        )
    bits, group = int(match[1]), int(match[2] or _GROUP)
    packing = Packing.dense(bits, "i32")
    return GroupScheme(bits=bits, packing=packing, group_size=group, pack_axis=1, group_axis=1)


def name_of(scheme: GroupScheme) -> str:
    """Return the name of the elements in reports."""
    return f"int{scheme.bits} g{scheme.group_size}"


class Codes:
    """An object of floats, as the components of a quantized object.

    The first component that is read quantizes the object; others are held until they are read.

    Args:
        scheme: the quantization.
        file: the file of the object.
        name: the object's name.
        shape: the object's shape, of two dimensions at least.

    Attributes:
        largest_error: the largest difference between an element and its code's value; 0 before the
            object was read.
    """

    def __init__(
        self, scheme: GroupScheme, file: FileObjects, name: str, shape: tuple[int, ...]
    ) -> None:
        self.largest_error = 0.0
        self._scheme, self._file, self._name, self._shape = scheme, file, name, shape
        self._held: dict[str, Array] = {}
        self._lock = Lock()

    def counts(self) -> dict[str, tuple[str, int]]:
        """Return the element type and the element count of each component."""
        shapes = self._scheme.shapes(self._shape)
        groups, words = math.prod(shapes["scales"]), math.prod(shapes["packed_weight"])
        return {
            "packed_weight": ("int32", words),
            "scales": ("float16", groups),
            "zeros": ("float16", groups),
        }

    def pieces(self, role: str) -> Iterator[Array]:
        """Yield the elements of a component, as one array.

        Raises:
            NotRepresentableError: the object has NaN, infinities, or is too large for float16.
        """
        with self._lock:
            if role not in self._held:
                self._held = self._quantized()
            component = self._held.pop(role)
        yield component

    def _quantized(self) -> dict[str, Array]:
        scheme, array = self._scheme, np.asarray(self._file.value(self._name, copy=True))
        with self._file.located(self._name):
            tensor = Tensor.quantize(
                array, bits=scheme.bits, group_size=scheme.group_size, group_axis=1, pack_axis=1
            )
        rows = array.reshape(len(array), -1)
        codes = tensor.dequantize().reshape(rows.shape)
        step = max(_ROWS // max(rows.shape[1], 1), 1)
        for at in range(0, len(rows), step):
            apart = np.abs(rows[at : at + step].astype(np.float32) - codes[at : at + step])
            self.largest_error = max(self.largest_error, float(apart.max(initial=0.0)))
        return {role: np.asarray(part) for role, part in tensor.components.items()}
