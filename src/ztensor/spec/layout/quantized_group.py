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

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.registry import Registry
from ztensor.spec.layout.base import Array, Part, Quantized, Rows, View
from ztensor.spec.model.manifest import TensorObject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike


# The arithmetic, by the layout's name: methods of `Quantized`.
DEQUANTIZERS: Registry[str, Any] = Registry(
    {"quantized_group": "ztensor.quantization.groups:GROUPS"}
)


class QuantizedGroup(Quantized):
    """The layout `quantized_group`; further components are kept, and listed where unknown.

    No equation ties the parts to the shape. Attributes are open, and checked when they are used.
    """

    name = "quantized_group"
    section = "1.2 section 3, quantized_group"
    main_role = "packed_weight"
    read_order = ("packed_weight", "scales", "zeros")

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the floats that the codes stand for; a new array. See `Quantized`."""
        floats: Array = DEQUANTIZERS[self.name].dequantize(view, dtype=dtype, threads=threads)
        return floats

    def float_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return all attributes but those of the scheme. See `Quantized`."""
        own: dict[str, object] = DEQUANTIZERS[self.name].float_attributes(attributes)
        return own

    def integers(self, view: View) -> Array:
        """Return the codes; a new array. See `Quantized`."""
        codes: Array = DEQUANTIZERS[self.name].integers(view)
        return codes

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return what cuts rows out where words and groups of all components end."""
        rows: Rows = DEQUANTIZERS[self.name].rows(tensor_object, part)
        return rows


QUANTIZED_GROUP = QuantizedGroup()
