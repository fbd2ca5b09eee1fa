"""The types of a framework in trees: each framework's module for them, loaded when first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from ztensor.ext import FRAMEWORKS

if TYPE_CHECKING:
    from collections.abc import Callable


class TreeAdapter(Protocol):
    """Which types of a framework a tree keeps; see `ztensor.training.tree`."""

    def tree_form(self, value: Any, /) -> Any:
        """Return what a value is saved as, a `Leaf` or a `Made`; None where it cannot be.

        Raises:
            NotRepresentableError: its type is known, but this value cannot be saved.
        """
        ...

    def tree_leaf(self, stored: Any, copied: Callable[[], None] = ..., /) -> Any:
        """Return a leaf that was the framework's as its value: from an array or a `Tensor`.

        Args:
            stored: the array, or the `Tensor`.
            copied: is called before bytes of it are copied, so that they are checked.
        """
        ...

    def tree_makers(self, **options: Any) -> dict[str, Callable[[Any], Any]]:
        """Return what makes values of the framework's types, by the names `tree_form` gave them.

        Args:
            options: the framework's own, such as a device of torch, and those of others, which it
                passes over; and `copied`, which is called with a leaf before its bytes are copied.
        """
        ...


def tree_adapter(name: str) -> TreeAdapter | None:
    """Return the module of a framework's types in trees, or None; a file may give the name.

    Raises:
        MissingDependencyError: the framework is not installed.
        UnsupportedError: the plugin that has the name is broken.
    """
    if not name.isidentifier() or name == "numpy":
        return None
    try:
        framework = FRAMEWORKS[name]
    except KeyError:
        return None
    if not framework.trees:
        return None
    framework.loaded()  # its package imports that module; the other way round is a circle
    module: Any = importlib.import_module(framework.trees)
    return module  # type: ignore[no-any-return]


def tree_adapter_beside(value: object) -> TreeAdapter | None:
    """Return that of the framework which a value's class is from, or None."""
    name = FRAMEWORKS.name_of(value)
    return None if name is None else tree_adapter(name)
