"""Components to arrays: the size equations and the rules of each layout; one file per layout.

Read `base.py` (the contract), `elements.py` (stored bytes to typed arrays), `dense.py`, then the
sparse ones, `quantized_group.py` with its arithmetic in `quantization/`, and `gguf_blocks.py`.
`scipy_sparse.py` has SciPy's other kinds of sparse arrays, `group_profiles.py` quantized layouts of
2.x, `sparse_once.py` what 2.x asks of sparse ones, and `lengths.py` what is known of components
before they are read.
Nothing here reads files; what comes in are objects of the manifest and decoded arrays. `LAYOUTS` is
the table; a format that is not in it is listed and its components read, but it has no dense value.
"""

from ztensor.layout.base import Layout, View
from ztensor.registry import Registry

LAYOUTS: Registry[str, Layout] = Registry(
    {
        "dense": "ztensor.layout.dense:DENSE",
        "sparse_csr": "ztensor.layout.sparse_csr:SPARSE_CSR",
        "sparse_coo": "ztensor.layout.sparse_coo:SPARSE_COO",
        "quantized_group": "ztensor.layout.quantized_group:QUANTIZED_GROUP",
        "zt.quant_group/1": "ztensor.layout.group_profiles:QUANT_GROUP",
        "zt.mx/1": "ztensor.layout.group_profiles:MX",
    },
    families={
        "gguf.": "ztensor.layout.gguf_blocks:GGUF_LAYOUTS",
        "scipy.": "ztensor.layout.scipy_sparse:SCIPY_LAYOUTS",
    },
)

__all__ = ["LAYOUTS", "Layout", "View"]
