"""The layout `pyztensor.planes/1` of 1.x: objects that the manifest cannot turn into dense tensors.

A well-formed object is a dense tensor with the encoding of that name. This layout has the objects
of unknown element types, which can be read as stored bytes only, and malformed ones, which are
refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztensor.errors import Problem, Reason, UnsupportedError, describe
from ztensor.ext import Layout, TensorObject, View

Array = np.ndarray[Any, np.dtype[Any]]


class PlanesLayout(Layout):
    """The layout of objects that are not dense tensors."""

    name = "pyztensor.planes/1"
    section = "the layout pyztensor.planes/1"
    main_role = "data"
    read_order = ("data",)

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return the problems of a malformed object; no problems if only a type is unknown."""
        if problems := super().check_object(tensor_object):
            return problems
        components, attributes = tensor_object.components, tensor_object.attributes or {}
        data, text = components["data"], (str, type(None))
        if len(components) > 1:
            return [self._wrong("the component data only", list(components), "components")]
        if (data.dtype, data.type, data.encoding) != ("u8", None, "raw"):
            found = f"{data.encoding} {data.type or data.dtype}"
            return [self._wrong("raw u8", found, "components", "data")]
        words: tuple[tuple[str, Any], ...] = (("dtype", str), ("type", text))
        return [
            self._wrong("text", attributes.get(key), "attributes", key)
            for key, kind in words
            if not isinstance(attributes.get(key), kind)
        ]

    def _wrong(self, expected: str, found: object, *path: str) -> Problem:
        message = f"expected {expected}, found {describe(found)}"
        return Problem(Reason.FIELD_VALUE, message, path, self.section)

    def to_dense(self, view: View) -> Array:
        """Raise `UnsupportedError`: the element type is unknown."""
        word = view.attributes.get("type") or view.attributes.get("dtype")
        raise UnsupportedError(
            "the planes are of an unknown element type",
            reason=Reason.UNKNOWN_TYPE,
            found=describe(word),
            section=self.section,
        )


PLANES_LAYOUT = PlanesLayout()
