"""Reads that are gathered before the first is made: of many parts, few requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.io.source.base import Source

# What is gathered before it is read; so much memory at most waits for bytes.
_MOST_BYTES = 64 << 20


class AtOnce:
    """Gathers reads of one source, and makes them when they are many or when all are there.

    Where requests are not dear each is made when it is asked for.

    Args:
        source: what is read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._parts: list[tuple[int, memoryview]] = []
        self._later: list[Callable[[], None]] = []
        self._nbytes = 0

    def add(self, offset: int, target: memoryview) -> None:
        """Ask for bytes: `target` is filled with those from `offset` before the next `later`.

        Raises:
            SourceError: what was asked for before could not be read.
        """
        if not self._source.prefers_long_reads:
            self._source.read_into(offset, target)
            return
        if self._nbytes + target.nbytes > _MOST_BYTES:
            self.end()
        self._parts.append((offset, target))
        self._nbytes += target.nbytes

    def later(self, work: Callable[[], None]) -> None:
        """Do something once what was asked for so far is there."""
        if self._parts:
            self._later.append(work)
        else:
            work()

    def end(self) -> None:
        """Read what was asked for, and do what waits for it.

        Raises:
            SourceError: it could not be read.
        """
        parts, later = self._parts, self._later
        self._parts, self._later, self._nbytes = [], [], 0
        if len(parts) == 1:
            self._source.read_into(*parts[0])  # neighbours are kept for who comes next
        elif parts:
            self._source.read_many(parts)
        for work in later:
            work()
