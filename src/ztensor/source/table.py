"""Which source gives the bytes of what a caller passed: a path, a URL, memory, or a file object.

A new kind of place is a file in this room and a line of `SCHEMES`.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, UsageError, describe
from ztensor.source.beneath import Beneath
from ztensor.source.local import FileObjectSource, FileSource
from ztensor.source.memory import MemorySource
from ztensor.source.paths import is_url, path_text

if TYPE_CHECKING:
    from ztensor.source.base import Source

# The scheme of a URL, and what opens one: `package.module:function`, loaded when first used. It
# takes the whole URL, and returns a `Source` whose name that is, and which has no path.
SCHEMES: dict[str, str] = {
    # A line of each, such as "s3": "ztensor.source.s3:open_url",
}


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
    if isinstance(given, Beneath):
        return given.open(mapped=mapped)
    if isinstance(given, (str, os.PathLike)):
        path = path_text(given)
        if not is_remote(path):
            return FileSource(path, mapped=mapped)
        module, _, function = SCHEMES[_scheme(path)].partition(":")
        source: Source = getattr(importlib.import_module(module), function)(path)
        return source
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


def is_remote(path: str) -> bool:
    """Return whether a path is a URL that is read, and not a file on disk that is called so."""
    return is_url(path) and _scheme(path) in SCHEMES and not os.path.lexists(path)


def absolute(path: str) -> str:
    """Return a path that means the same in another folder; a URL as it is."""
    return path if is_remote(path) else os.path.abspath(path)


def require_on_disk(path: str, name_it: str) -> None:
    """Raise where a new file is to lie beside one that is in no folder.

    Args:
        path: what is read.
        name_it: what the caller has to give.

    Raises:
        UsageError: it is a URL.
    """
    if is_remote(path):
        raise UsageError(f"{name_it}: what is read is a URL, and lies in no folder", file=path)


def _scheme(path: str) -> str:
    return path.partition("://")[0].lower()
