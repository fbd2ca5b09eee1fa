"""Inputs of a conversion: readers, subsets of them, and the check that no input is the target."""

from __future__ import annotations

import contextlib
import copy
import os
from typing import TYPE_CHECKING, Any

from ztensor import Reader
from ztensor import open as open_file
from ztensor.errors import UsageError
from ztensor.ext import ALGORITHMS, ObjectReader, Objects, Range, is_remote, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Opened:
    """A context with a reader of the caller's source; it closes only a reader that it opened."""

    def __init__(self, source: Any) -> None:
        self._is_callers = isinstance(source, ObjectReader)
        self.reader: Reader = source if self._is_callers else open_file(source)

    def __enter__(self) -> Reader:
        return self.reader

    def __exit__(self, *exception: object) -> None:
        if not self._is_callers:
            self.reader.close()


def is_same(one: str, other: str) -> bool:
    """Return whether two paths lead to one existing file, or are one URL."""
    if one == other and is_remote(one):
        return True
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def file_digest(algorithm: str, path: str) -> str:
    """Return the digest text of all bytes of a file."""
    with contextlib.closing(source_of(path, mapped=False)) as source:
        return ALGORITHMS[algorithm].of(Range(source, 0, source.size).pieces(8 << 20))


def part_of(reader: Reader, names: Sequence[str]) -> Reader:
    """Return a reader of some of the objects, over the same files."""
    if len(names) == len(reader):
        return reader
    return over(reader, reader.objects.select(names))


def over(reader: Reader, objects: Objects) -> Reader:
    """Return a copy of a reader with other objects."""
    other = copy.copy(reader)
    other.objects = objects
    return other


def require_other(inputs: Iterable[str], target: str) -> None:
    """Raise if an input would be overwritten."""
    if any(is_same(path, target) for path in inputs):
        error = UsageError("source and target are one file; choose another name", file=target)
        error.hint = "`ztensor convert --in-place` (in Python ztensor.migrate) rewrites a .zt"
        raise error
