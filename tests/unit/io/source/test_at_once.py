from __future__ import annotations

from collections.abc import Callable, Sequence

from ztensor.io.source.base import AtOnce
from ztensor.io.source.memory import MemorySource

DATA = bytes(range(100))


class Noting(MemorySource):
    """Notes how it is read, as if each read were a request."""

    prefers_long_reads = True

    def __init__(self) -> None:
        super().__init__(DATA)
        self.calls: list[list[int]] = []

    def read_into(self, offset: int, destination: memoryview) -> None:
        self.calls.append([offset])
        super().read_into(offset, destination)

    def read_many(
        self, pieces: Sequence[tuple[int, memoryview]], filled: Callable[[int], None] | None = None
    ) -> None:
        self.calls.append([offset for offset, _ in pieces])
        for offset, destination in pieces:
            super().read_into(offset, destination)


def test_nothing_is_read_before_the_end() -> None:
    source, done = Noting(), []
    reads = AtOnce(source)
    first, second = bytearray(3), bytearray(4)
    reads.add(10, memoryview(first))
    reads.later(lambda: done.append(bytes(first)))
    reads.add(50, memoryview(second))
    reads.later(lambda: done.append(bytes(second)))
    assert source.calls == []
    reads.end()
    assert source.calls == [[10, 50]]
    assert done == [DATA[10:13], DATA[50:54]]
    reads.end()  # nothing is left
    assert source.calls == [[10, 50]]
    assert len(done) == 2


def test_one_read_is_made_alone() -> None:
    source = Noting()
    reads = AtOnce(source)
    reads.add(7, memoryview(bytearray(2)))
    reads.end()
    assert source.calls == [[7]]
