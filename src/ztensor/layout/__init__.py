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
from ztensor.layout.dense import Dense
from ztensor.layout.gguf_blocks import GGUF_LAYOUTS
from ztensor.layout.group_profiles import PROFILES
from ztensor.layout.quantized_group import QuantizedGroup
from ztensor.layout.scipy_sparse import SCIPY_LAYOUTS
from ztensor.layout.sparse_coo import SparseCoo
from ztensor.layout.sparse_csr import SparseCsr

LAYOUTS: dict[str, Layout] = {
    "dense": Dense(),
    "sparse_csr": SparseCsr(),
    "sparse_coo": SparseCoo(),
    "quantized_group": QuantizedGroup(),
    **GGUF_LAYOUTS,
    **SCIPY_LAYOUTS,
    **PROFILES,
}

__all__ = ["LAYOUTS", "Layout", "View"]
