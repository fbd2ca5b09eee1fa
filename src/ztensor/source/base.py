"""The contract between a source of bytes and the reader."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import Reason, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
            return whole[start : start + length]
        return memoryview(read_bytes(self.source, start, length))

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield all bytes in order, at most `size` at a time."""
        for offset in range(0, self.length, size):
            yield self.read(offset, min(size, self.length - offset))
