"""Write a finished picture or page to a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import Place, path_text

if TYPE_CHECKING:
    import os


def write_file(path: str | os.PathLike[str], data: bytes) -> int:
    """Create or replace a file atomically, and return its length.

    Raises:
        SourceError: the file cannot be written; an old one is unchanged.
    """
    with Place(path_text(path)).written(durable=False) as sink:
        sink.write(data)
    return len(data)
