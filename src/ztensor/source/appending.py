"""New bytes behind a finished file, so that a crash at any moment leaves the old state readable.

The old file ends at S with manifest and footer. Nothing below S is ever written.

1. Before new bytes are written up to an end E, a copy of the old manifest and footer, the
   *guard*, is written at E. Every reader looks at the end of the file only, so it sees the old
   state while the new bytes fill the gap before it.
2. All is flushed to disk.
3. Manifest and footer of the new state are written behind the last guard in one call.
4. That is flushed.

A process killed before 3 leaves the old state; inside 3, a torn end that `repair` cuts off; after
it, the new state. Without the flush in 2 a power cut could leave the new manifest over blobs that
never reached the disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from ztensor.errors import ClosedError, Reason, SourceError, SourceNotRegularError
from ztensor.source import locking
from ztensor.source.base import shrunk
from ztensor.source.descriptor import Descriptor
from ztensor.source.local import require_empty
from ztensor.source.paths import is_url, path_text

if TYPE_CHECKING:
    from ztensor.source.sink import Durable

# New bytes are gathered to pieces this long, as each piece costs a guard before it; at least as
# long as four guards, so that a large manifest costs a quarter at the most.
_PIECE_BYTES = 8 << 20
_GUARDS_PER_PIECE = 4
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


class AppendSink:
    """The end of a finished file, locked for this writer.

    It is also a source of the file's old bytes, from which the manifest is read after locking.

    Args:
        path: the file.
        durable: False leaves the flushes out: safe against a killed process, not a power cut.
        lock: False where the file system has no locks and the caller knows that he is alone.
        timeout: seconds to wait for another writer.

    Raises:
        SourceError: the file cannot be opened for writing, or another process is writing.
    """

    def __init__(
        self, path: str, *, durable: Durable = "auto", lock: bool = True, timeout: float = 0.0
    ) -> None:
        path = path_text(path)
        self.name = path
        self.path: str | None = path
        self._place = os.path.abspath(path)  # who calls may change to another folder
        self._durable = durable is not False
        opened = self._open_locked(path, lock=lock, timeout=timeout)
        self._open: _Locked | None = opened
        status = os.fstat(self._descriptor)
        self.size = status.st_size
        if not self.size:
            try:
                require_empty(self._descriptor, path)
            except SourceError:
                opened.close()
                raise
        self._changed_at = status.st_mtime_ns
        self._guard = b""
        self._pending = bytearray()
        self._written_to = self.size  # up to here bytes are in place; the guard lies behind
        self._is_guarded = False
        self._is_sealed = False
        self._commit = bytearray()

    @property
    def _descriptor(self) -> int:
        """The number of the open file, -1 where it is closed; counted while a call uses it."""
        descriptor = self._open
        return -1 if descriptor is None else descriptor.number

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
                problem = SourceError.from_os(error, "cannot open for writing", path)
                if is_url(path):
                    problem.hint = "this is a URL, and only files on disk are changed"
                raise problem from error
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
        raise SourceError(
            "the file is replaced again and again by other writers; try later", file=path
        )

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

    def guard_with(self, guard: bytes) -> None:
        """Take the old manifest and footer, the bytes that keep the old state readable."""
        self._guard = guard

    # --- The new bytes ----------------------------------------------------------------------

    @property
    def descriptor(self) -> int:
        """Return the open file, for copies made in the kernel."""
        return self._descriptor

    @property
    def position(self) -> int:
        """Return the offset at which the next byte will lie."""
        if self._is_sealed:
            return self._end_of_guard() + len(self._commit)
        return self._written_to + len(self._pending)

    def _end_of_guard(self) -> int:
        return self._written_to + (len(self._guard) if self._is_guarded else 0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; after `barrier` they belong to the commit."""
        if self._is_sealed:
            self._commit += data
            return
        piece = max(_PIECE_BYTES, _GUARDS_PER_PIECE * len(self._guard))
        view = memoryview(data)
        if self._pending or view.nbytes < piece:
            take = piece - len(self._pending)
            self._pending += view[:take]
            view = view[take:]
            if len(self._pending) < piece:
                return
            self._store(memoryview(self._pending))
            self._pending = bytearray()
        while view.nbytes >= piece:
            self._store(view[:piece])
            view = view[piece:]
        self._pending += view

    def _store(self, data: memoryview) -> None:
        end = self._written_to + data.nbytes
        self._put(memoryview(self._guard), end)
        self._is_guarded = True
        self._put(data, self._written_to)
        self._written_to = end

    def _put(self, data: memoryview, offset: int) -> None:
        while data.nbytes:
            descriptor = self._in_use()
            try:
                count = _pwrite(descriptor.number, data, offset)
            except OSError as error:
                doing = "cannot write; the file still holds its old state"
                if not self._take_back():
                    doing += " before a torn end, which `ztensor repair` cuts off"
                raise SourceError.from_os(error, doing, self.name) from error
            finally:
                del descriptor
            data = data[count:]
            offset += count

    def _take_back(self) -> bool:
        """Cut the file to what it was, and return whether that worked.

        The disk may be full, and compacting would need room. A reader that opened the file
        meanwhile is told that it shrank; who has it mapped touches blobs of the old state only,
        and those stay.
        """
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            return False
        # The bytes are the old ones again: the time says so to readers that were there before.
        if os.utime in os.supports_fd:
            with contextlib.suppress(OSError):
                status = os.fstat(self._descriptor)
                os.utime(self._descriptor, ns=(status.st_atime_ns, self._changed_at))
        return True

    def barrier(self) -> int:
        """Put every blob on disk before what follows, and return where the manifest will lie."""
        if self._pending:
            self._store(memoryview(self._pending))
            self._pending = bytearray()
        # Also where no blob is new: those of an earlier commit may have been left to the system.
        # A failed flush is final: what is on disk is then unknown, and a second try would report
        # success without knowing (as PostgreSQL learnt).
        self._flush("cannot flush; the file still holds its old state")
        self._is_sealed = True
        return self._end_of_guard()

    def commit(self) -> None:
        """Write manifest and footer in one call, and flush."""
        self._put(memoryview(self._commit), self._end_of_guard())
        self._flush("the new state is written, but whether it reached the disk is unknown")
        self._close()

    def _flush(self, failure: str) -> None:
        if self._durable:
            try:
                os.fsync(self._descriptor)
            except OSError as error:
                raise SourceError.from_os(error, failure, self.name) from error

    def cut(self, length: int) -> None:
        """Shorten the file to a state that ends at `length`, and flush.

        A process that has the cut part mapped is killed when it touches it; that part belonged to
        no state.

        Raises:
            SourceError: the system refused.
        """
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise SourceError.from_os(error, "cannot shorten the file", self.name) from error
        self._flush("the file is shortened, but whether that reached the disk is unknown")

    def abort(self) -> None:
        """Let go of the file; it holds its old state.

        What was written behind it stays: another process may have it mapped. The next compaction
        takes it away.
        """
        # New ones, not emptied ones: a failed write's traceback may still hold a view of them.
        self._pending = bytearray()
        self._commit = bytearray()
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

    def _put(self, data: memoryview, offset: int) -> None:
        pass

    def _flush(self, failure: str) -> None:
        pass


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
