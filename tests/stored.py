"""Stored bytes that record their reads."""

from __future__ import annotations


class Memory:
    """Stored bytes in memory.

    Attributes:
        reads: offset and length of each read.
    """

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.length = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int) -> memoryview:
        assert 0 <= offset <= offset + length <= self.length
        self.reads.append((offset, length))
        return self.data[offset : offset + length]
