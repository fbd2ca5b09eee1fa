"""`open`: a delta of any dialect; the bytes decide which."""

from __future__ import annotations

from ztensor.delta.changes import Delta
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.file import read
from ztensor.ext import path_text
from ztensor.typing import Path


def open(path: Path) -> Delta:
    """Open a delta; close it, or use it as a context.

    Raises:
        DeltaError: it is not a delta (`delta_dialect`), or its own fields are malformed.
        FormatError: the file is damaged.
        SourceError: it cannot be read.
    """
    delta = find(path)
    if delta is None:
        raise DeltaError(
            "the file is not a delta", reason=DeltaReason.DIALECT, file=path_text(path)
        )
    return delta


def find(path: Path) -> Delta | None:
    """Return an open delta; None if the file or folder is not one."""
    return read(path)
