"""The guard around the reading of an object: errors are told which object they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.guard import foreign_bytes

if TYPE_CHECKING:
    from ztensor.errors import ZTensorError
    from ztensor.reading.file import FileObjects


class Located(foreign_bytes):
    """Tells errors file, object and component; many times faster than a generator's context."""

    __slots__ = ("_name", "_objects", "_role")

    def __init__(self, file: FileObjects, name: str | None, role: str | None) -> None:
        super().__init__("the object")
        self._objects = file
        self._name = name
        self._role = role

    def locate(self, error: ZTensorError) -> None:
        """Fill in where an error comes from."""
        error.locate(file=self._objects.name, object_name=self._name, component=self._role)
        if self._objects.format != "zt":
            error.forget_sections()
