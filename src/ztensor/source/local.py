"""Files on this machine: by path (mapped or read), or as an open binary file object."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import threading
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    Reason,
    SourceError,
    SourceNotRegularError,
)
from ztensor.source import locking
from ztensor.source.base import shrunk

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

# O_NONBLOCK: opening a FIFO by mistake must not hang. O_BINARY: Windows would translate newlines.
_OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)

# Linux refuses a private writable map larger than free memory unless it reserves no swap.
_MAP_NORESERVE = (
    getattr(mmap, "MAP_NORESERVE", 0x4000 if os.uname().sysname == "Linux" else 0)
    if (hasattr(os, "uname"))
    else 0
)


class FileSource:
    """A regular file opened by path.

    Args:
        path: the file; opened once, and never again by name.
        mapped: whether `view()` maps the file. Where mapping fails (some network and FUSE file
            systems) it gives None and reads take its place.

    Raises:
        SourceError: the file cannot be opened, or is not a regular file.
    """

    def __init__(self, path: str, *, mapped: bool = True) -> None:
        self.name = path
        # Another process, or this one later, may have another working directory.
        self.path: str | None = path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
        try:
            descriptor = os.open(path, _OPEN_FLAGS)
        except OSError as error:
            if os.path.isdir(path):  # Windows reports a folder as a missing permission
                raise self._not_regular("a folder") from error
            raise SourceError.from_os(error, "cannot open for reading", path) from error
        except ValueError as error:  # an embedded NUL, which no file's name has
            raise SourceError(f"cannot open for reading: {error}", file=path) from error
        self._descriptor = descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            raise self._not_regular("a folder" if stat.S_ISDIR(status.st_mode) else "a device")
        self.size = status.st_size
        self._changed_at = status.st_mtime_ns
        self._mapped = mapped
        self._view: memoryview | None = None
        self._stored: memoryview | None = None
        self._lock = threading.Lock()

    def _not_regular(self, what: str) -> SourceNotRegularError:
        return SourceNotRegularError(
            "cannot open for reading", file=self.name, expected="a regular file", found=what
        )

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset` with positional reads, which threads may share."""
        if self._descriptor < 0:
            raise ClosedError("the file is closed", file=self.name)
        done = 0
        wanted = destination.nbytes
        while done < wanted:
            try:
                count = self._read_some(offset + done, destination[done:])
            except OSError as error:
                raise SourceError.from_os(error, "cannot read", self.name) from error
            if count == 0:
                raise shrunk(self.name, offset, wanted, done)
            done += count

    def _read_some(self, offset: int, destination: memoryview) -> int:
        # The call is looked up each time: tests take it away to reach what other systems do.
        if hasattr(os, "preadv"):
            return os.preadv(self._descriptor, [destination], offset)
        if hasattr(os, "pread"):
            piece = os.pread(self._descriptor, min(destination.nbytes, 1 << 23), offset)
        else:
            with self._lock:
                os.lseek(self._descriptor, offset, os.SEEK_SET)
                piece = os.read(self._descriptor, min(destination.nbytes, 1 << 23))
        destination[: len(piece)] = piece
        return len(piece)

    def view(self) -> memoryview | None:
        """Return the file as one copy-on-write map, or None where the system cannot map it."""
        if self._view is None:
            with self._lock:
                if self._view is None:
                    self._view = self._map(_map_private)
        return self._view

    def stored(self) -> memoryview | None:
        """Return the file as one read-only map, or None where the system cannot map it."""
        if self._stored is None:
            with self._lock:
                if self._stored is None:
                    self._stored = self._map(_map_shared)
        return self._stored

    def _map(self, how: Callable[[int, int], mmap.mmap]) -> memoryview | None:
        if not self._mapped or self._descriptor < 0:
            return None
        try:
            return memoryview(how(self._descriptor, self.size))
        except (OSError, ValueError, OverflowError):
            self._mapped = False
            return None

    def require_unchanged(self) -> None:
        """Raise when the file shrank or was written to in place.

        Touching the cut part of a map would kill the process. A file that grew was appended to,
        and one whose lock is held is being appended to: what it held when it was opened is
        untouched.
        """
        if self._descriptor < 0:
            raise ClosedError("the file is closed", file=self.name)
        status = os.fstat(self._descriptor)
        if status.st_size < self.size:
            raise shrunk(self.name, 0, self.size, status.st_size)
        if self._is_touched(status) and not locking.is_held(self._descriptor):
            raise SourceError(
                "the file was changed in place after it was opened; open it again",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    def is_touched(self) -> bool:
        """Return whether the file was written to in place since it was opened."""
        return self._descriptor >= 0 and self._is_touched(os.fstat(self._descriptor))

    def _is_touched(self, status: os.stat_result) -> bool:
        return status.st_size == self.size and status.st_mtime_ns != self._changed_at

    def is_stale(self) -> bool:
        """Return whether the path leads to another file by now, or to another length of this."""
        if self._descriptor < 0 or self.path is None:
            return False
        try:
            there, here = os.stat(self.path), os.fstat(self._descriptor)
        except OSError:
            return False
        return not os.path.samestat(there, here) or there.st_size != self.size

    def close(self) -> None:
        """Close the descriptor and let go of the map; arrays over the map keep it alive."""
        descriptor, self._descriptor = self._descriptor, -1
        self._view = self._stored = None
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        """Close the descriptor of a source nobody closed."""
        with contextlib.suppress(AttributeError, OSError):
            self.close()


def _map_private(descriptor: int, size: int) -> mmap.mmap:
    """Return a map whose pages are copied on write and never reach the file."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(
            descriptor,
            size,
            flags=mmap.MAP_PRIVATE | _MAP_NORESERVE,
            prot=mmap.PROT_READ | mmap.PROT_WRITE,
        )
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY)


def _map_shared(descriptor: int, size: int) -> mmap.mmap:
    """Return a read-only map, which no write into a private one changes."""
    return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)


class BinaryFile(Protocol):
    """What is used of an open binary file object."""

    def read(self, size: int, /) -> bytes | None:
        """Return up to `size` bytes."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> object:
        """Move to an offset."""
        ...

    def tell(self) -> int:
        """Return the offset."""
        ...


class FileObjectSource:
    """A seekable binary file object, read from its first byte under a lock; never mapped.

    The object stays the caller's: it is not closed, and its position moves.

    Raises:
        ArgumentTypeError: the object is not readable, not seekable or not binary.
    """

    def __init__(self, file: BinaryFile) -> None:
        self._file = file
        self._lock = threading.Lock()
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(file).__name__}>"
        self.path: str | None = None
        hint = "a seekable file object opened in binary mode; else read it and pass the bytes"
        try:
            file.seek(0, os.SEEK_END)
            size = file.tell()  # not every seek() tells
            file.seek(0)
            sample = file.read(0)
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ArgumentTypeError(
                "cannot read from the file object", expected=hint, found=str(error), file=self.name
            ) from error
        if not isinstance(sample, bytes):
            raise ArgumentTypeError(
                "cannot read from the file object",
                expected=hint,
                found=f"{type(sample).__name__} from read()",
                file=self.name,
            )
        self.size = size

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Seek and read under the lock."""
        done = 0
        wanted = destination.nbytes
        with self._lock:
            try:
                self._file.seek(offset)
                while done < wanted:
                    piece: Buffer | None = self._file.read(wanted - done)
                    if not piece:
                        raise shrunk(self.name, offset, wanted, done)
                    taken = memoryview(piece).cast("B")
                    destination[done : done + taken.nbytes] = taken
                    done += taken.nbytes
            except SourceError:
                raise
            except (OSError, ValueError) as error:
                raise SourceError(
                    f"cannot read from the file object: {error}",
                    reason=Reason.SOURCE_FAILED,
                    file=self.name,
                ) from error

    def view(self) -> memoryview | None:
        """Return None: a file object cannot be mapped."""
        return None

    def stored(self) -> memoryview | None:
        """Return None, as `view`."""
        return None

    def require_unchanged(self) -> None:
        """Do nothing: no view is handed out."""

    def close(self) -> None:
        """Do nothing: the file object is the caller's."""
