"""`Registry`: a mapping from names to values that are imported on first use.

The library's names are lines of the table. Other distributions add names by entry points in the
table's group. Listing entry points takes about 20 ms, so they are only read for unknown names.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ztensor.errors import Reason, UnsupportedError, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoint

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Other = TypeVar("_Other")


class Registry(MutableMapping[_Key, _Value]):
    """A mapping whose values are imported on first use.

    `in` imports nothing for a line of the table, unless its name is in a family. A plugin is the
    entry point with exactly the requested name. A broken plugin is absent for `in` and `get`;
    `table[name]` raises its error.

    Iteration yields the lines and the plugins used so far; `installed` returns all plugins.

    Args:
        lines: names to values, or to their places `"package.module:attribute"`.
        families: prefixes of names to the places of dicts with all names of that prefix.
        group: the group of entry points of plugins, such as `ztensor.encodings`.
        kind: the class of all values; the value of a plugin is checked.

    Attributes:
        lines: the names of the table's own lines.
    """

    def __init__(
        self,
        lines: Mapping[_Key, _Value | str],
        families: Mapping[str, str] | None = None,
        *,
        group: str = "",
        kind: Any = object,
    ) -> None:
        self.lines = tuple(lines)
        self._values: dict[Any, _Value | str] = dict(lines)
        self._families = dict(families or {})
        self._group = group
        self._kind = kind
        self._broken: dict[str, BaseException] = {}

    def __getitem__(self, key: _Key) -> _Value:
        """Return the value of a name.

        Raises:
            KeyError: neither the table nor a plugin has the name.
            UnsupportedError: the plugin of that name is broken.
        """
        if self._families:
            self._load_family(key)
        value = self._values.get(key, self._values)  # a value may be None
        if value is self._values:
            value = self._values[key] = self._plugin(key)
        elif isinstance(value, str):
            value = self._values[key] = _attribute(value)
        return value  # type: ignore[return-value]

    @overload
    def get(self, key: _Key, default: None = None, /) -> _Value | None: ...
    @overload
    def get(self, key: _Key, default: _Value | _Other, /) -> _Value | _Other: ...
    def get(self, key: _Key, default: _Value | _Other | None = None, /) -> _Value | _Other | None:
        """Return the value of a name; the default if there is none, or the plugin is broken."""
        try:
            return self[key]
        except KeyError:
            return default
        except UnsupportedError as error:
            if error.reason is not Reason.BROKEN_PLUGIN:
                raise
            return default

    def __contains__(self, key: object) -> bool:
        """Return whether a name has a value; this loads a plugin of that name."""
        if self._families:
            self._load_family(key)
        return key in self._values or self.get(key, self) is not self  # type: ignore[arg-type]

    def own(self, key: _Key) -> _Value | None:
        """Return the value of a line or used plugin, or None; other plugins are not looked up."""
        return self[key] if key in self._values else None

    def __setitem__(self, key: _Key, value: _Value) -> None:
        """Set the value of a name."""
        self._values[key] = value

    def __delitem__(self, key: _Key) -> None:
        """Remove a name."""
        del self._values[key]

    def __iter__(self) -> Iterator[_Key]:
        """Iterate over the names of the table; this loads families, but no plugins."""
        for start in list(self._families):
            self._load_family(start)
        return iter(list(self._values))

    def __len__(self) -> int:
        """Return the number of names in the table."""
        return sum(1 for _ in self)

    def installed(self) -> list[str]:
        """Return the names of plugins that are not in the table, without loading them."""
        return [name for name in _installed(self._group) if name not in self._values]

    def usable(self, *, plugins: bool = True) -> Iterator[tuple[_Key, _Value]]:
        """Yield names and values: the table's, then those of working plugins.

        Entry points are only read when the iteration reaches plugins. A line is skipped if its
        package is not installed, as with the core alone.

        Args:
            plugins: False yields only the table.
        """
        for name in self:
            try:
                yield name, self[name]
            except ModuleNotFoundError as error:
                line = self._values[name]
                if not (isinstance(line, str) and error.name and line.startswith(error.name)):
                    raise
        others: list[Any] = self.installed() if plugins else []
        for name in others:
            if (value := self.get(name)) is not None:
                yield name, value

    @staticmethod
    def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
        """Return a module's `__getattr__` that imports names on first use.

        Args:
            package: the module's `__name__`.
            homes: modules to the names that they define, separated by spaces.
        """
        home_of = {name: module for module, names in homes.items() for name in names.split()}

        def load(name: str) -> Any:
            """Import a public name."""
            if name not in home_of:
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            home = importlib.import_module(home_of[name])
            is_home = home_of[name].endswith(f".{name}")  # a name may stand for a module
            value = getattr(home, name, home) if is_home else getattr(home, name)
            setattr(sys.modules[package], name, value)
            return value

        return load

    def _load_family(self, key: object) -> None:
        if isinstance(key, str):
            for start in [prefix for prefix in self._families if key.startswith(prefix)]:
                self._values.update(_attribute(self._families.pop(start)))

    def _plugin(self, name: Any) -> _Value:
        """Load the plugin of a name, and return its value."""
        entry = _installed(self._group).get(name) if self._group else None
        if entry is None:
            raise KeyError(name)
        if name not in self._broken:
            try:
                value = entry.load()
                _require(value, self._kind, name)
            except (Exception, SystemExit) as error:  # noqa: BLE001  # foreign code
                self._broken[name] = error
            else:
                return value  # type: ignore[no-any-return]
        cause = self._broken[name]
        distribution = entry.dist.name if entry.dist is not None else "unknown"
        broken = UnsupportedError(
            f"the plugin {describe(name)} of {self._group}, from the distribution "
            f"{describe(distribution)}, is broken: {type(cause).__name__}: {cause}",
            reason=Reason.BROKEN_PLUGIN,
        )
        broken.hint = "update or uninstall that distribution"
        raise broken from cause


def _require(value: Any, kind: Any, name: str) -> None:
    """Require that a plugin's value has the kind of its group and its own name."""
    if not isinstance(value, kind):
        raise TypeError(f"it gives {describe(value)}, not a {kind.__name__}")
    own = getattr(value, "name", name)
    if own != name:
        raise ValueError(f"it calls itself {describe(own)}")


@functools.cache
def _installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name; the first on the path wins."""
    from importlib.metadata import entry_points

    try:
        entries = list(entry_points(group=group))
    except Exception as error:  # noqa: BLE001  # malformed metadata of some distribution
        import logging

        logging.getLogger("ztensor").warning("installed plugins cannot be listed: %s", error)
        return {}
    by_name: dict[str, EntryPoint] = {}
    for entry in entries:
        by_name.setdefault(entry.name, entry)
    return by_name


def _attribute(place: str) -> Any:
    """Import and return `package.module:attribute`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)
