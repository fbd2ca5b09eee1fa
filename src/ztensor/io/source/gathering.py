"""How bytes go out: small pieces gathered, long ones by writes of a length that systems like."""

from __future__ import annotations

import abc

# Writes up to this size are gathered, since a system call costs more than the copy.
_GATHER_BYTES = 1 << 15
_BUFFER_BYTES = 1 << 20
# No write goes over a multiple of this in the file. Linux keeps a write in pages of its length
# where it can. New memory for them comes fast in long pages and slowly in short ones:
# saves of 262 MB, in turn with other libraries, took 61 to 267 ms by 512 KiB and 40 to 60 by 4 MiB
# (medians, ext4, Linux 6.18 in a virtual machine).
WRITE_BYTES = 1 << 22
# Linux takes at most 1024 buffers in one call. More of them are short: joining takes less time.
MOST_PIECES = 1024


class Gatherer(abc.ABC):
    """Joins small writes, hands large ones on without a copy, and counts."""

    def __init__(self) -> None:
        self.position = 0
        self._pieces: list[bytes] = []
        self._gathered = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            SourceError: they could not be stored.
        """
        count = data.nbytes if isinstance(data, memoryview) else len(data)
        if count > _GATHER_BYTES:
            self._flush()
            self._write_through(memoryview(data), self.position)
            self.position += count
            return
        self._pieces.append(bytes(data))
        self._gathered += count
        self.position += count
        if self._gathered >= _BUFFER_BYTES:
            self._flush()

    def barrier(self) -> int:
        """Return the position: the file appears as a whole, so its parts need no order."""
        return self.position

    def _flush(self) -> None:
        pieces, nbytes = self._pieces, self._gathered
        self._pieces, self._gathered = [], 0
        if nbytes:
            self._write_pieces(pieces, self.position - nbytes, nbytes)

    def _write_pieces(self, pieces: list[bytes], at: int, nbytes: int) -> None:
        self._write_through(memoryview(b"".join(pieces)), at)

    def _write_through(self, data: memoryview, at: int) -> None:
        while data.nbytes:
            count = self._write_some(data[: WRITE_BYTES - at % WRITE_BYTES])
            data = data[count:]
            at += count

    @abc.abstractmethod
    def _write_some(self, data: memoryview) -> int:
        """Write what the system takes in one call, and return how much that was."""
