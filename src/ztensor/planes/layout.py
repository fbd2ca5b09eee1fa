"""The layout `pyztensor.planes/1` of 1.x: objects that the manifest cannot turn into dense tensors.

A well-formed object is a dense tensor with the encoding of that name. The others are listed, and
their stored bytes can be read, but they have no value.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztensor.errors import Problem, Reason, UnsupportedError, describe
from ztensor.ext import LOGICAL_TYPES, STORAGE_TYPES, Layout, TensorObject, View

Array = np.ndarray[Any, np.dtype[Any]]


class PlanesLayout(Layout):
    """Objects with this layout in the model, of which each breaks a rule of it."""

    name = "pyztensor.planes/1"
    section = "the layout pyztensor.planes/1"
    main_role = "data"
    read_order = ("data",)

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return the problems for which the object is not a dense tensor."""
        if problems := super().check_object(tensor_object):
            return problems
        found = tensor_object.attributes or {}
        dtype, logical = found.get("dtype"), found.get("type")
        data = tensor_object.components["data"]
        if len(tensor_object.components) > 1:
            return [self._problem("expected the component data only", "components")]
        if (data.dtype, data.type, data.encoding) != ("u8", None, "raw"):
            return [self._problem("expected raw elements of u8", "components", "data")]
        if not isinstance(dtype, str) or dtype not in STORAGE_TYPES:
            words = ", ".join(STORAGE_TYPES)
            message = f"expected one of {words}, found {describe(dtype)}"
            return [self._problem(message, "attributes", "dtype")]
        if logical is None or (isinstance(logical, str) and logical in LOGICAL_TYPES):
            return []
        message = f"expected the name of a logical type, found {describe(logical)}"
        return [self._problem(message, "attributes", "type")]

    def _problem(self, message: str, *path: str) -> Problem:
        return Problem(Reason.FIELD_VALUE, message, path, self.section)

    def to_dense(self, view: View) -> Array:
        """Raise: an object of this layout has no value."""
        raise UnsupportedError(
            "the object's layout has no dense value here", reason=Reason.UNKNOWN_LAYOUT
        )


PLANES_LAYOUT = PlanesLayout()
