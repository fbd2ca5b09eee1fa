"""A range of a source: in pieces, read once if it is kept, by few reads if they are slow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.io.reading.counted import Noted
from ztensor.io.source.base import Range
from ztensor.io.source.memory import MemorySource

DATA = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8).tobytes()
START, LENGTH = 17, 50_000
WANTED = DATA[START : START + LENGTH]


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize("size", [20_000, 25_000, 50_000])
def test_pieces_are_as_long_as_was_asked(size: int, *, is_far: bool) -> None:
    source = Noted(DATA, is_far=is_far)
    pieces = [bytes(one) for one in Range(source, START, LENGTH).pieces(size)]
    expected = [min(size, LENGTH - start) for start in range(0, LENGTH, size)]
    assert [len(one) for one in pieces] == expected
    assert b"".join(pieces) == WANTED
    assert len(source.asked) == (1 if is_far else len(expected))


@pytest.mark.parametrize("is_far", [False, True])
def test_what_is_kept_is_read_once(*, is_far: bool) -> None:
    source = Noted(DATA, is_far=is_far)
    found = Range(source, START, LENGTH)
    found.keep()
    assert source.asked == [(START, LENGTH)]
    assert b"".join(found.pieces(7000)) == WANTED
    assert found.read(0, LENGTH) == WANTED
    assert found.read(40_000, 10_000) == WANTED[40_000:]
    assert source.asked == [(START, LENGTH)]


def test_what_was_read_before_is_not_read_again() -> None:
    source = Noted(DATA)
    found = Range(source, START, LENGTH, memoryview(WANTED))
    assert b"".join(found.pieces(7000)) == WANTED
    assert source.asked == []
    found = Range(source, START, LENGTH, memoryview(WANTED[:-1]))
    assert b"".join(found.pieces(LENGTH)) == WANTED
    assert source.asked == [(START, LENGTH)]


def test_bytes_in_memory_are_not_copied() -> None:
    source = MemorySource(DATA)
    found = Range(source, START, LENGTH)
    found.keep()
    whole = np.frombuffer(DATA, np.uint8)
    for piece in (*found.pieces(7000), found.read(0, LENGTH)):
        assert np.shares_memory(np.frombuffer(piece, np.uint8), whole)


def test_a_look_at_a_header_leaves_what_is_kept() -> None:
    source = Noted(DATA)
    found = Range(source, 0, len(DATA))
    found.read(10_000, 20_000)
    found.read(50_000, 4096)
    assert found.read(10_000, 20_000) == DATA[10_000:30_000]
    assert source.asked == [(10_000, 20_000), (50_000, 4096)]
    found.read(30_000, 4097)  # goes on where the last one ended: the rest comes with it
    assert source.asked[2:] == [(30_000, 70_000)]
    assert found.read(60_000, 40_000) == DATA[60_000:]
    assert len(source.asked) == 3


@pytest.mark.parametrize("by", ["keep", "read"])
@pytest.mark.parametrize("is_more", [False, True])
def test_so_much_of_a_range_is_kept(by: str, *, is_more: bool) -> None:
    length = (8 << 20) + is_more
    source = Noted(bytes(length))
    found = Range(source, 0, length)
    if by == "keep":
        found.keep()
    else:
        found.read(0, length)
    source.asked.clear()
    assert sum(map(len, found.pieces())) == length
    assert bool(source.asked) == is_more
