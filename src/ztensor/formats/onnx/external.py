"""External data: the elements of a tensor that are in another file, read when they are needed."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ztensor import Remote
from ztensor.errors import EncodingError, Reason, describe
from ztensor.ext import Beneath, Lock, Source, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator


class ExternalFile:
    """A file in the folder of a model, or in a subfolder.

    A local file is opened for each read, so no handle is held. A file behind a URL is opened once,
    since that takes requests.

    Args:
        model: the model's path, or its URL.
        location: the file's path relative to the model's folder.

    Raises:
        FormatError: the location is not a relative path that stays in the folder.
    """

    def __init__(self, model: str | Remote, location: str) -> None:
        self._model = model
        self._parts = Beneath.parts_of(location)
        self._lock = Lock()
        self._kept: Source | None = None

    @property
    def path(self) -> str | None:
        """Return the path; None behind a URL."""
        if isinstance(self._model, Remote):
            return None
        return os.path.join(os.path.dirname(self._model), *self._parts)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Source]:
        """Open the file for one read.

        Raises:
            SourceError: it cannot be opened.
            UnsupportedError: a link leads out of the folder.
            UsageError: the model's URL is signed, and opens nothing else.
        """
        if isinstance(self._model, Remote):
            with self._lock:
                if self._kept is None:
                    place = self._model.beside("/".join(self._parts))
                    self._kept = source_of(place, mapped=False)
            yield self._kept
        else:
            local = Beneath.beside(self._model, self._parts)
            with contextlib.closing(local.open(mapped=False)) as source:
                yield source


class ExternalData(Source):
    """The bytes of one tensor in an external file.

    Args:
        file: the file.
        offset: the first byte.
        size: the number of bytes.
    """

    def __init__(self, file: ExternalFile, offset: int, size: int) -> None:
        self._file = file
        self._offset = offset
        self.size = size
        self.path = file.path
        self.name = self.path or "external data"
        self.prefers_long_reads = self.path is None

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            EncodingError: the file is too short.
            SourceError: it could not be read.
        """
        with self._file.opened() as source:
            if self._offset + self.size > source.size:
                raise EncodingError(
                    "the file of external data is too short",
                    reason=Reason.OUT_OF_BOUNDS,
                    expected=f"{self.size} bytes at offset {self._offset}",
                    found=f"{source.size} bytes in {describe(source.name)}",
                )
            source.read_into(self._offset + offset, destination)

    def identity(self) -> tuple[object, ...]:
        """Return the identity of the file."""
        with self._file.opened() as source:
            return source.identity() or ()
