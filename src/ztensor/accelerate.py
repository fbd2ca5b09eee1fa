"""Training with Accelerate: weights of `save_state` as `.zt`, or the whole state as one tree.

    ztensor.accelerate.register(accelerator)
    accelerator.save_state("step-100")  # its weights are model.zt, without a pickle
    accelerator.load_state("step-100")

`save_state` pickles everything except the weights. `state_of` returns the complete state as a tree,
for `ztensor.save_tree` or `ztensor.CheckpointManager`, and `set_state` restores it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.options import WriteOptions, require_options
from ztensor.torch import load_file, save_file
from ztensor.training.hooks import method_of, require_of
from ztensor.training.torch_randomness import random_state, set_random_state
from ztensor.typing import Durable

if TYPE_CHECKING:
    from typing import Unpack


__all__ = ["register", "set_state", "state_of"]

# Keys of `state_of` beside the caller's objects.
_OWN = ("random", "step", "scaler")


def register(
    accelerator: Any,
    *,
    compression: bool | int | str = False,
    durable: Durable = "auto",
    **options: Unpack[WriteOptions],
) -> list[Any]:
    """Have `accelerator.save_state` write weights as `model.zt`, and `load_state` read them.

    It uses Accelerate's own hooks. Optimizers, schedulers and random states stay pickles. A folder
    without `model.zt` is loaded as before. FSDP and DeepSpeed pass no weights to hooks and write
    their own files.

    Args:
        accelerator: an `accelerate.Accelerator`.
        compression: as for `ztensor.torch.save_file`.
        durable: see `ztensor.typing.SaveOptions`.
        options: see `ztensor.typing.WriteOptions`.

    Returns:
        Two handles of Accelerate; their `remove()` unregisters the hooks.

    Raises:
        ArgumentTypeError: it is not an accelerator.
        MissingDependencyError: Accelerate is not installed.
    """
    require_options("register", options, WriteOptions)
    require_of(accelerator, "accelerate", "Accelerator")

    def save(models: list[Any], weights: list[Any], output_dir: str) -> None:
        if accelerator.is_main_process:
            for number, state in enumerate(weights):
                path = _path(output_dir, number)
                save_file(state, path, {"format": "pt"}, compression, durable=durable, **options)
        del models
        weights.clear()  # Accelerate writes the weights that remain in the list

    def load(models: list[Any], input_dir: str) -> None:
        paths = [_path(input_dir, number) for number in range(len(models))]
        if not all(map(os.path.exists, paths)):
            return
        for model, path in zip(models, paths, strict=True):
            model.load_state_dict(load_file(path))
        models.clear()

    return [
        accelerator.register_save_state_pre_hook(save),
        accelerator.register_load_state_pre_hook(load),
    ]


def state_of(accelerator: Any, **objects: Any) -> dict[str, Any]:
    """Return the complete state of a run as a tree; all processes call it.

    Args:
        accelerator: an `accelerate.Accelerator`.
        objects: by names of your choice: models, which are unwrapped, and other objects with
            `state_dict`, such as optimizers, schedulers and stateful data loaders; or lists.

    Returns:
        The state of each object by its name; `"random"`, the random states of each process;
        `"step"`, the count of batches in the window of gradient accumulation; `"scaler"`, the
        scaler of mixed precision, if there is one. Save it in the main process.

    Raises:
        ArgumentTypeError: an object has no `state_dict`, or `accelerator` is something else.
        ArgumentValueError: an object has a name that is taken.
        MissingDependencyError: Accelerate is not installed.
    """
    require_of(accelerator, "accelerate", "Accelerator")
    _require_free(objects)
    tree = {name: _state(accelerator, name, value) for name, value in objects.items()}
    from accelerate.utils import gather_object

    tree["random"] = list(gather_object([random_state()]))
    tree["step"] = accelerator.step
    if accelerator.scaler is not None:
        tree["scaler"] = accelerator.scaler.state_dict()
    return tree


def set_state(accelerator: Any, tree: dict[str, Any], **objects: Any) -> None:
    """Restore a state that `state_of` returned; all processes call it.

    Args:
        accelerator: an `accelerate.Accelerator`.
        tree: the state, in memory of its own: from `ztensor.torch.load_tree` or
            `CheckpointManager.restore`.
        objects: as for `state_of`, by the same names.

    Raises:
        ArgumentValueError: the tree lacks a state of a name, or fewer processes wrote it.
        ArgumentTypeError: an object has no `load_state_dict`, or `accelerator` is something else.
        MissingDependencyError: Accelerate is not installed.
        Exception: errors of an object's `load_state_dict`.
    """
    require_of(accelerator, "accelerate", "Accelerator")
    _require_free(objects)
    if not isinstance(tree, dict):
        raise ArgumentTypeError("a state must be a dict", found=describe(tree, 40))
    for name in (*objects, "random", "step"):
        if name not in tree:
            raise ArgumentValueError("the state has nothing of this name", object_name=name)
    states = tree["random"]
    if not isinstance(states, list) or len(states) <= accelerator.process_index:
        raise ArgumentValueError(
            "the state has no random numbers for this process: fewer wrote it",
            expected=f"{accelerator.num_processes} of them",
            found=describe(states if not isinstance(states, list) else len(states), 40),
        )
    for name, value in objects.items():
        _set(accelerator, name, value, tree[name])
    accelerator.step = tree["step"]
    if accelerator.scaler is not None and "scaler" in tree:
        accelerator.scaler.load_state_dict(tree["scaler"])
    set_random_state(states[accelerator.process_index])


def _path(folder: Any, number: int) -> str:
    return os.path.join(folder, f"model_{number}.zt" if number else "model.zt")


def _state(accelerator: Any, name: str, value: Any) -> Any:
    import torch

    if isinstance(value, (list, tuple)):
        return [_state(accelerator, name, each) for each in value]
    if isinstance(value, torch.nn.Module):
        return accelerator.unwrap_model(value).state_dict()
    return method_of(value, "state_dict", name)()


def _set(accelerator: Any, name: str, value: Any, state: Any) -> None:
    import torch

    if isinstance(value, (list, tuple)):
        if not isinstance(state, list) or len(state) != len(value):
            raise ArgumentValueError(
                "the state has another number of these", object_name=name, expected=str(len(value))
            )
        for each, its in zip(value, state, strict=True):
            _set(accelerator, name, each, its)
        return
    if isinstance(value, torch.nn.Module):
        value = accelerator.unwrap_model(value)
    method_of(value, "load_state_dict", name)(state)


def _require_free(objects: dict[str, Any]) -> None:
    for name in _OWN:
        if name in objects:
            raise ArgumentValueError("the state has something of this name", object_name=name)
