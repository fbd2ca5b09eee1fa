"""Names and what they stand for, each imported when it is first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Registry(MutableMapping[_Key, _Value]):
    """A mapping whose values are imported when they are first used.

    Asking whether a name is in the table imports nothing, unless it is in a family.

    Args:
        lines: by name, the place of its value: `"package.module:attribute"`.
        families: by the beginning of names, the place of a dict that has all names so begun.
    """

    def __init__(
        self, lines: Mapping[_Key, str], families: Mapping[str, str] | None = None
    ) -> None:
        self._values: dict[_Key, _Value | str] = dict(lines)
        self._families = dict(families or {})

    def __getitem__(self, key: _Key) -> _Value:
        """Return the value of a name.

        Raises:
            KeyError: the table has no such name.
        """
        if self._families:
            self._load_family(key)
        value = self._values[key]
        if isinstance(value, str):
            value = self._values[key] = _attribute(value)
        return value

    def __contains__(self, key: object) -> bool:
        """Return whether the table has a name."""
        if self._families:
            self._load_family(key)
        return key in self._values

    def __setitem__(self, key: _Key, value: _Value) -> None:
        """Add a name, or give it another value."""
        self._values[key] = value

    def __delitem__(self, key: _Key) -> None:
        """Take a name away."""
        del self._values[key]

    def __iter__(self) -> Iterator[_Key]:
        """Iterate over all names; families are loaded for them."""
        for start in list(self._families):
            self._load_family(start)
        return iter(self._values)

    def __len__(self) -> int:
        """Return how many names there are."""
        return sum(1 for _ in self)

    def _load_family(self, key: object) -> None:
        if isinstance(key, str):
            for start in [one for one in self._families if key.startswith(one)]:
                self._values.update(_attribute(self._families.pop(start)))


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: by module, the names that come from it, with spaces between.
    """
    home_of = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        """Import a public name."""
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home_of[name]), name)

    return load


def _attribute(place: str) -> Any:
    """Return what `package.module:attribute` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
