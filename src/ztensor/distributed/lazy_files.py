"""Files that are opened on first read: a checkpoint has at least one for each process."""

from __future__ import annotations

import collections
import functools
import os
from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import ClosedError, Reason, SourceError
from ztensor.ext import JoinedSource, Lock, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_T = TypeVar("_T")

# Most systems allow a process 1,024 open files, of any kind.
MOST_OPEN = 128
# Alignment of lazy files in a joined source: no page has bytes of two files.
_ALIGNMENT = 4096


class LazyFile(Source):
    """A file that is opened on first read, and may be closed and opened again.

    Files of a checkpoint never change once they have their names, so reads do not check for that.

    Args:
        name: its name in messages.
        path: its path, None for an object in a store.
        size: its expected length.
        pool: keeps the open files.
        open: opens it.
        explain: returns a better error than the one passed, if it knows why the file is gone.
    """

    def __init__(
        self,
        name: str,
        path: str | None,
        size: int,
        pool: OpenFiles,
        open: Callable[[], Source],
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
        """Return the open file; another thread may close it before it is read.

        Raises:
            SourceError: it cannot be opened, or has another length than expected.
        """
        pool = self._pool
        if pool is None:
            raise ClosedError("the file was closed or given up", file=self.name)
        return self._asked(lambda: pool.opened(self, self._open_checked))

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise if the file is missing or has another length, unless that is already known."""
        source = self.opened() if ask else None
        if source is not None and source.identity() is None:  # the store has not confirmed it
            self._asked(functools.partial(source.require_unchanged, ask=True))

    def _asked(self, ask: Callable[[], _T]) -> _T:
        """Return the result of a call; explain the error if the file is gone.

        Raises:
            SourceError: the explained error.
        """
        try:
            return ask()
        except SourceError as error:
            explained = self._explain(error)
            if explained is error:
                raise
            raise explained from error

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
            SourceError: the bytes could not be read, or the file was replaced.
        """
        self._read(lambda source: source.read_into(offset, destination))

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory, in the way that suits the file; see `Source`."""
        self._read(lambda source: source.read_many(pieces))

    def _read(self, read: Callable[[Source], None]) -> None:
        while True:
            source = self.opened()
            try:
                self._asked(functools.partial(read, source))
            except ClosedError:  # by another thread, which opened other files
                if self._pool is None:
                    raise
                continue
            return

    def identity(self) -> tuple[object, ...]:
        """Return the identity of the file, which no replacement has; () if it is missing."""
        try:
            status = os.stat(self.path or "")
        except OSError:
            return ()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def close(self) -> None:
        """Close it permanently."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(self)


class OpenFiles:
    """The pool of open lazy files: at most `MOST_OPEN`, the most recently used."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: collections.OrderedDict[LazyFile, Source] = collections.OrderedDict()

    @staticmethod
    def behind(first: Source, files: Sequence[Source]) -> Source:
        """Return an open source joined with lazy files, each at the start of a page.

        Raises:
            SourceError: their total length exceeds 2^62.
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
