"""The only module that removes files, folders and objects of stores.

A name alone is never enough. A regular file under exactly the given name is removed, if it is

- *made here*, or named by the caller: its status is the one that this process noted; or
- *checked*: a check reads it, opened without following links, and accepts it as ours: a temporary
  if its writer is dead, a published file if it has the contents that its name implies.

No link is followed; a link itself is removed only by its own status. The folder is held open while
its names are checked and removed, so its path may lead elsewhere meanwhile. Windows has no such
calls: there each name is looked at before and after its check. A store has neither links nor
folders: one exact key is removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import stat
from typing import TYPE_CHECKING, Any

from ztensor.errors import system_call
from ztensor.io.source.locking import is_dead
from ztensor.io.source.paths import flush_file, flush_folder
from ztensor.io.source.stores import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Self

    from ztensor.io.source.urls import Remote

    Check = Callable[[Any], bool]

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NO_LINK
_NAME_SURROGATE = 1 << 29  # in the tag of links, junctions and mounts of Windows
_IS_GONE = (FileNotFoundError, NotADirectoryError)
_STAYS = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)
# Gone, or a link: the answers of systems to O_NOFOLLOW.
_IS_NONE = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EMLINK)


class OpenFolder:
    """A folder on disk, held open: a context.

    Removals are made in this folder, even if its path leads elsewhere meanwhile. Files are removed
    only here and in `remove`, and each is checked before: see `ztensor.io.source.removal`.

    Args:
        path: the folder; a link that the caller names is followed.
        within: an open folder that has it; then `path` is its name there, and must not be a link.

    Attributes:
        path: the path when it was opened.

    Raises:
        OSError: it does not exist, or is a link in `within`.
    """

    def __init__(self, path: str, within: OpenFolder | None = None) -> None:
        self.path: str = path if within is None else os.path.join(within.path, path)
        self._descriptor: int | None = None
        if os.stat in os.supports_dir_fd:  # looked up at each call: tests play Windows
            flags = _FOLDER | (0 if within is None else _NO_LINK)
            self._descriptor = os.open(path, flags, dir_fd=getattr(within, "_descriptor", None))
            return
        status = os.stat(path) if within is None else os.lstat(self.path)
        if self.is_link(status) or not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", self.path)

    @staticmethod
    def make(path: str) -> None:
        """Make a folder and its parents, if they do not exist.

        Raises:
            SourceError: it cannot be made.
        """
        with system_call("cannot make the folder", path):
            os.makedirs(path, exist_ok=True)

    @staticmethod
    def is_link(status: os.stat_result) -> bool:
        """Return whether a result of `os.lstat` is of a link or a junction."""
        tag: int = getattr(status, "st_reparse_tag", 0)
        return stat.S_ISLNK(status.st_mode) or bool(tag & _NAME_SURROGATE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _place(self, name: str) -> str:
        return os.path.join(self.path, name) if self._descriptor is None else name

    def _status(self, name: str) -> os.stat_result:
        return os.stat(self._place(name), dir_fd=self._descriptor, follow_symlinks=False)

    def names(self) -> list[str]:
        """Return all names in it.

        Raises:
            OSError: it cannot be listed.
        """
        if self._descriptor is None:
            return sorted(os.listdir(self.path))
        listed = os.open(os.curdir, os.O_RDONLY, dir_fd=self._descriptor)
        try:
            return sorted(os.listdir(listed))
        finally:
            os.close(listed)

    def flush(self, files: Iterable[str] = ()) -> None:
        """Flush files in it to disk, then all its names, if the system can.

        Raises:
            OSError: the flush failed.
        """
        for name in files:
            flush_file(os.path.join(self.path, name))
        flush_folder(self.path)

    def remove(self, name: str, ours: os.stat_result | Check) -> bool:
        """Remove a file that is ours; return whether it is removed.

        Args:
            name: its name in this folder.
            ours: the status of the file that was made here, or that the caller named; or a check,
                called with the file open for reading. A lock that it takes is held until the file
                is removed, except on Windows.

        Raises:
            OSError: it is ours and cannot be removed, or cannot be read.
        """
        if isinstance(ours, os.stat_result):
            return self._unlink(name, ours)
        try:
            status = self._status(name)
            if self.is_link(status) or not stat.S_ISREG(status.st_mode):
                return False
            descriptor = os.open(self._place(name), os.O_RDONLY | _QUIETLY, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in _IS_NONE:  # replaced since the call of `stat`
                return False
            raise
        with open(descriptor, "rb") as file:
            opened = os.fstat(descriptor)
            if not os.path.samestat(opened, status) or not ours(file):
                return False
            if os.name != "nt":
                return self._unlink(name, opened)
        return self._unlink(name, opened)  # Windows removes no open file

    def _unlink(self, name: str, ours: os.stat_result) -> bool:
        with contextlib.suppress(FileNotFoundError):
            status = self._status(name)
            is_file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if is_file and os.path.samestat(status, ours):
                os.unlink(self._place(name), dir_fd=self._descriptor)
                return True
        return False

    def sweep(self, targets: str) -> None:
        """Remove the temporaries of killed saves: their lock is free.

        Args:
            targets: a regular expression for the names of their targets.

        Raises:
            OSError: the folder cannot be listed.
        """
        pattern = re.compile(rf"\.{targets}\.[0-9a-f]{{16}}\.tmp", re.DOTALL)
        for name in filter(pattern.fullmatch, self.names()):
            with contextlib.suppress(OSError):
                self.remove(name, is_dead)

    def remove_folder(
        self, name: str, made: os.stat_result | None = None, *, whole: bool = False
    ) -> bool:
        """Remove a subfolder that is not a link; return whether it is removed.

        Args:
            name: its name in this folder.
            made: the status of the folder made here; None if its name implies that it is ours.
            whole: with everything in it that can be removed, following no link; else only if empty.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            status = self._status(name)
            if self.is_link(status) or not stat.S_ISDIR(status.st_mode):
                return False
            if made is not None and not os.path.samestat(status, made):
                return False
            if whole:
                place = self._place(name)
                shutil.rmtree(place, ignore_errors=True, dir_fd=self._descriptor)
                return name not in self.names()
            os.rmdir(self._place(name), dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in _STAYS:
                return False
            raise
        return True


def remove(place: str | Remote, ours: os.stat_result | Check | None = None) -> bool:
    """Remove a file by its path, or an object of a store.

    Args:
        place: the path, of which a link as the last part is not followed; or the exact URL.
        ours: as for `OpenFolder.remove`; a check of an object gets the URL. None if the caller
            named the file, or this process wrote it.

    Returns:
        Whether it is removed; for an object also True if it did not exist.

    Raises:
        SourceError: it cannot be removed, or cannot be read.
    """
    if not isinstance(place, str):
        if callable(ours) and not ours(place):
            return False
        Store.of(place.url).remove(place)
        return True
    folder, name = os.path.split(place)
    with (
        system_call("cannot remove", place),
        contextlib.suppress(*_IS_GONE),
        OpenFolder(folder or os.curdir) as inside,
    ):
        return inside.remove(name, os.lstat(place) if ours is None else ours)
    return False


def take_back(place: str | Remote, ours: os.stat_result | None = None) -> None:
    """Remove a file of a save that failed later; errors are ignored."""
    with contextlib.suppress(OSError):
        remove(place, ours)
