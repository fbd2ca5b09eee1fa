"""New bytes behind a finished file, so that a crash at any moment leaves the old state readable.

Nothing of the old file is ever written. In which order what is new is written, `guards.py` says;
here is the file itself: opened, locked, read, written to at an offset, cut.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.io.source import locking
from ztensor.io.source.guards import CommitBehind, CommitOver, Guarded
from ztensor.io.source.local import Descriptor, FileSource
from ztensor.io.source.paths import path_text
from ztensor.io.source.targets import require_changed_in_place

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ztensor.accepted import Durable

_TRIES = 10


class _Locked(Descriptor):
    """A descriptor with the lock that keeps other writers out as long as it is open."""

    __slots__ = ()

    def close(self) -> None:
        """Let other writers in, and close it."""
        if self.number >= 0:
            locking.release(self.number)
        super().close()


class AppendSink(FileSource):
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

    _guarded: Guarded | None = None

    def __init__(
        self, path: str, *, durable: Durable = "auto", lock: bool = True, timeout: float = 0.0
    ) -> None:
        path = path_text(path)
        require_changed_in_place(path)
        opener = functools.partial(_open_to_write, path, lock=lock, timeout=timeout)
        super().__init__(path, mapped=False, opener=opener)
        self._durable = durable is not False

    def require_unchanged(self) -> None:
        """Do nothing: the lock keeps other writers out."""

    def require_in_place(self) -> None:
        """Raise where another file has taken this one's place: a plain save asks for no lock.

        Raises:
            SourceError: so it is; what would be written now would be lost, or lose the new file.
        """
        try:
            is_in_place = os.path.samestat(os.stat(self.path or ""), self.status())
        except OSError as error:
            raise SourceError.from_os(error, "the file is gone", self.name) from error
        if not is_in_place:
            raise SourceError(
                "another writer put a new file in its place; that one is kept as it is",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    # --- The new bytes ----------------------------------------------------------------------

    def commit_behind(self, guard: bytes) -> None:
        """Put new states behind a guard: the old manifest and footer; see `CommitBehind`."""
        self._guarded = CommitBehind(self, guard)

    def commit_over(self, guard: bytes) -> None:
        """Put new states before a guard, a copy of the old footer; see `CommitOver`."""
        self._guarded = CommitOver(self, guard)

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
        descriptor, self._descriptor = self._descriptor, None
        try:
            if descriptor is not None:
                descriptor.close()  # where a network file system says that it could not write back
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
            descriptor = self.in_use()
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

    def take_back(self, length: int) -> bool:
        """Cut the file to a length it had, and return whether that worked.

        The disk may be full, and compacting would need room. A reader that opened the file
        meanwhile is told that it shrank; who has it mapped touches blobs of the old state only,
        and those stay.
        """
        try:
            self.shorten(length)
        except (SourceError, ClosedError):
            return False
        # The bytes are the old ones again: the time says so to readers that were there before.
        if length == self.size and os.utime in os.supports_fd:
            with contextlib.suppress(OSError):
                times = self.status().st_atime_ns, self._changed_at
                self._ask(lambda number: os.utime(number, ns=times))
        return True

    def require_length(self, length: int) -> None:
        """Raise where the file is longer: what could not be written could not be cut off either.

        Raises:
            SourceError: so it is.
        """
        found = self.status().st_size
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
            self._ask(os.fsync, failure)

    def shorten(self, length: int) -> None:
        """Cut the file to a length, without a flush.

        Raises:
            SourceError: the system refused.
        """
        self._ask(lambda number: os.ftruncate(number, length), "cannot shorten the file")

    def cut(self, length: int) -> None:
        """Shorten the file to a state that ends at `length`, and flush.

        A process that has the cut part mapped is killed when it touches it; that part belonged to
        no state.

        Raises:
            SourceError: the system refused.
        """
        self.shorten(length)
        self.flush("the file is shortened, but whether that reached the disk is unknown")

    def close(self) -> None:
        """Let go of the file; it holds its old state. May be called again."""
        if self._guarded is not None and self._descriptor is not None:
            self._guarded.forget()
        super().close()  # a write in another thread ends first

    def abort(self) -> None:
        """Let go of the file, as `close`."""
        self.close()


class TrialSink(AppendSink):
    """The end of a finished file, locked and counted as `AppendSink` does, but never written."""

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


def _open_to_write(path: str, flags: int, *, lock: bool, timeout: float) -> Descriptor:
    """Open a file, and lock it; one that is put in its place while we wait is opened instead."""
    for _ in range(_TRIES):
        opened = None
        try:
            number = os.open(path, flags | os.O_RDWR)
            opened = _Locked(number) if lock else Descriptor(number)
            if not lock:
                return opened
            locking.acquire(number, path, timeout=timeout)
            if os.path.samestat(os.stat(path), os.fstat(number)):
                return opened
        except OSError as error:
            if opened is not None:
                opened.close()
            if isinstance(error, SourceError):
                raise
            raise SourceError.from_os(error, "cannot open for writing", path) from error
        opened.close()
    raise SourceError("other writers keep replacing the file; try again later", file=path)


def _pwrite(number: int, data: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(number, data, offset)
    os.lseek(number, offset, os.SEEK_SET)
    return os.write(number, data)
