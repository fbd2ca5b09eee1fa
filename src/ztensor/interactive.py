"""What shells and notebooks ask objects for, for classes to inherit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NoReturn

from ztensor.registry import Registry

# What makes the sheets knows all classes that inherit from here.
_MAKERS: Registry[str, Callable[[object], str]] = Registry(
    {"html": "ztensor.insight.notebook.makers:shown"}
)


class Shown:
    """Shows itself in a notebook; `insight/notebook/makers.py` has a line for the class.

    A mapping also offers its keys where `thing["` is completed.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        return _MAKERS["html"](self)

    def _ipython_key_completions_(self) -> list[str]:
        try:
            return list(self) if isinstance(self, Mapping) else []
        except Exception:  # noqa: BLE001  # of a closed file; a shell that completes has no errors
            return []


class Hinted:
    """Says what to call where a name of another library was looked for."""

    __slots__ = ()

    if not TYPE_CHECKING:  # to type checkers any name would be there

        def __getattr__(self, name: str) -> NoReturn:
            from ztensor.hints import missing

            kind = type(self)
            kinds = tuple(one.__name__ for one in kind.__mro__)
            raise missing(f"{kind.__name__!r} object", name, kinds, self)
