"""The two orders of writes that keep a file's old state readable while a new one is put behind it.

The old file ends at S, and nothing below S is ever written. Readers look at the end of the file to
find the manifest. So before new bytes are written, what the end has to be, the *guard*, is written
where they will end. `CommitBehind` is for formats whose manifest lies at the end, `CommitOver` for
those whose last bytes say where it lies: there the last write replaces them, and no moment is left
at which the end is none.
"""

from __future__ import annotations

import abc
import contextlib
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import SourceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

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


class FileEnd(Protocol):
    """What can be done to a finished file: see `ztensor.io.source.appending.AppendSink`."""

    size: int

    def put(
        self, data: Buffer, offset: int, *, tears: bool = True, back_to: int | None = None
    ) -> None:
        """Write bytes at an offset behind the old end."""
        ...

    def take_back(self, length: int) -> bool:
        """Cut the file to a length it had, and return whether that worked."""
        ...

    def require_length(self, length: int) -> None:
        """Raise where the file is longer."""
        ...

    def flush(self, failure: str) -> None:
        """Put what was written on disk."""
        ...

    def shorten(self, length: int) -> None:
        """Cut the file to a length, without a flush."""
        ...


class Guarded(abc.ABC):
    """New bytes behind a finished file, gathered to pieces.

    Args:
        file: the file, and what can be done to it.
        guard: the bytes that keep the old state readable.
    """

    def __init__(self, file: FileEnd, guard: bytes) -> None:
        self._file = file
        self._guard = guard
        self._written_to = file.size  # up to here new bytes are in place
        self._pending = bytearray()
        self._is_sealed = False
        self._commit = bytearray()

    @property
    @abc.abstractmethod
    def position(self) -> int:
        """Return the offset at which the next byte will lie; behind `commit` the length."""

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
            self._store_pending()
        while view.nbytes >= piece:
            self._store(view[:piece])
            view = view[piece:]
        self._pending += view

    def _store_pending(self) -> None:
        if self._pending:
            self._store(memoryview(self._pending))
            self._pending = bytearray()

    @abc.abstractmethod
    def _store(self, data: memoryview) -> None:
        """Write bytes behind those that are there."""

    @abc.abstractmethod
    def barrier(self) -> int:
        """End the blobs, and return the offset at which the commit will lie."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Make the new state that of the file, and flush."""

    def forget(self) -> None:
        """Drop what is gathered; the file holds its old state."""
        # New ones, not emptied ones: a failed write's traceback may still hold a view of them.
        self._pending = bytearray()
        self._commit = bytearray()


class CommitBehind(Guarded):
    """The guard is manifest and footer; those of the new state are written behind the last one.

    1. Before new bytes are written up to an end E, the guard is written at E. Whoever opens the
       file sees the old state while the new bytes fill the gap before it.
    2. All is flushed to disk.
    3. Manifest and footer of the new state are written behind the last guard in one call.
    4. That is flushed.

    What was written stays where the change is given up: another process may have it mapped, with
    the manifest in it. A process killed before 3 leaves the old state; inside 3, a torn end that
    `repair` cuts off; after it, the new state. Without the flush in 2 a power cut could leave the
    new manifest over blobs that never reached the disk.
    """

    _is_guarded = False

    @property
    def position(self) -> int:
        """Return the offset at which the next byte will lie."""
        if self._is_sealed:
            return self._end_of_guard() + len(self._commit)
        return self._written_to + len(self._pending)

    def _end_of_guard(self) -> int:
        return self._written_to + (len(self._guard) if self._is_guarded else 0)

    def _store(self, data: memoryview) -> None:
        end = self._written_to + data.nbytes
        self._file.put(self._guard, end)
        self._is_guarded = True
        self._file.put(data, self._written_to)
        self._written_to = end

    def barrier(self) -> int:
        """Put every blob on disk before what follows, and return where the manifest will lie."""
        self._store_pending()
        # Also where no blob is new: those of an earlier commit may have been left to the system.
        # A failed flush is final: what is on disk is then unknown, and a second try would report
        # success without knowing (as PostgreSQL learnt).
        self._file.flush(_OLD)
        self._is_sealed = True
        return self._end_of_guard()

    def commit(self) -> None:
        """Write manifest and footer in one call, and flush."""
        self._file.put(self._commit, self._end_of_guard())
        self._file.flush(_NEW)


class CommitOver(Guarded):
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

    def __init__(self, file: FileEnd, guard: bytes) -> None:
        super().__init__(file, guard)
        self._room = file.size  # the length of the file, which ends with the guard or the old one
        self._is_final = False  # the new footer may be there

    @property
    def position(self) -> int:
        """Return the offset at which the next byte will lie; behind `commit` the length."""
        return self._written_to + len(self._pending) + len(self._commit)

    def _store(self, data: memoryview) -> None:
        needed = self._written_to + data.nbytes + len(self._guard)
        if needed > self._room:
            self._make_room(needed, min(needed - self._file.size, _AHEAD_BYTES))
        self._file.put(data, self._written_to, tears=False)
        self._written_to += data.nbytes

    def _make_room(self, needed: int, ahead: int) -> None:
        """Make the file long enough for `needed` bytes, and up to `ahead` longer where it may be.

        The old guard is written over only when the new one is on disk.
        """
        least, longest = self._end(needed), self._end(needed + ahead)
        end = least
        if longest > least:
            with contextlib.suppress(SourceError):  # no file may become so long
                self._file.put(self._guard, longest - len(self._guard), back_to=self._room)
                end = longest
        if end == least:
            self._file.require_length(self._room)
            self._file.put(self._guard, least - len(self._guard))
        self._file.flush(_OLD)
        self._room = end

    def _end(self, least: int) -> int:
        """Return the least end at which the footer lies in one sector."""
        into = (least - len(self._guard)) % _SECTOR_BYTES
        return least if into + len(self._guard) <= _SECTOR_BYTES else least + _SECTOR_BYTES - into

    def barrier(self) -> int:
        """Return where the commit will lie; the new state is stored as a whole once it is known."""
        self._is_sealed = True
        return self.position

    def commit(self) -> None:
        """Store what is left with the manifest, then write the footer over the guard."""
        size = len(self._guard)
        footer = bytes(self._commit[-size:])
        del self._commit[-size:]
        rest = self._pending + self._commit
        end = self._end(self._written_to + len(rest) + size)
        if end <= self._room < end + _SECTOR_BYTES:
            end = self._room
        elif self._room < end:
            self._make_room(end, 0)
        self._pending, self._commit = bytearray(), bytearray()
        self._file.put(rest, self._written_to, tears=False)
        if end < self._room:
            self._file.put(self._guard, end - size, tears=False)
        self._file.flush(_OLD)
        if end < self._room:
            self._file.shorten(end)
            self._room = end
        self._is_final = True
        self._file.put(footer, end - size)
        self._written_to = end
        self._file.flush(_NEW)

    def forget(self) -> None:
        """Drop what is gathered, and give its room back."""
        super().forget()
        if not self._is_final and self._room > self._file.size:
            self._file.take_back(self._file.size)


__all__ = ["CommitBehind", "CommitOver", "Guarded"]
