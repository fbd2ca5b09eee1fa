"""Nested states with the types of torch, which are listed in `training/torch_tree.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ztensor import save_tree
from ztensor.options import TreeOptions, require_options
from ztensor.training.states import loaded_tree
from ztensor.typing import Openable, TorchDevice

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["load_tree", "save_tree"]


def load_tree(
    filename: Openable, *, device: TorchDevice | None = None, **options: Unpack[TreeOptions]
) -> Any:
    """Load a nested state that `save_tree` saved, with torch's tensors and types as they were.

    `optimizer.load_state_dict` keeps the tensors it is given, so train with `copy=True`.

    Args:
        filename: the file, or another source of `ztensor.open`.
        device: where tensors go that were not on the CPU when they were saved. Tensors of the CPU
            stay there: states of random numbers and, mostly, steps of optimizers. None loads all
            onto the CPU.
        options: see `ztensor.typing.TreeOptions`.

    Returns:
        The state. Arrays of NumPy and of JAX are NumPy's.

    Raises:
        ZTensorError: errors of `ztensor.load_tree`.
        ArgumentValueError: torch knows no device of that name; or the file's tree differs from
            `into`.
        UnsupportedError: the device does not exist, or torch lacks the element type.
    """
    require_options("load_tree", options, TreeOptions)
    return loaded_tree(filename, "torch", {"device": device}, **options)
