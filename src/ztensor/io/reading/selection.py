"""Index arithmetic: the elements that a NumPy index needs, and the pieces to read them in.

Pure functions from shapes and indices to offsets. `select` splits an index by axis; `plan` gives
the runs of elements to read and their positions in the result.
"""

from __future__ import annotations

import contextlib
import math
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.spec.layout.base import Indices

# Gaps up to this size are read along: cheaper than another read.
GAP_BYTES = 64 << 10
# The most bytes of one read that includes gaps.
PIECE_BYTES = 8 << 20
_MOST_RUNS = 1 << 18  # computed at a time


# --- Which indices --------------------------------------------------------------------------


class Selection(NamedTuple):
    """The elements that an index needs, axis by axis.

    Attributes:
        wanted: for each axis the needed indices, ascending and distinct.
        key: the equivalent index into the array of only these elements.
        is_whole: whether every element is needed.
    """

    wanted: tuple[Indices, ...]
    key: tuple[Any, ...]
    is_whole: bool


def select(key: object, shape: tuple[int, ...]) -> Selection:
    """Return the selection of any index that NumPy accepts.

    Several index arrays, and boolean arrays of several dimensions, need the whole box that their
    indices span.

    Raises:
        ArgumentTypeError: `key` is not an index.
        ArgumentValueError: `key` does not fit the shape.
    """
    wanted: list[Indices] = []
    inner_key: list[Any] = []
    for item in _per_axis(key, shape):
        inner = item
        if _axes(item):
            indices, inner = _along(item, len(wanted), shape[len(wanted)])
            wanted.append(indices)
        inner_key.append(inner)
    is_whole = all(
        isinstance(indices, range) and indices == range(length)
        for indices, length in zip(wanted, shape, strict=True)
    )
    return Selection(tuple(wanted), tuple(inner_key), is_whole)


def select_rows(key: object, shape: tuple[int, ...]) -> Indices:
    """Return the indices along the first axis that an index selects, in its order.

    An integer gives a range of one. The other axes must be taken whole.

    Raises:
        ArgumentTypeError: `key` is not an index.
        ArgumentValueError: `key` does not fit the shape, or selects other than whole rows.
    """
    first, *others = (part for part in _per_axis(key, shape) if part is not Ellipsis)
    are_whole = all(
        isinstance(item, slice) and _sliced(item, length) == range(length)
        for item, length in zip(others, shape[1:], strict=False)
    )
    if are_whole and isinstance(first, slice):
        return _sliced(first, shape[0])
    if are_whole and isinstance(first, int):
        return _along(first, 0, shape[0])[0]
    if are_whole and isinstance(first, np.ndarray) and first.ndim == 1:
        unique, inverse = _along(first, 0, shape[0])
        return np.asarray(unique, np.intp)[inverse] if first.size else range(0)
    raise ArgumentValueError(
        "only rows can be selected here",
        expected="one index for the first axis: an integer, a slice, a list of integers, a mask",
        found=describe(key, 60),
    )


def _axes(item: Any) -> int:
    """Return the number of axes that one item of an index consumes."""
    if item is None or item is Ellipsis or isinstance(item, np.bool_):
        return 0  # they add an axis, or make the result an array
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _per_axis(key: object, shape: tuple[int, ...]) -> list[Any]:
    """Return the items of an index: one per axis, and those that consume no axis.

    A boolean array becomes the integer arrays of its true positions, as in NumPy. Omitted axes get
    a full slice; a written `...` stays, after the slices that it stands for.
    """
    items = [_normalized(item) for item in (key if isinstance(key, tuple) else (key,))]
    rests = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(rests) > 1:
        raise ArgumentValueError("an index has at most one `...`", found=describe(key, 60))
    axes = sum(map(_axes, items))
    if axes > len(shape):
        raise ArgumentValueError(
            "the index has too many dimensions",
            expected=f"at most {len(shape)} for shape {describe(shape, 60)}",
            found=str(axes),
        )
    at = rests[0] if rests else len(items)
    items[at:at] = [slice(None)] * (len(shape) - axes)
    axis = 0
    parts: list[Any] = []
    for item in items:
        is_mask = isinstance(item, np.ndarray) and item.dtype.kind == "b"
        if is_mask and item.shape != shape[axis : axis + item.ndim]:
            raise ArgumentValueError(
                "a boolean index must have the lengths of its axes",
                expected=f"shape {describe(shape[axis : axis + item.ndim], 60)}",
                found=describe(item.shape),
            )
        parts += item.nonzero() if is_mask else [item]
        axis += _axes(item)
    return parts


