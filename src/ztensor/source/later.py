"""Several files joined as one, each opened when it is first read, some of them open at a time."""

from __future__ import annotations

import collections
import functools
import os
from typing import TYPE_CHECKING, TypeVar

from ztensor.errors import ClosedError, SourceError
from ztensor.locks import Lock
from ztensor.source.base import ReadOneByOne, exact
from ztensor.source.failures import changed
from ztensor.source.joined import JoinedSource, identity_of
from ztensor.source.remote import RemoteSource
from ztensor.source.rights import rights_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ztensor.source.base import Source
    from ztensor.source.rights import Rights

_T = TypeVar("_T")

# A process may have 1,024 files open on most systems, and others than these.
MOST_OPEN = 128
# Where files begin: no page of one is a page of another.
_ALIGNMENT = 4096


class LaterFile(ReadOneByOne):
    """A file that is opened when it is first read, and may be closed and opened again.

    Files of a checkpoint are never written to once they have their names, so nothing has to be
    asked between two reads.

    Args:
        name: what messages call it.
        path: its path, None for one in a store.
        size: how long it has to be.
        open: opens it.
        explain: makes of an error what is raised: the file may be gone for a reason.

    Attributes:
        name: as given, like path and size.
    """

    def __init__(
        self,
        name: str,
        path: str | None,
        size: int,
        open: Callable[[], Source],
        explain: Callable[[SourceError], SourceError] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.size = size
        self._open = open
        self._explain = explain or (lambda error: error)
        self._pool: _Pool | None = None
        self._identity: object = None

    def join(self, pool: _Pool) -> None:
        """Count this among files of which only some are open at a time."""
        self._pool = pool

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
        source = exact(self.opened())
        if isinstance(source, RemoteSource):
            self._asked(source.confirm)

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
        identity = identity_of(source)
        self._identity = identity if self._identity is None else self._identity
        if identity != self._identity:
            source.close()
            raise changed(self.name)
        return source

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` with the bytes from `offset`.

        Raises:
            SourceError: the bytes could not be read, or it is not the file it was.
        """
        while True:
            source = self.opened()
            try:
                self._asked(functools.partial(source.read_into, offset, destination))
            except ClosedError:  # by another thread, which needed the place
                if self._pool is None:
                    raise
                continue
            return

    def read_many(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory, as the file does it best.

        Raises:
            SourceError: as `read_into`.
        """
        while True:
            source = self.opened()
            try:
                self._asked(functools.partial(source.read_many, parts))
            except ClosedError:
                if self._pool is None:
                    raise
                continue
            return

    def view(self) -> memoryview | None:
        """Return None."""
        return None

    def held(self) -> memoryview | None:
        """Return None."""
        return None

    def require_unchanged(self) -> None:
        """Do nothing: who opens it looks."""

    def rights(self) -> Rights:
        """Return whose the file is, and who may do what with it.

        Raises:
            SourceError: it is not there.
        """
        try:
            return rights_of(self.path or "")
        except OSError as error:
            raise SourceError.from_os(error, "cannot look at the file", self.name) from error

    def identity(self) -> tuple[int, ...]:
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


class _Pool:
    """The open ones of some files."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: collections.OrderedDict[LaterFile, Source] = collections.OrderedDict()

    def opened(self, file: LaterFile, open: Callable[[], Source]) -> Source:
        with self._lock:
            source = self._open.get(file)
            if source is not None:
                self._open.move_to_end(file)
                return source
        source = open()
        with self._lock:
            before = self._open.setdefault(file, source)
            late = [] if before is source else [source]
            while len(self._open) > MOST_OPEN:
                late.append(self._open.popitem(last=False)[1])
        for one in late:
            one.close()
        return before

    def close(self, file: LaterFile) -> None:
        with self._lock:
            source = self._open.pop(file, None)
        if source is not None:
            source.close()


class LaterFiles(JoinedSource):
    """A file, and others behind it that are opened when they are read.

    Args:
        first: the open file; closed with this.
        files: the others, each once.
        prefers_long_reads: whether they are where requests are dear.

    Attributes:
        first: as given.
        files: as given.
    """

    prefers_long_reads = False

    def __init__(
        self, first: Source, files: Sequence[LaterFile], *, prefers_long_reads: bool
    ) -> None:
        starts, at = [0], first.size
        for file in files:
            at = -(-at // _ALIGNMENT) * _ALIGNMENT
            starts.append(at)
            at += file.size
        if at >= 1 << 62:
            raise SourceError(
                "the files are longer together than any can be", file=first.name, found=str(at)
            )
        super().__init__(list(zip(starts, (first, *files), strict=True)))
        self.first = first
        self.files = tuple(files)
        self.prefers_long_reads = prefers_long_reads
        pool = _Pool()
        for file in files:
            file.join(pool)

    def require_unchanged(self) -> None:
        """Raise where the first file is not what it was.

        Raises:
            SourceError: it is shorter than it was, or was written to in place.
        """
        self.first.require_unchanged()
