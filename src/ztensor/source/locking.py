"""One writer at a time: an advisory lock on the file itself, which only writers can take.

On Linux it is a write lock of a byte far behind any data (an *open file description* lock), which
the system grants only over a descriptor open for writing. So who may only read a file can neither
take it nor be taken for a writer. He can take a *read* lock, which bars write locks, but which no
writer of ours ever takes. A writer that is barred so locks a file beside the file instead,
`.NAME.lock`, which only those can open that may write the file:

- Who has the lock of the file looks whether someone has the lock of the file beside.
- Who has the lock of the file beside looks whether someone has the *write* lock of the file.

Each takes his own first and looks then, so of two at least one sees the other, and steps back.

Elsewhere it is `flock`, on Windows a byte range. Network file systems without locks say so with an
error; then only the caller can know that he is alone.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
import stat
import struct
import time
from typing import TYPE_CHECKING, BinaryIO

from ztensor.errors import Reason, SourceError
from ztensor.source import removal
from ztensor.source.rights import Rights, rights_of

if TYPE_CHECKING:
    from collections.abc import Iterator

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.01
# A writer that steps back for a moment, and a reader that asks with `flock`, turn no one away.
_PATIENCE_SECONDS = 0.05
# This byte lies behind any file's end, so that reads are not barred where locks are mandatory.
_LOCK_OFFSET = 1 << 62
_PRIVATE_MODE = 0o600
# struct flock: what kind, from where its start counts, start, length, whose; filled to its length.
_RANGE = struct.Struct("@hhqqi0q")
_QUIETLY = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _QUIETLY


class _Answer(enum.Enum):
    OURS = enum.auto()
    BUSY = enum.auto()  # a writer has it
    BARRED = enum.auto()  # a reader keeps all writers from it


class Lock:
    """A lock that is held; it ends with the process, too.

    Args:
        descriptor: the open file.
        beside: the open file beside it, where that is what is locked, and its path.
    """

    def __init__(self, descriptor: int, beside: tuple[int, str] | None = None) -> None:
        self._descriptor = descriptor
        self._beside = beside

    def release(self) -> None:
        """Let others in; the file stays open. May be called again."""
        beside, self._beside = self._beside, None
        if beside is not None:
            with contextlib.suppress(OSError):
                removal.remove_file(beside[1], removal.stamp_of(beside[0]))
            os.close(beside[0])
        else:
            with contextlib.suppress(OSError):
                _unlock(self._descriptor)


def acquire(descriptor: int, path: str, *, timeout: float = 0.0) -> Lock:
    """Take the lock of a file that is open for writing.

    Args:
        descriptor: the open file.
        path: where it is.
        timeout: seconds to wait for another writer to finish.

    Raises:
        SourceError: another process is writing (SOURCE_LOCKED), or the file system has no locks.
    """
    until = time.monotonic() + max(timeout, _PATIENCE_SECONDS)
    while True:
        lock = _try_both(descriptor, path)
        if lock is not None:
            return lock
        if time.monotonic() >= until:
            raise SourceError(
                "the file is being written by another process; try again when it has finished",
                reason=Reason.SOURCE_LOCKED,
                errno=errno.EWOULDBLOCK,
                file=path,
            )
        time.sleep(_POLL_SECONDS)


def try_acquire(descriptor: int) -> bool | None:
    """Take the lock of a file nobody else can open, such as a temporary.

    Returns:
        Whether it was taken; None where the file system has no locks.
    """
    try:
        return _try_lock(descriptor) is _Answer.OURS
    except OSError:
        return None


def is_dead(file: BinaryIO) -> bool:
    """Return whether an open temporary is ours, and its writer gone: its lock went with it.

    Only a file of ours with one name is one. The lock is taken, so that no writer begins.
    """
    if fcntl is None:
        return False  # Windows removes no open file anyway, but cannot tell a dead one's
    status = os.fstat(file.fileno())
    is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
    return is_ours and _keeps_writers_out(file.fileno())


def remove_if_dead(path: str) -> None:
    """Remove a temporary whose writer is gone; whatever else somebody put there stays."""
    with contextlib.suppress(OSError):
        removal.remove_file(path, is_dead)


def is_locked(path: str) -> bool:
    """Return whether a writer has the lock of the file at `path`."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(path, flags)
    except OSError:
        return False
    try:
        return is_held(descriptor, path)
    finally:
        os.close(descriptor)


