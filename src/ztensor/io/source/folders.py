"""A folder, on disk or in a store: what is in it, and as the source that stands for its files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.errors import FormatError
from ztensor.io.source.base import Opening, Source
from ztensor.io.source.beneath import Beneath
from ztensor.io.source.stores import Store
from ztensor.io.source.urls import Remote

if TYPE_CHECKING:
    from collections.abc import Sequence


def folder_of(remote: Remote) -> Remote:
    """Return a folder's URL as it is written: with a slash at its end."""
    if remote.url.endswith("/"):
        return remote
    return Remote(f"{remote.url}/", remote.storage, remote.cache)


def listed(folder: Remote) -> tuple[list[str], list[str]] | None:
    """Return what lies directly in a folder; names that no index may have are left out.

    Args:
        folder: as `folder_of` gives it.

    Returns:
        The names of its files and of its folders, without a slash; None where the place does not
        say what it has, as HTTP servers do not.

    Raises:
        SourceError: the place cannot be asked.
        UsageError: more is in the folder than can be looked through.
    """
    found = Store.of(folder.url).listed(folder)
    if found is None:
        return None
    plain = sorted((one.name, one.is_folder) for one in found if _is_plain(one.name))
    return [name for name, is_in in plain if not is_in], [name for name, is_in in plain if is_in]


def _is_plain(name: str) -> bool:
    """Return whether a name may be that of a file beside an index, and reads so in a URL."""
    try:
        return Beneath.parts_of(name) == (name,) and not set(name) & set("?#%")
    except FormatError:
        return False


class FolderSource(Opening, Source):
    """A folder whose files are read as one: a source of no bytes that opens the same again.

    Args:
        folder: its path, or its URL with a slash at the end.
        names: the files in it that are read, where it is in a store.
    """

    size = 0

    def __init__(self, folder: str | Remote, names: Sequence[str] = ()) -> None:
        self.files = names
        if isinstance(folder, Remote):
            self.name, self.remote = folder.name, folder
        else:
            self.name, self.path = folder, os.path.abspath(folder)

    def __fspath__(self) -> str:
        """Return the path, or the URL."""
        return self.path or os.fspath(self.remote or "")

    def open(self, *, mapped: bool = True) -> FolderSource:
        """Return itself; its files are opened when they are read."""
        return self

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Do nothing: there are no bytes."""

    def identity(self) -> tuple[object, ...]:
        """Return nothing: its files tell."""
        return ()
