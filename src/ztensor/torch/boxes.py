"""The tensors of a state as boxes: the elements of this process, and their places in the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ztensor.errors import ArgumentTypeError, UsageError, describe


class Box(NamedTuple):
    """Local elements of a tensor.

    Attributes:
        offsets: the position of the first one in the whole tensor.
        local: the elements, which are written.
    """

    offsets: tuple[int, ...]
    local: torch.Tensor


class Target(NamedTuple):
    """A tensor of the state.

    Attributes:
        name: its name.
        shape: the shape of the whole tensor.
        dtype: its element type.
        boxes: the elements of this process.
        replicas: process groups whose ranks have the same elements, of which the first rank sends
            them to the others, group by group.
        value: the tensor itself.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    boxes: tuple[Box, ...]
    replicas: tuple[Any, ...]
    value: Any


def targets_of(state: Any, group: Any) -> list[Target]:
    """Return the tensors of a module or state dict, sorted by name, as ranks agree on it."""
    if not isinstance(state, Mapping) or any(isinstance(v, np.ndarray) for v in state.values()):
        raise ArgumentTypeError(
            "not a state of torch",
            expected="a module, or a mapping to tensors",
            found=describe(type(state).__name__),
        )
    names = [name for name in sorted(state) if _is_tensor(state[name])]
    return [_target(name, state[name], group) for name in names]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor) or hasattr(value, "local_shards")


def _target(name: str, value: Any, group: Any) -> Target:
    shape = tuple(value.size())
    replicas: tuple[Any, ...] = ()
    if hasattr(value, "local_shards"):  # a ShardedTensor
        shards = value.local_shards()
        boxes = tuple(Box(tuple(s.metadata.shard_offsets), s.tensor.detach()) for s in shards)
    elif hasattr(value, "placements"):  # a DTensor
        boxes = boxes_of(value, value.detach().to_local(), name)
        if group is not None and boxes:
            copied = [at for at, place in enumerate(value.placements) if place.is_replicate()]
            replicas = tuple(map(value.device_mesh.get_group, copied))
    else:
        boxes = (Box((0,) * len(shape), value.detach()),)
        replicas = () if group is None else (group,)
    if any(box.local.is_meta for box in boxes):
        error = UsageError("on the meta device a tensor has no elements to fill", object_name=name)
        error.hint = "give it memory first: module.to_empty(device=...)"
        raise error
    return Target(name, shape, value.dtype, boxes, replicas, value)


def boxes_of(value: Any, local: torch.Tensor, name: str) -> tuple[Box, ...]:
    """Return the local elements of a `DTensor` as boxes."""
    chunks = value.__create_chunk_list__()
    if any(tuple(chunk.sizes) != tuple(local.shape) for chunk in chunks if local.numel()):
        raise UsageError(
            "the local elements of the DTensor are not one box",
            object_name=name,
            found=describe(value.placements),
        )
    return tuple(Box(tuple(chunk.offsets), local) for chunk in chunks if local.numel())
