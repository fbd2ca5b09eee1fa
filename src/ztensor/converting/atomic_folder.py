"""A folder that appears, or replaces an old one, atomically.

It is made under a temporary name beside the target, and renamed at the end. The next process that
makes a folder of this name removes the leftovers of a killed one, and moves an old folder back.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil

from ztensor.errors import SourceError, UsageError
from ztensor.ext import OpenFolder, locking, path_text, remove


class AtomicFolder:
    """A new folder; a context manager that leaves an old folder unchanged after an error.

    Meanwhile the target's parent has `.NAME.<16 hex digits>` with the suffixes `.lock`, which the
    process holds, `.new`, and for a moment `.old`.

    Args:
        target: its path.
        overwrite: whether an old folder that is not empty is replaced.
        durable: whether the folder is flushed to disk before the old one is removed.

    Attributes:
        path: the temporary path of the folder until `commit`.

    Raises:
        UsageError: the target is a file, or a folder that may not be replaced.
        SourceError: the folder cannot be made.
    """

    def __init__(self, target: str, *, overwrite: bool, durable: bool) -> None:
        self.name = target
        self._target = os.path.realpath(path_text(target, absolute=True))
        self._durable = durable
        parent = os.path.dirname(self._target)
        # A name has at most 255 bytes, and the temporary name is longer than the target's.
        own = os.fsencode(os.path.basename(self._target))[:200].decode(errors="ignore")
        start = os.path.join(parent, f".{own}.")
        self._sweep(parent, start)
        require_place(target, overwrite=overwrite)
        try:
            base = start + secrets.token_hex(8)
            self._lock = base + ".lock"
            self.path, self._old = base + ".new", base + ".old"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
            self._descriptor = os.open(self._lock, flags, 0o600)
            locking.try_acquire(self._descriptor)
            try:
                if durable:  # so that no power cut leaves the folder without its lock
                    _flush(parent)
                os.mkdir(self.path)
                self._made = os.lstat(self.path)
            except BaseException:
                self._unlock()
                raise
        except OSError as error:
            raise SourceError.from_os(error, "cannot make the folder", target) from error

    def __enter__(self) -> AtomicFolder:
        return self

    def __exit__(self, *exception: object) -> None:
        """Remove the folder unless it was committed."""
        with contextlib.suppress(OSError):
            _remove_folder(self.path, self._made)
        self._unlock()

    def commit(self) -> None:
        """Rename the folder to the target, and remove the old one.

        Raises:
            SourceError: renaming failed; the old folder is unchanged.
        """
        parent = os.path.dirname(self._target)
        try:
            if self._durable:
                for folder, _, _ in os.walk(self.path):
                    _flush(folder)
            has_old = os.path.isdir(self._target)
            if has_old:
                shutil.copymode(self._target, self.path)
                old = os.lstat(self._target)
                os.rename(self._target, self._old)
            try:
                os.rename(self.path, self._target)
            except OSError:
                if has_old:
                    os.rename(self._old, self._target)
                raise
            if self._durable:
                _flush(parent)
        except OSError as error:
            raise SourceError.from_os(
                error,
                "cannot put the finished folder in place; the old one is unchanged",
                self.name,
            ) from error
        if has_old:
            with contextlib.suppress(OSError):
                _remove_folder(self._old, old)

    def _unlock(self) -> None:
        """Release the lock; its file stays if a temporary folder is left, for the next sweep."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        ours = os.fstat(descriptor)
        os.close(descriptor)
        if not any(map(os.path.lexists, (self.path, self._old))):
            with contextlib.suppress(OSError):
                remove(self._lock, ours)

    def _sweep(self, parent: str, start: str) -> None:
        """Remove leftovers of killed processes beside the target, and move an old folder back."""
        pattern = re.compile(re.escape(os.path.basename(start)) + r"[0-9a-f]{16}\.(new|old|lock)")
        try:
            names = sorted(filter(pattern.fullmatch, os.listdir(parent)), reverse=True)
        except OSError:
            return  # making the folder raises the error
        for name in names:  # `.old` before `.new` before their `.lock`
            path = os.path.join(parent, name)
            lock = path.rpartition(".")[0] + ".lock"
            if os.name == "nt" or not (_is_own(path) and _is_own(lock)) or locking.is_locked(lock):
                continue
            with contextlib.suppress(OSError):
                if name.endswith(".old") and not os.path.lexists(self._target):
                    os.rename(path, self._target)
                elif name.endswith(".lock"):
                    remove(path, locking.is_dead)
                else:
                    _remove_folder(path)


def require_place(target: str, *, overwrite: bool) -> None:
    """Raise unless a new folder may be put there.

    Raises:
        UsageError: the target is a file; or a folder that is not empty and may not be replaced, or
            is behind a link.
        SourceError: the target cannot be inspected.
    """
    try:
        if not os.path.lexists(target):
            return
        if not os.path.isdir(target):
            raise UsageError("a folder cannot take the place of a file", file=target)
        if overwrite and OpenFolder.is_link(os.lstat(target)) and os.listdir(target):
            raise UsageError("the folder is behind a link: name the folder itself", file=target)
        if not overwrite and os.listdir(target):
            error = UsageError("the folder exists and is not empty", file=target)
            error.hint = "`--force` (in Python overwrite=True) replaces it"
            raise error
    except OSError as error:
        raise SourceError.from_os(error, "cannot look into", target) from error


def _remove_folder(path: str, ours: os.stat_result | None = None) -> None:
    """Remove a folder and its content; if `ours` is given, only a folder with this status."""
    parent, name = os.path.split(path)
    with OpenFolder(parent) as folder:
        folder.remove_folder(name, ours, whole=True)


def _flush(path: str) -> None:
    with OpenFolder(path) as folder:
        folder.flush()


def _is_own(path: str) -> bool:
    with contextlib.suppress(OSError):
        return os.lstat(path).st_uid == os.geteuid()
    return False
