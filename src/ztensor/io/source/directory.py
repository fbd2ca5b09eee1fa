"""A folder as what stands before its files where they are read as one."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from ztensor.io.source.base import Opening, Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.io.source.reference import Remote


class FolderSource(Source):
    """A folder: a source of no bytes, whose path opens the same again.

    Args:
        path: the folder; None for one in a store.
        name: what messages call it.
    """

    size = 0
    is_folder = True

    def __init__(self, path: str | None, name: str = "") -> None:
        self.name = path or name
        self.path = None if path is None else os.path.abspath(path)

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Do nothing: there are no bytes."""

    def identity(self) -> tuple[object, ...]:
        """Return nothing: its files tell."""
        return ()


class RemoteFolderSource(FolderSource):
    """A folder of a store; see `FolderSource`.

    Args:
        files: which files it has.

    Attributes:
        files: as given.
    """

    def __init__(self, files: RemoteFiles) -> None:
        super().__init__(None, files.folder.name)
        self.files = files


@dataclasses.dataclass(frozen=True, slots=True)
class RemoteFiles(Opening):
    """Files in one folder of a store that are read as one.

    Attributes:
        folder: the folder, with a slash at its end.
        names: of the files, in order.
    """

    folder: Remote
    names: Sequence[str]

    @property
    def name(self) -> str:
        """Return the folder's URL without secrets."""
        return self.folder.name

    def __fspath__(self) -> str:
        """Return the folder's URL."""
        return self.folder.url

    def open(self, *, mapped: bool = True) -> RemoteFolderSource:
        """Return the folder as a source; its files are opened when they are read."""
        return RemoteFolderSource(self)
