"""The contracts of sources and sinks of bytes."""

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


PART_BYTES = 8 << 20  # most bytes of one request
# Length of a read if all bytes are processed once: they are still in the processor's cache then.
PIECE_BYTES = 1 << 20
# Most bytes that a range keeps of its last read.
_KEPT_BYTES = 8 << 20
# Length of a read if all bytes are processed, and requests are slow.
_LONG_BYTES = 16 << 20
# A read up to this length is of a header; it does not replace the kept bytes.
_LOOK_BYTES = 4 << 10
_NOTHING = memoryview(b"")
# Most memory that waits for its bytes before they are read.
_MOST_BYTES = 64 << 20


class Source(abc.ABC):
    """Random access to the bytes of one file; safe to use from several threads.

    A source that is neither mapped nor in memory implements `read_into` only.

    Attributes:
        name: path or a description, for messages.
        path: the path by which another process could open the file, or None.
        size: length in bytes when it was opened.
        remote: the URL that opens it in another process, with its store; None if it has none.
        prefers_long_reads: whether a read is so slow that it should include the bytes between.
        is_held: whether `view` is memory of this process. A map is not: a process that touches a
            map behind the end of a file that was cut is killed. So bytes that are checked, decoded
            or copied are read, and only views for the caller are maps.
        files: the chosen files of a folder that is read as one (it has no bytes itself); None if
            this is a file.
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
        """Fill several buffers, each with the bytes from its offset.

        Args:
            pieces: pairs of an offset and the buffer for the bytes from there.

        Raises:
            SourceError: as `read_into`; some buffers may be filled.
        """
        for offset, destination in pieces:
            self.read_into(offset, destination)

    def shrunk(self, offset: int, length: int, got: int) -> SourceError:
        """Return the error for a file that is shorter than when it was opened."""
        return SourceError(
            "the file is shorter than when it was opened; another process cut or replaced it",
            reason=Reason.SOURCE_CHANGED,
            file=self.name,
            expected=f"{length} bytes at offset {offset}",
            found=f"{got}",
        )

    def view(self) -> memoryview | None:
        """Return the whole file as one view without a copy, or None if that is impossible.

        The memory stays valid as long as the view or an array over it exists, even if the source
        is closed. Writes into it (if it is writable) never reach the file.
        """
        return None

    def require_unchanged(self, *, ask: bool = False) -> None:  # noqa: B027  # most cannot change
        """Raise if the file changed since it was opened.

        Args:
            ask: whether to make a request for that.

        Raises:
            SourceError: the file is gone, shorter than it was, or was written to in place.
        """

    @property
    def parts(self) -> Sequence[tuple[int, Source]]:
        """Return the sources that the bytes come from, each with its offset in this one."""
        return ((0, self),)

    def rights(self) -> Rights | None:
        """Return the owner and the permissions of the file; None if it is not on a disk.

        Raises:
            ClosedError: it is closed.
            SourceError: the system call failed.
        """
        if self.path is None or self.files is not None:
            return None
        from ztensor.io.source.rights import Rights  # not for a file that is only read

        with system_call("cannot look at the file", self.name):
            return Rights.of(self.path)

    def identity(self) -> tuple[object, ...] | None:
        """Return a key that differs if another file takes this one's place; None if unknown."""
        return None

    def close(self) -> None:  # noqa: B027  # most sources are the caller's
        """Close handles; views that were returned stay valid. May be called again."""


@runtime_checkable
class Sink(Protocol):
    """A destination of bytes, written in order.

    Attributes:
        name: path or a description, for messages.
    """

    name: str

    @property
    def position(self) -> int:
        """Return how many bytes were written so far."""
        ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data` (flat bytes); the caller may change it afterwards.

        Raises:
            SourceError: the bytes could not be stored.
        """
        ...

    def end_blobs(self) -> int:
        """Return the offset of the manifest, which follows; no more blobs do.

        Raises:
            SourceError: the blobs could not be stored.
        """
        ...

    def commit(self, manifest: bytes = b"") -> None:
        """Write the manifest, if any, and put the new content in place atomically.

        Raises:
            SourceError: that failed; the old content is still there, unless the message says that
                only the flush failed.
        """
        ...

    def abort(self) -> None:
        """Drop the written bytes; without effect after `commit` or a second time."""
        ...


class Opening(os.PathLike[str]):
    """A path that opens itself."""

    __slots__ = ()

    @abc.abstractmethod
    def open(self, *, mapped: bool = True) -> Source:
        """Open it; `mapped` as for a file on disk."""


class Range:
    """One component's stored bytes, read from a source in pieces.

    The last read is kept, since a header is read before the bytes that it describes. Threads may
    share a range.

    Attributes:
        source: the source that has the bytes.
        offset: first byte in the source.
        length: in bytes.
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
        """Start with the bytes from `start` on already read, as `kept`."""
        self.source = source
        self.offset = offset
        self.length = length
        self._kept = start, kept

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset` within the range, read-only; they never change.

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
        """Read a short range now, so that the checked bytes are the decoded ones.

        Raises:
            SourceError: as `read`.
        """
        if self.length <= _KEPT_BYTES and not self.source.is_held:
            self._kept = 0, self._new(0, self.length)

    def pieces(self, size: int = PIECE_BYTES) -> Iterator[memoryview]:
        """Yield all bytes in order, `size` at a time; the last piece may be shorter.

        A piece is valid until the next one is taken.

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
    """Collects reads of one source, and makes many of them by one request.

    Of a source with fast requests each read is made at once.

    Args:
        source: the source to read.

    Attributes:
        about: returns the context in which deferred work runs.
    """

    def __init__(self, source: Source) -> None:
        self.about: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
        self._source = source
        self._parts: list[tuple[int, memoryview]] = []
        self._later: list[tuple[Callable[[], Any], Callable[[], None]]] = []
        self._nbytes = 0

    def add(self, offset: int, target: memoryview) -> None:
        """Request the bytes from `offset` for `target`, filled before later work runs.

        Raises:
            SourceError: an earlier request failed.
        """
        if not self._source.prefers_long_reads:
            self._source.read_into(offset, target)
            return
        if self._nbytes + target.nbytes > _MOST_BYTES:
            self.end()
        self._parts.append((offset, target))
        self._nbytes += target.nbytes

    def later(self, work: Callable[[], None]) -> None:
        """Run `work` once the bytes requested so far are read."""
        if self._parts:
            self._later.append((self.about, work))
        else:
            work()

    def end(self) -> None:
        """Make the requested reads, then run the deferred work.

        Raises:
            SourceError: a read failed.
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
