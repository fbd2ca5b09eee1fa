"""Files that another file names: only beneath its own folder, and through no link out of it."""

from __future__ import annotations

import os

from ztensor.errors import FormatError, Reason, SourceError, UnsupportedError, describe
from ztensor.source.local import FileSource


def parts_of(location: str) -> tuple[str, ...]:
    """Return the parts of a relative path with slashes that stays beneath where it starts.

    Raises:
        FormatError: it is absolute, goes up, or is none on some system.
    """
    parts = tuple(part for part in location.split("/") if part != ".")
    if (
        not parts
        or any(part in ("", "..") or part.endswith((" ", ".")) for part in parts)
        or any(sign in location for sign in ("\0", "\\", ":"))  # separators and drives of Windows
    ):
        raise FormatError(
            "the file names another one outside its own folder",
            reason=Reason.FIELD_VALUE,
            expected="a relative path without '..', backslashes and colons",
            found=describe(location),
        )
    return parts


def open_beneath(beside: str, parts: tuple[str, ...]) -> FileSource:
    """Open a regular file in the folder of another one, or deeper.

    Where the other file is a link, the file may also be one to a place beside that link's target:
    so the cache of the hub keeps a model and its data.

    Args:
        beside: path of the other file.
        parts: as `parts_of` gives them.

    Raises:
        UnsupportedError: a symbolic link on the way leads to another place than these.
        SourceError: it cannot be opened, or is not a regular file.
    """
    folder = os.path.dirname(os.path.abspath(beside))
    path = os.path.join(folder, *parts)
    try:
        real = os.path.realpath(path, strict=True)
        status = os.lstat(real)
    except OSError as error:
        raise SourceError.from_os(error, "cannot open for reading", path) from error
    roots = {os.path.realpath(folder), os.path.dirname(os.path.realpath(beside))}
    if not any(real.startswith(os.path.join(root, "")) for root in roots):
        raise UnsupportedError(
            "the data is behind a symbolic link that leads out of its folder; put a copy of "
            "the file in its place",
            reason=Reason.SOURCE_NOT_REGULAR,
            file=path,
        )
    opened = FileSource(real, mapped=False)
    if not os.path.samestat(status, os.fstat(opened._descriptor)):
        opened.close()  # what is there now is not what was looked at
        raise SourceError(
            "the file was replaced while it was opened", reason=Reason.SOURCE_CHANGED, file=path
        )
    return opened
