"""A source in memory that counts the bytes that are read of it."""

from __future__ import annotations

from ztensor.source.memory import MemorySource


class Counted(MemorySource):
    """Counts the bytes that are read; what is held is not told, so each read is one."""

    count = 0

    def read_into(self, offset: int, destination: memoryview) -> None:
        """Read, and count."""
        self.count += destination.nbytes
        super().read_into(offset, destination)

    def held(self) -> memoryview | None:
        """Tell nothing."""
        return None
