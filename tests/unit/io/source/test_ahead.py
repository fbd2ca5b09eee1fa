"""Prefetch: more each time if reads are in order, else nothing; heads in order come together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.unit.io.reading.counted import Far, Noted
from ztensor.errors import SourceError
from ztensor.io.source.ahead import AheadSource, Extents, extents_of

MIB = 1 << 20
DATA = np.random.default_rng(0).integers(0, 256, 80 * MIB, np.uint8).tobytes()


def ahead(lengths: list[int], *, encoded: bool = False) -> tuple[AheadSource, Noted, Extents]:
    source = Noted(DATA, is_far=True)
    offsets = [64 + sum(lengths[:number]) for number in range(len(lengths))]
    found = offsets, lengths, [encoded] * len(lengths)
    reading = AheadSource(source)
    reading.expect(lambda: found)
    return reading, source, extents_of(*found)


def read(source: AheadSource, offset: int, length: int) -> None:
    memory = bytearray(length)
    source.read_into(offset, memoryview(memory))
    assert bytes(memory) == DATA[offset : offset + length]


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("piece", [10_000, 8 * MIB])
def test_each_byte_comes_once_to_who_goes_through(encoded: bool, piece: int) -> None:
    lengths = [700_000, 100, 3 * MIB, 1, 40 * MIB, 2 * MIB, 500_000, 9 * MIB]
    source, far, extents = ahead(lengths, encoded=encoded)
    for start, stop in zip(extents.starts.tolist(), extents.stops.tolist(), strict=True):
        for _ in range(2 if encoded else 1):  # a digest, then the frames
            for offset in range(start, stop, piece):
                read(source, offset, min(piece, stop - offset))
    assert sum(length for _, length in far.asked) == sum(lengths)
    assert len(far.asked) <= 12 if piece < MIB else len(far.asked) <= 16
    source.close()


def test_one_component_brings_no_other() -> None:
    source, far, _ = ahead([MIB] * 20)
    read(source, 64 + 7 * MIB, MIB)
    assert far.asked == [(64 + 7 * MIB, MIB)]
    read(source, 64 + 3 * MIB, 1000)  # its beginning: it is brought as a whole
    assert far.asked[1:] == [(64 + 3 * MIB, MIB)]
    read(source, 64 + 3 * MIB + 1000, 1000)
    assert len(far.asked) == 2


def test_parts_are_read_alone() -> None:
    source, far, _ = ahead([MIB] * 20)
    read(source, 64 + 5 * MIB + 77, 10)
    source.read_many([(100, memoryview(bytearray(5)))])
    assert far.asked == [(64 + 5 * MIB + 77, 10), (100, 5)]


@pytest.mark.parametrize("behind", [-1, 0, 1])
def test_bytes_between_components_are_read_alone(behind: int) -> None:
    far = Noted(DATA, is_far=True)
    source = AheadSource(far)
    source.expect(lambda: ([64, 2 * MIB, 4 * MIB], [MIB, MIB, MIB], [False] * 3))
    read(source, 64, MIB)
    read(source, 3 * MIB + behind, 1)  # at the end of the component that would be the next
    if behind < 0:
        assert far.asked[1][0] == 3 * MIB - 1
    else:
        assert far.asked[1:] == [(3 * MIB + behind, 1)]
    read(source, 0, 64)
    assert far.asked[-1] == (0, 64)


def test_where_components_lie() -> None:
    found = extents_of([300, 64, 80, 500], [10, 100, 20, 0], [False, False, True, True])
    assert found.starts.tolist() == [64, 300]  # 80 is in the first, 500 has no bytes
    assert found.stops.tolist() == [164, 310]
    assert found.is_encoded.tolist() == [True, False]
    assert not len(extents_of([], [], []).starts)


def test_threads_share_it() -> None:
    source, _, extents = ahead([300_000] * 100)

    def walk(first: int) -> None:
        for start in extents.starts.tolist()[first::4]:
            read(source, start, 300_000)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(walk, range(4)))


def test_a_failure_leaves_nothing_behind() -> None:
    source, far, _ = ahead([40 * MIB], encoded=True)
    far.size = 0
    broken, far.read_into = far.read_into, _fails  # type: ignore[method-assign]
    with pytest.raises(SourceError):
        read(source, 64, 100)
    far.read_into = broken  # type: ignore[method-assign]
    read(source, 64, 100)
    source.close()
    source.close()


def _fails(offset: int, destination: memoryview) -> None:
    raise SourceError("gone")


def test_who_goes_on_gets_more_each_time() -> None:
    source, far, _ = ahead([2 * MIB] * 12)
    for number in range(12):
        read(source, 64 + number * 2 * MIB, 2 * MIB)
    assert [length // MIB for _, length in far.asked] == [2, 2, 8, 12]


def test_a_part_of_a_component_is_read_alone_also_in_a_walk() -> None:
    source, far, _ = ahead([MIB] * 8)
    with source.walked():
        read(source, 64 + 3 * MIB + 5, 10)
        assert far.asked == [(64 + 3 * MIB + 5, 10)]
        read(source, 64 + 5 * MIB, 10)  # a beginning: the window is whole at once
    assert len(far.asked) == 2
    assert far.asked[1] == (64 + 5 * MIB, 3 * MIB)


# --- Heads ---------------------------------------------------------------------------------------


def heads(starts: list[int], lengths: list[int]) -> tuple[AheadSource, Far]:
    far = Far(DATA)
    source = AheadSource(far)
    source.expect(lambda: (starts, lengths, [False] * len(starts)), is_patient=True)
    return source, far


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
