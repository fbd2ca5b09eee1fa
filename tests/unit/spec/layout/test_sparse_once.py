"""What 2.x asks of sparse entries: each position once, and columns that rise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import LayoutError, Reason
from ztensor.spec.layout.base import View
from ztensor.spec.layout.sparse import require_entries_once


def coo(shape: tuple[int, ...], *places: tuple[int, ...]) -> View:
    coords = np.array(places, np.uint64).reshape(len(places), len(shape)).T
    arrays: dict[str, Any] = {"coords": coords.reshape(-1), "values": np.ones(len(places))}
    return View(shape, arrays, {})


LONG = 1 << 40
SHAPES = {
    "small": (3, 5),
    "all that an int64 counts": ((1 << 63) - 1,),
    "more than an int64 counts": (LONG, LONG),
    "of one axis": (9,),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_a_position_is_there_once(shape: tuple[int, ...]) -> None:
    """In any order: also of shapes whose positions no number of 64 bits can count."""
    last = tuple(length - 1 for length in shape)
    one, other = tuple(min(2, most) for most in last), (0,) * len(shape)
    for places in ([], [one], [last, one], [last, other, one], [one, last, other]):
        require_entries_once("sparse_coo", coo(shape, *places))
    for places in ([one, one], [last, one, last], [other, last, other, one]):
        with refused(LayoutError, Reason.INDEX_ORDER):
            require_entries_once("sparse_coo", coo(shape, *places))


@pytest.mark.parametrize("shape", [(3, 5), (LONG, LONG)])
def test_positions_that_are_equal_along_one_axis_differ(shape: tuple[int, int]) -> None:
    require_entries_once("sparse_coo", coo(shape, (1, 1), (1, 2), (2, 1), (2, 2)))


@pytest.mark.parametrize(
    ("indices", "pointers", "found"),
    [
        ([], [0, 0], None),
        ([1], [0, 1], None),
        ([0, 3, 4], [0, 3], None),
        ([3, 0, 4], [0, 1, 3], None),
        ([3, 3], [0, 1, 2], None),
        ([3, 1], [0, 0, 1, 1, 2], None),
        ([3, 3], [0, 2], "3"),
        ([3, 1], [0, 2], "1"),
        ([0, 1, 5, 4], [0, 2, 4], "4"),
        ([9, 0, 0], [0, 1, 3], "0"),
    ],
)
def test_the_columns_of_a_row_rise(
    indices: list[int], pointers: list[int], found: str | None
) -> None:
    arrays = {"indices": np.array(indices, np.uint64), "indptr": np.array(pointers, np.uint64)}
    view = View((len(pointers) - 1, 10), arrays, {})
    if found is None:
        require_entries_once("sparse_csr", view)
        return
    with pytest.raises(LayoutError) as caught:
        require_entries_once("sparse_csr", view)
    assert caught.value.found == found
