"""Several files as one source."""

from __future__ import annotations

import pytest

from ztensor.ext import JoinedSource, source_of

PARTS = [(0, b"abcd"), (8, b"efg"), (11, b"h"), (16, b"ijkl")]
WHOLE = b"abcd\0\0\0\0efgh\0\0\0\0ijkl"


@pytest.mark.parametrize("length", [1, 3, 6, 20])
def test_bytes_between_files_are_zeros(length: int) -> None:
    source = JoinedSource([(start, source_of(data, mapped=True)) for start, data in PARTS])
    assert source.size == len(WHOLE)
    starts = range(len(WHOLE) - length + 1)
    for start in starts:
        assert bytes(source.read(start, length)) == WHOLE[start : start + length]
    several = [(start, bytearray(length)) for start in starts]
    source.read_many([(start, memoryview(target)) for start, target in several])
    assert all(target == WHOLE[start : start + length] for start, target in several)
