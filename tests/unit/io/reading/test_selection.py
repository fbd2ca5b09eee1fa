"""What an index needs, and the pieces it is read in."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from ztensor.errors import ArgumentValueError
from ztensor.io.reading import selection
from ztensor.io.reading.selection import plan, select, select_rows


@pytest.mark.parametrize(("key", "found"), [([-5, 7], 7), ([-6, 4], -6), (5, 5), (-6, -6)], ids=str)
def test_what_is_out_of_bounds_is_told(key: Any, found: int) -> None:
    with pytest.raises(ArgumentValueError) as caught:
        select(key, (5,))
    assert (caught.value.expected, caught.value.found) == ("-5 to 4 along axis 0", str(found))


ROWS: list[tuple[Any, Any]] = [
    (2, range(2, 3)),
    (-5, range(1)),
    (np.int8(1), range(1, 2)),
    (slice(1, 4), range(1, 4)),
    (slice(None, None, -2), range(4, -1, -2)),
    (slice(4, 4), range(0)),
    (slice(3, 1), range(0)),
    (..., range(5)),
    ((), range(5)),
    ((slice(1, 2), slice(None)), range(1, 2)),
    ((slice(1, 2), slice(-9, 9)), range(1, 2)),
    ((slice(1, 2), ...), range(1, 2)),
    ((..., slice(1, 2), slice(None)), range(1, 2)),
    (slice(0, 1 << 70, 1 << 69), range(0, 5, 1 << 69)),
]


@pytest.mark.parametrize(("key", "rows"), ROWS, ids=str)
def test_rows(key: Any, rows: range) -> None:
    assert select_rows(key, (5, 3)) == rows


@pytest.mark.parametrize(
    "key",
    [
        (0, 1),
        (slice(None), slice(1, None)),
        (..., 1),
        (None, 1),
        True,
        [[0, 1]],
        np.ones((5, 3), bool),
        ([0, 1], [0, 1]),
        5,
        (0, 0, 0),
    ],
    ids=str,
)
def test_what_are_no_rows(key: Any) -> None:
    with pytest.raises(ArgumentValueError):
        select_rows(key, (5, 3))


def test_axes_longer_than_any_array() -> None:
    shape = (1 << 64, 1 << 63)
    assert select_rows(slice(-2, None), shape) == range((1 << 64) - 2, 1 << 64)
    assert select_rows(-1, shape) == range((1 << 64) - 1, 1 << 64)
    found = select([0, -1], (sys.maxsize,)).wanted[0]
    assert [int(index) for index in found] == [0, sys.maxsize - 1]
    for key in ([0], [-1], np.array([1 << 63], np.uint64)):
        with pytest.raises(ArgumentValueError):
            select_rows(key, shape)


# --- Pieces -------------------------------------------------------------------------------------


def runs(key: Any, shape: tuple[int, ...], itemsize: int = 4) -> list[tuple[int, int]]:
    pieces = plan(shape, select(key, shape).wanted, itemsize)
    return [(piece.start, piece.stop) for piece in pieces]


def test_no_piece_with_gaps_is_larger_than_the_cap() -> None:
    most = selection.PIECE_BYTES // 4
    length = 10 * most
    found = runs(slice(None, None, 2), (length,))
    assert len(found) <= 40
    assert all(stop - start <= most for start, stop in found)
    assert (found[0][0], found[-1][1]) == (0, length - 1)
    rows = np.array([index for index in range(length // 4096) if index % 3])
    found = runs((rows, slice(1, None)), (length // 4096, 4096))
    assert all(stop - start <= most for start, stop in found)
    assert len(found) <= 10 * 2


def test_what_lies_together_is_one_piece_of_any_size() -> None:
    assert runs(slice(1, None), (1 << 40,)) == [(1, 1 << 40)]
    assert runs(slice(1, None), (1 << 20, 1 << 20), 8) == [(1 << 20, 1 << 40)]
