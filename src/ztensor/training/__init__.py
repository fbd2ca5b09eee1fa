"""Nested training states in files, and the steps of a run.

Read `tree/` (a nested state to leaves and columns of plain values, and back; no files), `states.py`
(the same to files and back), `told.py` (what a file says of it before a tensor is read) and
`checkpoints/` (the steps of a run in a folder). `torch_tree.py` and `jax_tree.py` say which types
of these libraries a tree keeps, `torch_randomness.py` what torch's random generators are in,
and `hooks.py` what the modules for libraries that train have in common.
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
