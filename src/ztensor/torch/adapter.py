"""The adapter of PyTorch for the table of frameworks; see `ztensor.io.frameworks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ztensor import Tensor
from ztensor.ext import ObjectReader
from ztensor.torch.devices import device_of, fill, to_device
from ztensor.torch.loading import read_torch
from ztensor.torch.values import from_torch, numpy_type, to_torch

if TYPE_CHECKING:
    import numpy as np


__all__ = ["device_of", "element_type", "fill", "is_value", "read", "stored", "value_of"]

stored = from_torch


def is_value(value: object) -> bool:
    """Return whether a value is a torch tensor."""
    return isinstance(value, torch.Tensor)


def value_of(tensor: Tensor, *, device: Any = "cpu") -> Any:
    """Return a tensor as a torch tensor on a device; see `ztensor.Tensor.torch`."""
    place = device_of(device)
    return to_device(to_torch(tensor), place)


def read(reader: ObjectReader, name: Any, *, device: Any = "cpu", copy: bool = False) -> Any:
    """Return objects as torch tensors; see `ztensor.Reader.read_torch`."""
    return read_torch(reader.objects, name, device=device, copy=copy)


def element_type(dtype: Any) -> np.dtype[Any] | None:
    """Return the NumPy dtype of a `torch.dtype`, and None for any other value.

    Raises:
        NotRepresentableError: it cannot be stored.
    """
    return numpy_type(dtype) if isinstance(dtype, torch.dtype) else None
