"""The one door through which files go: no other module unlinks, or deletes folders or objects.

A name alone lets nothing go. What goes is a regular file under exactly the name that was given, and
either

- *made here*, or named by the caller: its `Stamp` is the one that this process noted; or
- *checked*: a check reads it, opened through no link, and says that it is ours. Of a temporary it
  says that its writer is dead; of a published file, that its contents are those that its name says.

No link is followed, and one goes only by its own stamp. The folder is held open while its names are
checked and removed, so its path may lead elsewhere meanwhile. Windows has no such calls: there each
name is looked at before and after its check. A store has neither links nor folders: one exact key
goes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from ztensor.io.source.stores import Store

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from ztensor.io.source.urls import Remote

    Check = Callable[[BinaryIO], bool]

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NO_LINK
_NAME_SURROGATE = 1 << 29  # in the tag of links, junctions and mounts of Windows
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_IS_LINK = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK)  # what systems say for O_NOFOLLOW


class Stamp(NamedTuple):
    """Which file or folder it is, whatever its name."""

    device: int
    inode: int


def stamp_of(file: int | str) -> Stamp:
    """Return which file an open descriptor, or a name, means; of a link the link itself.

    Raises:
        OSError: the system cannot tell.
    """
    status = os.fstat(file) if isinstance(file, int) else os.lstat(file)
    return Stamp(status.st_dev, status.st_ino)


def is_link(status: os.stat_result) -> bool:
    """Return whether what `lstat` found leads elsewhere."""
    tag: int = getattr(status, "st_reparse_tag", 0)
    return stat.S_ISLNK(status.st_mode) or bool(tag & _NAME_SURROGATE)


class OpenFolder:
    """A folder whose names are removed in it, wherever its path leads meanwhile; a context.

    Args:
        path: where it is; what the caller names is followed.
        within: an open folder that has it; then `path` is its name there, and no link.

    Attributes:
        path: where it was.

    Raises:
        OSError: it is not there, or is a link in `within`.
    """

    def __init__(self, path: str, within: OpenFolder | None = None) -> None:
        self.path: str = path if within is None else os.path.join(within.path, path)
        self._descriptor: int | None = None
        if os.stat in os.supports_dir_fd:  # asked at each call: tests play Windows
            flags = _FOLDER | (0 if within is None else _NO_LINK)
            self._descriptor = os.open(path, flags, dir_fd=getattr(within, "_descriptor", None))
            return
        status = os.stat(path) if within is None else os.lstat(self.path)
        if is_link(status) or not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", self.path)

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

    def remove(self, name: str, ours: Stamp | Check) -> bool:
        """Remove a file that is ours; return whether it is removed.

        Args:
            name: its name in this folder.
            ours: which file was made here, or meant by the caller; or a check, which gets the file
                open for reading. A lock that it takes is held until the file is gone, but on
                Windows.

        Raises:
            OSError: it is ours and cannot be removed, or cannot be looked into.
        """
        try:
            status = self._status(name)
            if isinstance(ours, Stamp):
                return self._unlink(name, ours)
            if is_link(status) or not stat.S_ISREG(status.st_mode):
                return False
            descriptor = os.open(self._place(name), os.O_RDONLY | _QUIETLY, dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in _IS_LINK:  # since it was looked at
                return False
            raise
        with open(descriptor, "rb") as file:
            stamp = stamp_of(descriptor)
            if stamp != Stamp(status.st_dev, status.st_ino) or not ours(file):
                return False
            if os.name != "nt":
                return self._unlink(name, stamp)
        return self._unlink(name, stamp)  # Windows removes no open file

    def _unlink(self, name: str, stamp: Stamp) -> bool:
        with contextlib.suppress(FileNotFoundError):
            status = self._status(name)
            is_file = stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
            if is_file and Stamp(status.st_dev, status.st_ino) == stamp:
                os.unlink(self._place(name), dir_fd=self._descriptor)
                return True
        return False

    def remove_folder(self, name: str, made: Stamp | None = None, *, whole: bool = False) -> bool:
        """Remove a folder in it that is no link; return whether it is removed.

        Args:
            name: its name in this folder.
            made: which folder was made here; None for one whose name says that it is ours.
            whole: with all in it that can be removed, through no link; else only where it is empty.

        Raises:
            OSError: it cannot be removed.
        """
        try:
            status = self._status(name)
            if is_link(status) or not stat.S_ISDIR(status.st_mode):
                return False
            if made is not None and Stamp(status.st_dev, status.st_ino) != made:
                return False
            if whole:
                place = self._place(name)
                shutil.rmtree(place, ignore_errors=True, dir_fd=self._descriptor)
                return name not in self.names()
            os.rmdir(self._place(name), dir_fd=self._descriptor)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in _NOT_EMPTY:
                return False
            raise
        return True


def remove_file(path: str, ours: Stamp | Check) -> bool:
    """Remove a file by its path; as `OpenFolder.remove`."""
    folder, name = os.path.split(path)
    try:
        with OpenFolder(folder or os.curdir) as inside:
            return inside.remove(name, ours)
    except (FileNotFoundError, NotADirectoryError):
        return False


def remove_folder(path: str, made: Stamp | None = None, *, whole: bool = False) -> bool:
    """Remove a folder by its path; as `OpenFolder.remove_folder`."""
    folder, name = os.path.split(path)
    with OpenFolder(folder or os.curdir) as inside:
        return inside.remove_folder(name, made, whole=whole)


def remove_object(remote: Remote, is_ours: Callable[[Remote], bool] | None) -> bool:
    """Remove an object of a store that is ours; return whether it is removed, or was not there.

    Args:
        remote: its exact URL.
        is_ours: a check, which opens it; None where this process wrote it, or the caller named it.

    Raises:
        SourceError: it could not be removed, or not be looked into.
    """
    if is_ours is not None and not is_ours(remote):
        return False
    Store.of(remote.url).remove(remote)
    return True


class Made:
    """What a save has put in place so far; it is taken back where the save fails."""

    def __init__(self) -> None:
        self._files: dict[str, Stamp] = {}
        self._objects: list[Remote] = []

    def note(self, path: str, stamp: Stamp) -> None:
        """Note a file that has its name now."""
        self._files[path] = stamp

    def note_object(self, remote: Remote) -> None:
        """Note an object of a store that is whole now."""
        self._objects.append(remote)

    def take_back(self) -> None:
        """Remove all of it that is still what it was; what cannot be removed stays."""
        files, self._files = self._files, {}
        objects, self._objects = self._objects, []
        for path, stamp in files.items():
            with contextlib.suppress(OSError):
                remove_file(path, stamp)
        for remote in objects:
            with contextlib.suppress(OSError):
                remove_object(remote, None)
