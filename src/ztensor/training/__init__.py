"""Nested training states in files, and the steps of a run.

Read `tree/` (encode a nested state as leaves and columns of plain values, and decode it; no files),
`states.py` (save and load it), `stored_tree.py` (describe the tree of a file without reading
tensors) and `checkpoints/` (the steps of a run in a folder). `torch_tree.py` and `jax_tree.py`
handle the types of these libraries, `torch_randomness.py` the states of random generators, and
`hooks.py` is shared by the modules for training libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import Registry

if TYPE_CHECKING:
    from ztensor.training.checkpoints import Checkpoint, Restored
    from ztensor.training.states import LazyTree, Record
else:
    __getattr__ = Registry.lazy(
        __name__,
        {
            "ztensor.training.checkpoints": "Checkpoint Restored",
            "ztensor.training.states": "LazyTree Record",
        },
    )

__all__ = [
    "Checkpoint",
    "LazyTree",
    "Record",
    "Restored",
]


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
