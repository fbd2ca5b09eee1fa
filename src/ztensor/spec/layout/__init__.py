"""Components to arrays: the size equations and the rules of each layout; one file per layout.

Read `base.py` (the contract), `elements.py` (stored bytes to typed arrays and back), `dense.py`,
`sparse.py` (what both sparse ones share, and what 2.x asks of them), `sparse_csr.py`,
`sparse_coo.py` and `quantized_group.py`. What is known of components before they are read is here.
`LAYOUTS` is the table, with the layouts of other packages: those of 2.x for quantized tensors
and those of GGUF and SciPy. A format that is not in it is listed and its components read, but it
has no dense value. Nothing here reads files; what comes in are objects of the manifest and decoded
arrays.
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
    },
    families={
        "gguf.": "ztensor.quantization.gguf_blocks:GGUF_LAYOUTS",
    },
    group="ztensor.layouts",
    kind=Layout,
)


def roles_in_order(tensor_object: TensorObject) -> list[str]:
    """Return an object's roles, those first that tell how long others are."""
    layout = LAYOUTS.get(tensor_object.format)
    first = layout.read_order if layout is not None else ()
    return [*first, *(role for role in tensor_object.components if role not in first)]


def known_entries(tensor_object: TensorObject) -> int | None:
    """Return how many values an object has where they share bytes, and only coordinates tell."""
    values = tensor_object.components.get("values")
    if tensor_object.format != "sparse_coo" or values is None or not tensor_object.shape:
        return None
    if values.logical is None or values.logical.elements_per_storage == 1:
        return None  # they tell it themselves
    return tensor_object.components["coords"].known_count(len(tensor_object.shape))


def known_length(tensor_object: TensorObject, role: str) -> int | None:
    """Return the decoded length of a component as far as the manifest and the layout tell it."""
    known = tensor_object.components[role].known_decoded_length
    layout = LAYOUTS.get(tensor_object.format)
    if known is None and layout is not None:
        return layout.expected_length(tensor_object, role, None)
    return known


__all__ = ["LAYOUTS", "Layout", "View", "known_entries", "known_length", "roles_in_order"]
