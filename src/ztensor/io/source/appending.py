"""A finished file with new bytes behind it, so that a crash at any moment leaves a state readable.

The old file ends at S, and nothing below S is ever written. Readers look at the end of the file to
find the manifest. So before new bytes are written, what the end has to be, the *guard*, is written
where they will end. `LockedFile` is the file; each order of writes and flushes is a sink:
`CommitBehind` for formats whose manifest lies at the end, `CommitOver` for those whose last bytes
say where it lies: there the last write replaces them, and no moment is left at which the end is
none.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING

from ztensor.errors import ClosedError, Reason, SourceError, system_call
from ztensor.io.source import locking
from ztensor.io.source.local import Descriptor, FileSource
from ztensor.io.source.paths import path_text
from ztensor.io.source.stream import Gatherer
from ztensor.io.source.targets import require_changed_in_place

if TYPE_CHECKING:
    from ztensor.accepted import Durable

_TRIES = 10
# New bytes are gathered to pieces this long, as each piece costs a guard before it.
_PIECE_BYTES = 8 << 20
# And at least as long as four guards, so that a large manifest costs a quarter at the most.
_GUARDS_PER_PIECE = 4
# Room is made for as much as came so far, up to this: each time costs a flush.
_AHEAD_BYTES = 64 << 20
# What a disk writes whole or not at all.
_SECTOR_BYTES = 512

_OLD = "cannot flush; the file still holds its old state"
_NEW = "the new state is written, but whether it reached the disk is unknown"


class _Locked(Descriptor):
    """A descriptor with the lock that keeps other writers out as long as it is open."""

    __slots__ = ()

    def close(self) -> None:
        """Let other writers in, and close it."""
        if self.number >= 0:
            locking.release(self.number)
        super().close()


class LockedFile(FileSource):
    """A finished file, locked for one writer: its old bytes are read, new ones put behind them.

    Args:
        path: the file.
        durable: False leaves the flushes out: safe against a killed process, not a power cut.
        lock: False takes no lock; only for file systems without locks, if nobody else writes.
        timeout: seconds to wait for another writer.
        dry_run: True locks and reads the file, and changes nothing.

    Raises:
        SourceError: the file cannot be opened for writing, or another process is writing.
    """

    def __init__(
        self,
        path: str,
        *,
        durable: Durable = "auto",
        lock: bool = True,
        timeout: float = 0.0,
        dry_run: bool = False,
    ) -> None:
        path = path_text(path)
        require_changed_in_place(path)
        opener = functools.partial(_open_to_write, path, lock=lock, timeout=timeout)
        super().__init__(path, mapped=False, opener=opener)
        self._is_trial = dry_run
        self._is_durable = durable is not False and not dry_run

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Do nothing: the lock keeps other writers out."""

    def require_in_place(self) -> None:
        """Raise where another file has taken this one's place: a plain save asks for no lock.

        Raises:
            SourceError: so it is; what would be written now would be lost, or lose the new file.
        """
        with system_call("the file is gone", self.name):
            is_in_place = os.path.samestat(os.stat(self.path or ""), self.status())
        if not is_in_place:
            raise SourceError(
                "another writer put a new file in its place; that one is kept as it is",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    def put(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write bytes at an offset behind the old end; where that fails, cut the file back.

        Raises:
            SourceError: the system refused.
        """
        if self._is_trial:
            return
        descriptor = self.in_use()
        try:
            _write_at(descriptor.number, memoryview(data), offset)
        except OSError as error:
            doing = "cannot write; the file still holds its old state"
            if not self.take_back():
                doing += "; if it does not open, `ztensor repair` cuts off what was begun"
            raise SourceError.from_os(error, doing, self.name) from error
        finally:
            del descriptor

    def take_back(self) -> bool:
        """Cut the file to the length it had, and return whether that worked.

        The disk may be full, and compacting would need room. A reader that opened the file
        meanwhile is told that it shrank; a process that has it mapped touches blobs of the old
        state only, and those stay.
        """
        try:
            self.shorten(self.size)
        except (SourceError, ClosedError):
            return False
        finally:  # also where Ctrl-C comes between the two
            # The time says to readers that were there before that the bytes are the old ones.
            with contextlib.suppress(OSError, ClosedError):
                status = self.status()
                is_old = status.st_size == self.size and not self._is_trial
                if is_old and os.utime in os.supports_fd:
                    times = status.st_atime_ns, self._changed_at
                    self._ask(lambda number: os.utime(number, ns=times))
        return True

    def shorten(self, length: int) -> None:
        """Cut the file to a length, without a flush.

        Raises:
            SourceError: the system refused.
        """
        if not self._is_trial:
            self._ask(lambda number: os.ftruncate(number, length), "cannot shorten the file")

    def flush(self, failure: str) -> None:
        """Put what was written on disk, unless that was not wanted.

        Args:
            failure: what the error says where that fails.

        Raises:
            SourceError: the system refused.
        """
        if self._is_durable:
            self._ask(os.fsync, failure)

    def cut(self, length: int) -> None:
        """Shorten the file to a state that ends at `length`, and flush.

        A process that has the cut part mapped is killed when it touches it; that part belonged to
        no state.

        Raises:
            SourceError: the system refused.
        """
        self.shorten(length)
        self.flush("the file is shortened, but whether that reached the disk is unknown")

    def finish(self) -> None:
        """Close the file in its new state.

        Raises:
            SourceError: closing failed, where a network file system says that it could not write.
        """
        self._close("the change is in the file, but closing it failed")


class Commit(Gatherer):
    """New bytes behind a finished file, gathered to pieces.

    Args:
        file: the file.
        guard: the bytes that keep the old state readable.
    """

    def __init__(self, file: LockedFile, guard: bytes) -> None:
        super().__init__(file.size)
        self.name = file.name
        self._file = file
        self._guard = guard
        piece = max(_PIECE_BYTES, _GUARDS_PER_PIECE * len(guard))
        self.small_bytes = self.most_bytes = piece

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        self._file.put(gathered, start)
        self._file.put(data, start + len(gathered))

    def abort(self) -> None:
        """Drop what is gathered, and let go of the file, which holds its old state."""
        self._gathered.clear()
        self._file.close()


class CommitBehind(Commit):
    """The guard is manifest and footer; those of the new state are written behind the last one.

    1. Before new bytes are written up to an end E, the guard is written at E. A process that opens
       the file sees the old state while the new bytes fill the gap before it.
    2. All is flushed to disk.
    3. Manifest and footer of the new state are written behind the last guard in one call.
    4. That is flushed.

    What was written stays where the change is given up: another process may have it mapped, with
    the manifest in it. One more guard then makes the file longer: a reader that came while the gap
    was filled takes it for one that grew, not for one that was changed. A process killed before 3
    leaves the old state; inside 3, a torn end that `repair` cuts off; after it, the new state.
    Without the flush in 2 a power cut could leave the new manifest over blobs that never reached
    the disk.
    """

    _guarded = 0  # the end of the last guard

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        self._file.put(self._guard, self.position)
        self._guarded = self.position + len(self._guard)
        super()._store(gathered, data, start)

    def end_blobs(self) -> int:
        """Put every blob on disk before what follows, and return where the manifest will lie."""
        self._flush()
        # Also where no blob is new: those of an earlier commit may have been left to the system.
        # A failed flush is final: what is on disk is then unknown, and a second try would report
        # success without knowing (as PostgreSQL learnt).
        guarded, self._guarded = self._guarded, 0
        self._file.flush(_OLD)
        self._guarded = guarded
        self.position = max(self.position, guarded)
        return self.position

    def commit(self, manifest: bytes = b"") -> None:
        """Write manifest and footer in one call, and flush."""
        self._file.put(manifest, self.position)
        self._file.flush(_NEW)
        self.position += len(manifest)
        self._file.finish()

    def abort(self) -> None:
        """Drop what is gathered, and let go of the file, which holds its old state."""
        with contextlib.suppress(SourceError, ClosedError):
            if self._file.status().st_size == self._guarded:  # else there is none any more
                self._file.put(self._guard, self._guarded)
        super().abort()


class CommitOver(Commit):
    """The guard is the footer alone, a copy of the old one; that of the new state takes its place.

    1. A copy of the old footer is written so far behind the old end that the new state fits before
       it: one write, in one sector, over a hole. The file has its new length, and ends as before.
    2. That is flushed. Without it a power cut could leave a file that ends among new blobs.
    3. New blobs and the new manifest fill the room, and are flushed.
    4. The new footer is written over the copy, in one write, and flushed.

    A process killed at any moment leaves the old state or the new one, and so does a power cut on a
    file system on which a file is not longer before the bytes are there (ext4 as it is by default,
    XFS, Btrfs). Where it is not known how much will come, the room grows by 1 and 2, and what is
    too long at the end is cut off, behind one more copy.
    """

    def __init__(self, file: LockedFile, guard: bytes) -> None:
        super().__init__(file, guard)
        self._room = file.size  # the length of the file, which ends with the guard or the old one
        self._is_final = False  # the new footer may be there

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        needed = self.position + len(self._guard)
        if needed > self._room:
            self._make_room(needed + min(needed - self._file.size, _AHEAD_BYTES))
        super()._store(gathered, data, start)

    def _make_room(self, nbytes: int) -> None:
        """Make the file that long; the old guard is written over when the new one is on disk."""
        end = self._end(nbytes)
        self._file.put(self._guard, end - len(self._guard))
        self._file.flush(_OLD)
        self._room = end

    def _end(self, least: int) -> int:
        """Return the least end at which the footer lies in one sector."""
        into = (least - len(self._guard)) % _SECTOR_BYTES
        return least if into + len(self._guard) <= _SECTOR_BYTES else least + _SECTOR_BYTES - into

    def commit(self, manifest: bytes = b"") -> None:
        """Store what is left with the manifest, then write the footer over the guard."""
        size = len(self._guard)
        start = self.position - len(self._gathered)
        rest, self._gathered = self._gathered + manifest[:-size], bytearray()
        end = self._end(start + len(rest) + size)
        if end <= self._room < end + _SECTOR_BYTES:
            end = self._room
        elif self._room < end:
            self._make_room(end)
        self._file.put(rest, start)
        if end < self._room:
            self._file.put(self._guard, end - size)
        self._file.flush(_OLD)
        if end < self._room:
            self._file.shorten(end)
            self._room = end
        self._is_final = True
        self._file.put(manifest[-size:], end - size)
        self.position = end
        self._file.flush(_NEW)
        self._file.finish()

    def abort(self) -> None:
        """Drop what is gathered, and give its room back."""
        if not self._is_final and self._room > self._file.size:
            self._file.take_back()
        super().abort()


def _open_to_write(path: str, flags: int, *, lock: bool, timeout: float) -> Descriptor:
    """Open a file, and lock it; one that is put in its place while we wait is opened instead."""
    for _ in range(_TRIES):
        with system_call("cannot open for writing", path), contextlib.ExitStack() as failing:
            opened = (_Locked if lock else Descriptor)(os.open(path, flags | os.O_RDWR))
            failing.callback(opened.close)
            if lock:
                locking.acquire(opened.number, path, timeout=timeout)
            if not lock or os.path.samestat(os.stat(path), os.fstat(opened.number)):
                failing.pop_all()
                return opened
    raise SourceError("other writers keep replacing the file; try again later", file=path)


def _write_at(number: int, data: memoryview, offset: int) -> None:
    while data.nbytes:
        if hasattr(os, "pwrite"):
            count = os.pwrite(number, data, offset)
        else:
            os.lseek(number, offset, os.SEEK_SET)
            count = os.write(number, data)
        data = data[count:]
        offset += count
