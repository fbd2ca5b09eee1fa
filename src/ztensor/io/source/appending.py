"""Append to a finished file so that a crash at any moment leaves a readable state.

The old file ends at S, and no byte before S is ever written. Readers find the manifest from the end
of the file. So before new bytes are written, a copy of the old end, the *guard*, is written behind
the place where they will end. `LockedFile` is the file; each order of writes and flushes is a sink:
`CommitBehind` for formats with the manifest at the end, `CommitOver` for formats with the offset of
the manifest in the last bytes: there the last write replaces these bytes, so that the file has a
valid end at every moment.
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
# New bytes are buffered to pieces of this length, since each piece costs a guard.
_PIECE_BYTES = 8 << 20
# And at least this many guards long, so that guards take a quarter of the space at most.
_GUARDS_PER_PIECE = 4
# The room doubles, but grows by no more than this; each growth costs a flush.
_AHEAD_BYTES = 64 << 20
# A disk writes a sector atomically.
_SECTOR_BYTES = 512

_OLD = "cannot flush; the file still holds its old state"
_NEW = "the new state is written, but whether it reached the disk is unknown"


class _Locked(Descriptor):
    """A descriptor of a file that stays locked while it is open."""

    __slots__ = ()

    def close(self) -> None:
        """Unlock and close the file."""
        if self.number >= 0:
            locking.release(self.number)
        super().close()


class LockedFile(FileSource):
    """A finished file, locked for one writer, which reads the old bytes and appends new ones.

    Args:
        path: the file.
        durable: False omits the flushes: safe against a killed process, not a power cut.
        lock: False takes no lock; only for file systems without locks, if no other process writes.
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
        """Raise if another file has taken this one's place: a plain save asks for no lock.

        Raises:
            SourceError: the path leads to another file; a commit would be lost, or replace it.
        """
        with system_call("the file is gone", self.name):
            is_in_place = os.path.samestat(os.stat(self.path or ""), self.status())
        if not is_in_place:
            raise SourceError(
                "another writer put a new file in its place; it is kept",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )

    def put(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write bytes at an offset behind the old end; if that fails, truncate the file again.

        Raises:
            SourceError: the write failed.
        """
        if self._is_trial:
            return
        descriptor = self.in_use()
        try:
            _write_at(descriptor.number, memoryview(data), offset)
        except OSError as error:
            doing = "cannot write; the file still holds its old state"
            if not self.take_back():
                doing += "; if it does not open, `ztensor repair` cuts off the new bytes"
            raise SourceError.from_os(error, doing, self.name) from error
        finally:
            del descriptor

    def take_back(self) -> bool:
        """Truncate the file to its old length. Return False if the system refuses.

        The disk may be full, and compacting would need room. Open readers see the file shrink;
        their maps of old blobs stay valid.
        """
        try:
            self.shorten(self.size)
        except (SourceError, ClosedError):
            return False
        finally:  # also where Ctrl-C comes between the two
            # The old time shows readers that were there before that their bytes are the same.
            with contextlib.suppress(OSError, ClosedError):
                status = self.status()
                is_old = status.st_size == self.size and not self._is_trial
                if is_old and os.utime in os.supports_fd:
                    times = status.st_atime_ns, self._changed_at
                    self._ask(lambda number: os.utime(number, ns=times))
        return True

    def shorten(self, length: int) -> None:
        """Truncate the file, without a flush.

        Raises:
            SourceError: the system refused.
        """
        if not self._is_trial:
            self._ask(lambda number: os.ftruncate(number, length), "cannot shorten the file")

    def flush(self, failure: str) -> None:
        """Flush the file to disk, unless `durable` is False.

        Args:
            failure: the message if that fails.

        Raises:
            SourceError: the system refused.
        """
        if self._is_durable:
            self._ask(os.fsync, failure)

    def cut(self, length: int) -> None:
        """Truncate the file to a state that ends at `length`, and flush.

        A process that has mapped the cut part is killed if it touches it; that part belonged to no
        state.

        Raises:
            SourceError: the system refused.
        """
        self.shorten(length)
        self.flush("the file is shortened, but whether that reached the disk is unknown")

    def finish(self) -> None:
        """Close the file in its new state.

        Raises:
            SourceError: closing failed, as on a network file system that could not write back.
        """
        self._close("the change is in the file, but closing it failed")


class Commit(Gatherer):
    """A write buffer for new bytes behind a finished file.

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
        """Drop the buffer, and close the file, which has its old state."""
        self._gathered.clear()
        self._file.close()


class CommitBehind(Commit):
    """The guard is manifest and footer; the new manifest and footer follow the last guard.

    1. Before new bytes are written up to an end E, the guard is written at E. A process that opens
       the file sees the old state while the new bytes fill the gap before the guard.
    2. The file is flushed to disk.
    3. Manifest and footer of the new state are written behind the last guard in one call.
    4. The file is flushed again.

    If the change is given up, the written bytes stay: another process may have mapped them, with
    the manifest in them. One more guard then makes the file longer, so that a reader that opened it
    while the gap was filled sees a file that grew, not one that was changed. A process killed
    before 3 leaves the old state; inside 3, a torn end that `repair` cuts off; after 3, the new
    state. Without the flush in 2 a power cut could leave the new manifest over blobs that never
    reached the disk.
    """

    _guarded = 0  # the end of the last guard

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        self._file.put(self._guard, self.position)
        self._guarded = self.position + len(self._guard)
        super()._store(gathered, data, start)

    def end_blobs(self) -> int:
        """Flush all blobs to disk, and return the offset of the manifest."""
        self._flush()
        # Also if no blob is new: an earlier commit may be without a flush. A failed
        # flush is final: the state on disk is then unknown, and a second try would report success
        # all the same (see PostgreSQL's "fsyncgate").
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
        """Drop the buffer, and close the file, which has its old state."""
        with contextlib.suppress(SourceError, ClosedError):
            if self._file.status().st_size == self._guarded:  # else no guard is at the end
                self._file.put(self._guard, self._guarded)
        super().abort()


class CommitOver(Commit):
    """The guard is a copy of the old footer; the new footer replaces it.

    1. A copy of the old footer is written so far behind the old end that the new state fits before
       it: one write, in one sector, behind a hole. The file has its new length and its old end.
    2. The file is flushed. Else a power cut could leave a file that ends among new blobs.
    3. New blobs and the new manifest fill the hole, and are flushed.
    4. The new footer is written over the copy, in one write, and flushed.

    A process killed at any moment leaves the old state or the new one. So does a power cut, if the
    file system makes a file longer only once the bytes are on disk (ext4 by default, XFS, Btrfs).
    If the length of the new bytes is unknown, the room grows by steps 1 and 2, and unused room is
    cut off at the end, behind one more copy.
    """

    def __init__(self, file: LockedFile, guard: bytes) -> None:
        super().__init__(file, guard)
        self._room = file.size  # the length of the file, which ends with a copy of the old footer
        self._is_final = False  # the new footer may be there

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        needed = self.position + len(self._guard)
        if needed > self._room:
            self._make_room(needed + min(needed - self._file.size, _AHEAD_BYTES))
        super()._store(gathered, data, start)

    def _make_room(self, nbytes: int) -> None:
        """Extend the file; the guard before is overwritten once the new one is on disk."""
        end = self._end(nbytes)
        self._file.put(self._guard, end - len(self._guard))
        self._file.flush(_OLD)
        self._room = end

    def _end(self, least: int) -> int:
        """Return the least end from `least` on with the footer in one sector."""
        into = (least - len(self._guard)) % _SECTOR_BYTES
        return least if into + len(self._guard) <= _SECTOR_BYTES else least + _SECTOR_BYTES - into

    def commit(self, manifest: bytes = b"") -> None:
        """Write the buffer with the manifest, then the footer over the guard."""
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
        """Drop the buffer, and give its room back."""
        if not self._is_final and self._room > self._file.size:
            self._file.take_back()
        super().abort()


def _open_to_write(path: str, flags: int, *, lock: bool, timeout: float) -> Descriptor:
    """Open and lock a file; open it again if it is replaced during the wait for the lock."""
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
