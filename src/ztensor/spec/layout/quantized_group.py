"""`quantized_group`: packed integers with a scale and a zero-point for each group (1.2 section 3).

| role | elements |
| --- | --- |
| `packed_weight` | quantized values, several to an element |
| `scales` | a factor for each group |
| `zeros` | a zero-point for each group, or one for all |
| `g_idx`, `codebook`, `global_scale` | where the attributes ask for them |

How values are packed and grouped stands in the object's attributes; the arithmetic is found by the
layout's name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ztensor.registry import Registry
from ztensor.spec.layout.base import Array, Quantized, Rows, View, check_components
from ztensor.spec.layout.sparse import require_roles

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ztensor.errors import Problem
    from ztensor.spec.layout.base import Part
    from ztensor.spec.model.manifest import TensorObject

SECTION = "1.2 section 3, quantized_group"


class Dequantizer(Protocol):
    """The arithmetic of a layout: see the methods of `Quantized`."""

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats that an object stands for; a new array of its shape."""
        ...

    def integers(self, view: View) -> Array:
        """Return the codes of an object, one byte each; a new array."""
        ...

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return what cuts rows out of an object."""
        ...


# By the layout's name.
DEQUANTIZERS: Registry[str, Dequantizer] = Registry(
    {"quantized_group": "ztensor.quantization.groups:GROUPS"}
)


class QuantizedGroup(Quantized):
    """The layout `quantized_group`; further components are kept, and listed where unknown."""

    name = "quantized_group"
    main_role = "packed_weight"
    read_order = ("packed_weight", "scales", "zeros")

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with the roles; attributes are open and checked when they are used."""
        return check_components(tensor_object, self.read_order, SECTION)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return what the manifest gives: no equation ties the parts to the shape."""
        del entries
        return tensor_object.components[role].known_decoded_length

    def require_valid(self, view: View) -> None:
        """Raise unless all three parts are there."""
        require_roles(view, self.read_order, SECTION)

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats that the codes stand for; a new array. See `Quantized`."""
        return DEQUANTIZERS[self.name].dequantize(view, dtype=dtype, threads=threads)

    def integers(self, view: View) -> Array:
        """Return the codes; a new array. See `Quantized`."""
        return DEQUANTIZERS[self.name].integers(view)

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return what cuts rows out where words and groups of all components end."""
        return DEQUANTIZERS[self.name].rows(tensor_object, part)


QUANTIZED_GROUP = QuantizedGroup()
