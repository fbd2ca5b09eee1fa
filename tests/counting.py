"""A file that counts what is read from it."""

from __future__ import annotations

import io
from typing import Any


class CountedFile(io.BytesIO):
    """A file in memory, with the number of reads and of the bytes that they returned."""

    reads = nbytes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.reads, self.nbytes = self.reads + 1, self.nbytes + len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        length = super().readinto(buffer)
        self.reads, self.nbytes = self.reads + 1, self.nbytes + length
        return length