def is_held(descriptor: int, path: str | None = None) -> bool:
    """Return whether a writer has the lock of an open file that this process only reads.

    Args:
        descriptor: the file.
        path: where it is, to look beside it, too.
    """
    if fcntl is None:
        return False  # opening by another handle fails on Windows while it matters
    try:
        is_asked = False
        if _has_ranges():
            with contextlib.suppress(_NoRangesError):
                if _asked(descriptor, fcntl.F_RDLCK) == fcntl.F_WRLCK:
                    return True
                is_asked = True
        if not is_asked:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return path is not None and _is_held_beside(descriptor, path)


# --- The lock of a folder ---------------------------------------------------------------------


@contextlib.contextmanager
def folder_in_use(path: str) -> Iterator[None]:
    """Make a folder where there is none, and keep others from removing it as what is left over.

    Several may use one folder at once. Where the system cannot lock folders, this makes it only,
    and nobody takes it for left over.

    Raises:
        OSError: it cannot be made, or is a link.
    """
    descriptor = -1
    try:
        while True:
            os.makedirs(path, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed since it was made
                if removal.is_link(os.lstat(path)):
                    raise NotADirectoryError(errno.ENOTDIR, "a link, which is not followed", path)
            if fcntl is None:
                break
            try:
                descriptor = os.open(path, _FOLDER)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    break
            except FileNotFoundError:  # removed since it was made
                pass
            except OSError:  # locks no folders
                break
            if descriptor >= 0:
                os.close(descriptor)
                descriptor = -1
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


@contextlib.contextmanager
def idle_folder(path: str) -> Iterator[bool | None]:
    """Say whether nobody uses a folder, and keep others from using it meanwhile.

    None where the system cannot tell.
    """
    if fcntl is None:
        yield None
        return
    descriptor, is_idle = -1, None
    try:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, _FOLDER)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_idle = True
            except BlockingIOError:
                is_idle = False
        yield is_idle
    finally:
        if descriptor >= 0:
            os.close(descriptor)


# --- The lock of the file -------------------------------------------------------------------


class _NoRangesError(Exception):
    """The system has no locks of open file descriptions: an old kernel, or one that plays it."""


def _has_ranges() -> bool:
    return hasattr(fcntl, "F_OFD_SETLK")


def _range(kind: int) -> bytes:
    return _RANGE.pack(kind, os.SEEK_SET, _LOCK_OFFSET, 1, 0)


def _set(descriptor: int, kind: int) -> None:
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(kind))
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _NoRangesError from error
        raise


def _asked(descriptor: int, kind: int) -> int:
    """Return the kind of a lock of another that bars one of `kind`; F_UNLCK where none does."""
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(kind))
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise _NoRangesError from error
        raise
    found: int = _RANGE.unpack(answer)[0]
    return found


def _try_lock(descriptor: int) -> _Answer:
    try:
        if fcntl is None:
            _lock_range(descriptor)
        elif not _has_ranges():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            try:
                return _try_range(descriptor)
            except _NoRangesError:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return _Answer.BUSY  # the latter is how Windows, and some network mounts, say so
    return _Answer.OURS


def _try_range(descriptor: int) -> _Answer:
    try:
        _set(descriptor, fcntl.F_WRLCK)
    except (BlockingIOError, PermissionError):
        # A reader's lock is not seen by who asks for one himself: only a writer's is.
        if _asked(descriptor, fcntl.F_RDLCK) == fcntl.F_WRLCK:
            return _Answer.BUSY
        return _Answer.BARRED
    return _Answer.OURS


def _keeps_writers_out(descriptor: int) -> bool:
    """Take, over a descriptor that only reads, a lock beside which no writer has one."""
    try:
        if _has_ranges():
            with contextlib.suppress(_NoRangesError):
                _set(descriptor, fcntl.F_RDLCK)
                return True
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    if fcntl is None:
        return
    if _has_ranges():
        with contextlib.suppress(_NoRangesError):
            _set(descriptor, fcntl.F_UNLCK)
            return
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _lock_range(descriptor: int) -> None:
    import msvcrt

    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, _LOCK_OFFSET, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    finally:
        os.lseek(descriptor, position, os.SEEK_SET)


# --- The file beside it ---------------------------------------------------------------------


