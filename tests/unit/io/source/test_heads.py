"""Heads that are read in order come together; others as they are asked for."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.io.reading.counted import Far
from ztensor.io.source.ahead import AheadSource

MIB = 1 << 20
DATA = np.random.default_rng(1).integers(0, 256, 66 * MIB, np.uint8).tobytes()


def heads(starts: list[int], lengths: list[int]) -> tuple[AheadSource, Far]:
    far = Far(DATA)
    source = AheadSource(far)
    source.expect(lambda: (starts, lengths, [False] * len(starts)), is_patient=True)
    return source, far


def read(source: AheadSource, offset: int, length: int) -> None:
    memory = bytearray(length)
    source.read_into(offset, memoryview(memory))
    assert bytes(memory) == DATA[offset : offset + length]


@pytest.mark.parametrize("length", [600, 4096])
def test_heads_in_order_come_together(length: int) -> None:
    starts = [number * MIB for number in range(66)]
    source, far = heads(starts, [MIB] * 66)
    for start in starts:
        read(source, start, length)
    assert [len(asked) for asked in far.asked] == [1, 32, 32, 1]
    assert far.asked[1][0] == (MIB, 4096)
    far.asked.clear()
    for start in starts[60:]:  # those that were brought last are kept, no others
        read(source, start, length)
    assert [len(asked) for asked in far.asked] == [1, 5]


def test_near_heads_are_one_request_and_hold_what_they_are() -> None:
    starts = [64 + 100 * number for number in range(2000)]
    source, far = heads(starts, [100] * 2000)
    for start in starts:
        read(source, start, 50)
    assert [len(asked) for asked in far.asked] == [1, 1999]
    assert {length for _, length in far.asked[1]} == {100}


@pytest.mark.parametrize("step", [-1, 2])
def test_another_order_brings_nothing(step: int) -> None:
    starts = [number * MIB for number in range(60)]
    source, far = heads(starts, [MIB] * 60)
    for start in starts[::step]:
        read(source, start, 600)
    assert {len(asked) for asked in far.asked} == {1}


def test_longer_reads_and_others_are_made_as_they_are() -> None:
    starts = [number * MIB for number in range(10)]
    source, far = heads(starts, [MIB] * 10)
    for offset, length in ((0, 600), (MIB, 5000), (MIB + 10, 20), (40 * MIB, 7), (2 * MIB, 600)):
        read(source, offset, length)
    assert far.asked[:4] == [[(0, 600)], [(MIB, 5000)], [(MIB + 10, 20)], [(40 * MIB, 7)]]
    assert [start for start, _ in far.asked[4]] == starts[2:]
