"""Arithmetic of boxes, which are NumPy columns of offsets and sizes along each axis.

Which boxes overlap, and whether boxes tile the shapes that they are parts of.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import LimitError, Reason

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

# Limit of compared corners: a grid has two for each box, uneven tiles in four axes sixteen.
_CORNERS_A_BOX, _LEAST_CORNERS = 64, 1 << 20


class Overlap(NamedTuple):
    """The intersection of two boxes: as slices of the first, of the second, and its lengths."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]
    sizes: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether the boxes do not overlap."""
        return 0 in self.sizes

    @property
    def in_target(self) -> Any:
        """Return `target` as an index that returns a view, also without axes."""
        return (*self.target, ...)


def is_within(offsets: Sequence[int], sizes: Sequence[int], shape: Sequence[int]) -> bool:
    """Return whether the box (offsets, sizes) is inside a shape."""
    return len(offsets) == len(sizes) == len(shape) and all(
        start >= 0 and size >= 0 and start + size <= length
        for start, size, length in zip(offsets, sizes, shape, strict=True)
    )


def overlap(
    offsets: Sequence[int], sizes: Sequence[int], others: Sequence[int], lengths: Sequence[int]
) -> Overlap:
    """Return the intersection of the box (offsets, sizes) and the box (others, lengths)."""
    source, target, common = [], [], []
    for offset, size, other, length in zip(offsets, sizes, others, lengths, strict=True):
        start = max(offset, other)
        count = max(0, min(offset + size, other + length) - start)
        source.append(slice(start - offset, start - offset + count))
        target.append(slice(start - other, start - other + count))
        common.append(count)
    return Overlap(tuple(source), tuple(target), tuple(common))


def touching(offsets: Array, sizes: Array, others: Sequence[int], lengths: Sequence[int]) -> Array:
    """Return the rows of (offsets, sizes) that overlap the box (others, lengths), ascending."""
    hits = np.ones(len(offsets), np.bool_)
    for axis, (other, length) in enumerate(zip(others, lengths, strict=True)):
        starts, counts = offsets[:, axis], sizes[:, axis]
        hits &= (starts < other + length) & (counts > 0)
        hits &= starts.astype(np.int64) + counts.astype(np.int64) > other
        if length <= 0:
            hits[:] = False
    return np.flatnonzero(hits)


class Misfit(NamedTuple):
    """An element that is not in exactly one box.

    Attributes:
        tensor: the row of its tensor.
        element: its indices.
        boxes: the rows of the boxes that have it; empty, or several.
    """

    tensor: int
    element: list[int]
    boxes: list[int]


def find_misfit(
    offsets: Array, sizes: Array, tensors: Array, shapes: Array, piece: int = 1 << 15
) -> Misfit | None:
    """Return the first element that is not in exactly one box; None if there is none.

    A box is the signed sum of its corners. Boxes tile a shape if and only if their corners, minus
    the shape's corners, cancel; corners at the far side of a shape follow from the others. Axis by
    axis equal corners are sorted together and summed, so that few are left of neighbours. At the
    first that is left the coverage changes from one: the element there has no box, or several.

    Args:
        offsets: (boxes, axes) integers.
        sizes: (boxes, axes) integers; each box is within its shape.
        tensors: (boxes,) the row of `shapes` that each box is a part of.
        shapes: (tensors, axes) int64.
        piece: how many corners are compared at a time, so that memory stays small.

    Raises:
        LimitError: the boxes have too many corners that no neighbour cancels.
    """
    if not shapes.shape[1]:  # of one element each
        boxes, whole = np.ones((len(offsets), 1), np.int64), np.ones((len(shapes), 1), np.int64)
        found = find_misfit(0 * boxes, boxes, tensors, whole)
        return found and found._replace(element=[])
    left = _first_left(offsets, sizes, tensors, shapes, piece)
    if left is None:
        return None
    tensor, element = left
    own = np.flatnonzero(tensors == tensor)
    hits = touching(offsets[own], sizes[own], element, [1] * len(element))
    return Misfit(tensor, element, own[hits].tolist())


class _Corners(NamedTuple):
    """Corners with known coordinates along some axes.

    Attributes:
        group: (corners,) a number for these coordinates, in the same order.
        row: (corners,) the box; shapes follow the boxes.
        weight: (corners,) the sum of its signs.
        is_stop: (corners, axes) whether a coordinate is the end of the box.
    """

    group: Array
    row: Array
    weight: Array
    is_stop: Array


def _first_left(
    offsets: Array, sizes: Array, tensors: Array, shapes: Array, piece: int
) -> tuple[int, list[int]] | None:
    """Return the tensor and the coordinates of the first corner that no other cancels."""
    count, rank = len(offsets), shapes.shape[1]
    dtype = np.dtype(np.int32 if shapes.max(initial=0) < 1 << 31 else np.int64)
    starts = np.zeros((count + len(shapes), rank), dtype)
    starts[:count] = offsets
    stops = np.concatenate((starts[:count], shapes), dtype=dtype)
    stops[:count] += sizes.astype(dtype)
    tensor_of = np.concatenate((tensors, np.arange(len(shapes))), dtype=np.int32)
    row = np.flatnonzero((starts < stops).all(axis=1)).astype(np.int32)
    weight = np.where(row < count, 1, -1).astype(np.int32)

    def inner(row: Array, axis: int) -> Array:
        """Return the boxes that end before the far side."""
        return np.flatnonzero(stops[row, axis] < shapes[tensor_of[row], axis]).astype(np.int32)

    axes = sorted(range(rank), key=lambda axis: len(inner(row, axis)))  # few cuts first
    most = _LEAST_CORNERS + _CORNERS_A_BOX * len(row)
    corners = _Corners(tensor_of[row], row, weight, np.zeros((len(row), rank), np.bool_))
    pieces = [(0, corners)] if len(row) else []
    while pieces:
        depth, old = pieces.pop()
        most -= len(old.row)
        if most < 0:
            raise LimitError(
                "the chunks of tensors are cut along so many axes that it would take too long to "
                "see whether they overlap",
                reason=Reason.LIMIT_COST,
            )
        if depth == rank:
            one, at_stop = old.row[0], old.is_stop[0]
            return int(tensor_of[one]), np.where(at_stop, stops[one], starts[one]).tolist()
        axis, others = axes[depth], axes[depth + 1 :]
        ends = inner(old.row, axis)
        places = np.concatenate((starts[old.row, axis], stops[old.row[ends], axis]))
        if others and not places.any():  # all have the length of the shape
            pieces.append((depth + 1, old))
            continue
        at = np.concatenate((np.arange(len(old.row), dtype=np.int32), ends))
        group = _numbers(old.group[at], places)
        merged = []
        for some in _runs(group, piece):
            row, is_end = old.row[at[some]], some >= len(old.row)
            sides = (side[row, other] for other in others for side in (starts, stops))
            order, firsts = _sorted(_numbers(group[some], *sides))
            weight = np.where(is_end, -old.weight[at[some]], old.weight[at[some]])
            total = np.add.reduceat(weight[order], firsts)
            kept = order[firsts[total != 0]]
            is_stop = old.is_stop[at[some[kept]]]
            is_stop[:, axis] = is_end[kept]
            if len(kept):
                new = _Corners(group[some[kept]], row[kept], total[total != 0], is_stop)
                merged.append((depth + 1, new))
        pieces += reversed(merged)
    return None


def _numbers(numbers: Array, *columns: Array) -> Array:
    """Return numbers for the rows of columns, in the order of the rows, equal for equal rows."""
    numbers = numbers.astype(np.int64)
    top = int(numbers.max(initial=0)) + 1
    for column in columns:
        span = int(column.max(initial=0)) + 1
        part = column
        if top * span > 1 << 62:  # ranks instead: at most the square of the number of rows
            numbers, part = (np.unique(one, return_inverse=True)[1] for one in (numbers, column))
            top, span = int(numbers.max()) + 1, int(part.max()) + 1
        numbers *= span
        numbers += part
        top *= span
    return numbers


def _sorted(numbers: Array) -> tuple[Array, Array]:
    """Return the sorted order of numbers, and the first position of each number in it."""
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    is_first = np.concatenate((np.ones(1, np.bool_), numbers[1:] != numbers[:-1]))
    return order, np.flatnonzero(is_first)


def _runs(group: Array, piece: int) -> Iterator[Array]:
    """Yield places of whole groups, in the order of these, about `piece` at a time."""
    if len(group) <= piece:
        yield np.arange(len(group))
        return
    order, firsts = _sorted(group)
    cuts = firsts[np.searchsorted(firsts, np.arange(0, len(group), piece), side="right") - 1]
    for start, stop in itertools.pairwise([*np.unique(cuts).tolist(), len(group)]):
        yield order[start:stop]
