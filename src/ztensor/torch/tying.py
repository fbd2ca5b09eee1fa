"""Tensors of one memory: which names of a state dict have one tensor, and copies where not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ztensor.torch.values import PLAIN
from ztensor.training.tree.separating import begun_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def tied(state: Mapping[str, Any]) -> list[list[str]]:
    """Return the names of each tensor that has several."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, value in state.items():
        groups.setdefault(identity(value), []).append(name)
    return [names for names in groups.values() if len(names) > 1]


def separate(state: dict[str, Any], groups: Iterable[list[str]] = ()) -> None:
    """Copy each tensor whose memory begins within that of another; the first keeps its own.

    A file may have merely equal tensors once, as one in its canonical form has: two weights of a
    model would be trained as one.

    Args:
        state: names to tensors, changed in place.
        groups: the names of each tensor that is to have several.
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
    """Return what is the same for tensors that are one, or views of the same elements.

    That holds for as long as both live: memory that was given back is given out again.
    """
    if type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_meta:
        address = tensor.data_ptr()
        if address:
            return tensor.device, address, tensor.dtype, tensor.shape, tensor.stride()
    return (id(tensor),)
