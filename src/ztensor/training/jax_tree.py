"""Types of JAX in trees: arrays, dense and sparse, and keys of random numbers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ztensor import Tensor
from ztensor.errors import UnsupportedError, describe
from ztensor.jax.values import is_copied, is_value, stored, value_of
from ztensor.training.tree.kinds import Kind, Leaf, Made

if TYPE_CHECKING:
    from collections.abc import Callable


_KEY = "jax.random.key"


def tree_form(value: Any) -> Leaf | Made | None:
    """Return the form of a value of JAX in a tree; see `TreeAdapter`."""
    if not is_value(value):
        return None
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        data = np.asarray(jax.random.key_data(value))
        return Made(_KEY, (str(jax.random.key_impl(value)), Leaf(data, None, "numpy")))
    return Leaf(stored(value), ("jax", id(value)), "jax")


def tree_leaf(value: Any, copied: Callable[[], None] = lambda: None) -> Any:
    """Return a leaf as an array of JAX on its default device."""
    if is_copied(value) or jax.default_backend() != "cpu":
        copied()
    return value_of(value if isinstance(value, Tensor) else Tensor(value))


def tree_makers(
    *, copied: Callable[[Any], None] = lambda leaf: None, **_: Any
) -> dict[str, Callable[[Any], Any]]:
    """Return the makers of JAX's types; see `TreeAdapter.tree_makers`."""
    return {_KEY: Kind(_KEY, tuple, (str, np.ndarray), functools.partial(_key, copied)).make}


def _key(copied: Callable[[Any], None], name: str, data: Any) -> Any:
    copied(data)
    try:
        return jax.random.wrap_key_data(data, impl=name)
    except (ValueError, TypeError) as error:
        raise UnsupportedError("JAX has no such keys", found=describe(name, 40)) from error
