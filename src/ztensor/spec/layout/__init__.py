"""Components to arrays: the size equations and the rules of each layout; one file per layout.

Read `base.py` (the contract), `elements.py` (stored bytes to typed arrays and back), `dense.py`,
`sparse.py` (rules of both sparse layouts, in 1.x and in 2.x), `sparse_csr.py`, `sparse_coo.py` and
`quantized_group.py`. The functions of this file derive decoded lengths before any byte is read.
`LAYOUTS` is the table, with the layouts of other packages: the quantized layouts of 2.x, and the
layouts of GGUF and SciPy. An object of a layout that is not in it is listed and its components can
be read, but it has no dense value. Nothing here reads files: the inputs are objects of the
manifest and decoded arrays.
"""

from __future__ import annotations

from ztensor.registry import Registry
from ztensor.spec.layout.base import Layout, View
from ztensor.spec.model.manifest import TensorObject

LAYOUTS: Registry[str, Layout] = Registry(
    {
        "dense": "ztensor.spec.layout.dense:DENSE",
        "sparse_csr": "ztensor.spec.layout.sparse_csr:SPARSE_CSR",
        "sparse_coo": "ztensor.spec.layout.sparse_coo:SPARSE_COO",
        "quantized_group": "ztensor.spec.layout.quantized_group:QUANTIZED_GROUP",
        "zt.quant_group/1": "ztensor.quantization.group_profiles:QUANT_GROUP",
        "zt.mx/1": "ztensor.quantization.group_profiles:MX",
        "pyztensor.planes/1": "ztensor.planes.layout:PLANES_LAYOUT",
    },
    families={
        "gguf.": "ztensor.quantization.gguf_blocks:GGUF_LAYOUTS",
    },
    group="ztensor.layouts",
    kind=Layout,
)


def roles_in_order(tensor_object: TensorObject) -> list[str]:
    """Return an object's roles in reading order: a role that gives others' lengths comes first."""
    layout = LAYOUTS.get(tensor_object.format)
    first = layout.read_order if layout is not None else ()
    return [*first, *(role for role in tensor_object.components if role not in first)]


def known_entries(tensor_object: TensorObject) -> int | None:
    """Return the number of values of a `sparse_coo` object if they share bytes; None otherwise.

    Packed values leave the count open by a padded element; the coordinates give it exactly.
    """
    if tensor_object.format != "sparse_coo" or not tensor_object.shape:
        return None
    values = tensor_object.components["values"]
    if values.logical is None or values.logical.elements_per_storage == 1:
        return None  # the length of the values gives their number
    return tensor_object.components["coords"].known_count(len(tensor_object.shape))


def known_length(tensor_object: TensorObject, role: str) -> int | None:
    """Return the decoded length of a component; None if neither manifest nor layout give it."""
    known = tensor_object.components[role].known_decoded_length
    layout = LAYOUTS.get(tensor_object.format)
    if known is None and layout is not None:
        return layout.expected_length(tensor_object, role, None)
    return known


__all__ = ["LAYOUTS", "Layout", "View", "known_entries", "known_length", "roles_in_order"]