def _try_both(descriptor: int, path: str) -> Lock | None:
    """Return the lock, or None where another writer has it.

    Raises:
        SourceError: the file system has no locks, or a reader bars all writers.
    """
    try:
        answer = _try_lock(descriptor)
    except OSError as error:
        raise SourceError.from_os(
            error,
            "the file system cannot lock the file; if nobody else writes it, use `--no-lock` "
            "(lock=False in Python)",
            path,
        ) from error
    if answer is _Answer.BUSY:
        return None
    if answer is _Answer.OURS:
        lock = Lock(descriptor)
        if _is_held_beside(descriptor, path):
            lock.release()
            return None
        return lock
    try:
        beside = _lock_beside(descriptor, path)
    except OSError as error:
        raise SourceError(
            "another process, which may only read the file, has a lock on it, and no lock file "
            "can be made beside it; end that process or, if nobody else writes the file, use "
            "`--no-lock` (lock=False in Python)",
            reason=Reason.SOURCE_LOCKED,
            errno=errno.EWOULDBLOCK,
            file=path,
            found=error.strerror or str(error),
        ) from error
    if beside is None:
        return None
    lock = Lock(descriptor, beside)
    if is_held(descriptor):
        lock.release()
        return None
    return lock


def _place_beside(path: str) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    start = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return os.path.join(folder, f".{start}.lock")


def _group_may_write(file: Rights) -> bool:
    # With an access control list the bits of the group are those of all the list names.
    return file.acl is None and bool(file.mode & stat.S_IWGRP)


def _is_of_a_writer(beside: os.stat_result, file: Rights) -> bool:
    """Return whether only someone who may write a file can have made the one beside it."""
    return (
        stat.S_ISREG(beside.st_mode)
        and beside.st_nlink == 1
        and (
            beside.st_uid in (file.owner, 0)
            or (_group_may_write(file) and beside.st_gid == file.group)
            or bool(file.mode & stat.S_IWOTH)
        )
    )


def _is_held_beside(descriptor: int, path: str) -> bool:
    if fcntl is None or not _has_ranges():
        return False
    place = _place_beside(path)
    try:
        beside = os.open(place, os.O_RDONLY | _QUIETLY)
    except PermissionError:
        # It is another writer's, who keeps it from readers; or was put there by nobody of them.
        with contextlib.suppress(OSError):
            return _is_of_a_writer(os.lstat(place), rights_of(descriptor))
        return False
    except OSError:
        return False
    try:
        return _is_of_a_writer(os.fstat(beside), rights_of(descriptor)) and is_held(beside)
    finally:
        os.close(beside)


def _lock_beside(descriptor: int, path: str) -> tuple[int, str] | None:
    """Lock the file beside a file, and return it; None where another writer has its lock.

    Raises:
        OSError: it cannot be made, or something else has its name.
    """
    place = _place_beside(path)
    file = rights_of(descriptor)
    is_new = not os.path.lexists(place)
    try:
        flags = os.O_RDWR | _QUIETLY | (os.O_CREAT | os.O_EXCL if is_new else 0)
        beside = os.open(place, flags, _PRIVATE_MODE)
    except FileExistsError:
        return None  # another writer was quicker
    except FileNotFoundError:
        if is_new:
            raise  # the folder is gone
        return None  # its writer took it away when he had finished
    is_kept = False
    try:
        if is_new:
            _open_to_writers(beside, file)
        status = os.fstat(beside)
        is_right = _is_of_a_writer(status, file)
        if not is_right and not is_new and status.st_nlink:
            raise FileExistsError(errno.EEXIST, f"{place!r} is of nobody who may write the file")
        # Only who has its lock takes its name away, so that this stays the one with the name.
        if _try_lock(beside) is _Answer.OURS and _is_named(beside, place):
            if not is_right:
                removal.remove_file(place, removal.stamp_of(beside))
                raise PermissionError(errno.EPERM, f"{place!r} would not be known as a writer's")
            is_kept = True
            return beside, place
    finally:
        if not is_kept:
            os.close(beside)
    return None


def _is_named(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _open_to_writers(beside: int, file: Rights) -> None:
    """Let those open a new file that may write another one, and nobody else."""
    for owner, group in ((-1, file.group), (file.owner, -1)):
        with contextlib.suppress(OSError):
            os.fchown(beside, owner, group)
    mode = _PRIVATE_MODE
    if _group_may_write(file) and os.fstat(beside).st_gid == file.group:
        mode |= 0o060
    if file.mode & stat.S_IWOTH:
        mode |= 0o006
    with contextlib.suppress(OSError):
        os.fchmod(beside, mode)
