"""An open file object that bytes go to."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Protocol

from ztensor.errors import ArgumentTypeError, SourceError
from ztensor.io.source.gathering import Gatherer

if TYPE_CHECKING:
    from typing_extensions import Buffer


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
