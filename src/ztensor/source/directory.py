"""A folder as what stands before its files where they are read as one."""

from __future__ import annotations

import os

from ztensor.source.base import ReadOneByOne


class FolderSource(ReadOneByOne):
    """A folder: a source of no bytes, whose path opens the same again.

    Args:
        path: the folder.
    """

    size = 0

    def __init__(self, path: str) -> None:
        self.name = path
        self.path = os.path.abspath(path)

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Do nothing: there are no bytes."""

    def view(self) -> memoryview | None:
        """Return None: there are no bytes."""
        return None

    def held(self) -> memoryview | None:
        """Return None, as `view`."""
        return None

    def require_unchanged(self) -> None:
        """Do nothing: its files are asked."""

    def identity(self) -> tuple[int, ...]:
        """Return nothing: its files tell."""
        return ()

    def close(self) -> None:
        """Do nothing: nothing is open."""
