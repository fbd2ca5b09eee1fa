"""Files that another file or a folder names: inside certain folders, and through no link out.

Also lists of a folder, on disk or in a store, and the source that stands for all files of a folder.

The resolved path is checked, and the file is then opened from the folder down, one path component
at a time without following links: a link that is put there between the two steps gives an error,
not another file.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import os
from typing import TYPE_CHECKING

from ztensor.errors import FormatError, Reason, SourceError, UnsupportedError, describe, system_call
from ztensor.io.source.base import Opening, Source
from ztensor.io.source.local import Descriptor, FileSource
from ztensor.io.source.stores import Store
from ztensor.io.source.urls import Remote

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Beneath(Opening):
    """A path that a file names, and the folders that it must be in.

    Attributes:
        path: the path; links on it are followed if they end in one of the folders.
        roots: the folders, resolved.
        may_be_hidden: whether it may be a hidden file.
    """

    path: str
    roots: Collection[str]
    may_be_hidden: bool = False

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    @staticmethod
    def parts_of(location: str) -> tuple[str, ...]:
        """Return the parts of a relative path with slashes that stays inside its folder.

        Raises:
            FormatError: it is absolute, goes up, is invalid on some system, or is of a hidden file.
        """
        parts = tuple(part for part in location.split("/") if part != ".")
        are_plain = all(p and p[0] != "." and not p.endswith((" ", ".")) for p in parts)
        # Also without separators and drives of Windows.
        if not parts or not are_plain or set(location) & {"\0", "\\", ":"}:
            raise FormatError(
                "the file names another one outside its own folder, or a hidden one",
                reason=Reason.FIELD_VALUE,
                expected="a relative path without '..', backslashes, colons and hidden parts",
                found=describe(location),
            )
        return parts

    @staticmethod
    def roots_of(folder: str) -> frozenset[str]:
        """Return the folders that may have a folder's files: itself, or the blobs of a hub's cache.

        In the cache of the Hugging Face hub a revision is a folder `snapshots/<revision>` of links
        into `blobs` beside `snapshots`.
        """
        real = os.path.realpath(folder)
        steps = real.split(os.sep)
        for place in range(len(steps) - 2, 0, -1):
            if steps[place] == "snapshots":
                return frozenset((real, os.sep.join([*steps[:place], "blobs"])))
        return frozenset((real,))

    @classmethod
    def beside(cls, file: str, parts: Sequence[str]) -> Beneath:
        """Return the path of a file in the folder of another file, or in a subfolder.

        If the other file is a link, the file may also link to the folder of that link's target: so
        the hub's cache keeps a model and its data.

        Args:
            file: path of the other file.
            parts: as `parts_of` returns them.
        """
        folder = os.path.dirname(os.path.abspath(file))
        roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(file))}
        return cls(os.path.join(folder, *parts), roots)

    def open(self, *, mapped: bool = True) -> FileSource:
        """Open the file.

        Args:
            mapped: as for `FileSource`.

        Raises:
            UnsupportedError: a symbolic link on the way leads out of the folders.
            SourceError: it cannot be opened, is not a regular file, or was replaced meanwhile.
        """
        root, parts = self.require_beneath()
        opener = functools.partial(_descend, root, parts)
        return FileSource(self.path, mapped=mapped, opener=opener)

    def require_beneath(self) -> tuple[str, list[str]]:
        """Return the folder that has the file, and the path from there.

        Raises:
            UnsupportedError: a symbolic link on the way leads out of the folders.
            SourceError: the file does not exist.
        """
        with system_call("cannot open for reading", self.path):
            real = os.path.realpath(self.path, strict=True)
        for root in self.roots:
            start = os.path.join(root, "")
            parts = real[len(start) :].split(os.sep)
            is_hidden = any(part.startswith(".") for part in parts) and not self.may_be_hidden
            if real.startswith(start) and not is_hidden:
                return root, parts
        raise UnsupportedError(
            "the data is behind a symbolic link that leads out of its folder, or to a hidden file; "
            "put a copy of the file in its place",
            reason=Reason.SOURCE_NOT_REGULAR,
            file=self.path,
        )


def _descend(root: str, parts: list[str], flags: int) -> Descriptor:
    """Open a file inside a folder without following links."""
    if os.open not in os.supports_dir_fd:  # Windows; links there need rights to be made
        return Descriptor(os.open(os.path.join(root, *parts), flags))
    way = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    folder = os.open(root, way | os.O_NOFOLLOW)
    try:
        for part in parts[:-1]:
            deeper = os.open(part, way | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = deeper
        return Descriptor(os.open(parts[-1], flags | os.O_NOFOLLOW, dir_fd=folder))
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
            raise
        raise SourceError(
            "the file was replaced by a link while it was opened", reason=Reason.SOURCE_CHANGED
        ) from error
    finally:
        os.close(folder)


def names_in(folder: str) -> list[str]:
    """Return the names in a folder; an empty list if it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def folder_of(remote: Remote) -> Remote:
    """Return a folder's URL with a slash at its end."""
    if remote.url.endswith("/"):
        return remote
    return Remote(f"{remote.url}/", remote.storage, remote.cache)


def listed(folder: Remote) -> tuple[list[str], list[str]] | None:
    """Return the names directly in a folder of a store, except names that no index may have.

    Args:
        folder: as `folder_of` returns it.

    Returns:
        The names of its files and of its subfolders, without a slash; None if the store cannot list
        them, such as an HTTP server.

    Raises:
        SourceError: the store does not answer.
        UsageError: the folder has too many names.
    """
    entries = Store.of(folder.url).listed(folder)
    if entries is None:
        return None
    plain = sorted((entry.name, entry.is_folder) for entry in entries if _is_plain(entry.name))
    return [name for name, is_in in plain if not is_in], [name for name, is_in in plain if is_in]


def _is_plain(name: str) -> bool:
    """Return whether an index may have this name, and a URL needs no escapes for it."""
    try:
        return Beneath.parts_of(name) == (name,) and not set(name) & set("?#%")
    except FormatError:
        return False


class FolderSource(Opening, Source):
    """A folder that is read as one: a source without bytes, from which it is opened again.

    Args:
        folder: its path, or its URL with a slash at the end.
        names: the files in it that are read, if it is in a store.
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
        """Return this source; the files are opened when they are read."""
        return self

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Do nothing: a folder has no bytes."""

    def identity(self) -> tuple[object, ...]:
        """Return an empty key: only the files have keys."""
        return ()
