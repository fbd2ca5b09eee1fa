"""A part of a source as a source of its own: a file that lies in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.ext import Source

if TYPE_CHECKING:
    from collections.abc import Sequence


class Within(Source):
    """Some bytes of a source; what they are in is closed by whoever opened it.

    Args:
        source: what they are in.
        offset: the first of them.
        size: how many.
    """

    def __init__(self, source: Source, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self.name = source.name
        self.size = size
        self.prefers_long_reads = source.prefers_long_reads
        self.is_held = source.is_held

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Fill `destination` from `offset`.

        Raises:
            SourceError: the bytes could not be read.
        """
        self._source.read_into(self._offset + offset, destination)

    def read_many(self, pieces: Sequence[tuple[int, memoryview]]) -> None:
        """Fill several pieces of memory; see `Source`."""
        self._source.read_many([(self._offset + start, piece) for start, piece in pieces])

    def view(self) -> memoryview | None:
        """Return them as a view, where the source gives one."""
        whole = self._source.view()
        return None if whole is None else whole[self._offset : self._offset + self.size]

    def require_unchanged(self, *, ask: bool = False) -> None:
        """Raise where the source is no longer what was opened; see `Source`."""
        self._source.require_unchanged(ask=ask)
