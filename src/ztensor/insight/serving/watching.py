"""Detection of changed files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ztensor.ext import ObjectReader, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable


class OpenedFiles:
    """The local files of readers, in their state at construction.

    Args:
        readers: just opened; readers of URLs detect changes themselves.
    """

    def __init__(self, readers: Iterable[ObjectReader]) -> None:
        paths = [path for reader in readers for path in reader.objects.paths if not is_remote(path)]
        self._known = [(path, _identity(path)) for path in paths]
        self._at = 0

    def changed(self, most: int | None = None) -> tuple[str, str] | None:
        """Return the name of a changed file, and `is gone` or `has changed`; None if unchanged.

        Args:
            most: the number of files to check; all by default. Later calls check the next ones, and
                a changed file first.
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
    """Return a key that differs for other files and after writes; None if missing."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
