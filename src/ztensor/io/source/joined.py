"""Several files as one, so that an offset tells the file as well; lazy ones are opened late."""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
import os
from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.io.source.base import Source
from ztensor.locks import Lock
from ztensor.threads import run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ztensor.io.source.rights import Rights

_T = TypeVar("_T")

_REQUESTS = 8  # to several files at a time
# A process may have 1,024 files open on most systems, and others than these.
MOST_OPEN = 128
# Where lazy files begin: no page of one is a page of another.
_ALIGNMENT = 4096


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


def join_behind(first: Source, files: Sequence[LazyFile]) -> JoinedSource:
    """Return a source with files behind an open one, each at the start of a page.

    Raises:
        SourceError: they are longer together than any file can be.
    """
    parts: list[tuple[int, Source]] = [(0, first)]
    end = first.size
    for file in files:
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
        parts.append((start, file))
        end = start + file.size
    if end >= 1 << 62:
        raise SourceError(
            "the files are longer together than any can be", file=first.name, found=str(end)
        )
    return JoinedSource(parts)


class LazyFile(Source):
    """A file that is opened when it is first read, and may be closed and opened again.

    Files of a checkpoint are never written to once they have their names, so nothing has to be
    asked between two reads.

    Args:
        name: what messages call it.
        path: its path, None for one in a store.
        size: how long it has to be.
        open: opens it.
        pool: those of its kind that are open.
        explain: makes of an error what is raised: the file may be gone for a reason.
    """

    def __init__(
        self,
        name: str,
        path: str | None,
        size: int,
        open: Callable[[], Source],
        pool: OpenFiles,
        explain: Callable[[SourceError], SourceError] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.size = size
        self.prefers_long_reads = path is None
        self._open = open
        self._explain = explain or (lambda error: error)
        self._pool: OpenFiles | None = pool
        self._identity: object = None

    def opened(self) -> Source:
        """Return the open file, which may be closed again by the time it is read.

        Raises:
            SourceError: it cannot be opened, or is not as long as it has to be.
        """
        pool = self._pool
        if pool is None:
            raise ClosedError("the file was closed or given up", file=self.name)
        return self._asked(lambda: pool.opened(self, self._open_checked))

    def confirm(self) -> None:
        """See that the file is there and as long as it has to be.

        Raises:
            SourceError: it is not.
        """
        self._asked(self.opened().exact().confirm)

    def _asked(self, ask: Callable[[], _T]) -> _T:
        """Return what a call gives that may find that the file is gone.

        Raises:
            SourceError: why, if something tells.
        """
        try:
            return ask()
        except SourceError as error:
            found = self._explain(error)
            if found is error:
                raise
            raise found from error

    def _open_checked(self) -> Source:
        source = self._open()
        if source.size != self.size:
            source.close()
            raise SourceError(
                "the file is not the one that was saved: it has another length",
                file=self.name,
                expected=f"{self.size} bytes",
                found=str(source.size),
            )
        identity = source.identity()
        self._identity = identity if self._identity is None else self._identity
        if identity != self._identity:
            source.close()
            raise SourceError(
                "the file was replaced after it was opened; open it again",
                reason=Reason.SOURCE_CHANGED,
                file=self.name,
            )
        return source

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` with the bytes from `offset`.

        Raises:
            SourceError: the bytes could not be read, or it is not the file it was.
        """
        self._read(lambda source: source.read_into(offset, destination))

    def read_many(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory, as the file does it best.

        Raises:
            SourceError: as `read_into`.
        """
        self._read(lambda source: source.read_many(parts))

    def _read(self, read: Callable[[Source], None]) -> None:
        while True:
            source = self.opened()
            try:
                self._asked(functools.partial(read, source))
            except ClosedError:  # by another thread, which needed the place
                if self._pool is None:
                    raise
                continue
            return

    def rights(self) -> Rights:
        """Return whose the file is, and who may do what with it.

        Raises:
            SourceError: it is not there.
        """
        from ztensor.io.source.rights import rights_of

        try:
            return rights_of(self.path or "")
        except OSError as error:
            raise SourceError.from_os(error, "cannot look at the file", self.name) from error

    def identity(self) -> tuple[object, ...]:
        """Return what tells the file from one that takes its place; nothing where it is not."""
        try:
            status = os.stat(self.path or "")
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Close it for good."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(self)


class OpenFiles:
    """The open ones of some lazy files: at most `MOST_OPEN`, those that were used last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: collections.OrderedDict[LazyFile, Source] = collections.OrderedDict()

    def opened(self, file: LazyFile, open: Callable[[], Source]) -> Source:
        """Return an open file; others may be closed for it."""
        with self._lock:
            source = self._open.get(file)
            if source is not None:
                self._open.move_to_end(file)
                return source
        source = open()
        with self._lock:
            before = self._open.setdefault(file, source)
            unused = [] if before is source else [source]
            while len(self._open) > MOST_OPEN:
                unused.append(self._open.popitem(last=False)[1])
        for one in unused:
            one.close()
        return before

    def close(self, file: LazyFile) -> None:
        """Close a file, if it is open."""
        with self._lock:
            source = self._open.pop(file, None)
        if source is not None:
            source.close()
