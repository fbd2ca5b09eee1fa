"""Nested states with the types of JAX, which are listed in `training/jax_tree.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import save_tree
from ztensor.options import TreeOptions, require_options
from ztensor.training.states import loaded_tree
from ztensor.typing import Openable

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["load_tree", "save_tree"]


def load_tree(filename: Openable, **options: Unpack[TreeOptions]) -> Any:
    """Load a nested state that `save_tree` saved, with JAX's arrays and keys as they were.

    Arrays are on JAX's default device; `jax.device_put(tree, sharding)` places them. States of
    Optax and Flax need `into=`, a live state of the same kind: classes named in a file are never
    imported.

    Args:
        filename: the file, or another source of `ztensor.open`.
        options: see `ztensor.typing.TreeOptions`.

    Returns:
        The state. Arrays of NumPy and of torch are NumPy's.

    Raises:
        ZTensorError: errors of `ztensor.load_tree`.
        NotRepresentableError: JAX would narrow the elements; the message has an alternative.
        ArgumentValueError: the file's tree differs from `into`.
    """
    require_options("load_tree", options, TreeOptions)
    return loaded_tree(filename, "jax", **options)
