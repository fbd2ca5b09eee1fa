"""Several files as one, so that an offset tells the file as well."""

from __future__ import annotations

import bisect
import functools
import itertools
from typing import TYPE_CHECKING

from ztensor.io.source.base import Source
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence


_REQUESTS = 8  # to several files at a time


class JoinedSource(Source):
    """The bytes of several sources; those between them are zeros. Never mapped.

    Args:
        parts: where each begins, rising from 0, and the source; none reaches into the next. They
            are closed with this one.

    Attributes:
        starts: where each begins.
    """

    def __init__(self, parts: Sequence[tuple[int, Source]]) -> None:
        self._parts = tuple(parts)
        self.starts = [start for start, _ in parts]
        start, last = parts[-1]
        self.size = start + last.size
        self.name, self.path = parts[0][1].name, parts[0][1].path
        self.prefers_long_reads = any(source.prefers_long_reads for _, source in parts)

    @property
    def parts(self) -> Sequence[tuple[int, Source]]:
        """Return where each source begins, in order."""
        return self._parts

    def place(self, offset: int) -> tuple[Source, int]:
        """Return the source an offset is in, and where in it."""
        start, source = self._parts[bisect.bisect_right(self.starts, offset) - 1]
        return source, offset - start

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from one source, or from several.

        Raises:
            SourceError: the bytes could not be read, or a file is shorter than it was.
        """
        while destination.nbytes:
            source, within = self.place(offset)
            count = destination.nbytes
            if source is self._parts[-1][1]:
                held = count  # what is behind all of them is an error of the last
            else:
                count = min(count, self.starts[bisect.bisect_right(self.starts, offset)] - offset)
                held = max(0, min(count, source.size - within))
            if held:
                source.read_into(within, destination[:held])
            destination[held:count] = bytes(count - held)
            offset, destination = offset + count, destination[count:]

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory: those in one source by one call of its own.

        Raises:
            SourceError: as `read_into`.
        """
        asked: dict[Source, list[tuple[int, memoryview]]] = {}
        for offset, destination in pieces:
            source, within = self.place(offset)
            if within + destination.nbytes <= source.size:
                asked.setdefault(source, []).append((within, destination))
            else:
                self.read_into(offset, destination)
        jobs = [functools.partial(source.read_many, some) for source, some in asked.items()]
        run_jobs(jobs, _REQUESTS if self.prefers_long_reads else 1)

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise where one of the files is no longer what was opened; see `Source`."""
        for _, source in self._parts:
            source.require_unchanged(ask=ask)

    def identity(self) -> tuple[object, ...] | None:
        """Return what tells the files from others; None where only bytes do."""
        found = [source.identity() for _, source in self._parts]
        return None if None in found else tuple(itertools.chain.from_iterable(filter(None, found)))

    def close(self) -> None:
        """Close all of them. May be called again."""
        for _, source in self._parts:
            source.close()
