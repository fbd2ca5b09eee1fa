"""Which source gives the bytes of what a caller passed: a path, a URL, memory, or a file object."""

from __future__ import annotations

import os
from typing import Any

from ztensor.errors import ArgumentTypeError, describe
from ztensor.io.source.base import Opening, Source
from ztensor.io.source.local import FileSource
from ztensor.io.source.paths import path_of_file_url, path_text
from ztensor.io.source.stores import Store, is_remote
from ztensor.io.source.urls import Remote, is_option_store


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
