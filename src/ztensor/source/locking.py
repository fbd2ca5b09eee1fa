"""One writer at a time: an advisory lock on the file itself.

`flock` where the system has it, a byte range far behind any data on Windows. Network file
systems without locks say so with an error; then only the caller can know that he is alone.
"""

from __future__ import annotations

import errno
import os
import time

from ztensor.errors import Reason, SourceError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.01
# A reader that meets a torn end asks for a moment whether someone is writing (`is_locked`): that
# must not turn a writer away.
_PATIENCE_SECONDS = 0.05
# Windows locks ranges of bytes; this one lies behind any file's end, so that reads are not barred.
_LOCK_OFFSET = 1 << 62


def acquire(descriptor: int, name: str, *, timeout: float = 0.0) -> None:
    """Take the exclusive lock of an open file; it is released when the descriptor is closed.

    Args:
        descriptor: the open file.
        name: path, for messages.
        timeout: seconds to wait for another writer to finish.

    Raises:
        SourceError: another process is writing (SOURCE_LOCKED), or the file system has no locks.
    """
    until = time.monotonic() + max(timeout, _PATIENCE_SECONDS)
    while not _try_lock(descriptor, name):
        if time.monotonic() >= until:
            raise SourceError(
                "the file is being written by another process; try again when it has finished",
                reason=Reason.SOURCE_LOCKED,
                errno=errno.EWOULDBLOCK,
                file=name,
            )
        time.sleep(_POLL_SECONDS)


def try_acquire(descriptor: int) -> bool:
    """Take the lock of an open file where that can be done at once; return whether it was."""
    try:
        return _try_lock(descriptor, "")
    except SourceError:
        return False


def remove_if_dead(path: str) -> None:
    """Remove a temporary whose writer is gone: the system released its lock when it died."""
    if fcntl is None:
        return  # Windows removes no open file anyway, but cannot tell a dead one's
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return
    finally:
        os.close(descriptor)


def is_locked(path: str) -> bool:
    """Return whether a writer holds the lock of the file at `path`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        return is_held(descriptor)
    finally:
        os.close(descriptor)


def is_held(descriptor: int) -> bool:
    """Return whether a writer holds the lock of an open file that this process only reads."""
    if fcntl is None:
        return False  # opening by another handle fails on Windows while it matters
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _try_lock(descriptor: int, name: str) -> bool:
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_range(descriptor)
    except BlockingIOError:
        return False
    except PermissionError:
        return False  # how Windows, and some network mounts, say that the range is taken
    except OSError as error:
        raise SourceError.from_os(
            error, "the file system cannot lock the file; pass lock=False where you are alone", name
        ) from error
    return True


def _lock_range(descriptor: int) -> None:
    import msvcrt

    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)
