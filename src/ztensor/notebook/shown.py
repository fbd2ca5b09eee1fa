"""What notebooks ask objects for, for classes to inherit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Shown:
    """Shows itself in a notebook as a sheet; `makers.py` has a line for the class."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from ztensor.notebook.makers import shown

        return shown(self)


class Keyed:
    """Offers its keys where `thing["` is completed."""

    __slots__ = ()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        raise NotImplementedError

    def _ipython_key_completions_(self) -> list[str]:
        try:
            return list(self)
        except Exception:  # noqa: BLE001  # of a closed file; a shell that completes has no errors
            return []
