"""Decode trees with the values of frameworks, whose modules are loaded on first use.

`decode_kept` keeps such values encoded, to be encoded again.
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

# In place of a framework's name: each value becomes one of the framework it came from.
AS_SAVED = "*"


class TreeAdapter(Protocol):
    """The types of a framework that trees keep; see `ztensor.training.tree`."""

    def tree_form(self, value: Any, /) -> Any:
        """Return the form of a value, a `Leaf` or a `Made`, or None if it cannot be saved.

        Raises:
            NotRepresentableError: its type can be saved, but this value cannot.
        """
        ...

    def tree_leaf(self, stored: Any, copied: Callable[[], None] = ..., /) -> Any:
        """Return a leaf as a value of the framework.

        Args:
            stored: the array or `Tensor` of the leaf.
            copied: called before its bytes are copied, to check them.
        """
        ...

    def tree_makers(self, **options: Any) -> dict[str, Callable[[Any], Any]]:
        """Return the functions that make values of the framework's types, by the names in files.

        Args:
            options: options of the framework, such as a device of torch, and of others, which it
                ignores; and `copied`, called with a leaf before its bytes are copied.
        """
        ...


def tree_adapter(name: str | None) -> TreeAdapter | None:
    """Return the adapter of a framework, or None. The name may come from a file.

    Raises:
        MissingDependencyError: the framework is not installed.
        UnsupportedError: the plugin of that name is broken.
    """
    if name is None or not name.isidentifier() or name == "numpy":
        return None
    try:
        framework = FRAMEWORKS[name]
    except KeyError:
        return None
    if not framework.trees:
        return None
    framework.loaded()  # its package first: it imports that module
    module: Any = importlib.import_module(framework.trees)
    return module  # type: ignore[no-any-return]


class Adapters:
    """The adapters of the frameworks whose values are restored as they were.

    Args:
        framework: name of one in `ztensor.io.frameworks`, `AS_SAVED` for all, or None.
        options: options of their `tree_makers`.

    Raises:
        MissingDependencyError: the framework is not installed.
    """

    def __init__(
        self, framework: str | None, options: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._framework = framework
        self._options = options
        self._makers: dict[str, Mapping[str, Callable[[Any], Any]]] = {}
        self._known: dict[str, TreeAdapter | None] = {}  # a lookup for each leaf takes long
        if framework not in (None, AS_SAVED):
            self.maker_of(f"{framework}.")

    def of(self, name: str) -> TreeAdapter | None:
        """Return the adapter of a framework, None if its values become NumPy arrays."""
        if name not in self._known:
            is_asked = self._framework in (name, AS_SAVED)
            self._known[name] = tree_adapter(name) if is_asked else None
        return self._known[name]

    def maker_of(self, kind: str) -> Callable[[Any], Any] | None:
        """Return the maker of a type by its name, which begins with the framework's name."""
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
        array: returns the array or `ztensor.Tensor` of a leaf by its name.
        stored: likewise.
        framework: its name in `ztensor.io.frameworks`; None returns the results of `array`.
        types: likewise.

    Raises:
        ZTensorError: as `decode` raises.
    """
    adapters = Adapters(framework)

    def leaf(at: LeafAt) -> Any:
        value, home = array(at.name), adapters.of(at.framework)
        return value if home is None else home.tree_leaf(value)

    return decode(data, budget, leaf, stored=stored, types=types, maker_of=adapters.maker_of)


def decode_kept(
    data: bytes, budget: Budget, called: Callable[[str], str], *, stored: int = 0
) -> Any:
    """Return the tree of a shape for `encode`, without decoding values of frameworks.

    Args:
        data: as for `decode`, like `budget` and `stored`.
        budget: likewise.
        called: returns the new name of a leaf by its name.
        stored: likewise.

    Raises:
        ZTensorError: as `decode` raises.
    """

    def leaf(at: LeafAt) -> Leaf:
        return Leaf(None, ("array", at.name), at.framework, called(at.name))

    return decode(
        data, budget, leaf, stored=stored, maker_of=lambda name: functools.partial(Made, name)
    )
