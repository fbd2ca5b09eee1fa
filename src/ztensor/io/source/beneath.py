"""Files that another file or a folder leads to: beneath certain folders, and through no link out.

Also what is in a folder, on disk or in a store, and the source that stands for all its files.

What is beneath is asked of the resolved path, and the file is then opened from the folder down, one
part after the other and following no link: a link that is put in the way between the two calls
gives an error, not another file.
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
    """A path that a file names, and the folders in which it has to lie.

    Attributes:
        path: the path; links on it are followed as long as they end there.
        roots: the folders, resolved.
        may_be_hidden: whether it may be called like a hidden file.
    """

    path: str
    roots: Collection[str]
    may_be_hidden: bool = False

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    @staticmethod
    def parts_of(location: str) -> tuple[str, ...]:
        """Return the parts of a relative path with slashes that stays beneath where it starts.

        Raises:
            FormatError: it is absolute, goes up, is none on some system, or leads to a hidden file.
        """
        parts = tuple(part for part in location.split("/") if part != ".")
        are_plain = all(p and p[0] != "." and not p.endswith((" ", ".")) for p in parts)
        # Separators and drives of Windows are none of ours.
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
        """Return where the files of a folder may be: in it, or where the hub's cache keeps them.

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
        """Return what opens a file in the folder of another one, or deeper.

        Where the other file is a link, the file may also be one to a place beside that link's
        target: so the cache of the hub keeps a model and its data.

        Args:
            file: path of the other file.
            parts: as `parts_of` gives them.
        """
        folder = os.path.dirname(os.path.abspath(file))
        roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(file))}
        return cls(os.path.join(folder, *parts), roots)

    def open(self, *, mapped: bool = True) -> FileSource:
        """Open the file.

        Args:
            mapped: as for `FileSource`.

        Raises:
            UnsupportedError: a symbolic link on the way leads to another place than these.
            SourceError: it cannot be opened, is not a regular file, or was replaced meanwhile.
        """
        root, parts = self.require_beneath()
        opener = functools.partial(_descend, root, parts)
        return FileSource(self.path, mapped=mapped, opener=opener)

    def require_beneath(self) -> tuple[str, list[str]]:
        """Return the folder it lies in, and the way from there.

        Raises:
            UnsupportedError: a symbolic link on the way leads to another place than these.
            SourceError: there is no such file.
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
    """Open a file beneath a folder through no link."""
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
    """Return the names in a folder; none where it cannot be listed."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


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
