"""One writer at a time: an advisory lock on the file itself, which ends with its descriptor.

On Linux it is an *open file description* lock of one byte far behind any data. The system grants a
write lock only over a descriptor that is open for writing, so a process that may only read the file
never looks like a writer. Such a process can take a read lock, which blocks edits until it is
released. On other systems the lock is a `flock`, on Windows a byte range. A file system without
locks answers with an error; then only the caller can know that no other process writes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import time
from typing import BinaryIO

from ztensor.errors import Reason, SourceError, system_call

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.01
# A reader that asks with `flock` holds one itself for a moment; no writer fails for that.
_PATIENCE_SECONDS = 0.05
# A byte behind the end of any file, so that mandatory locks block no reads.
_LOCK_OFFSET = 1 << 62
# struct flock: kind, from where the start counts, start, length, process; filled to its length.
_RANGE = struct.Struct("@hhqqi0q")
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


def acquire(descriptor: int, path: str, *, timeout: float = 0.0) -> None:
    """Lock a file that is open for writing.

    Args:
        descriptor: the open file.
        path: where it is, for messages.
        timeout: seconds to wait for another writer to finish.

    Raises:
        SourceError: another process has a lock (SOURCE_LOCKED), or the file system has no locks.
    """
    until = time.monotonic() + max(timeout, _PATIENCE_SECONDS)
    doing = (
        "the file system cannot lock the file; if no other process writes it, use "
        "`--no-lock` (lock=False in Python)"
    )
    with system_call(doing, path):
        while not _is_taken(descriptor):
            if time.monotonic() >= until:
                raise SourceError(
                    "the file is locked by another process or editor; try again later",
                    reason=Reason.SOURCE_LOCKED,
                    errno=errno.EWOULDBLOCK,
                    file=path,
                )
            time.sleep(_POLL_SECONDS)


def try_acquire(descriptor: int) -> bool | None:
    """Lock a file that is open for writing; return False if another process has a lock.

    Returns:
        None if the file system has no locks.
    """
    try:
        return _is_taken(descriptor)
    except OSError:
        return None


def release(descriptor: int) -> None:
    """Unlock a file before it is closed: a forked process may have the descriptor, too."""
    if fcntl is not None:
        with contextlib.suppress(OSError):
            _lock(descriptor, "F_UNLCK", fcntl.LOCK_UN)


def is_locked(path: str) -> bool:
    """Return whether a writer has locked the file at `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | _QUIETLY)
    except OSError:
        return False
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def is_held(descriptor: int) -> bool:
    """Return whether a writer has locked an open file that this process only reads."""
    if fcntl is None:
        return False  # on Windows the file cannot be opened meanwhile anyway
    try:
        kind = _range_lock("F_OFD_GETLK", descriptor, "F_RDLCK")
        if kind is None:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return kind == fcntl.F_WRLCK


def is_dead(file: BinaryIO) -> bool:
    """Return whether an open temporary is ours, and no writer has locked it.

    It must be the user's own file, with one name. It is locked here, so that no writer begins.
    """
    if fcntl is None:
        return False  # Windows removes no open file, but cannot recognize one of a dead process
    status = os.fstat(file.fileno())
    if status.st_uid == os.geteuid() and status.st_nlink == 1:
        with contextlib.suppress(OSError):
            _lock(file.fileno(), "F_RDLCK", fcntl.LOCK_EX)
            return True
    return False


def _is_taken(descriptor: int) -> bool:
    """Lock a file; return False if another process has a lock.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        if fcntl is None:
            _lock_byte(descriptor)
        else:
            _lock(descriptor, "F_WRLCK", fcntl.LOCK_EX)
    except (BlockingIOError, PermissionError):
        return False  # the latter is the answer of Windows, and of some network mounts
    return True


def _lock(descriptor: int, kind: str, whole: int) -> None:
    if _range_lock("F_OFD_SETLK", descriptor, kind) is None:
        fcntl.flock(descriptor, whole | fcntl.LOCK_NB)


def _lock_byte(descriptor: int) -> None:
    import msvcrt

    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)


def _range_lock(command: str, descriptor: int, kind: str) -> int | None:
    """Set a lock of an open file description, or query the lock that conflicts with it.

    Returns:
        The kind of lock; None if the system has no such locks.
    """
    number = getattr(fcntl, command, None)
    if number is None:
        return None
    lock = _RANGE.pack(getattr(fcntl, kind), os.SEEK_SET, _LOCK_OFFSET, 1, 0)
    try:
        answer: int = _RANGE.unpack(fcntl.fcntl(descriptor, number, lock))[0]
    except OSError as error:
        if error.errno == errno.EINVAL:  # an old kernel
            return None
        raise
    return answer
