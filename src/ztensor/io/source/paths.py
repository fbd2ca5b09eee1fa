"""Callers' paths as text, and flushes of files and folders."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING, Any

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe, system_call

if TYPE_CHECKING:
    from typing import TypeGuard


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_path(value: object) -> TypeGuard[str | bytes | os.PathLike[str] | os.PathLike[bytes]]:
    """Return whether a value names a file, and is not an open one."""
    return isinstance(value, (str, bytes, os.PathLike))


def is_url(path: str) -> bool:
    """Return whether a path has the form of a URL."""
    return "://" in path and _URL.match(path) is not None


def path_text(path: Any, *, absolute: bool = False, local: bool = False) -> str:
    """Return a path as text.

    Args:
        path: text, bytes, or an object with a path.
        absolute: whether to make it independent of the working folder; a URL already is.
        local: whether to replace the text of a `file://` URL by its path on this machine. A
            `Remote` keeps its URL: it may have a store.

    Raises:
        ArgumentTypeError: it has another type.
        ArgumentValueError: it is empty, is not a possible file name, or is of another machine.
        SourceError: the working folder was removed.
    """
    try:
        text = os.fsdecode(path)
    except (TypeError, UnicodeDecodeError) as error:
        raise ArgumentTypeError(
            "not a path", expected="text, or an object with a path", found=describe(path, 40)
        ) from error
    if not text:
        raise ArgumentValueError("an empty path names no file")
    try:
        is_fit = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_fit = False
    if not is_fit:
        raise ArgumentValueError(
            "no file can have this path",
            expected="text without a NUL and without a lone surrogate",
            file=text,
        )
    if local and isinstance(path, str) and text.lower().startswith("file://"):
        text = path_of_file_url(text)
    if absolute and (not is_url(text) or os.path.lexists(text)):
        text = absolute_path(text)
    return text


def path_of_file_url(url: str) -> str:
    """Return the path of a `file://` URL on this machine.

    Raises:
        ArgumentValueError: it names a file of another machine.
    """
    import urllib.parse

    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise ArgumentValueError(
            "a file:// URL is of this machine", file=url, expected="file:///folder/name"
        )
    return urllib.parse.unquote(parts.path)


def absolute_path(path: str) -> str:
    """Return a path that does not depend on the working folder.

    Raises:
        SourceError: the working folder was removed.
    """
    with system_call("cannot find the working folder", path):
        return os.path.abspath(path)


_FLAGS = (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)


def flush_file(path: str) -> None:
    """Flush the bytes of a file to disk, including those that other processes wrote.

    Raises:
        OSError: the flush failed.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(path: str) -> None:
    """Flush the names in a folder to disk, if the system can.

    Raises:
        OSError: the flush failed.
    """
    if os.name == "nt":  # Windows cannot
        return
    try:
        flush_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # answers of some network mounts
            raise
