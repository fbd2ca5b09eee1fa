"""Sources over bytes in memory, and over open file objects."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

from ztensor.errors import ArgumentTypeError, Reason, SourceError
from ztensor.io.source.base import Source
from ztensor.locks import Lock

if TYPE_CHECKING:
    from typing_extensions import Buffer


class MemorySource(Source):
    """A file held in a bytes-like object; views of it are read-only.

    Args:
        data: any object with a contiguous buffer; it must not be resized while in use.
        name: for messages.
    """

    is_held = True

    def __init__(self, data: Buffer, *, name: str = "<bytes>") -> None:
        self._data = data
        # Read-only, since a view must never reach the caller's own buffer.
        self._view = memoryview(data).cast("B").toreadonly()
        self.name = name
        self.size = self._view.nbytes

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Copy bytes from `offset` into `destination`."""
        got = self._view[offset : offset + destination.nbytes]
        if got.nbytes != destination.nbytes:
            raise self.shrunk(offset, destination.nbytes, got.nbytes)
        destination[:] = got

    def view(self) -> memoryview | None:
        """Return the whole buffer, read-only."""
        return self._view


class FileObjectSource(Source):
    """A seekable binary file object, read from its first byte under a lock; never mapped.

    The object stays the caller's: it is not closed, and its position moves.

    Raises:
        ArgumentTypeError: the object is not readable, not seekable or not binary.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lock = Lock()
        name = getattr(file, "name", None)
        self.name = name if isinstance(name, str) else f"<{type(file).__name__}>"
        hint = "a seekable file object opened in binary mode; else read it and pass the bytes"
        try:
            file.seek(0, os.SEEK_END)
            size = file.tell()  # not every seek() returns it
            file.seek(0)
            memoryview(file.read(0))  # of text, or None, it raises
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ArgumentTypeError(
                "cannot read from the file object", expected=hint, found=str(error), file=self.name
            ) from error
        self.size = size

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Seek and read under the lock."""
        done, wanted = 0, destination.nbytes
        try:
            with self._lock:
                self._file.seek(offset)
                while done < wanted and (piece := self._file.read(wanted - done)):
                    taken = memoryview(piece).cast("B")
                    destination[done : done + taken.nbytes] = taken
                    done += taken.nbytes
        except (OSError, ValueError, TypeError) as error:  # closed by its owner, or no bytes
            raise SourceError(
                f"cannot read from the file object: {error}",
                reason=Reason.SOURCE_FAILED,
                file=self.name,
            ) from error
        if done < wanted:
            raise self.shrunk(offset, wanted, done)
