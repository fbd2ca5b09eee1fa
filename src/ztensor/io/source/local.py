"""Files on this machine, opened by path: mapped or read, and open while they are in use."""

from __future__ import annotations

import functools
import mmap
import os
import stat
import sys
from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import (
    ClosedError,
    Reason,
    SourceError,
    SourceNotFoundError,
    SourceNotRegularError,
    system_call,
)
from ztensor.io.source.base import Source
from ztensor.io.source.paths import absolute_path, is_url
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.io.source.rights import Rights

_T = TypeVar("_T")

# O_NONBLOCK: opening a FIFO by mistake must not hang. O_BINARY: Windows would translate newlines.
_OPEN_FLAGS = os.O_RDONLY
for _flag in ("O_CLOEXEC", "O_NONBLOCK", "O_BINARY"):
    _OPEN_FLAGS |= getattr(os, _flag, 0)

# Linux handles at most the larger of its read-ahead and the disk's longest request in one call.
_ADVICE_BYTES = 1 << 20
# How often the end of a file is read again if it changes meanwhile.
_LOOKS = 20

# Linux refuses a private writable map larger than free memory unless it reserves no swap.
_MAP_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)


class Descriptor:
    """An open file's number, closed with the last reference to this object.

    Each read or write holds a reference during the call; `close()` in another thread drops only
    its own. So the system reuses the number only after the last call. Reference counts are right
    in every thread, with a GIL or without, in signal handlers and after a fork; a count of our own
    under a lock would not be.

    Keep it in a local name, and delete that in a `finally`: the traceback of an error would keep
    the file open.
    """

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def close(self) -> None:
        """Close it now, even if it is in use; only so a failure of closing is noticed.

        Raises:
            OSError: as `os.close`.
        """
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def __del__(self) -> None:
        """Close it, unless it is closed."""
        try:  # noqa: SIM105  # a context is slower than everything else here
            self.close()
        except (AttributeError, OSError):  # an interpreter at its end has no os
            pass


class OpenFile:
    """An open file, which another thread may close.

    Attributes:
        name: its path, for messages.
    """

    name: str
    _descriptor: Descriptor | None = None

    def in_use(self) -> Descriptor:
        """Return the descriptor; the file stays open while it is referenced.

        Raises:
            ClosedError: it is closed.
        """
        descriptor = self._descriptor
        if descriptor is None:
            raise ClosedError("the file is closed", file=self.name)
        return descriptor

    def _ask(self, ask: Callable[[int], _T], doing: str = "cannot look at the file") -> _T:
        """Return the result of a call with the number of the open file.

        Raises:
            ClosedError: it is closed.
            SourceError: the call failed.
        """
        descriptor = self._descriptor or self.in_use()  # which raises
        try:
            with system_call(doing, self.name):
                return ask(descriptor.number)
        finally:
            del descriptor  # an error's traceback would keep the file open

    def _close(self, failure: str) -> None:
        """Close it now, so that a network file system reports a failed write.

        Raises:
            SourceError: closing failed.
        """
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with system_call(failure, self.name):
                descriptor.close()


