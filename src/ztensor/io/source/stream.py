"""How bytes go out: gathered, in order; and the file object of a caller that they go to."""

from __future__ import annotations

import abc
import io
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import ArgumentTypeError, SourceError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Linux keeps a write in pages of its length where it can, and new memory for them comes fast in
# long pages: saves of 262 MB, in turn with other libraries, took 61 to 267 ms by 512 KiB and 40 to
# 60 by 4 MiB (medians, ext4, Linux 6.18 in a virtual machine). So no write goes over a multiple.
WRITE_BYTES = 1 << 22


class Gatherer(abc.ABC):
    """Joins small writes, hands large ones on without a copy, and counts.

    Args:
        position: where the first byte will lie.

    Attributes:
        position: the offset at which the next byte will lie.
        small_bytes: up to this length writes are gathered: a system call costs more than the copy.
        most_bytes: so many are gathered.
    """

    small_bytes = 1 << 15
    most_bytes = 1 << 20

    def __init__(self, position: int = 0) -> None:
        self.position = position
        self._gathered = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes.

        Raises:
            SourceError: they could not be stored.
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
        """Return the position: the file appears as a whole, so its parts need no order."""
        return self.position

    def _flush(self, data: bytes | bytearray | memoryview = b"", count: int = 0) -> None:
        """Store what is gathered, and `count` bytes that follow it."""
        gathered, self._gathered = self._gathered, bytearray()
        start = self.position - len(gathered)
        self.position += count
        if start < self.position:
            self._store(gathered, memoryview(data), start)

    @abc.abstractmethod
    def _store(self, gathered: bytearray, data: memoryview, start: int) -> None:
        """Write what was gathered from an offset on, and then what follows it."""


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
        if count is None or not 0 < count <= data.nbytes:  # None: a raw file would have to wait
            raise SourceError(
                "the file object took no bytes", file=self.name, found=f"write() -> {count!r}"
            )
        return count

    def commit(self, manifest: bytes = b"") -> None:
        """Hand on what is gathered and the manifest, and flush the file object where it can be."""
        self.write(manifest)
        self._flush()
        flush = getattr(self._file, "flush", None)
        if callable(flush):
            try:
                flush()
            except (OSError, ValueError) as error:
                raise SourceError(f"cannot flush: {error}", file=self.name) from error

    def abort(self) -> None:
        """Drop what is gathered."""
        self._gathered.clear()