def _normalized(item: Any) -> Any:
    """Return one item of an index as None, ..., a slice, an integer, a bool or an array."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int, np.bool_)):
        return np.bool_(item) if isinstance(item, bool) else item
    with contextlib.suppress(TypeError):  # a list or array
        return operator.index(item)
    with contextlib.suppress(ValueError, TypeError):
        array = np.asarray(item)
        if array.size == 0 and not isinstance(item, np.ndarray):
            array = array.astype(np.intp)  # NumPy makes float64 of an empty list
        if array.dtype.kind in "iub":
            return array if array.ndim else np.bool_(array)
    raise ArgumentTypeError(
        "not an index",
        expected="integers, slices, ..., None, arrays of integers or of bools",
        found=describe(item, 60),
    )


def _along(item: Any, axis: int, length: int) -> tuple[Indices, Any]:
    """Return the indices that an item needs of its axis, ascending, and the index into them."""
    if isinstance(item, slice):
        chosen = _sliced(item, length)
        if chosen.step < 0:
            return chosen[::-1], slice(None, None, -1)
        return chosen, slice(None)
    if isinstance(item, int):
        _require_inside(item, item, axis, length)
        index = item % length
        return range(index, index + 1), 0
    if not item.size:
        return range(0), item.astype(np.intp)
    if length > sys.maxsize:
        raise ArgumentValueError(
            "an axis this long takes only integers and slices", found=f"{length} along axis {axis}"
        )
    _require_inside(int(item.min()), int(item.max()), axis, length)
    flat = item.reshape(-1).astype(np.intp)
    flat[flat < 0] += length
    unique, inverse = np.unique(flat, return_inverse=True)
    first, last = int(unique[0]), int(unique[-1])
    indices = range(first, last + 1) if last - first + 1 == unique.size else unique
    return indices, inverse.reshape(item.shape)


def _sliced(item: slice, length: int) -> range:
    try:
        return range(length)[item] or range(0)
    except (TypeError, ValueError) as error:  # bounds that are not integers; a step of 0
        kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentValueError
        raise kind(f"the slice does not fit: {error}", found=describe(item, 60)) from error


def _require_inside(low: int, high: int, axis: int, length: int) -> None:
    if low < -length or high >= length:
        bounds = f"{-length} to {length - 1} along" if length else "none: empty is"
        raise ArgumentValueError(
            "the index is out of bounds",
            expected=f"{bounds} axis {axis}",
            found=describe(low if low < -length else high),
        )


def gives_view(key: Any, rank: int) -> bool:
    """Return whether NumPy returns a view for an index, not a copy or a scalar."""
    if type(key) is slice:
        return rank > 0
    integers, is_array = 0, False
    for part in key if isinstance(key, tuple) else (key,):
        if part is Ellipsis:
            is_array = True
        elif type(part) is int or isinstance(part, np.integer):
            integers += 1
        elif part is not None and type(part) is not slice:
            return False
    return is_array or integers < rank


# --- Pieces to read -------------------------------------------------------------------------


class Piece(NamedTuple):
    """Consecutive elements that are read together, and their position in the result.

    Attributes:
        start: the first element, as index into the flat array.
        stop: the end, as index into the flat array.
        target: the slice of the flat result to fill.
        runs: None if the elements are `target` in order. Else (count,) int64, the starts of runs
            of equal length, relative to `start`; concatenated they are `target`.
    """

    start: int
    stop: int
    target: slice
    runs: NDArray[np.int64] | None = None


def plan(shape: tuple[int, ...], wanted: Sequence[Indices], itemsize: int) -> Iterator[Piece]:
    """Yield the pieces to read, in order, that contain a selection.

    Runs less than `GAP_BYTES` apart are read as one piece, up to `PIECE_BYTES`.

    Args:
        shape: the array's shape.
        wanted: see `Selection`; not empty along any axis.
        itemsize: bytes of an element.
    """
    axis, length = len(shape), 1  # length of a run: consecutive elements that are all wanted
    while axis and len(wanted[axis - 1]) == shape[axis - 1]:
        axis -= 1
        length *= shape[axis]
    low, stride = 0, length
    last = wanted[axis - 1] if axis else ()
    if isinstance(last, range) and (last.step == 1 or len(last) == 1):
        axis -= 1
        low, length, stride = last[0] * length, len(last) * length, shape[axis] * length
    gap, most = GAP_BYTES // itemsize, PIECE_BYTES // itemsize
    done = 0
    for starts in _starts(wanted[:axis], shape[:axis], stride, low):
        far = np.flatnonzero(np.diff(starts) >= length + gap) + 1
        for near in np.split(starts, far):
            left = near
            while len(left):
                reach = left[0] + max(0, most - length)
                runs = left[: int(np.searchsorted(left, reach, "right"))]
                start, stop = int(runs[0]), int(runs[-1]) + length
                size = len(runs) * length
                is_run = stop - start == size
                yield Piece(start, stop, slice(done, done + size), None if is_run else runs - start)
                done += size
                left = left[len(runs) :]


def _starts(
    wanted: Sequence[Indices], shape: Sequence[int], stride: int, low: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the starts of runs in order, in arrays of at most `_MOST_RUNS`.

    Args:
        wanted: the indices along the leading axes.
        shape: the lengths of these axes.
        stride: elements per index of the last of these axes.
        low: the offset of the first element within a stride.
    """
    count = math.prod(map(len, wanted))
    for first in range(0, count, _MOST_RUNS):
        numbers = np.arange(first, min(first + _MOST_RUNS, count))
        starts = np.full(len(numbers), low, np.int64)
        step = stride
        for indices, length in zip(reversed(wanted), reversed(shape), strict=True):
            numbers, at = np.divmod(numbers, len(indices))
            if isinstance(indices, range):
                starts += (at * indices.step + indices.start) * step
            else:
                starts += indices[at] * step
            step *= length
        yield starts


def gathered(window: NDArray[Any], runs: NDArray[np.int64], size: int) -> NDArray[Any]:
    """Return the concatenated runs of a piece.

    Args:
        window: the piece's elements, flat.
        runs: see `Piece`.
        size: the number of elements of all runs.
    """
    opaque = window.view(f"V{window.itemsize}")  # NumPy has no windows over types of ml_dtypes
    rows = np.lib.stride_tricks.sliding_window_view(opaque, size // len(runs))[runs]
    return rows.reshape(-1).view(window.dtype)
