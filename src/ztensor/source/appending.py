"""New bytes behind a finished file, so that a crash at any moment leaves the old state readable.

Nothing of the old file is ever written. In which order what is new is written, `guards.py` says;
here is the file itself: opened, locked, read, written to at an offset, cut.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from ztensor.errors import ClosedError, Reason, SourceError, SourceNotRegularError
from ztensor.source import locking
from ztensor.source.base import ReadOneByOne, shrunk
from ztensor.source.descriptor import Descriptor
from ztensor.source.flushing import START_BYTES, start_flush
from ztensor.source.guards import CommitBehind, CommitOver, Guarded
from ztensor.source.local import require_empty
from ztensor.source.paths import absolute_path, path_text
from ztensor.source.upload import require_changed_in_place

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ztensor.source.sink import Durable

_TRIES = 10


class _Locked(Descriptor):
    """A descriptor with the lock that keeps other writers out as long as it is open."""

    __slots__ = ("lock",)

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.lock: locking.Lock | None = None

    def close(self) -> None:
        """Let other writers in, and close it."""
        lock, self.lock = self.lock, None
        try:
            if lock is not None:
                lock.release()
        finally:
            super().close()


class AppendSink(ReadOneByOne):
    """The end of a finished file, locked for this writer.

    It is also a source of the file's old bytes, from which the manifest is read after locking.

    Args:
        path: the file.
        durable: False leaves the flushes out: safe against a killed process, not a power cut.
        lock: False takes no lock; only for file systems without locks, if nobody else writes.
        timeout: seconds to wait for another writer.

    Raises:
        SourceError: the file cannot be opened for writing, or another process is writing.
    """

    def __init__(
        self, path: str, *, durable: Durable = "auto", lock: bool = True, timeout: float = 0.0
    ) -> None:
        path = path_text(path)
        require_changed_in_place(path)
        self.name = path
        self.path: str | None = path
        self._place = absolute_path(path)  # who calls may change to another folder
        self._durable = durable is not False
        self._unstarted = 0  # bytes that the disk was not told of
        opened = self._open_locked(path, lock=lock, timeout=timeout)
        self._open: _Locked | None = opened
        status = self._status()
        self.size = status.st_size
        if not self.size:
            try:
                require_empty(self._descriptor, path)
            except SourceError:
                opened.close()
                raise
        self._changed_at = status.st_mtime_ns
        self._guarded: Guarded | None = None

    @property
    def _descriptor(self) -> int:
        """The number of the open file, -1 where it is closed; counted while a call uses it."""
        descriptor = self._open
        return -1 if descriptor is None else descriptor.number

    def _status(self) -> os.stat_result:
        try:
            return os.fstat(self._descriptor)
        except OSError as error:
            raise SourceError.from_os(error, "cannot look at the file", self.name) from error

    def _in_use(self) -> _Locked:
        descriptor = self._open
        if descriptor is None:
            raise ClosedError("the file was closed or given up", file=self.name)
        return descriptor

    def _open_locked(self, path: str, *, lock: bool, timeout: float) -> _Locked:
        flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        flags |= getattr(os, "O_NONBLOCK", 0)  # a FIFO must not hang
        for _ in range(_TRIES):
            try:
                opened = _Locked(os.open(path, flags))
            except OSError as error:
                raise SourceError.from_os(error, "cannot open for writing", path) from error
            try:
                status = os.fstat(opened.number)
                if not stat.S_ISREG(status.st_mode):
                    raise SourceNotRegularError(  # noqa: TRY301  # closed below, like all errors
                        "cannot open for writing",
                        file=path,
                        expected="a regular file",
                        found="a folder" if stat.S_ISDIR(status.st_mode) else "a device",
                    )
                if lock:
                    opened.lock = locking.acquire(opened.number, path, timeout=timeout)
                # While we waited another writer may have put a new file in place.
                if not lock or os.path.samestat(os.stat(path), os.fstat(opened.number)):
                    return opened
            except OSError as error:
                opened.close()
                if isinstance(error, SourceError):
                    raise
                raise SourceError.from_os(error, "cannot open for writing", path) from error
            except BaseException:
                opened.close()
                raise
            opened.close()
        raise SourceError("other writers keep replacing the file; try again later", file=path)

    def require_in_place(self) -> None:
        """Raise where another file has taken this one's place: a plain save asks for no lock.

        Raises:
            SourceError: so it is; what would be written now would be lost, or lose the new file.
        """
        try:
            is_in_place = os.path.samestat(os.stat(self._place), os.fstat(self._descriptor))
        except OSError as error:
            raise SourceError.from_os(error, "the file is gone", self.name) from error
        if not is_in_place:
            raise SourceError(
                "another writer put a new file in its place; that one is kept as it is",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    # --- The old bytes ----------------------------------------------------------------------

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` with old bytes."""
        done = 0
        while done < destination.nbytes:
            descriptor = self._in_use()
            try:
                piece = _pread(descriptor.number, destination.nbytes - done, offset + done)
            except OSError as error:
                raise SourceError.from_os(error, "cannot read", self.name) from error
            finally:
                del descriptor
            if not piece:
                raise shrunk(self.name, offset, destination.nbytes, done)
            destination[done : done + len(piece)] = piece
            done += len(piece)

    def view(self) -> memoryview | None:
        """Return None: a file that grows is read, not mapped."""
        return None

    def held(self) -> memoryview | None:
        """Return None, as `view`."""
        return None

    def require_unchanged(self) -> None:
        """Do nothing: the lock keeps other writers out."""

    # --- The new bytes ----------------------------------------------------------------------

    def commit_behind(self, guard: bytes) -> None:
        """Put new states behind a guard: the old manifest and footer; see `CommitBehind`."""
        self._guarded = CommitBehind(self, guard)

    def commit_over(self, guard: bytes) -> None:
        """Put new states before a guard, a copy of the old footer; see `CommitOver`."""
        self._guarded = CommitOver(self, guard)

    @property
    def descriptor(self) -> int:
        """Return the open file, for copies made in the kernel."""
        return self._descriptor

    @property
    def position(self) -> int:
        """Return the offset at which the next byte will lie."""
        return self.size if self._guarded is None else self._guarded.position

    def _require_guarded(self) -> Guarded:
        if self._guarded is None:
            raise ClosedError("the file was opened to be read, or was given up", file=self.name)
        return self._guarded

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; after `barrier` they belong to the commit."""
        self._require_guarded().write(data)

    def barrier(self) -> int:
        """End the blobs, and return where the commit will lie."""
        return self._require_guarded().barrier()

    def commit(self) -> None:
        """Make what was written the file's state, and flush."""
        self._require_guarded().commit()
        try:
            self._close()  # where a network file system says that it could not write back
        except OSError as error:
            raise SourceError.from_os(
                error, "the change is in the file, but closing it failed", self.name
            ) from error

    # --- What can be done to the file -------------------------------------------------------

    def put(
        self, data: Buffer, offset: int, *, tears: bool = True, back_to: int | None = None
    ) -> None:
        """Write bytes at an offset behind the old end; where that fails, cut the file back.

        Args:
            data: the bytes.
            offset: where.
            tears: a part of them would be a torn end, if it were the last that is done.
            back_to: the length to cut it to; that of the old file by default.

        Raises:
            SourceError: the system refused.
        """
        view = memoryview(data)
        while view.nbytes:
            descriptor = self._in_use()
            try:
                count = _pwrite(descriptor.number, view, offset)
            except OSError as error:
                doing = "cannot write; the file still holds its old state"
                if not self.take_back(self.size if back_to is None else back_to) and tears:
                    doing += " before a torn end, which `ztensor repair` cuts off"
                raise SourceError.from_os(error, doing, self.name) from error
            finally:
                del descriptor
            view = view[count:]
            offset += count
            self._unstarted += count
            if self._durable and self._unstarted >= START_BYTES:
                start_flush(self._descriptor, offset - self._unstarted, self._unstarted)
                self._unstarted = 0

    def take_back(self, length: int) -> bool:
        """Cut the file to a length it had, and return whether that worked.

        The disk may be full, and compacting would need room. A reader that opened the file
        meanwhile is told that it shrank; who has it mapped touches blobs of the old state only,
        and those stay.
        """
        try:
            os.ftruncate(self._descriptor, length)
        except OSError:
            return False
        # The bytes are the old ones again: the time says so to readers that were there before.
        if length == self.size and os.utime in os.supports_fd:
            with contextlib.suppress(OSError):
                status = os.fstat(self._descriptor)
                os.utime(self._descriptor, ns=(status.st_atime_ns, self._changed_at))
        return True

    def require_length(self, length: int) -> None:
        """Raise where the file is longer: what could not be written could not be cut off either.

        Raises:
            SourceError: so it is.
        """
        found = self._status().st_size
        if found > length:
            raise SourceError(
                "cannot shorten the file; it holds its old state before a torn end, which "
                "`ztensor repair` cuts off",
                reason=Reason.SOURCE_FAILED,
                file=self.name,
                expected=f"{length} bytes",
                found=f"{found}",
            )

    def flush(self, failure: str) -> None:
        """Put what was written on disk, unless that was not wanted.

        Args:
            failure: what the error says where that fails.

        Raises:
            SourceError: the system refused.
        """
        if self._durable:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise SourceError.from_os(error, failure, self.name) from error

    def shorten(self, length: int) -> None:
        """Cut the file to a length, without a flush.

        Raises:
            SourceError: the system refused.
        """
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise SourceError.from_os(error, "cannot shorten the file", self.name) from error

    def cut(self, length: int) -> None:
        """Shorten the file to a state that ends at `length`, and flush.

        A process that has the cut part mapped is killed when it touches it; that part belonged to
        no state.

        Raises:
            SourceError: the system refused.
        """
        self.shorten(length)
        self.flush("the file is shortened, but whether that reached the disk is unknown")

    def abort(self) -> None:
        """Let go of the file; it holds its old state. May be called again."""
        if self._guarded is not None and self._open is not None:
            self._guarded.forget()
        self._open = None  # a write in another thread ends first

    def close(self) -> None:
        """Let go of the file, as `abort`."""
        self.abort()

    def _close(self) -> None:
        descriptor, self._open = self._open, None
        if descriptor is not None:
            descriptor.close()


class TrialSink(AppendSink):
    """The end of a finished file, locked and counted as `AppendSink` does, but never written."""

    def cut(self, length: int) -> None:
        """Cut nothing."""

    def put(
        self, data: Buffer, offset: int, *, tears: bool = True, back_to: int | None = None
    ) -> None:
        """Write nothing."""

    def require_length(self, length: int) -> None:
        """Ask nothing."""

    def flush(self, failure: str) -> None:
        """Flush nothing."""

    def shorten(self, length: int) -> None:
        """Cut nothing."""

    def take_back(self, length: int) -> bool:
        """Cut nothing."""
        return True


def _pread(descriptor: int, length: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.read(descriptor, length)


def _pwrite(descriptor: int, data: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    os.lseek(descriptor, offset, os.SEEK_SET)
    return os.write(descriptor, data)
