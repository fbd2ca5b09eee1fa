"""What a source of bytes has, and a sink: the contracts with reader and writer."""

from __future__ import annotations

import abc
import contextlib
import os
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ztensor.buffers import new_bytes
from ztensor.errors import Reason, SourceError, system_call
from ztensor.io.source.urls import Remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ztensor.io.source.rights import Rights


PART_BYTES = 8 << 20  # of one request at most
# One read where all bytes are looked at once: they stay in the processor's cache until then.
PIECE_BYTES = 1 << 20
# A range keeps no more of what it read last.
_KEPT_BYTES = 8 << 20
# One read of all bytes where requests are dear.
_LONG_BYTES = 16 << 20
# Up to here it is a look at headers, which does not take the place of what is kept.
_LOOK_BYTES = 4 << 10
_NOTHING = memoryview(b"")
# What is gathered before it is read; so much memory at most waits for bytes.
_MOST_BYTES = 64 << 20


class Source(abc.ABC):
    """Random access to the bytes of one file; safe to use from several threads.

    A source that is not mapped and not in memory has to say only how bytes are read.

    Attributes:
        name: path or a description, for messages.
        path: the path by which another process could open the file, or None.
        size: length in bytes when it was opened.
        remote: the URL that opens it in another process, with its store; None without one.
        prefers_long_reads: whether a read costs so much that bytes in between are better read, too.
        is_held: whether `view` is memory of this process. A map is not: touching it where another
            process has cut the file kills this one. So bytes that are checked, decoded or copied
            are read; only views that were asked for are maps.
        files: of a folder whose files are read as one, those that were chosen; it has no bytes.
            None for a file.
    """

    name: str
    path: str | None = None
    size: int
    remote: Remote | None = None
    prefers_long_reads: bool = False
    is_held: bool = False
    files: Sequence[str] | None = None

    @abc.abstractmethod
    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` (flat, writable bytes) with the bytes from `offset`.

        Raises:
            SourceError: the bytes could not be read, or the file is shorter than it was.
        """

    def read(self, offset: int, length: int) -> bytes | bytearray:
        """Return `length` bytes from `offset` as a new buffer.

        Raises:
            SourceError: as `read_into`.
        """
        buffer = bytearray(length)
        self.read_into(offset, memoryview(buffer))
        return buffer

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory, each with the bytes from its offset.

        Args:
            pieces: where each begins, and its memory.

        Raises:
            SourceError: as `read_into`; which pieces were filled by then is not said.
        """
        for offset, destination in pieces:
            self.read_into(offset, destination)

    def shrunk(self, offset: int, length: int, got: int) -> SourceError:
        """Return the error for bytes that were there when it was opened, and are not now."""
        return SourceError(
            "the file is shorter than when it was opened; another process cut or replaced it",
            reason=Reason.SOURCE_CHANGED,
            file=self.name,
            expected=f"{length} bytes at offset {offset}",
            found=f"{got}",
        )

    def view(self) -> memoryview | None:
        """Return the whole file as one view without a copy, or None where that is impossible.

        The memory stays valid as long as the view or an array over it lives, whatever happens to
        the source. Writing into it, where it allows that, never reaches the file.
        """
        return None

    def require_unchanged(self, *, ask: bool = False) -> None:  # noqa: B027  # most cannot change
        """Raise where the file is no longer what was opened.

        Args:
            ask: whether to find out also where that costs a request.

        Raises:
            SourceError: the file is gone, shorter than it was, or was written to in place.
        """

    @property
    def parts(self) -> Sequence[tuple[int, Source]]:
        """Return the sources that the bytes are from, each with where its own begin."""
        return ((0, self),)

    def rights(self) -> Rights | None:
        """Return the owner and the permissions of the file; None if it is not on a disk.

        Raises:
            ClosedError: it is closed.
            SourceError: the system says nothing.
        """
        if self.path is None or self.files is not None:
            return None
        from ztensor.io.source.rights import Rights  # not for a file that is only read

        with system_call("cannot look at the file", self.name):
            return Rights.of(self.path)

    def identity(self) -> tuple[object, ...] | None:
        """Return what tells the file from one that takes its place; None where only bytes do."""
        return None

    def close(self) -> None:  # noqa: B027  # most sources are the caller's
        """Give back handles; views handed out stay valid. May be called again."""


@runtime_checkable
class Sink(Protocol):
    """A place that takes bytes in order.

    Attributes:
        name: path or a description, for messages.
    """

    name: str

    @property
    def position(self) -> int:
        """Return how many bytes were written so far."""
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data` (flat bytes); it may change once this returns.

        Raises:
            SourceError: the bytes could not be stored.
        """
        ...

    def end_blobs(self) -> int:
        """Return the offset at which manifest and footer will lie; no blob follows.

        Raises:
            SourceError: the blobs could not be stored.
        """
        ...

    def commit(self, manifest: bytes = b"") -> None:
        """Write the manifest, if there is one, and make all the file's content, as a whole.

        Raises:
            SourceError: it could not be; what was there before still is, unless the message says
                that only the flush failed.
        """
        ...

    def abort(self) -> None:
        """Forget what was written; may be called again, and after `commit`, without effect."""
        ...


class Opening(os.PathLike[str]):
    """What is named by a path, and says itself how it is opened."""

    __slots__ = ()

    @abc.abstractmethod
    def open(self, *, mapped: bool = True) -> Source:
        """Open it; `mapped` as for a file on disk."""


class Range:
    """One component's stored bytes, read from a source piece by piece.

    What was read last is kept, as headers are looked at before what they are of. Threads may share
    a range.

    Attributes:
        source: where the bytes are.
        offset: first byte in the source.
        length: how many bytes.
    """

    __slots__ = ("_kept", "length", "offset", "source")

    def __init__(
        self,
        source: Source,
        offset: int,
        length: int,
        kept: memoryview = _NOTHING,
        start: int = 0,
    ) -> None:
        """Take what was read of it before as `kept`, its bytes from `start` on."""
        self.source = source
        self.offset = offset
        self.length = length
        self._kept = start, kept

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset` within the range, read-only; they stay as they are.

        A short read that begins where the last one ended reads ahead.

        Raises:
            SourceError: the bytes could not be read, or the file is shorter than it was.
        """
        whole = self.source.view() if self.source.is_held else None
        if whole is not None:
            return whole[self.offset + offset : self.offset + offset + length]
        start, kept = self._kept
        end = start + len(kept)
        if start <= offset and offset + length <= end:
            return kept[offset - start : offset - start + length]
        if length <= _LOOK_BYTES:
            return self._new(offset, length)
        count = length
        if kept and offset == end:
            count = max(length, min(PIECE_BYTES, self.length - offset))
        kept = self._new(offset, count)
        if count <= _KEPT_BYTES:
            self._kept = offset, kept
        return kept[:length]

    def _new(self, offset: int, length: int) -> memoryview:
        buffer = new_bytes(length)
        self.source.read_into(self.offset + offset, buffer)
        return buffer.toreadonly()

    def keep(self) -> None:
        """Read all at once where it is short, so that what is checked is what is decoded.

        Raises:
            SourceError: as `read`.
        """
        if self.length <= _KEPT_BYTES and not self.source.is_held:
            self._kept = 0, self._new(0, self.length)

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[memoryview]:
        """Yield all bytes in order, `size` at a time; the last piece may be shorter.

        A piece is valid until the next.

        Args:
            size: bytes of a piece.

        Raises:
            SourceError: as `read`.
        """
        start, kept = self._kept
        if self.source.is_held or (start == 0 and len(kept) >= self.length):
            for offset in range(0, self.length, size):
                yield self.read(offset, min(size, self.length - offset))
            return
        step = size
        if self.source.prefers_long_reads:
            step = max(1, _LONG_BYTES // size) * size
        memory = new_bytes(min(step, self.length))
        for offset in range(0, self.length, step):
            read = memory[: min(step, self.length - offset)]
            self.source.read_into(self.offset + offset, read)
            for start in range(0, len(read), size):
                yield read[start : start + size].toreadonly()


class AtOnce:
    """Gathers reads of one source, and makes them when they are many or when all are there.

    Where requests are not dear each is made when it is asked for.

    Args:
        source: what is read.

    Attributes:
        about: gives the context in which what is asked to be done later is done.
    """

    def __init__(self, source: Source) -> None:
        self.about: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._source = source
        self._parts: list[tuple[int, memoryview]] = []
        self._later: list[tuple[Callable[[], Any], Callable[[], None]]] = []
        self._nbytes = 0

    def add(self, offset: int, target: memoryview) -> None:
        """Ask for bytes: `target` is filled with those from `offset` before the next `later`.

        Raises:
            SourceError: what was asked for before could not be read.
        """
        if not self._source.prefers_long_reads:
            self._source.read_into(offset, target)
            return
        if self._nbytes + target.nbytes > _MOST_BYTES:
            self.end()
        self._parts.append((offset, target))
        self._nbytes += target.nbytes

    def later(self, work: Callable[[], None]) -> None:
        """Do something once what was asked for so far is there."""
        if self._parts:
            self._later.append((self.about, work))
        else:
            work()

    def end(self) -> None:
        """Read what was asked for, and do what waits for it.

        Raises:
            SourceError: it could not be read.
        """
        parts, later = self._parts, self._later
        self._parts, self._later, self._nbytes = [], [], 0
        if len(parts) == 1:
            self._source.read_into(*parts[0])  # neighbours are kept for the next read
        elif parts:
            self._source.read_many(parts)
        for about, work in later:
            with about():
                work()
