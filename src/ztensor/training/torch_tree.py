"""Types of torch in trees: tensors, parameters, and what optimizers and configurations hold."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ztensor.errors import UnsupportedError, describe
from ztensor.torch.devices import device_of, to_device
from ztensor.torch.values import (
    PLAIN,
    array_to_torch,
    first_line,
    from_torch,
    numpy_type,
    to_torch,
    view_in_torch,
)
from ztensor.training.tree.columns import malformed
from ztensor.training.tree.encode import memory_of
from ztensor.training.tree.kinds import Kind, Leaf, Made

if TYPE_CHECKING:
    from collections.abc import Callable


_TENSOR, _PARAMETER = "torch.Tensor", "torch.nn.Parameter"
_GRADIENT = "requires_grad"
_ORDERS = {"channels_last": torch.channels_last, "channels_last_3d": torch.channels_last_3d}
_LEAST_ORDERED = 4  # dimensions
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def tree_form(value: Any) -> Leaf | Made | None:
    """Return the form of a value of torch in a tree; see `TreeAdapter`."""
    kind = type(value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value, kind)
    row = _KINDS.get(kind)
    return None if row is None else Made(row.name, row.split(value))


def _of_tensor(tensor: Any, kind: type) -> Leaf | Made:
    is_cpu = tensor.is_cpu
    if is_cpu or tensor.layout is not torch.strided or tensor.is_meta:
        stored = from_torch(tensor)
        memory = _memory_of(tensor, stored)
    else:  # the writer fetches it when its turn comes
        numpy_type(tensor.dtype)
        stored = tensor.detach()
        memory = tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
        if not tensor.numel():
            memory = "torch", id(tensor)
    leaf = Leaf(stored, memory, "torch")
    if kind not in PLAIN:
        raise UnsupportedError(
            "a subclass of Tensor cannot be saved as such; save tensor.as_subclass(torch.Tensor)",
            found=f"{kind.__module__}.{kind.__qualname__}",
        )
    words = [] if is_cpu else [tensor.device.type]
    if tensor.dim() >= _LEAST_ORDERED:
        words += [name for name, order in _ORDERS.items() if _is_in(tensor, order)]
    if tensor.requires_grad:
        words.append(_GRADIENT)
    if kind is torch.Tensor and not words:
        return leaf
    return Made(_TENSOR if kind is torch.Tensor else _PARAMETER, (leaf, " ".join(words)))


def _memory_of(tensor: Any, stored: Any) -> object:
    """Return a key that is equal for tensors over the same elements."""
    if type(stored) is not np.ndarray or not stored.size:
        return "torch", id(tensor)
    if tensor.is_conj() or tensor.is_neg():  # `stored` is a copy
        return memory_of(stored, "torch")
    # Tuples of NumPy's cost garbage collection nothing, unlike torch's.
    return tensor.data_ptr(), stored.shape, stored.strides, tensor.dtype


def _is_in(tensor: Any, order: Any) -> bool:
    dimensions = 4 if order is torch.channels_last else 5
    return (
        tensor.dim() == dimensions
        and tensor.layout is torch.strided
        and not tensor.is_contiguous()
        and tensor.is_contiguous(memory_format=order)
    )


def tree_leaf(stored: Any, copied: Callable[[], None] = lambda: None) -> Any:
    """Return a leaf as a tensor on the CPU, over the same memory if possible."""
    is_array = not hasattr(stored, "components")
    view = view_in_torch(stored) if is_array else None
    if view is not None:
        return view
    copied()
    return array_to_torch(stored) if is_array else to_torch(stored)


def tree_makers(
    *, device: Any = None, copied: Callable[[Any], None] = lambda leaf: None
) -> dict[str, Callable[[Any], Any]]:
    """Return the makers of torch's types, for one tree.

    Values that shared elements share them again, on any device; values that were one object are one
    object again.

    Args:
        device: device for tensors that were not on the CPU when they were saved. States of random
            numbers and steps of optimizers were, and stay there. None leaves all on the CPU.
        copied: called with a leaf before its bytes are copied to another order or device.
    """
    place = None if device is None else device_of(device)
    # A placed tensor may be a copy of its leaf, so each is made once. Leaves are known by their
    # ids: a value here holds its leaf, so that no id is reused.
    placed: dict[tuple[int, str], tuple[Any, Any]] = {}
    values: dict[tuple[int, str, object], Any] = {}

    def made(kind: Any, leaf: Any, words: str) -> Any:
        key = id(leaf), words, kind
        if key not in values:
            where = " ".join(word for word in words.split() if word != _GRADIENT)
            if (id(leaf), where) not in placed:
                if where:
                    copied(leaf)
                placed[id(leaf), where] = leaf, _placed(leaf, where, place)
            values[key] = _of_kind(
                kind, placed[id(leaf), where][1], needs_gradient=_GRADIENT in words.split()
            )
        return values[key]

    rows = [
        Kind(name, tuple, (torch.Tensor, str), functools.partial(made, kind))
        for name, kind in ((_TENSOR, torch.Tensor), (_PARAMETER, torch.nn.Parameter))
    ]
    return {row.name: row.make for row in (*rows, *_KINDS.values())}


def _placed(tensor: Any, words: str, place: Any) -> Any:
    """Return a leaf in the memory format and on the device that the words name."""
    for word in words.split():
        if word in _ORDERS:
            tensor = _in_order(tensor, _ORDERS[word])
        elif place is not None:
            tensor = to_device(tensor, place)
    return tensor


def _of_kind(kind: Any, tensor: Any, *, needs_gradient: bool) -> Any:
    try:
        if kind is torch.nn.Parameter:
            return torch.nn.Parameter(tensor, requires_grad=needs_gradient)
        return tensor.detach().requires_grad_(needs_gradient)
    except RuntimeError as error:
        raise malformed(f"a tensor cannot be made as it was: {first_line(error)}") from error


def _in_order(tensor: Any, order: Any) -> Any:
    try:
        return tensor.contiguous(memory_format=order)
    except RuntimeError as error:
        raise malformed("a tensor has another number of dimensions than its order") from error


def _size(items: tuple[Any, ...]) -> Any:
    if not all(type(item) is int for item in items):
        raise malformed("a torch.Size is made of something else", describe(items, 40))
    return torch.Size(items)


def _dtype(name: str) -> Any:
    if name not in _DTYPES:
        raise UnsupportedError("torch has no such element type", found=describe(name, 40))
    return _DTYPES[name]


def _device(name: str) -> Any:
    try:
        return torch.device(name)
    except RuntimeError as error:
        raise UnsupportedError("torch has no such device", found=describe(name, 40)) from error


def _generator(name: str, state: Any) -> Any:
    """Return a generator of random numbers in its state, on the device where it was."""
    try:
        return torch.Generator(_device(name)).set_state(state.clone())
    except (RuntimeError, TypeError) as error:
        raise UnsupportedError(
            f"torch cannot make the generator again: {first_line(error)}", found=describe(name, 40)
        ) from error


_KINDS: dict[type, Kind] = {
    torch.Size: Kind("torch.Size", lambda size: tuple(map(int, size)), tuple, _size),
    torch.dtype: Kind("torch.dtype", str, str, _dtype),
    torch.device: Kind("torch.device", str, str, _device),
    torch.Generator: Kind(
        "torch.Generator",
        lambda generator: (str(generator.device), generator.get_state()),
        (str, torch.Tensor),
        _generator,
    ),
}
