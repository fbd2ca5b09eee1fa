"""Whether the files that are looked at are still those that were opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.errors import SourceError
from ztensor.source.paths import is_url

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ztensor.reading.reader import ObjectReader


class OpenedFiles:
    """The files of readers, as they are now; to be made when they were just opened.

    Args:
        readers: those of local files count; who reads a URL finds out by itself.
    """

    def __init__(self, readers: Iterable[ObjectReader]) -> None:
        paths = [path for reader in readers for path in reader.objects.paths if not is_url(path)]
        self._known = {path: _identity(path) for path in paths}

    def require_same(self) -> None:
        """Raise where a file is not the one that was opened.

        Raises:
            SourceError: it was changed, replaced or removed.
        """
        for path, before in self._known.items():
            now = _identity(path)
            if now != before:
                what = "is gone" if now is None else "has changed"
                raise SourceError(
                    f"the file {what} since it was opened; start `ztensor view` again",
                    file=os.path.basename(path),
                )


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what tells a file from others, and from itself once it was written to."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
