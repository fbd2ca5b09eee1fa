"""`Tensor`: what users hold of one object, and the ways to make one.

Read `value.py` (what a tensor is and becomes), `constructors.py` (tensors from the arrays of other
libraries and of quantized checkpoints), `arrays.py` (what is taken as an array).
"""

from ztensor.io.tensor.arrays import as_array, element_type, no_mapping, no_tensor, shape_of
from ztensor.io.tensor.value import Tensor, tensor_of

__all__ = ["Tensor", "as_array", "element_type", "no_mapping", "no_tensor", "shape_of", "tensor_of"]
