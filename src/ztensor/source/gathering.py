"""How bytes go out: small pieces gathered, long ones by writes of a length that systems like."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

# Writes up to this size are gathered, since a system call costs more than the copy.
_GATHER_BYTES = 1 << 15
_BUFFER_BYTES = 1 << 20
# No write goes over a multiple of this in the file. Linux keeps a write in pages of its length
# where it can. New memory for them comes fast in long pages and slowly in short ones:
# saves of 262 MB, in turn with other libraries, took 61 to 267 ms by 512 KiB and 40 to 60 by 4 MiB
# (medians, ext4, Linux 6.18 in a virtual machine).
WRITE_BYTES = 1 << 22
# Linux takes at most 1024 buffers in one call.
MOST_PIECES = 1024


class Gatherer(abc.ABC):
    """Joins small writes, hands large ones on without a copy, and counts."""

    def __init__(self) -> None:
        self.position = 0
        self._buffer = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            SourceError: they could not be stored.
        """
        count = data.nbytes if isinstance(data, memoryview) else len(data)
        if count <= _GATHER_BYTES:
            self._buffer += data
            if len(self._buffer) >= _BUFFER_BYTES:
                self._flush()
        else:
            self._flush()
            self._write_through(memoryview(data), self.position)
        self.position += count

    def write_all(self, pieces: Sequence[Buffer], nbytes: int) -> None:
        """Append up to `MOST_PIECES` C-contiguous buffers, together less than 1 GiB.

        Args:
            pieces: the buffers; they may change once this returns.
            nbytes: how long they are together.

        Raises:
            SourceError: the bytes could not be stored.
        """
        self._flush()
        self._write_pieces(pieces, nbytes)
        self.position += nbytes

    def _write_pieces(self, pieces: Sequence[Buffer], nbytes: int) -> None:
        self._write_through(memoryview(b"".join(pieces)), self.position)

    def barrier(self) -> int:
        """Return the position: the file appears as a whole, so its parts need no order."""
        return self.position

    def _flush(self) -> None:
        if self._buffer:
            gathered, self._buffer = self._buffer, bytearray()
            self._write_through(memoryview(gathered), self.position - len(gathered))

    def _write_through(self, data: memoryview, at: int) -> None:
        while data.nbytes:
            count = self._write_some(data[: WRITE_BYTES - at % WRITE_BYTES])
            data = data[count:]
            at += count

    @abc.abstractmethod
    def _write_some(self, data: memoryview) -> int:
        """Write what the system takes in one call, and return how much that was."""
