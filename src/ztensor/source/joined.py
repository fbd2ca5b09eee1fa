"""Several files as one: laid behind one another, so that an offset tells the file as well."""

from __future__ import annotations

import bisect
import functools
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ztensor.source.base import exact
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.source.base import Source
    from ztensor.source.rights import Rights


_REQUESTS = 8  # to several files at a time


class JoinedSource:
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
        self.sources: tuple[Source, ...] = tuple(source for _, source in parts)
        self.name = self.sources[0].name
        self.path = self.sources[0].path
        self.size = self.starts[-1] + self.sources[-1].size

    def place(self, offset: int) -> tuple[Source, int]:
        """Return the source an offset lies in, and where in it."""
        number = bisect.bisect_right(self.starts, offset) - 1
        return self.sources[number], offset - self.starts[number]

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from one source, or from several.

        Raises:
            SourceError: the bytes could not be read, or a file is shorter than it was.
        """
        done, wanted = 0, destination.nbytes
        while done < wanted:
            number = bisect.bisect_right(self.starts, offset + done) - 1
            start, source = self.starts[number], self.sources[number]
            is_last = number + 1 == len(self.starts)
            stop = self.size if is_last else self.starts[number + 1]
            count = wanted - done if is_last else min(wanted - done, stop - offset - done)
            within = offset + done - start
            held = count if is_last else max(0, min(count, source.size - within))
            if held:
                source.read_into(within, destination[done : done + held])
            destination[done + held : done + count] = bytes(count - held)
            done += count

    @property
    def prefers_long_reads(self) -> bool:
        """Return whether one of the sources does."""
        return any(source.prefers_long_reads for source in self.sources)

    def read_many(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory: what lies in one source by one call of its own.

        Raises:
            SourceError: as `read_into`.
        """
        of_source: dict[int, list[tuple[int, memoryview]]] = {}
        for offset, destination in parts:
            number = bisect.bisect_right(self.starts, offset) - 1
            within = offset - self.starts[number]
            if within + destination.nbytes <= self.sources[number].size:
                of_source.setdefault(number, []).append((within, destination))
            else:
                self.read_into(offset, destination)
        jobs = [
            functools.partial(self.sources[number].read_many, some)
            for number, some in of_source.items()
        ]
        run_jobs(jobs, _REQUESTS if self.prefers_long_reads else 1)

    def view(self) -> memoryview | None:
        """Return None: no map holds several files."""
        return None

    def held(self) -> memoryview | None:
        """Return None, as `view`."""
        return None

    def require_unchanged(self) -> None:
        """Raise where one of the files is no longer what was opened.

        Raises:
            SourceError: one is shorter than it was, or was written to in place.
        """
        for source in self.sources:
            source.require_unchanged()

    def close(self) -> None:
        """Close all of them. May be called again."""
        for source in self.sources:
            source.close()


@runtime_checkable
class OnDisk(Protocol):
    """What a file on disk has beside its bytes, open or yet to be opened."""

    path: str | None

    def rights(self) -> Rights:
        """Return whose the file is, and who may do what with it."""
        ...

    def identity(self) -> tuple[int, ...]:
        """Return what tells the file from one that takes its place."""
        ...


def files_of(source: Source) -> tuple[OnDisk, ...]:
    """Return the files a source's bytes come from; none of bytes in memory."""
    sources = source.sources if isinstance(source, JoinedSource) else (source,)
    return tuple(one for one in sources if isinstance(one, OnDisk) and one.path is not None)


def identity_of(source: Source) -> tuple[object, ...] | None:
    """Return what tells a source from one that takes its place; None where only its bytes do."""
    sources = source.sources if isinstance(source, JoinedSource) else (source,)
    told: list[object] = []
    for one in sources:
        identity = getattr(exact(one), "identity", None)
        found = None if identity is None else identity()
        if found is None:
            return None
        told += found
    return tuple(told)
