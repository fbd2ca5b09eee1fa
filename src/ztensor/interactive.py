"""Base classes for the hooks of shells and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from ztensor.registry import Registry

# The function that renders any class which inherits from `Shown`.
_MAKERS: Registry[str, Callable[[object], str]] = Registry(
    {"html": "ztensor.insight.notebook.makers:shown"}
)


class Shown:
    """Adds a rich display in notebooks; `insight/notebook/makers.py` has a line for each class.

    Mappings also offer their keys for the completion of `thing["`.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _MAKERS["html"](self)

    def _ipython_key_completions_(self) -> list[str]:
        try:
            return list(self) if isinstance(self, Mapping) else []
        except Exception:  # noqa: BLE001  # a closed file; completion must not raise
            return []


class Hinted:
    """Names the right call for a missing attribute that another library has."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> NoReturn:
            from ztensor.hints import missing

            kind = type(self)
            kinds = tuple(base.__name__ for base in kind.__mro__)
            raise missing(f"{kind.__name__!r} object", name, kinds, self)
