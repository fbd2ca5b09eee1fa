"""`quantized_group`: packed integers with a scale and a zero-point for each group (1.2 section 3).

| role | elements |
| --- | --- |
| `packed_weight` | quantized values, several to an element |
| `scales` | a factor for each group |
| `zeros` | a zero-point for each group, or one for all |
| `g_idx`, `codebook`, `global_scale` | where the attributes ask for them |

How values are packed and grouped stands in the object's attributes; see `quantization/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.spec.layout.base import Array, Quantized, View, check_components
from ztensor.spec.layout.sparse import require_roles

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from ztensor.spec.model.manifest import TensorObject
    from ztensor.spec.model.problem import Problem

SECTION = "1.2 section 3, quantized_group"


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
        from ztensor.quantization.dequantizing import (
            dequantize_array,  # only here: most files need none
        )

        return dequantize_array(view, dtype=dtype, threads=threads)


QUANTIZED_GROUP = QuantizedGroup()
