"""Which source gives the bytes of what a caller passed, and the places that URLs lead to.

There is one place for each scheme, loaded when the first of its URLs is met. A new kind of place is
a `Store`, and a line of `SCHEMES` or an entry point of its group.
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
    """Where the objects of URLs are.

    Only `open` is needed: such a place is read, one object at a time, and has no folders.
    """

    class Listed(NamedTuple):
        """What lies in a folder of a store.

        Attributes:
            name: without the folder, and without a slash.
            is_folder: whether objects lie beneath it.
            nbytes: the length of an object; -1 where the place does not say.
            modified: when it got its bytes, in seconds since 1970, likewise.
            version: another text once the object was replaced; None where the place tells none.
        """

        name: str
        is_folder: bool = False
        nbytes: int = -1
        modified: float = -1.0
        version: str | None = None

    @staticmethod
    def of(url: str) -> Store:
        """Return the place that a URL leads to.

        Raises:
            ArgumentValueError: no place has its scheme.
        """
        scheme = scheme_of(url)
        if scheme not in SCHEMES:
            raise ArgumentValueError(
                "URLs of this scheme are not read",
                file=url,
                expected="one of " + ", ".join(f"{known}://" for known in SCHEMES),
            )
        return SCHEMES[scheme]

    @abc.abstractmethod
    def open(self, remote: Remote, size: int | None = None) -> Source:
        """Open an object for reading.

        Args:
            remote: its URL, with what the caller passed to open its store.
            size: its length where that is known.

        Returns:
            A source whose name is the URL without secrets, and which has no path.

        Raises:
            SourceError: it cannot be read.
        """

    # --- Folders ----------------------------------------------------------------------------

    def names_folder(self, url: str) -> bool:
        """Return whether a URL can only name a folder, as one that ends in a slash does."""
        return False

    def look(self, remote: Remote) -> Listed | None:
        """Return what there is of an object; None without one, or where the place is not asked.

        Raises:
            SourceError: it could not be asked.
        """
        return None

    def there(self, folder: Remote, names: Sequence[str]) -> list[str]:
        """Return which of some names a folder has, each asked for: what is forbidden is not there.

        Args:
            folder: its URL ends in a slash.
            names: of files directly in it.

        Raises:
            SourceError: the place does not answer.
            UsageError: the URL is signed.
        """
        from ztensor.threads.pool import Pool  # not for a file on disk

        def is_there(name: str) -> bool:
            try:
                return self.look(folder.beside(name)) is not None
            except (SourceNotFoundError, SourcePermissionError):
                return False

        with Pool(_THREADS) as pool:
            found = pool.map(is_there, names)
            return [name for name, is_found in zip(names, found, strict=True) if is_found]

    def expanded(self, url: str) -> list[str]:
        """Return the URLs of the objects that a pattern matches; of no pattern the URL itself.

        Raises:
            SourceNotFoundError: nothing matches.
            UsageError: it is no pattern, or more than can be looked through may match.
            SourceError: the place cannot be asked.
        """
        return [url]

    def listed(self, folder: Remote) -> list[Listed] | None:
        """Return what lies directly in a folder, whose URL ends in a slash; None without lists.

        Raises:
            SourceError: the place cannot be asked.
            UsageError: more is in the folder than can be looked through.
        """
        return None

    # --- Writing ----------------------------------------------------------------------------

    @staticmethod
    def read_only(remote: Remote) -> UsageError:
        """Return the error for a place that is only read."""
        return UsageError(
            f"{scheme_of(remote.url)}:// is read, and not written to; write to a file, or to a "
            "store such as s3://bucket/name",
            file=remote.name,
        )

    @staticmethod
    def taken(name: str) -> UsageError:
        """Return the error for what is there, and must not be replaced."""
        error = UsageError("it exists already", file=name)
        error.in_python = "overwrite=True replaces it"
        return error

    def require_writable(self, remote: Remote) -> None:
        """Raise where no object can be written.

        Raises:
            UsageError: so it is.
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
        """Return what writes an object, which appears or replaces an old one only as a whole.

        Args:
            remote: its URL.
            expected: about how long it will be, where that is known.
            is_new: nothing is replaced.
            note: called with the URL once the object is whole.

        Raises:
            SourceError: the place cannot be reached, or there is an object and `is_new` is set.
            UsageError: nothing is written to this place.
        """
        raise self.read_only(remote)

    def copy(self, source: Remote, target: Remote) -> bool:
        """Have the place copy an object; return False where the two are not in one.

        Raises:
            SourceError: it could not be done.
        """
        return False

    def remove(self, remote: Remote) -> None:
        """Remove an object, if it is there; only `removal.py` asks for that.

        Raises:
            SourceError: it could not be removed.
        """
        raise self.read_only(remote)


_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https", "hf", "memory")
SCHEMES: Registry[str, Store] = Registry(
    {
        **dict.fromkeys(_STORES, "ztensor.remote.places:PLACES"),
        "file": "ztensor.remote.places:PLACES",  # of a store that is passed; else it is a path
    },
    group="ztensor.sources",
    kind=Store,
)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, in small letters."""
    return url.partition("://")[0].lower()


def is_remote(path: str) -> bool:
    """Return whether a path is a URL that is read, and not a file on disk that is called so.

    Raises:
        UnsupportedError: the plugin that has its scheme is broken.
    """
    if not is_url(path) or os.path.lexists(path):
        return False
    try:
        SCHEMES[scheme_of(path)]
    except KeyError:
        return False
    return True


def source_of(given: Any, *, mapped: bool, size: int | None = None) -> Source:
    """Return where the bytes of what a caller passed come from.

    Args:
        given: a path, a URL of a scheme that is read, a bytes-like object, or a file object.
        mapped: whether a file on disk is mapped.
        size: the length of an object of a store where it is known, so that nothing is asked for.

    Raises:
        ArgumentTypeError: it is nothing that can be opened.
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

    try:  # before asking for read(), which an mmap has as well
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
    """Open what a URL names; of a `file://` URL the file itself, unless a store was passed.

    Args:
        remote: the URL.
        size: the object's length where that is known.

    Raises:
        SourceError: it cannot be read.
        ArgumentValueError: the URL is wrong, or no place has its scheme.
    """
    if remote.url.lower().startswith("file://") and is_option_store(remote.storage):
        return FileSource(path_of_file_url(remote.url))
    return Store.of(remote.url).open(remote, size)


def opened_by(source: Source) -> Any:
    """Return what opens the same source in another process; None where nothing does.

    Returns:
        A path, a `Remote`, a URL, or the bytes.
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
