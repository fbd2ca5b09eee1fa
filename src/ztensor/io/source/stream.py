"""The write buffer of sinks, and the sink over a file object of the caller."""

from __future__ import annotations

import abc
import io
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import ArgumentTypeError, SourceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Linux caches a write in pages of its length if it can, and long pages are allocated faster:
# saves of 262 MB, in turn with other libraries, took 61 to 267 ms by 512 KiB and 40 to 60 by 4 MiB
# (medians, ext4, Linux 6.18 in a virtual machine). So no write crosses a multiple of this.
WRITE_BYTES = 1 << 22


class Gatherer(abc.ABC):
    """A write buffer: joins small writes, passes large ones on without a copy, and counts.

    Args:
        position: the offset of the first byte.

    Attributes:
        position: the offset of the next byte.
        small_bytes: writes up to this length are buffered: a system call costs more than the copy.
        most_bytes: the buffer is flushed at this length.
    """

    small_bytes = 1 << 15
    most_bytes = 1 << 20

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self._gathered = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            SourceError: a write failed.
        """
        count = data.nbytes if isinstance(data, memoryview) else len(data)
        if count > self.small_bytes:
            self._flush(data, count)
            return
        self._gathered += data
        self.position += count
        if len(self._gathered) >= self.most_bytes:
            self._flush()

    def end_blobs(self) -> int:
        """Return the position: the file is put in place atomically, so its parts need no order."""
        return self.position

    def _flush(self, data: bytes | bytearray | memoryview = b"", count: int = 0) -> None:
        """Store the buffer, and `count` bytes that follow it."""
        gathered, self._gathered = self._gathered, bytearray()
        start = self.position - len(gathered)
        self.position += count
        if start < self.position:
            self._store(gathered, memoryview(data), start)

    @abc.abstractmethod
    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        """Write the buffer at an offset, then the data that follows it."""


class WritableFile(Protocol):
    """The method that is used of an open binary file object."""

    def write(self, data: Buffer, /) -> int | None:
        """Write bytes; return their count, or None if all (of a raw file: none) were written."""
        ...


class StreamSink(Gatherer):
    """An open binary file object, which need not be seekable.

    The caller keeps the object: it is flushed at the end if it can be, and not closed. Bytes that
    were written before an `abort` stay there, without a footer: no reader accepts them as a file.

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

    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        for whole in (memoryview(gathered), data):
            done = 0
            while done < whole.nbytes:
                done += self._write_some(whole[done : done + WRITE_BYTES])

    def _write_some(self, data: memoryview) -> int:
        try:
            count = self._file.write(data)
        except TypeError as error:
            raise ArgumentTypeError(
                "the file object does not take bytes; open it in binary mode",
                found=str(error),
                file=self.name,
            ) from error
        except OSError as error:
            raise SourceError.from_os(error, "cannot write", self.name) from error
        except ValueError as error:
            raise SourceError(f"cannot write: {error}", file=self.name) from error
        if count is None and not isinstance(self._file, io.RawIOBase):
            return data.nbytes
        if count is None or not 0 < count <= data.nbytes:  # None: a raw file is not ready
            raise SourceError(
                "the file object took no bytes", file=self.name, found=f"write() -> {count!r}"
            )
        return count

    def commit(self, manifest: bytes = b"") -> None:
        """Write the buffer and the manifest, and flush the file object if it can be flushed."""
        self.write(manifest)
        self._flush()
        flush = getattr(self._file, "flush", None)
        if callable(flush):
            try:
                flush()
            except (OSError, ValueError) as error:
                raise SourceError(f"cannot flush: {error}", file=self.name) from error

    def abort(self) -> None:
        """Drop the buffer."""
        self._gathered.clear()
