"""Checks of a target before it is written, and the sink of a dry run."""

from __future__ import annotations

import errno
import os
import stat

from ztensor.errors import (
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    SourcePermissionError,
    UsageError,
    describe,
    system_call,
    without_secrets,
)
from ztensor.io.source.paths import absolute_path, is_url

_MOST_LINKS = 40


def shown(target: str) -> str:
    """Return a target's name as a part of a temporary's, cut to fit.

    A file name has at most 255 bytes.
    """
    base = os.path.basename(target).encode("utf-8", "surrogateescape")[:200]
    return base.decode("utf-8", "ignore")


def no_folder(path: str, folder: str) -> SourceError:
    """Return the error for a target with a folder that is missing, or takes no files."""
    if os.path.isdir(folder):  # such as /proc
        return SourceError("no file can be made in its folder", file=path)
    why = f"the folder {describe(folder, 200)} does not exist; create it first"
    if is_url(path):
        why = "this is a URL, and files are written to disk"
    return SourceNotFoundError(f"cannot write: {why}", errno=errno.ENOENT, file=path)


def require_changed_in_place(path: str) -> None:
    """Raise if the file to change is named by a URL: stores cannot change part of an object.

    Raises:
        UsageError: the path is a URL.
    """
    if not is_url(path) or os.path.lexists(path):
        return
    error = UsageError(
        "an object of a store is replaced as a whole, and never changed in its place",
        file=without_secrets(path),
    )
    error.hint = (
        "write the changed copy as a new object: `ztensor convert`, `merge` and `compress -o` take "
        "URLs; or download it, change the file, and upload that"
    )
    raise error


def require_own_link(path: str) -> None:
    """Refuse a link of another user in a folder that everyone may write to.

    Linux refuses to open a file through such a link (`fs.protected_symlinks`), but not a process
    that resolves the link and puts a new file at its target.
    """
    for _ in range(_MOST_LINKS if hasattr(os, "geteuid") else 0):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if not stat.S_ISLNK(status.st_mode):
            return
        folder = os.stat(os.path.dirname(path) or os.curdir)
        if folder.st_mode & stat.S_IWOTH and status.st_uid not in (os.geteuid(), folder.st_uid):
            raise SourcePermissionError(
                "cannot write: the target is a link of another user in a folder where everyone "
                "may put one; remove it, or name the file it leads to",
                errno=errno.EACCES,
                file=path,
            )
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def require_place(target: str, path: str, *, is_followed: bool = True) -> None:
    """Raise if the target exists, and is neither a regular file nor a link."""
    try:
        mode = os.stat(target, follow_symlinks=is_followed).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return
    raise SourceNotRegularError(
        "cannot write",
        file=path,
        expected="a regular file, or nothing, at the target",
        found="a folder" if stat.S_ISDIR(mode) else "a device or pipe",
    )


def require_room(path: str, *, makes_folder: bool = False) -> None:
    """Raise if no file can be made: the folder is missing, or the target is not a regular file.

    Args:
        path: the target.
        makes_folder: whether a missing folder would be made.
    """
    target = os.path.realpath(absolute_path(path))
    with system_call("cannot write", path):
        require_place(target, path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder) and (os.path.lexists(folder) or not makes_folder):
        raise no_folder(path, folder)


class Nowhere:
    """A sink that only counts bytes, for dry runs."""

    def __init__(self, name: str) -> None:
        self.name, self.position = name, 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Count bytes."""
        self.position += memoryview(data).nbytes

    def start_with(self, old: object, stop: int, start: int = 0, **_: object) -> None:
        """Count a part of another file; see `FileSink`."""
        self.position += stop - start

    def end_blobs(self) -> int:
        """Return the position."""
        return self.position

    def commit(self, manifest: bytes = b"") -> None:
        """Count the manifest."""
        self.write(manifest)

    def abort(self) -> None:
        """Do nothing: no file was made."""
