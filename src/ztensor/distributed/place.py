"""The folder or prefix of a distributed checkpoint, and the names of its files."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from typing import Any, NamedTuple

from ztensor import Remote
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    Reason,
    UsageError,
    describe,
    system_call,
)
from ztensor.ext import (
    SCHEMES,
    Beneath,
    OpenFolder,
    Sink,
    Source,
    Store,
    is_remote,
    path_text,
    source_of,
)
from ztensor.ext import Place as FilePlace
from ztensor.typing import Durable, Storage

# The name of the root, and of the format.
ROOT = "checkpoint.zt"
DIVIDED = "divided"
# The key of our attributes in roots, in parts, and in the objects of parts.
ATTRIBUTE = "divided"
REQUESTS = 16  # to a store at once, when all parts are opened
_PART = re.compile(r"\d{5,}-[0-9a-f]{8}\.zt")


def part_name(process: int) -> str:
    """Return an unused name for a part."""
    return f"{process:05d}-{secrets.token_hex(4)}.zt"


def is_own(name: str, process: int) -> bool:
    """Return whether a name is that of a part of this process."""
    return is_part_name(name) and name.startswith(f"{process:05d}-")


def is_part_name(name: str) -> bool:
    """Return whether a name has the form of a part's name."""
    return _PART.fullmatch(name) is not None


def require_plain(name: object) -> str:
    """Return the name of a file in the folder of a root.

    Raises:
        FormatError: it is not such a name: a path, a URL, hidden, or the root's name.
    """
    if isinstance(name, str) and name != ROOT and len(name.encode("utf-8", "replace")) <= 255:
        try:
            parts = Beneath.parts_of(name)
        except FormatError:
            parts = ()
        if parts == (name,):
            return name
    raise FormatError(
        "the root names a file outside its own folder, or by no plain name",
        reason=Reason.SHARD_INDEX,
        expected="the name of a file beside the root",
        found=describe(name),
    )


class PartFile(NamedTuple):
    """A part in the listing of a folder.

    Attributes:
        nbytes: its length.
        modified: time of its last change, in seconds since 1970.
    """

    nbytes: int
    modified: float


class Place:
    """The folder or prefix of a distributed checkpoint.

    Args:
        given: a folder, or a URL of a prefix; also the root in it.
        storage: see `ztensor.typing.OpenOptions`.

    Attributes:
        name: its name in messages.
        folder: the folder, None in a store.
    """

    def __init__(self, given: Any, storage: Storage | None = None) -> None:
        given = given if storage is None else Remote(given, storage)
        path = path_text(given, absolute=True, local=True)
        self.folder: str | None = None
        self._root: Remote | None = None
        if isinstance(given, Remote) or is_remote(path):
            self._root = root_url(Remote(given))
            self.name = self._root.name.rpartition("/")[0]
        elif not os.path.isabs(path):  # it reads as a URL
            raise ArgumentValueError(
                "URLs of this scheme are neither read nor written",
                file=path,
                expected=f"a path, or one of {', '.join(f'{scheme}://' for scheme in SCHEMES)}",
            )
        else:
            is_root = os.path.basename(path) == ROOT and not os.path.isdir(path)
            self.folder = os.path.dirname(path) if is_root else path
            self.name = self.folder

    @property
    def is_remote(self) -> bool:
        """Return whether it is in a store."""
        return self._root is not None

    def make(self) -> None:
        """Make the folder if it is missing; a store needs none.

        Raises:
            SourceError: it cannot be made.
        """
        if self.folder is not None:
            OpenFolder.make(self.folder)

    def target(self, name: str) -> str | Remote:
        """Return the path or URL for writing a file in it."""
        if self._root is not None:
            return self._root.beside(name)
        return os.path.join(self.folder or os.curdir, name)

    def parts(self) -> dict[str, PartFile]:
        """Return the files with names of parts, in order.

        Raises:
            UsageError: the place cannot be listed, such as on an HTTP server.
            SourceError: listing failed.
        """
        if self._root is not None:
            store, prefix = Store.of(self._root.url), self._root.beside("")
            store.require_writable(self._root)  # stores that write can list
            there = store.listed(prefix) or ()
            found = {one.name: PartFile(one.nbytes, one.modified) for one in there}
        else:
            found = _parts_in(self.folder or os.curdir)
        return {name: found[name] for name in sorted(filter(is_part_name, found))}

    def require_no_link(self) -> None:
        """Raise if the root is a link: writing through it could replace another checkpoint.

        Raises:
            UsageError: the name of the root is a link.
        """
        target = self.target(ROOT)
        if isinstance(target, str) and os.path.islink(target):
            raise UsageError("the root of the checkpoint is a link; remove the link", file=target)

    def has_root(self) -> bool:
        """Return whether there is a file with the name of the root, whatever its contents.

        Raises:
            SourceError: the store could not be asked.
        """
        if self._root is not None:
            return Store.of(self._root.url).look(self._root) is not None
        return os.path.lexists(self.target(ROOT))

    def remote(self, name: str) -> Remote:
        """Return the URL of a file in a store.

        Raises:
            UsageError: the place is a folder on disk.
        """
        if self._root is None:
            raise UsageError("a folder on disk has no URL", file=self.name)
        return self._root.beside(name)

    def path(self, name: str) -> str | None:
        """Return the path of a file in it; None in a store."""
        return None if self.folder is None else os.path.join(self.folder, name)

    def shown(self, name: str) -> str:
        """Return the path or URL of a file for messages."""
        return f"{self.name}/{name}" if self.folder is None else os.path.join(self.folder, name)

    def sink(self, name: str, *, is_new: bool, durable: Durable) -> Sink:
        """Return the sink for a file.

        Args:
            name: name of the file.
            is_new: True refuses to replace a file.
            durable: as for `FileSink`; objects in a store are always durable.

        Raises:
            SourceError: it cannot be written, or there is one and `is_new` is set.
        """
        target = self.target(name)
        remote = target if isinstance(target, Remote) else None
        return FilePlace(os.fspath(target), is_new=is_new, remote=remote).sink(durable)

    def open(self, name: str, size: int | None = None) -> Source:
        """Open a file in it for reading.

        Args:
            name: name of the file.
            size: its length if known, which saves a store a request.

        Raises:
            UnsupportedError: the file is a link out of the folder.
            SourceError: the file cannot be opened.
        """
        target = self.target(name)
        if isinstance(target, Remote) and size is not None:
            return source_of(target, mapped=False, size=size)
        return source_of(opener(target), mapped=False)


def _parts_in(folder: str) -> dict[str, PartFile]:
    found: dict[str, PartFile] = {}
    with system_call("cannot list the folder", folder), os.scandir(folder) as entries:
        for entry in entries:
            if is_part_name(entry.name) and entry.is_file():
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat()
                    found[entry.name] = PartFile(status.st_size, status.st_mtime)
    return found


def opener(target: str | Remote) -> Beneath | Remote:
    """Return a target that opens a file named by a root, but follows no link out of the folder."""
    if isinstance(target, Remote):
        return target
    return Beneath(target, Beneath.roots_of(os.path.dirname(target)))


def root_url(remote: Remote) -> Remote:
    """Return the URL of the root, given that or the URL of its prefix."""
    whole, mark, query = remote.url.partition("?")
    if whole.rpartition("/")[2] == ROOT:
        return remote
    scheme, colon, place = whole.partition("://")
    url = f"{scheme}{colon}{place.rstrip('/')}/{ROOT}{mark}{query}"
    return Remote(url, remote.storage, remote.cache)
