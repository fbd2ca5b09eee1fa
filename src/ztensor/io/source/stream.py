"""How bytes go out: gathered, in order; and the file object of a caller that they go to."""

from __future__ import annotations

import abc
import io
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import ArgumentTypeError, SourceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

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


class WritableFile(Protocol):
    """What is used of an open binary file object."""

    def write(self, data: Buffer, /) -> int | None:
        """Take bytes; the count taken, or None for all of them (of a raw file: for none)."""
        ...


class StreamSink(Gatherer):
    """An open binary file object, which need not be seekable.

    The object stays the caller's: it is flushed at the end where it can be, and not closed. What
    was written before an `abort` stays there, without a footer: no reader takes it for a file.

    Raises:
        ArgumentTypeError: the object has no `write`.
    """

    def __init__(self, file: WritableFile) -> None:
        super().__init__()
        if not callable(getattr(file, "write", None)):
            raise ArgumentTypeError(
                "cannot write to this object",
                expected="a path, or a file object opened in binary mode",
                found=type(file).__name__,
            )
        self._file = file
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(file).__name__}>"

    def _write_some(self, data: memoryview) -> int:
        try:
            count = self._file.write(data)
        except TypeError as error:
            raise ArgumentTypeError(
                "the file object does not take bytes; open it in binary mode",
                found=str(error),
                file=self.name,
            ) from error
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                raise SourceError.from_os(error, "cannot write", self.name) from error
            raise SourceError(f"cannot write: {error}", file=self.name) from error
        if count is None and not isinstance(self._file, io.RawIOBase):
            return data.nbytes
        if count is None or not 0 < count <= data.nbytes:  # None: a raw file would have to wait
            raise SourceError(
                "the file object took no bytes", file=self.name, found=f"write() -> {count!r}"
            )
        return count

    def commit(self) -> None:
        """Hand on what is gathered, and flush the file object where it can be."""
        self._flush()
        flush = getattr(self._file, "flush", None)
        if callable(flush):
            try:
                flush()
            except (OSError, ValueError) as error:
                raise SourceError(f"cannot flush: {error}", file=self.name) from error

    def abort(self) -> None:
        """Drop what is gathered."""
        self._pieces.clear()
        self._gathered = 0
