"""Errors that pass are told where they are from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import ZTensorError

if TYPE_CHECKING:
    from types import TracebackType

    from ztensor.reading.file import FileObjects


class Located:
    """Tells errors that pass where they are from; many times faster than a generator's context."""

    __slots__ = ("_file", "_name", "_role")

    def __init__(self, file: FileObjects, name: str | None, role: str | None) -> None:
        self._file = file
        self._name = name
        self._role = role

    def __enter__(self) -> None:
        """Begin; nothing is done."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, ZTensorError):
            error.locate(file=self._file.name, object_name=self._name, component=self._role)
            if self._file.format != "zt":
                error.forget_sections()
