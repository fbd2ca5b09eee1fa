"""Paths as callers give them, as text; folders on disk; and what the system refuses."""

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
    """Return whether a caller names a file with a value, and does not pass the file itself."""
    return isinstance(value, (str, bytes, os.PathLike))


def is_url(path: str) -> bool:
    """Return whether a path reads as a URL, which no file is likely to be called."""
    return "://" in path and _URL.match(path) is not None


def path_text(path: Any, *, absolute: bool = False, local: bool = False) -> str:
    """Return a path as text.

    Args:
        path: text, bytes, or an object that has one as its path.
        absolute: whether it is to mean the same in another working folder; a URL does.
        local: whether the text of a `file://` URL is taken for the path on this machine that it
            means. A `Remote` keeps its URL: it may have a store.

    Raises:
        ArgumentTypeError: it is none of these.
        ArgumentValueError: it is empty, or no system has a file of that name; or it is of another
            machine.
        SourceError: the working folder was removed.
    """
    try:
        text = os.fsdecode(path)
    except (TypeError, UnicodeDecodeError) as error:
        raise ArgumentTypeError(
            "this is no path", expected="text, or an object with a path", found=describe(path, 40)
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
    """Return the path on this machine that a `file://` URL means.

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
    """Return a path that means the same in another working folder.

    Raises:
        SourceError: the working folder was removed.
    """
    with system_call("cannot find the working folder", path):
        return os.path.abspath(path)


_FLAGS = (os.O_RDWR if os.name == "nt" else os.O_RDONLY) | getattr(os, "O_CLOEXEC", 0)


def flush_file(path: str) -> None:
    """Flush the bytes of a file to disk, also those that other processes wrote.

    Raises:
        OSError: they could not be.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_folder(path: str) -> None:
    """Flush the names of all that is in a folder to disk, where the system has a way to.

    Raises:
        OSError: they could not be.
    """
    if os.name == "nt":  # Windows has none
        return
    try:
        flush_file(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # as some network mounts say
            raise
