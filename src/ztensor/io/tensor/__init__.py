"""`Tensor`: one object with all its components, in memory.

Read `value.py` (the class), `constructors.py` (tensors from sparse matrices and quantized weights),
`arrays.py` (checks of arrays and shapes that callers pass).
"""

from ztensor.io.tensor.arrays import as_array, element_type, no_mapping, no_tensor, shape_of
from ztensor.io.tensor.value import Tensor, tensor_of

__all__ = ["Tensor", "as_array", "element_type", "no_mapping", "no_tensor", "shape_of", "tensor_of"]
