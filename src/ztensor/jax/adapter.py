"""What the table of frameworks asks of JAX; see `ztensor.io.frameworks`."""

from __future__ import annotations

from typing import Any

from ztensor.jax import read
from ztensor.jax.values import is_value, named_device, stored, value_of

__all__ = ["device_of", "is_value", "read", "stored", "value_of"]


def device_of(device: Any) -> Any:
    """Return a device by its name; None, which "cpu" stands for here, leaves it to JAX.

    Raises:
        ArgumentTypeError: it is no device and no name.
        ArgumentValueError: there is none of that name.
    """
    return None if isinstance(device, str) and device == "cpu" else named_device(device)
