"""Shared by the hooks into training libraries: look up and derive from their classes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, MissingDependencyError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def class_of(library: str, name: str, *, module: str | None = None) -> Any:
    """Return a class of a library.

    Args:
        library: name of the library.
        name: name of the class.
        module: its module, the library itself by default.

    Raises:
        MissingDependencyError: the library is not installed.
    """
    try:
        return getattr(importlib.import_module(module or library), name)
    except ImportError as error:
        raise MissingDependencyError("this hook needs a library", install=library) from error


def require_of(value: Any, library: str, name: str) -> None:
    """Raise if a value is not an instance of a class of a library.

    Raises:
        ArgumentTypeError: it is not.
        MissingDependencyError: the library is not installed.
    """
    if not isinstance(value, class_of(library, name)):
        raise ArgumentTypeError(
            f"this takes an object of {library}",
            expected=f"{library}.{name}",
            found=describe(value, 60),
        )


def deriving(
    home: dict[str, Any], name: str, own: type, bases: Callable[[], Iterable[type]]
) -> Callable[[str], Any]:
    """Return a `__getattr__` for a module that makes a class on first access.

    Args:
        home: namespace of the module.
        name: name of the class.
        own: our base class.
        bases: returns further base classes, from the library.
    """

    def made(asked: str) -> Any:
        if asked != name:
            raise AttributeError(f"module {home['__name__']!r} has no attribute {asked!r}")
        words = {"__doc__": own.__doc__, "__module__": home["__name__"]}
        home[name] = type(name, (own, *bases()), words)
        return home[name]

    return made


def method_of(one: Any, method: str, name: str) -> Any:
    """Return a method of an object of a run, such as `state_dict`.

    Raises:
        ArgumentTypeError: the object lacks it.
    """
    attribute = getattr(one, method, None)
    if not callable(attribute) or isinstance(one, type):
        raise ArgumentTypeError(
            f"an object of a run must have {method}", object_name=name, found=describe(one, 60)
        )
    return attribute
