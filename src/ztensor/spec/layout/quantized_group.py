"""`quantized_group`: packed integers with a scale and a zero-point for each group (1.2 section 3).

| role | elements |
| --- | --- |
| `packed_weight` | quantized values, several per element |
| `scales` | a factor per group |
| `zeros` | a zero-point per group, or a single one |
| `g_idx`, `codebook`, `global_scale` | if the attributes ask for them |

The object's attributes give packing and grouping. The arithmetic is in another package, which the
table below names.
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
    """The layout `quantized_group` (1.2 section 3); other components are kept and listed.

    No equation relates the components to the shape. Attributes are open and checked on use.
    """

    name = "quantized_group"
    section = "1.2 section 3, quantized_group"
    main_role = "packed_weight"
    read_order = ("packed_weight", "scales", "zeros")

    def dequantize(
        self, view: View, *, dtype: DTypeLike = np.float32, threads: int | None = None
    ) -> Array:
        """Return the dequantized floats; a new array. See `Quantized`."""
        floats: Array = DEQUANTIZERS[self.name].dequantize(view, dtype=dtype, threads=threads)
        return floats

    def float_attributes(self, attributes: Mapping[str, object]) -> dict[str, object]:
        """Return the attributes except those of the scheme. See `Quantized`."""
        own: dict[str, object] = DEQUANTIZERS[self.name].float_attributes(attributes)
        return own

    def integers(self, view: View) -> Array:
        """Return the codes; a new array. See `Quantized`."""
        codes: Array = DEQUANTIZERS[self.name].integers(view)
        return codes

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return the row selection, at multiples of the packed words and groups."""
        rows: Rows = DEQUANTIZERS[self.name].rows(tensor_object, part)
        return rows


QUANTIZED_GROUP = QuantizedGroup()
