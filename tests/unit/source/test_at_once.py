from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ztensor.source import at_once
from ztensor.source.at_once import AtOnce
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def read_many(self, parts: Sequence[tuple[int, memoryview]]) -> None:
        self.calls.append([offset for offset, _ in parts])
        for offset, destination in parts:
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


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "_MOST_BYTES", 10)
    source, done = Noting(), []
    reads = AtOnce(source)
    for number in range(5):
        memory = bytearray(4)
        reads.add(number * 20, memoryview(memory))
        reads.later(lambda memory=memory: done.append(bytes(memory)))  # type: ignore[misc]
    assert source.calls == [[0, 20], [40, 60]]
    reads.end()
    assert source.calls[2:] == [[80]]
    assert done == [DATA[n * 20 : n * 20 + 4] for n in range(5)]
