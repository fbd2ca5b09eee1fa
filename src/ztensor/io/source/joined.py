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
        sources: the sources.
    """

    def __init__(self, parts: Sequence[tuple[int, Source]]) -> None:
        self.starts = [start for start, _ in parts]
        self._sources = tuple(source for _, source in parts)
        self.name = self._sources[0].name
        self.path = self._sources[0].path
        self.size = self.starts[-1] + self._sources[-1].size
        self.prefers_long_reads = any(source.prefers_long_reads for source in self._sources)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Return the sources, in order."""
        return self._sources

    def place(self, offset: int) -> tuple[Source, int]:
        """Return the source an offset is in, and where in it."""
        number = bisect.bisect_right(self.starts, offset) - 1
        return self._sources[number], offset - self.starts[number]

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from one source, or from several.

        Raises:
            SourceError: the bytes could not be read, or a file is shorter than it was.
        """
        number = bisect.bisect_right(self.starts, offset) - 1
        done, wanted = 0, destination.nbytes
        while done < wanted:
            source, within = self._sources[number], offset + done - self.starts[number]
            number += 1
            count = wanted - done
            held = count
            if number < len(self.starts):
                count = min(count, self.starts[number] - offset - done)
                held = max(0, min(count, source.size - within))
            if held:
                source.read_into(within, destination[done : done + held])
            destination[done + held : done + count] = bytes(count - held)
            done += count

    def read_many(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory: those in one source by one call of its own.

        Raises:
            SourceError: as `read_into`.
        """
        of_source: dict[Source, list[tuple[int, memoryview]]] = {}
        for offset, destination in parts:
            source, within = self.place(offset)
            if within + destination.nbytes <= source.size:
                of_source.setdefault(source, []).append((within, destination))
            else:
                self.read_into(offset, destination)
        jobs = [functools.partial(source.read_many, some) for source, some in of_source.items()]
        run_jobs(jobs, _REQUESTS if self.prefers_long_reads else 1)

    def require_unchanged(self) -> None:
        """Raise where one of the files is no longer what was opened.

        Raises:
            SourceError: one is shorter than it was, or was written to in place.
        """
        for source in self._sources:
            source.require_unchanged()

    def advise(self, offset: int, length: int, *, is_needed: bool) -> int:
        """Advise the system about the bytes of each file; see `Source.advise`."""
        told = 0
        for start, part in zip(self.starts, self._sources, strict=True):
            first, end = max(offset, start), min(offset + length, start + part.size)
            if first < end:
                told += part.advise(first - start, end - first, is_needed=is_needed)
        return told

    def identity(self) -> tuple[object, ...] | None:
        """Return what tells the files from others; None where only bytes do."""
        found = [source.identity() for source in self._sources]
        return None if None in found else tuple(itertools.chain.from_iterable(filter(None, found)))

    def close(self) -> None:
        """Close all of them. May be called again."""
        for source in self._sources:
            source.close()
