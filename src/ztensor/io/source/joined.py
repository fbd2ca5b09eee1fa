"""Several files as one source: an offset identifies file and place."""

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
    """The bytes of several sources; bytes between them are zeros. Never mapped.

    Args:
        parts: pairs of an offset, ascending from 0, and a source; they do not overlap. They are
            closed with this one.

    Attributes:
        starts: the offsets of the sources.
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
        """Return pairs of offset and source, in order."""
        return self._parts

    def place(self, offset: int) -> tuple[Source, int]:
        """Return the source that an offset is in, and the offset in that source."""
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
                held = count  # an offset behind all of them is an error of the last
            else:
                count = min(count, self.starts[bisect.bisect_right(self.starts, offset)] - offset)
                held = max(0, min(count, source.size - within))
            if held:
                source.read_into(within, destination[:held])
            destination[held:count] = bytes(count - held)
            offset, destination = offset + count, destination[count:]

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several buffers, of each source by one call.

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
        jobs = [functools.partial(source.read_many, reads) for source, reads in asked.items()]
        run_jobs(jobs, _REQUESTS if self.prefers_long_reads else 1)

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise if one of the files changed since it was opened; see `Source`."""
        for _, source in self._parts:
            source.require_unchanged(ask=ask)

    def identity(self) -> tuple[object, ...] | None:
        """Return the keys of all files; None if a key is unknown."""
        keys = [source.identity() for _, source in self._parts]
        return None if None in keys else tuple(itertools.chain.from_iterable(filter(None, keys)))

    def close(self) -> None:
        """Close all of them. May be called again."""
        for _, source in self._parts:
            source.close()
