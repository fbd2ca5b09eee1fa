"""Bytes that are already in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.io.source.base import Source, shrunk

if TYPE_CHECKING:
    from typing_extensions import Buffer  # collections.abc has it from 3.12 on


class MemorySource(Source):
    """A file held in a bytes-like object; views of it are read-only.

    Args:
        data: any object with a contiguous buffer; it must not be resized while in use.
        name: how messages call it.
    """

    def __init__(self, data: Buffer, *, name: str = "<bytes>") -> None:
        self._data = data
        # Read-only, since a view must never reach the caller's own buffer.
        self._view = memoryview(data).cast("B").toreadonly()
        self.name = name
        self.size = self._view.nbytes

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Copy bytes from `offset` into `destination`."""
        got = self._view[offset : offset + destination.nbytes]
        if got.nbytes != destination.nbytes:
            raise shrunk(self.name, offset, destination.nbytes, got.nbytes)
        destination[:] = got

    def view(self) -> memoryview | None:
        """Return the whole buffer, read-only."""
        return self._view

    def held(self) -> memoryview | None:
        """Return the same: nobody can write into it."""
        return self._view

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by value."""
        return _restore, (bytes(self._view), self.name)


def _restore(data: bytes, name: str) -> MemorySource:
    return MemorySource(data, name=name)
