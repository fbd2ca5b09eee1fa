"""Whether the files that are looked at are still those that were opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.ext import ObjectReader, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable


class OpenedFiles:
    """The files of readers, as they are now; to be made when they were just opened.

    Args:
        readers: those of local files count; who reads a URL finds out by itself.
    """

    def __init__(self, readers: Iterable[ObjectReader]) -> None:
        paths = [path for reader in readers for path in reader.objects.paths if not is_remote(path)]
        self._known = [(path, _identity(path)) for path in paths]
        self._at = 0

    def changed(self, most: int | None = None) -> tuple[str, str] | None:
        """Return the name of a file that is not the one that was opened, and what became of it.

        It `is gone` or `has changed`. None where all are what they were.

        Args:
            most: files that are looked at; all by default. Later calls look at those that come
                next, and at one that was changed first.
        """
        begun, count = self._at, len(self._known)
        for step in range(count if most is None else min(most, count)):
            at = (begun + step) % count
            path, before = self._known[at]
            now = _identity(path)
            if now != before:
                self._at = at
                return os.path.basename(path), "is gone" if now is None else "has changed"
            self._at = (at + 1) % count
        return None


def _identity(path: str) -> tuple[int, ...] | None:
    """Return what tells a file from others, and from itself once it was written to."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
