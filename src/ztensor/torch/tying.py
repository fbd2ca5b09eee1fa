"""Tied tensors: names of a state dict that share one tensor, and copies of accidental aliases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ztensor.torch.values import PLAIN
from ztensor.training.tree.separating import begun_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def tied(state: Mapping[str, Any]) -> list[list[str]]:
    """Return groups of names that have the same tensor; each has two names or more."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in state.items():
        groups.setdefault(identity(value), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def separate(state: dict[str, Any], groups: Iterable[list[str]] = ()) -> None:
    """Copy tensors that overlap the memory of an earlier tensor, unless they are tied.

    A canonical file stores equal tensors once. Without copies two weights of a model would be
    trained as one.

    Args:
        state: names to tensors, changed in place.
        groups: names of tied tensors, which keep their common memory.
    """
    first_of = {name: names[0] for names in groups for name in names[1:]}
    spans: dict[Any, list[tuple[str, int, int]]] = {}
    same = []
    for name, tensor in state.items():
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
            continue
        first = first_of.get(name)
        if first is not None and identity(state[first]) == identity(tensor):
            same.append((name, first))
        elif tensor.data_ptr():
            span = name, tensor.data_ptr(), tensor.nbytes
            spans.setdefault(tensor.device, []).append(span)
    for of_device in spans.values():
        for name in begun_inside(of_device):
            state[name] = state[name].clone()
    state.update((name, state[first]) for name, first in same)


def identity(tensor: Any) -> tuple[Any, ...]:
    """Return a key that is equal for views of the same elements.

    The key is valid as long as both tensors live: freed addresses are used again.
    """
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_meta:
        address = tensor.data_ptr()
        if address:
            return tensor.device, address, tensor.dtype, tensor.shape, tensor.stride()
    return (id(tensor),)
