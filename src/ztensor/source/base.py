"""The contract between a source of bytes and the reader."""

from __future__ import annotations

import dataclasses
import mmap
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import Reason, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Who streams through a map has about this much of it in memory, not all he has passed.
_KEPT_BYTES = 32 << 20


class Source(Protocol):
    """Random access to the bytes of one file; safe to use from several threads.

    Attributes:
        name: path or a description, for messages.
        path: the file's path, or None where there is none.
        size: length in bytes when it was opened.
    """

    @property
    def name(self) -> str:
        """Return the path or a description, for messages."""
        ...

    @property
    def path(self) -> str | None:
        """Return the path another process could open, or None."""
        ...

    @property
    def size(self) -> int:
        """Return the length in bytes when the source was opened."""
        ...

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` (flat, writable bytes) with the bytes from `offset`.

        Raises:
            SourceError: the bytes could not be read, or the file is shorter than it was.
        """
        ...

    def view(self) -> memoryview | None:
        """Return the whole file as one view without a copy, or None where that is impossible.

        The memory stays valid as long as the view or an array over it lives, whatever happens to
        the source. Writing into it, where it allows that, never reaches the file.
        """
        ...

    def stored(self) -> memoryview | None:
        """Return the whole file as `view` does, but read-only and as it is stored.

        What was written into a view does not show here, so this is what checks look at.
        """
        ...

    def require_unchanged(self) -> None:
        """Raise where the file is no longer what was opened.

        Raises:
            SourceError: the file is shorter than it was, or was written to in place.
        """
        ...

    def close(self) -> None:
        """Give back handles; views handed out stay valid. May be called again."""
        ...


def read_bytes(source: Source, offset: int, length: int) -> bytes | bytearray:
    """Return `length` bytes from `offset` as a new buffer."""
    buffer = bytearray(length)
    source.read_into(offset, memoryview(buffer))
    return buffer


def shrunk(name: str, offset: int, length: int, got: int) -> SourceError:
    """Return the error for bytes that were there at open and are not now."""
    return SourceError(
        "the file is shorter than when it was opened; another process cut or replaced it",
        reason=Reason.SOURCE_CHANGED,
        file=name,
        expected=f"{length} bytes at offset {offset}",
        found=f"{got}",
    )


def _let_go(whole: memoryview, start: int, stop: int) -> None:
    """Take pages of a map out of the process's memory; whoever looks again finds them unchanged.

    They stay in the system's cache. Only for maps that cannot be written to.
    """
    if isinstance(whole.obj, mmap.mmap) and whole.readonly and hasattr(mmap, "MADV_DONTNEED"):
        start = max(start, 0) // mmap.PAGESIZE * mmap.PAGESIZE
        whole.obj.madvise(mmap.MADV_DONTNEED, start, min(stop, len(whole)) - start)


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """One component's stored bytes, read from a source piece by piece.

    Attributes:
        source: where the bytes are.
        offset: first byte in the source.
        length: how many bytes.
    """

    source: Source
    offset: int
    length: int

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset` within the range; a view where that is possible."""
        whole = self.source.stored()
        start = self.offset + offset
        if whole is not None:
            if start // _KEPT_BYTES != (start + length) // _KEPT_BYTES:
                _let_go(whole, start - 2 * _KEPT_BYTES, start + length)
            return whole[start : start + length]
        return memoryview(read_bytes(self.source, start, length))

    def pieces(self, size: int, *, first: int | None = None) -> Iterator[memoryview]:
        """Yield all bytes in order, at most `size` at a time, `first` the first time."""
        offset, count = 0, size if first is None else first
        while offset < self.length:
            piece = self.read(offset, min(count, self.length - offset))
            offset += piece.nbytes
            yield piece
            count = size
