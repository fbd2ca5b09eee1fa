"""Values of frameworks in trees: each framework's module for them, loaded when first used.

Shapes become trees of them here; or what is encoded again, in which they stay as they are told.
"""

from __future__ import annotations

import functools
import importlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from ztensor.ext import FRAMEWORKS
from ztensor.training.tree.decode import LeafAt, decode
from ztensor.training.tree.kinds import MAKERS, Leaf, Made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ztensor.limits import Budget

# In the place of a framework's name: each value comes as one of the framework whose it was.
AS_SAVED = "*"


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


def tree_adapter(name: str | None) -> TreeAdapter | None:
    """Return the module of a framework's types in trees, or None; a file may give the name.

    Raises:
        MissingDependencyError: the framework is not installed.
        UnsupportedError: the plugin that has the name is broken.
    """
    if name is None or not name.isidentifier() or name == "numpy":
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


class Adapters:
    """The adapters of those frameworks whose values come as they were.

    Args:
        framework: its name in `ztensor.io.frameworks`; `AS_SAVED` for all, None for none.
        options: of their `tree_makers`.

    Raises:
        MissingDependencyError: the framework is not installed.
    """

    def __init__(
        self, framework: str | None, options: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._framework = framework
        self._options = options
        self._makers: dict[str, Mapping[str, Callable[[Any], Any]]] = {}
        self._known: dict[str, TreeAdapter | None] = {}  # to look one up for each leaf takes long
        if framework not in (None, AS_SAVED):
            self.maker_of(f"{framework}.")

    def of(self, name: str) -> TreeAdapter | None:
        """Return the adapter of a framework, None where its values come as NumPy's arrays."""
        if name not in self._known:
            is_asked = self._framework in (name, AS_SAVED)
            self._known[name] = tree_adapter(name) if is_asked else None
        return self._known[name]

    def maker_of(self, kind: str) -> Callable[[Any], Any] | None:
        """Return what makes a value of its type's name, which begins with its framework's."""
        name = kind.partition(".")[0]
        makers = self._makers.get(name)
        if makers is None:
            home = self.of(name)
            makers = self._makers[name] = {} if home is None else home.tree_makers(**self._options)
        return makers.get(kind) or MAKERS.get(kind)


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
    adapters = Adapters(framework)

    def leaf(at: LeafAt) -> Any:
        value, home = array(at.name), adapters.of(at.framework)
        return value if home is None else home.tree_leaf(value)

    return decode(data, budget, leaf, stored=stored, types=types, maker_of=adapters.maker_of)


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
    )
