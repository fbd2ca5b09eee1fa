"""Which source gives the bytes of what a caller passed: a path, a URL, memory, or a file object.

A new kind of place is a file in this room and a line of `SCHEMES`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, ArgumentValueError, UsageError, describe
from ztensor.io.source.base import Opening
from ztensor.io.source.joined import JoinedSource
from ztensor.io.source.local import FileObjectSource, FileSource
from ztensor.io.source.paths import absolute_path, is_url, path_text
from ztensor.io.source.reference import Remote, is_option_store, path_of_file_url
from ztensor.registry import Registry

if TYPE_CHECKING:
    from ztensor.io.source.base import Source

# The scheme of a URL, and what opens one: it takes the whole URL, and `storage=` and `cache=` where
# the caller gave them, and returns a `Source` whose name is the URL without secrets, and which has
# no path.
_STORES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https", "hf", "memory")
SCHEMES: Registry[str, Callable[..., Source]] = Registry(
    {
        **dict.fromkeys(_STORES, "ztensor.remote.source:open_url"),
        "file": "ztensor.io.source.table:open_file_url",
    },
    group="ztensor.sources",
    kind=Callable,
)


def source_of(given: Any, *, mapped: bool) -> Source:
    """Return where the bytes of what a caller passed come from.

    Args:
        given: a path, a URL of a scheme that is read, a bytes-like object, or a file object.
        mapped: whether a file on disk is mapped.

    Raises:
        ArgumentTypeError: it is nothing that can be opened.
        ArgumentValueError: no file can have that path.
        SourceError: it cannot be read.
    """
    if isinstance(given, Opening):
        return given.open(mapped=mapped)
    if isinstance(given, (str, os.PathLike)):
        path = path_text(given)
        more: dict[str, Any] = {}
        if isinstance(given, Remote):
            both = {"storage": given.storage, "cache": given.cache}
            more = {name: value for name, value in both.items() if value is not None}
        if not more and not is_remote(path):
            return FileSource(path, mapped=mapped)
        if _scheme(path) not in SCHEMES:
            raise ArgumentValueError(
                "URLs of this scheme are not read", file=path, expected=f"one of {known_schemes()}"
            )
        return SCHEMES[_scheme(path)](path, **more)
    from ztensor.io.source.memory import MemorySource

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


def open_file_url(url: str, storage: Any = None, cache: str | None = None) -> Source:
    """Open a `file://` URL: the file itself, or an object of a store that was passed.

    Raises:
        SourceError: it cannot be read.
        ArgumentValueError: it names a file of another machine.
    """
    if is_option_store(storage):
        return FileSource(path_of_file_url(url))
    from ztensor.remote.source import open_url  # most files are on disk

    return open_url(url, storage, cache)


def opened_by(source: Source) -> Any:
    """Return what opens the same source in another process; None where nothing does.

    Returns:
        A path, a `Remote`, a URL, or the bytes.
    """
    source = source.exact()
    first = source.sources[0] if isinstance(source, JoinedSource) else source
    remote = first.remote
    if remote is not None:
        return remote
    from ztensor.io.source.directory import RemoteFolderSource

    if isinstance(first, RemoteFolderSource):
        return first.files.folder
    if is_remote(first.name):
        return first.name
    if first.path is None and first.held() is not None:
        return bytes(first.held() or b"")
    return first.path


def known_schemes() -> str:
    """Return the schemes of URLs that are read, for messages."""
    return ", ".join(f"{scheme}://" for scheme in SCHEMES)


def is_read_by_ranges(url: str) -> bool:
    """Return whether a URL is that of an object which `RemoteSource` reads."""
    return SCHEMES.get(_scheme(url)) is SCHEMES["s3"]


def is_remote(path: str) -> bool:
    """Return whether a path is a URL that is read, and not a file on disk that is called so."""
    return is_url(path) and _scheme(path) in SCHEMES and not os.path.lexists(path)


def absolute(path: str) -> str:
    """Return a path that means the same in another folder; a URL as it is."""
    return path if is_remote(path) else absolute_path(path)


def require_on_disk(path: str, name_it: str) -> None:
    """Raise where a new file is to lie beside one that is in no folder.

    Args:
        path: what is read.
        name_it: what the caller has to give.

    Raises:
        UsageError: it is a URL.
    """
    if is_remote(path):
        raise UsageError(f"{name_it}: the source is a URL, which has no folder", file=path)


def _scheme(path: str) -> str:
    return path.partition("://")[0].lower()


def remote_of(given: Any) -> Remote | None:
    """Return the URL a caller names a file by, with what opens its store; None for one on disk.

    Raises:
        ArgumentTypeError: it is no path.
        ArgumentValueError: no file can have that path.
    """
    if isinstance(given, Remote):
        return given
    path = path_text(given)
    return Remote(path) if is_remote(path) else None
