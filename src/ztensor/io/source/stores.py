"""The source for a caller's path, URL or object, and the stores of URLs.

Each scheme has one store, loaded with its first URL. A new kind of store is a `Store`, and a line
of `SCHEMES` or an entry point of its group.
"""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    SourceNotFoundError,
    SourcePermissionError,
    UsageError,
    describe,
)
from ztensor.io.source.base import Opening, Sink, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import is_url, path_of_file_url, path_text
from ztensor.io.source.urls import Remote, is_option_store
from ztensor.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_THREADS = 8


class Store(abc.ABC):
    """The objects of URLs of some schemes.

    Only `open` is abstract: a store without more is read, one object at a time, without folders.
    """

    class Listed(NamedTuple):
        """An entry of a folder in a store.

        Attributes:
            name: without the folder, and without a slash.
            is_folder: whether it is a folder.
            nbytes: the length of an object; -1 if unknown.
            modified: when the object was written, in seconds since 1970; -1 if unknown.
            version: a text that changes when the object is replaced; None if unknown.
        """

        name: str
        is_folder: bool = False
        nbytes: int = -1
        modified: float = -1.0
        version: str | None = None

    @staticmethod
    def of(url: str) -> Store:
        """Return the store of a URL.

        Raises:
            ArgumentValueError: its scheme is unknown.
        """
        scheme = scheme_of(url)
        if scheme not in SCHEMES:
            raise ArgumentValueError(
                "this is a URL of an unknown scheme",
                file=url,
                expected="one of " + ", ".join(f"{known}://" for known in SCHEMES),
            )
        return SCHEMES[scheme]

    @abc.abstractmethod
    def open(self, remote: Remote, size: int | None = None) -> Source:
        """Open an object for reading.

        Args:
            remote: its URL, with the caller's options for the store.
            size: its length, if known.

        Returns:
            A source named like the URL without secrets; its path is None.

        Raises:
            SourceError: it cannot be read.
        """

    # --- Folders ----------------------------------------------------------------------------

    def names_folder(self, url: str) -> bool:
        """Return whether a URL can only name a folder, such as one that ends in a slash."""
        return False

    def look(self, remote: Remote) -> Listed | None:
        """Return the entry of an object; None if it does not exist, or that is unknown.

        Raises:
            SourceError: the store does not answer.
        """
        return None

    def there(self, folder: Remote, names: Sequence[str]) -> list[str]:
        """Return the names that a folder has, by a request for each; forbidden ones do not count.

        Args:
            folder: its URL ends in a slash.
            names: candidates directly in it.

        Raises:
            SourceError: the store does not answer.
            UsageError: the URL is signed.
        """
        from ztensor.threads.pool import Pool  # not for a file on disk

        def is_there(name: str) -> bool:
            try:
                return self.look(folder.beside(name)) is not None
            except (SourceNotFoundError, SourcePermissionError):
                return False

        with Pool(_THREADS) as pool:
            answers = pool.map(is_there, names)
            return [name for name, answer in zip(names, answers, strict=True) if answer]

    def expanded(self, url: str) -> list[str]:
        """Return the URLs of the objects that a pattern matches; for another URL that URL.

        Raises:
            SourceNotFoundError: no object matches.
            UsageError: the pattern is invalid, or too many objects may match.
            SourceError: the store does not answer.
        """
        return [url]

    def listed(self, folder: Remote) -> list[Listed] | None:
        """Return the entries of a folder (its URL ends in a slash); None if unsupported.

        Raises:
            SourceError: the store does not answer.
            UsageError: the folder has too many entries.
        """
        return None

    # --- Writing ----------------------------------------------------------------------------

    @staticmethod
    def read_only(remote: Remote) -> UsageError:
        """Return the error for a store that is only read."""
        return UsageError(
            f"{scheme_of(remote.url)}:// is only read, and not written to; write to a file, or "
            "to a store such as s3://bucket/name",
            file=remote.name,
        )

    @staticmethod
    def taken(name: str) -> UsageError:
        """Return the error for a target that exists, and must not be replaced."""
        error = UsageError("it exists already", file=name)
        error.in_python = "overwrite=True replaces it"
        return error

    def require_writable(self, remote: Remote) -> None:
        """Raise if no object can be written.

        Raises:
            UsageError: the store is only read.
        """
        raise self.read_only(remote)

    def sink(
        self,
        remote: Remote,
        *,
        expected: int | None = None,
        is_new: bool = False,
        note: Callable[[Remote], object] | None = None,
    ) -> Sink:
        """Return a sink for an object, which appears or replaces an old one atomically.

        Args:
            remote: its URL.
            expected: about how long it will be, if known.
            is_new: nothing is replaced.
            note: called with the URL once the object is there.

        Raises:
            SourceError: the store does not answer, or the object exists and `is_new` is set.
            UsageError: the store is only read.
        """
        raise self.read_only(remote)

    def copy(self, source: Remote, target: Remote) -> bool:
        """Copy an object inside the store; return False if the target is in another store.

        Raises:
            SourceError: the copy failed.
        """
        return False

    def remove(self, remote: Remote) -> None:
        """Remove an object, if it exists; only `removal.py` calls this.

        Raises:
            SourceError: it cannot be removed.
        """
        raise self.read_only(remote)


