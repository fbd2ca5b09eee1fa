"""The adapter of JAX for the table of frameworks; see `ztensor.io.frameworks`."""

from __future__ import annotations

from typing import Any

from ztensor.jax import read
from ztensor.jax.values import is_value, named_device, stored, value_of

__all__ = ["device_of", "is_value", "read", "stored", "value_of"]


def device_of(device: Any) -> Any:
    """Return a device by its name; None, JAX's default, for "cpu".

    Raises:
        ArgumentTypeError: it is neither a device nor a name.
        ArgumentValueError: no device has this name.
    """
    return None if isinstance(device, str) and device == "cpu" else named_device(device)