class FileSource(OpenFile, Source):
    """A regular file opened by path.

    `close()` may be called during reads in other threads: these finish, and later ones raise
    `ClosedError`.

    Args:
        path: the file; opened once, and never again by name.
        mapped: whether `view()` maps the file. If mapping fails (on some network and FUSE file
            systems) it returns None, and the file is read.
        opener: opens the file, given the flags; by default by its path.

    Raises:
        SourceError: the file cannot be opened, or is not a regular file.
    """

    def __init__(
        self,
        path: str,
        *,
        mapped: bool = True,
        opener: Callable[[int], Descriptor] | None = None,
    ) -> None:
        self.name = path
        # Another process, or this one later, may have another working directory.
        self.path: str | None = (
            path if os.path.isabs(path) else os.path.join(absolute_path(""), path)
        )
        try:
            opened = opener(_OPEN_FLAGS) if opener else Descriptor(os.open(path, _OPEN_FLAGS))
        except SourceError as error:  # of the opener
            error.locate(file=path)
            raise
        except OSError as error:
            raise _cannot_open(path, error) from error
        self._descriptor: Descriptor | None = opened
        try:
            status = self.status()
            if not stat.S_ISREG(status.st_mode):
                raise _not_regular(path, "a folder" if stat.S_ISDIR(status.st_mode) else "a device")
            if not status.st_size and self._ask(lambda number: os.read(number, 1)):
                raise _not_regular(path, "a file of the system without a length")
        except SourceError:
            opened.close()
            raise
        self.size = status.st_size
        self._changed_at = status.st_mtime_ns
        self._identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        self._end = b""
        self._ends_with = b""
        self._least = self.size
        self._mapped = mapped
        self._view: memoryview | None = None
        self._lock = Lock()

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset` with positional reads, which threads may share."""
        descriptor = self._descriptor or self.in_use()  # not by `_ask`: rows are many short reads
        done, wanted, count = 0, destination.nbytes, -1
        try:
            while done < wanted and count:
                count = self._read_some(descriptor.number, offset + done, destination[done:])
                done += count
        except OSError as error:
            raise SourceError.from_os(error, "cannot read", self.name) from error
        finally:
            del descriptor  # an error's traceback would keep the file open
        if done < wanted:
            raise self.shrunk(offset, wanted, done)

    def _read_some(self, number: int, offset: int, destination: memoryview) -> int:
        if hasattr(os, "preadv"):  # asked each time: tests take it away
            return os.preadv(number, [destination], offset)
        with self._lock:
            os.lseek(number, offset, os.SEEK_SET)
            piece = os.read(number, min(destination.nbytes, 1 << 23))
        destination[: len(piece)] = piece
        return len(piece)

    def status(self) -> os.stat_result:
        """Return the `fstat` of the open file.

        Raises:
            ClosedError: it is closed.
            SourceError: the call failed.
        """
        descriptor = self._descriptor or self.in_use()
        try:  # as `_ask`, which takes 0.3 us longer: each view calls this
            return os.fstat(descriptor.number)
        except OSError as error:
            raise SourceError.from_os(error, "cannot look at the file", self.name) from error
        finally:
            del descriptor

    def rights(self) -> Rights:
        """Return the owner and the permissions of the open file.

        Raises:
            ClosedError: it is closed.
            SourceError: the call failed.
        """
        from ztensor.io.source.rights import Rights  # not for a file that is only read

        return self._ask(Rights.of)

    def view(self) -> memoryview | None:
        """Return the file as one copy-on-write map.

        None if the system cannot map it, or it is closed.
        """
        view = self._view
        if view is None and self._mapped:
            try:
                mapped = self._ask(functools.partial(_map_private, self.size))
            except (ClosedError, SourceError, ValueError, OverflowError):
                self._mapped = False
                return None
            view = self._view = memoryview(mapped)  # of several threads' maps one is kept
            if self._descriptor is None:  # closed meanwhile
                self._view = None
        return view

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise if the file shrank or was written to in place.

        Touching the cut part of a map would kill the process. A file that grew was appended to,
        and one that a writer has locked is being appended to: the bytes that it had when it was
        opened are the same.
        """
        status = self.status()
        if status.st_size == self.size and status.st_mtime_ns == self._changed_at:
            return
        if status.st_size >= self.size:
            from ztensor.io.source import locking  # not for a file that no process writes

            # Looked at again at the end: a writer releases its lock when the file is longer.
            if not self.is_touched() or self._ask(locking.is_held) or not self.is_touched():
                return
        if self._is_committed(status):
            return
        if status.st_size < self.size:
            raise self.shrunk(0, self.size, status.st_size)
        raise SourceError(
            "the file was changed in place after it was opened; open it again",
            reason=Reason.SOURCE_CHANGED,
            file=self.name,
        )

    def expect_commits(self, length: int, end: bytes, least: int) -> None:
        """Accept commits that replace the last bytes, or cut off room that was prepared.

        Args:
            length: the number of bytes that a commit replaces.
            end: the last of them, equal in every file.
            least: the opened state ends before this offset.

        Raises:
            SourceError: the last bytes could not be read.
        """
        self._end, self._least = bytes(self.read(self.size - length, length)), least
        self._ends_with = end

    def _is_committed(self, status: os.stat_result) -> bool:
        """Return whether only a commit, finished or given up, changed the file."""
        length = len(self._end)
        for _ in range(_LOOKS):
            size, changed_at = status.st_size, status.st_mtime_ns
            if not length or size < self._least + length:
                return False
            try:
                end = bytes(self.read(size - length, length))
            except SourceError as error:
                if error.reason is not Reason.SOURCE_CHANGED:
                    raise
                end = b""
            status = self.status()
            if (size, changed_at) != (status.st_size, status.st_mtime_ns):
                continue  # it changed meanwhile: the bytes are of another state
            if not end.endswith(self._ends_with) or (size == self.size and end == self._end):
                return False
            self._end, self.size, self._changed_at = end, size, changed_at
            return True
        return False

    def identity(self) -> tuple[int, ...]:
        """Return a key that differs if another file takes this one's place."""
        return self._identity

    def is_touched(self) -> bool:
        """Return whether the file was written to in place since it was opened."""
        if self._descriptor is None:
            return False
        status = self.status()
        return status.st_size == self.size and status.st_mtime_ns != self._changed_at

    def is_stale(self) -> bool:
        """Return whether the path now leads to another file, or this one has another length."""
        if self._descriptor is None or self.path is None:
            return False
        try:
            there, here = os.stat(self.path), self.status()
        except (OSError, ClosedError):
            return False
        return not os.path.samestat(there, here) or there.st_size != self.size

    def advise(self, offset: int, length: int, *, is_needed: bool) -> int:
        """Advise the system that bytes will be read, or need no cache; return their number.

        Raises:
            ClosedError: it is closed.
        """
        end = min(offset + length, self.size)

        def advise(number: int) -> None:
            advice = os.POSIX_FADV_WILLNEED if is_needed else os.POSIX_FADV_DONTNEED
            for start in range(offset, end, _ADVICE_BYTES):
                os.posix_fadvise(number, start, min(_ADVICE_BYTES, end - start), advice)

        try:
            self._ask(advise)
        except (SourceError, AttributeError):  # not all systems take such advice
            return 0
        return max(0, end - offset)

    def close(self) -> None:
        """Drop the descriptor and the map; reads that have begun and arrays keep theirs."""
        self._descriptor = None
        self._view = None


def _cannot_open(path: str, error: OSError) -> SourceError:
    if os.path.isdir(path):  # Windows reports a folder as a missing permission
        return _not_regular(path, "a folder")
    if not is_url(path) or os.path.lexists(path):
        return SourceError.from_os(error, "cannot open for reading", path)
    problem = SourceNotFoundError(
        "this is a URL of an unknown scheme", errno=error.errno, file=path
    )
    problem.hint = (
        "s3://, gs://, az://, hf://, http:// and https:// are; or download it, and open the copy"
    )
    problem.in_python = "fsspec.open(url).open() returns a file object that can be passed"
    return problem


def _not_regular(path: str, what: str) -> SourceNotRegularError:
    return SourceNotRegularError(
        "cannot open for reading", file=path, expected="a regular file", found=what
    )


def _map_private(size: int, number: int) -> mmap.mmap:
    """Return a copy-on-write map; writes never reach the file."""
    if hasattr(mmap, "MAP_PRIVATE"):
        flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
        return mmap.mmap(number, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
    return mmap.mmap(number, size, access=mmap.ACCESS_COPY)
