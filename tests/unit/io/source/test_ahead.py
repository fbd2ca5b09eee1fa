"""Prefetch: more each time if reads are in order, else nothing; heads in order come together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.unit.io.reading.counted import Far
from ztensor.errors import SourceError
from ztensor.io.source.ahead import AheadSource

MIB = 1 << 20
DATA = np.random.default_rng(0).integers(0, 256, 80 * MIB, np.uint8).tobytes()
Read = tuple[int, int]


def ahead(
    lengths: list[int], start: int = 64, *, encoded: bool = False, is_patient: bool = False
) -> tuple[AheadSource, Far, list[int]]:
    """Return a source of components behind one another, with their offsets."""
    far = Far(DATA)
    offsets = [start, *(start + end for end in itertools.accumulate(lengths[:-1]))]
    source = AheadSource(far)
    source.expect(lambda: (offsets, lengths, [encoded] * len(lengths)), is_patient=is_patient)
    return source, far, offsets


def read(source: AheadSource, offset: int, length: int) -> None:
    memory = bytearray(length)
    source.read_into(offset, memoryview(memory))
    assert bytes(memory) == DATA[offset : offset + length]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("piece", [10_000, 8 * MIB])
def test_each_byte_is_fetched_once_for_a_reader_in_order(encoded: bool, piece: int) -> None:
    lengths = [700_000, 100, 3 * MIB, 1, 40 * MIB, 2 * MIB, 500_000, 9 * MIB]
    source, far, offsets = ahead(lengths, encoded=encoded)
    for start, length in zip(offsets, lengths, strict=True):
        for _ in range(2 if encoded else 1):  # a digest, then the frames
            for offset in range(start, start + length, piece):
                read(source, offset, min(piece, start + length - offset))
    assert sum(length for request in far.asked for _, length in request) == sum(lengths)
    assert len(far.asked) <= (12 if piece < MIB else 16)
    source.close()


# Reads of components of 1 MiB behind one another, and the reads of the source that they cause.
TWO = 2 * MIB
READS: dict[str, tuple[list[Read], list[Read]]] = {
    "one component": ([(MIB, MIB)], [(MIB, MIB)]),
    "a beginning": ([(3 * MIB, 1000), (3 * MIB + 1000, 1000)], [(3 * MIB, MIB)]),
    "a part": ([(5 * MIB + 77, 10)], [(5 * MIB + 77, 10)]),
    "in order": (
        [(number * MIB, MIB) for number in range(24)],
        [(0, MIB), (MIB, TWO), (3 * MIB, 8 * MIB), (11 * MIB, 13 * MIB)],
    ),
}


@pytest.mark.parametrize("case", READS)
def test_only_reads_in_order_prefetch(case: str) -> None:
    reads, expected = READS[case]
    source, far, _ = ahead([MIB] * 24, start=0)
    for offset, length in reads:
        read(source, offset, length)
    assert [request for requests in far.asked for request in requests] == expected
    far.asked.clear()
    source.read_many([(100, memoryview(bytearray(5)))])
    assert far.asked == [[(100, 5)]]


def test_behind_a_long_encoded_component_reads_go_on() -> None:
    lengths = [100, 40 * MIB, 100, 100]
    source, far, offsets = ahead(lengths, encoded=True)
    read(source, offsets[1], 1000)
    far.asked.clear()
    for start in offsets[2:]:
        read(source, start, 100)
    assert far.asked == [[(offsets[2], 200)]]
    source.close()


@pytest.mark.parametrize("gap", [256 << 10, (256 << 10) + 1])
def test_short_gaps_are_fetched_with_the_components_around_them(gap: int) -> None:
    far, length = Far(DATA), MIB // 2
    first, second, third = 0, length + gap, 2 * (length + gap)
    source = AheadSource(far)
    source.expect(lambda: ([first, second, third], [length] * 3, [False] * 3))
    for offset in (first, second):
        read(source, offset, length)
    together = [(second, length + gap + length)]
    apart = [(second, length), (third, length)]
    assert far.asked[1] == (together if gap == 256 << 10 else apart)


class Failing(Far):
    """A source that fails once."""

    def read_into(self, offset: int, destination: memoryview) -> None:
        if not self.asked:
            self.asked.append([])
            raise SourceError("gone")
        super().read_into(offset, destination)


def test_a_failure_leaves_nothing_behind() -> None:
    source = AheadSource(Failing(DATA))
    source.expect(lambda: ([64], [40 * MIB], [True]))
    with pytest.raises(SourceError):
        read(source, 64, 100)
    read(source, 64, 100)
    source.close()
    source.close()


# --- Heads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [600, 4096])
def test_heads_in_order_come_together(length: int) -> None:
    source, far, starts = ahead([MIB] * 66, start=0, is_patient=True)
    for start in starts:
        read(source, start, length)
    assert [len(request) for request in far.asked] == [1, 32, 32, 1]
    assert far.asked[1][0] == (MIB, 4096)
    far.asked.clear()
    for start in starts[60:]:  # those of the last request are kept, no others
        read(source, start, length)
    assert [len(request) for request in far.asked] == [1, 5]


def test_heads_within_8_mib_come_together() -> None:
    source, far, starts = ahead([128 << 10] * 100, start=0, is_patient=True)
    for start in starts:
        read(source, start, 600)
    assert [len(request) for request in far.asked] == [1, 64, 35]
