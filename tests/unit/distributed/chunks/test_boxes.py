"""Boxes tile their shapes, each element once, or the first element that is wrong is named."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from tests.refusals import refused
from ztensor.distributed.chunks.boxes import find_misfit
from ztensor.errors import LimitError, Reason

Shape = tuple[int, ...]
Box = tuple[Shape, Shape]


class Tiles(NamedTuple):
    """Boxes of some tensors as `find_misfit` takes them."""

    offsets: np.ndarray[Any, Any]
    sizes: np.ndarray[Any, Any]
    tensors: np.ndarray[Any, Any]
    shapes: np.ndarray[Any, Any]


def grid(shape: Shape, counts: Shape) -> list[Box]:
    cuts = [[n * cut // c for cut in range(c + 1)] for n, c in zip(shape, counts, strict=True)]
    cells = itertools.product(*(itertools.pairwise(cut) for cut in cuts))
    return [
        (tuple(start for start, _ in cell), tuple(stop - start for start, stop in cell))
        for cell in cells
    ]


def tiles(boxes: list[list[Box]], shapes: list[Shape], dtype: str = "i8") -> Tiles:
    """Return the boxes of each of some tensors of one rank."""
    rank = len(shapes[0])
    offsets, sizes = (
        np.array([box[side] for own in boxes for box in own], dtype).reshape(
            sum(map(len, boxes)), rank
        )
        for side in (0, 1)
    )
    tensors = np.repeat(np.arange(len(boxes)), [len(own) for own in boxes])
    return Tiles(offsets, sizes, tensors, np.array(shapes, np.int64).reshape(len(shapes), rank))


def counts_of(boxes: list[Box], shape: Shape) -> np.ndarray[Any, Any]:
    """Return how many boxes each element of a shape is in."""
    counts: np.ndarray[Any, Any] = np.zeros(shape, int)
    for offsets, sizes in boxes:
        part: Any = tuple(slice(at, at + n) for at, n in zip(offsets, sizes, strict=True))
        counts[(*part, ...)] += 1
    return counts


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[list[Box]], list[Shape]]:
    """Draw boxes of up to three tensors: tilings, cut at will, of which some lost or got a box."""
    rank = draw(st.integers(0, 4))
    shapes = draw(st.lists(st.tuples(*[st.integers(0, 4)] * rank), min_size=1, max_size=3))
    boxes: list[list[Box]] = []
    for shape in shapes:
        own: list[Box] = [((0,) * rank, shape)]
        for _ in range(draw(st.integers(0, 6))):
            offsets, sizes = own.pop(draw(st.integers(0, len(own) - 1)))
            axis = draw(st.integers(0, rank - 1)) if rank else 0
            size = sizes[axis] if rank else 0
            at = draw(st.integers(0, size))  # one side may be empty
            for start, length in ((0, at), (at, size - at)) if rank else ():
                begin = (*offsets[:axis], offsets[axis] + start, *offsets[axis + 1 :])
                own.append((begin, (*sizes[:axis], length, *sizes[axis + 1 :])))
            if not rank:
                own.append((offsets, sizes))
        if draw(st.booleans()):
            harm = draw(st.integers(0, len(own) - 1))
            inside = [draw(st.integers(0, n)) for n in shape]
            lengths = [draw(st.integers(0, n - at)) for n, at in zip(shape, inside, strict=True)]
            other = draw(st.sampled_from([[], [own[harm]] * 2, [(tuple(inside), tuple(lengths))]]))
            own[harm : harm + 1] = other
        boxes.append(draw(st.permutations(own)))
    return boxes, shapes


@settings(max_examples=examples(2000), deadline=None)
@given(drawn(), st.sampled_from([1, 2, 5, 1 << 15]), st.sampled_from(["u1", "i8", "u8"]))
def test_a_misfit_agrees_with_counting_the_elements(
    case: tuple[list[list[Box]], list[Shape]], piece: int, dtype: str
) -> None:
    boxes, shapes = case
    counts = [counts_of(own, shape) for own, shape in zip(boxes, shapes, strict=True)]
    wrong = [number for number, count in enumerate(counts) if (count != 1).any()]
    found = find_misfit(*tiles(boxes, shapes, dtype), piece=piece)
    if found is None:
        assert not wrong
        return
    first = sum(map(len, boxes[: found.tensor]))
    of = [boxes[found.tensor][row - first] for row in found.boxes]
    assert found.tensor == wrong[0]
    assert counts[found.tensor][tuple(found.element)] == len(of) != 1
    assert all(counts_of([box], shapes[found.tensor])[tuple(found.element)] == 1 for box in of)


@pytest.mark.parametrize(("rows", "columns"), [(1, 60_000), (60_000, 1), (240, 250)])
@pytest.mark.parametrize("at", [0, 2_500, 59_999])
def test_an_overlap_with_an_equal_gap_is_found_anywhere(rows: int, columns: int, at: int) -> None:
    shape = (2 * rows, 2 * columns)
    whole = tiles([grid(shape, (rows, columns))], [shape])
    assert find_misfit(*whole) is None
    axis = int(columns > 1)
    whole.offsets[at, axis] += 1 if whole.offsets[at, axis] < shape[axis] - 2 else -1
    found = find_misfit(*whole)
    assert found is not None
    assert len(found.boxes) in (0, 2)


def test_tensors_of_the_largest_shapes_are_checked() -> None:
    side = 1 << 62
    boxes = grid((side, side, side), (2, 3, 1))
    assert find_misfit(*tiles([boxes], [(side,) * 3])) is None
    found = find_misfit(*tiles([boxes[1:]], [(side,) * 3]))
    assert found == (0, [0, 0, 0], [])


def test_corners_are_distinct_where_their_coordinates_need_more_than_64_bits() -> None:
    """One side of a shape is cut along the last axis only, the other so that all axes have cuts."""
    side = (1 << 62) - 1
    one, other = grid((1, side, side), (1, 1, 5)), grid((1, side, side), (1, 2, 6))
    boxes = [*one, *(((1, *offsets[1:]), sizes) for offsets, sizes in other)]
    assert find_misfit(*tiles([boxes], [(2, side, side)]), piece=1) is None
    found = find_misfit(*tiles([boxes[1:]], [(2, side, side)]), piece=1)
    assert found == (0, [0, 0, 0], [])


@pytest.mark.parametrize(
    "counts", [(400_000,), (800, 500), (1, 400_000), (2, 200_000), (25, 25, 25, 26)]
)
@pytest.mark.slow
def test_many_boxes_of_one_tensor_take_little_memory(counts: Shape) -> None:
    shape = tuple(2 * count for count in counts)
    boxes = np.indices(counts).reshape(len(counts), -1).T
    case = 2 * boxes, np.full_like(boxes, 2), np.zeros(len(boxes), int), np.array([shape])
    tracemalloc.start()
    assert find_misfit(*case) is None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def split(count: int, rank: int, side: int) -> Tiles:
    """Return a cube in boxes: each but the first was cut off one that was there."""
    draw = np.random.default_rng(1)
    offsets, sizes = np.zeros((count, rank), int), np.full((count, rank), side)
    for box in range(1, count):
        other, axis = draw.integers(box), draw.integers(rank)
        offsets[box], sizes[box] = offsets[other], sizes[other]
        at = sizes[other, axis] // 2
        sizes[other, axis] = at
        offsets[box, axis] += at
        sizes[box, axis] -= at
    return Tiles(offsets, sizes, np.zeros(count, int), np.full((1, rank), side))


def test_a_few_boxes_may_be_cut_along_many_axes() -> None:
    assert find_misfit(*split(200, 64, 1000)) is None


@pytest.mark.slow
def test_boxes_cut_along_very_many_axes_end_at_a_limit() -> None:
    with refused(LimitError, Reason.LIMIT_COST):
        find_misfit(*split(4000, 64, 1000))