_STORES = (
    *("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "http", "https", "hf", "memory"),
)
SCHEMES: Registry[str, Store] = Registry(
    {
        **dict.fromkeys(_STORES, "ztensor.remote.places:PLACES"),
        "file": "ztensor.remote.places:PLACES",  # with a store of the caller; else it is a path
    },
    group="ztensor.sources",
    kind=Store,
)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in lower case."""
    return url.partition("://")[0].lower()


def is_remote(path: str) -> bool:
    """Return whether a path is a URL of a known scheme, and not the name of a file on disk.

    Raises:
        UnsupportedError: the plugin for its scheme is broken.
    """
    if not is_url(path) or os.path.lexists(path):
        return False
    try:
        SCHEMES[scheme_of(path)]
    except KeyError:
        return False
    return True


def source_of(given: Any, *, mapped: bool, size: int | None = None) -> Source:
    """Return the source for a caller's argument.

    Args:
        given: a path, a URL of a known scheme, a bytes-like object, or a file object.
        mapped: whether a file on disk is mapped.
        size: the length of an object of a store, if known, which saves a request.

    Raises:
        ArgumentTypeError: it has another type.
        ArgumentValueError: no file can have that path.
        SourceError: it cannot be read.
    """
    if isinstance(given, Opening):
        return given.open(mapped=mapped)
    if isinstance(given, (str, os.PathLike)):
        path = path_text(given)
        remote = given if isinstance(given, Remote) else None
        has_options = remote is not None and (remote.storage, remote.cache) != (None, None)
        if not has_options and not is_remote(path):
            return FileSource(path, mapped=mapped)
        return open_url(remote or Remote(path), size)
    from ztensor.io.source.memory import FileObjectSource, MemorySource

    try:  # before the look for read(), which an mmap has as well
        return MemorySource(given)
    except (TypeError, BufferError, ValueError) as error:
        no_buffer = error
    if hasattr(given, "read") and hasattr(given, "seek"):
        return FileObjectSource(given)
    raise ArgumentTypeError(
        "cannot open this object",
        expected="a path, a contiguous bytes-like object, or a seekable binary file object",
        found=describe(given, 40),
    ) from no_buffer


def open_url(remote: Remote, size: int | None = None) -> Source:
    """Open the object of a URL; for a `file://` URL the file itself, unless a store was passed.

    Args:
        remote: the URL.
        size: the object's length, if known.

    Raises:
        SourceError: it cannot be read.
        ArgumentValueError: the URL is wrong, or its scheme unknown.
    """
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return FileSource(path_of_file_url(remote.url))
    return Store.of(remote.url).open(remote, size)


def opened_by(source: Source) -> Any:
    """Return the argument that opens the same source in another process.

    Returns:
        A path, a `Remote`, a URL, or the bytes; None if there is none.
    """
    first = source.parts[0][1]
    remote = first.remote
    if remote is not None:
        return remote
    if is_remote(first.name):
        return first.name
    if first.path is None and first.is_held:
        return bytes(first.view() or b"")
    return first.path
