"""A shape to a tree whose values are those of a framework, or stay as they are told."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ztensor.training.tree.adapters import tree_adapter
from ztensor.training.tree.decode import LeafAt, decode
from ztensor.training.tree.kinds import MAKERS, Leaf, Made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ztensor.limits import Budget


def decode_as(
    data: bytes,
    budget: Budget,
    array: Callable[[str], Any],
    *,
    stored: int = 0,
    framework: str | None = None,
    types: Iterable[type] = (),
) -> Any:
    """Return the tree of a shape, with the values of a framework as they were.

    Args:
        data: as for `decode`, like `budget`, `stored` and `types`.
        budget: likewise.
        array: gives the array or `ztensor.Tensor` of a leaf, by the leaf's name.
        stored: likewise.
        framework: its name in `ztensor.io.frameworks`; None gives what `array` gave for all.
        types: likewise.

    Raises:
        ZTensorError: what `decode` raises.
    """
    home = None if framework is None else tree_adapter(framework)
    own = {} if home is None else home.tree_makers()

    def leaf(at: LeafAt) -> Any:
        value = array(at.name)
        return home.tree_leaf(value) if home is not None and at.framework == framework else value

    def maker_of(name: str) -> Callable[[Any], Any] | None:
        return own.get(name) or MAKERS.get(name)

    return decode(data, budget, leaf, stored=stored, types=types, maker_of=maker_of).tree


def decode_kept(
    data: bytes, budget: Budget, called: Callable[[str], str], *, stored: int = 0
) -> Any:
    """Return the tree of a shape as `encode` takes it again: what is made of others stays told.

    Args:
        data: as for `decode`, like `budget` and `stored`.
        budget: likewise.
        called: gives the new name of a leaf, by its name.
        stored: likewise.

    Raises:
        ZTensorError: what `decode` raises.
    """

    def leaf(at: LeafAt) -> Leaf:
        return Leaf(None, ("array", at.name), at.framework, called(at.name))

    return decode(
        data, budget, leaf, stored=stored, maker_of=lambda name: functools.partial(Made, name)
    ).tree
