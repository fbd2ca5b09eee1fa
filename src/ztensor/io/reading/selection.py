"""Index arithmetic: which elements a NumPy index needs, and in which pieces to read them.

Pure: shapes and indices in, offsets out. `select` takes an index apart axis by axis; `plan` says
which runs of elements hold what is needed, and where each belongs.
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

# Bytes that are cheaper to read than to jump over; so there are at most that few reads.
GAP_BYTES = 64 << 10
# Most bytes of one read that also holds what is not needed.
PIECE_BYTES = 8 << 20
_MOST_RUNS = 1 << 18  # whose places are worked out at a time


# --- Which indices --------------------------------------------------------------------------


class Selection(NamedTuple):
    """What an index needs of an array, axis by axis.

    Attributes:
        wanted: for each axis the indices that are needed, rising, each once.
        key: the same index, into an array of nothing but these.
        is_whole: everything is needed.
    """

    wanted: tuple[Indices, ...]
    key: tuple[Any, ...]
    is_whole: bool


def select(key: object, shape: tuple[int, ...]) -> Selection:
    """Take apart an index of any kind that NumPy knows.

    Several index arrays, and boolean arrays of several dimensions, need the whole box their
    indices span.

    Raises:
        ArgumentTypeError: it is no index.
        ArgumentValueError: it does not fit the shape.
    """
    wanted: list[Indices] = []
    places: list[Any] = []
    for item in _per_axis(key, shape):
        place = item
        if _axes(item):
            indices, place = _along(item, len(wanted), shape[len(wanted)])
            wanted.append(indices)
        places.append(place)
    is_whole = all(
        isinstance(indices, range) and indices == range(length)
        for indices, length in zip(wanted, shape, strict=True)
    )
    return Selection(tuple(wanted), tuple(places), is_whole)


def select_rows(key: object, shape: tuple[int, ...]) -> Indices:
    """Return the indices along the first axis that an index selects, in its order.

    An integer gives a range of one. The other axes must be taken whole.

    Raises:
        ArgumentTypeError: it is no index.
        ArgumentValueError: it does not fit the shape, or selects more than rows.
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
        unique, places = _along(first, 0, shape[0])
        return np.asarray(unique, np.intp)[places] if first.size else range(0)
    raise ArgumentValueError(
        "only rows of such an object can be selected",
        expected="one index for the first axis: an integer, a slice, a list of integers, a mask",
        found=describe(key, 60),
    )


def _axes(item: Any) -> int:
    """Return how many axes a part of an index is for."""
    if item is None or item is Ellipsis or isinstance(item, np.bool_):
        return 0  # they make an axis, or see to it that the result is an array
    return item.ndim if isinstance(item, np.ndarray) and item.dtype.kind == "b" else 1


def _per_axis(key: object, shape: tuple[int, ...]) -> list[Any]:
    """Return the parts of an index, one for each axis, and those that are for none.

    A boolean array stands for the integer arrays of its true places, as NumPy has it. Axes that
    the index leaves out get a slice each; a written `...` is behind those it is for.
    """
    items = [_plain(item) for item in (key if isinstance(key, tuple) else (key,))]
    rests = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(rests) > 1:
        raise ArgumentValueError("an index has one ... at most", found=describe(key, 60))
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
                "a boolean index has the lengths of the axes it is for",
                expected=f"shape {describe(shape[axis : axis + item.ndim], 60)}",
                found=describe(item.shape),
            )
        parts += item.nonzero() if is_mask else [item]
        axis += _axes(item)
    return parts


def _plain(item: Any) -> Any:
    """Return one part of an index as None, ..., a slice, an integer, a bool or an array."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int, np.bool_)):
        return np.bool_(item) if isinstance(item, bool) else item
    with contextlib.suppress(TypeError):  # an array, unless it is one integer without dimensions
        return operator.index(item)
    with contextlib.suppress(ValueError, TypeError):
        found = np.asarray(item)
        if found.size == 0 and not isinstance(item, np.ndarray):
            found = found.astype(np.intp)  # an empty list has no type of its own
        if found.dtype.kind in "iub":
            return found if found.ndim else np.bool_(found)
    raise ArgumentTypeError(
        "no index",
        expected="integers, slices, ..., None, arrays of integers or of bools",
        found=describe(item, 60),
    )


def _along(item: Any, axis: int, length: int) -> tuple[Indices, Any]:
    """Return the rising indices that an axis' part needs, and the index into these."""
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
            "an axis this long takes integers and slices only", found=f"{length} along axis {axis}"
        )
    _require_inside(int(item.min()), int(item.max()), axis, length)
    flat = item.reshape(-1).astype(np.intp)
    flat[flat < 0] += length
    unique, places = np.unique(flat, return_inverse=True)
    first, last = int(unique[0]), int(unique[-1])
    indices = range(first, last + 1) if last - first + 1 == unique.size else unique
    return indices, places.reshape(item.shape)


def _sliced(item: slice, length: int) -> range:
    try:
        return range(length)[item] or range(0)
    except (TypeError, ValueError) as error:  # between things that are no integers; a step of 0
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
    """Return whether NumPy gives a view for an index of an array, and not elements of it."""
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


# --- In which pieces ------------------------------------------------------------------------


class Piece(NamedTuple):
    """Consecutive elements that are read together, and which part of the result they hold.

    Attributes:
        start: the first element, counted through the whole array.
        stop: the one behind the last.
        target: the part of the flat result that they hold.
        runs: None where they are that part, in order. Else (count,) where runs of equal length
            begin, counted from `start`; one after the other they are the part.
    """

    start: int
    stop: int
    target: slice
    runs: NDArray[np.int64] | None = None


def plan(shape: tuple[int, ...], wanted: Sequence[Indices], itemsize: int) -> Iterator[Piece]:
    """Yield the pieces to read, in order, that hold all that is wanted.

    Runs less than `GAP_BYTES` apart are read as one, up to `PIECE_BYTES`.

    Args:
        shape: the array's shape.
        wanted: as `Selection` has it; none of them empty.
        itemsize: bytes of an element.
    """
    axis, length = len(shape), 1  # of a run: elements behind one another that are all wanted
    while axis and len(wanted[axis - 1]) == shape[axis - 1]:
        axis -= 1
        length *= shape[axis]
    low, stride = 0, length
    last = wanted[axis - 1] if axis else ()
    if isinstance(last, range) and (last.step == 1 or len(last) == 1):
        axis -= 1
        low, length, stride = last[0] * length, len(last) * length, shape[axis] * length
    gap, most = max(1, GAP_BYTES // itemsize), max(1, PIECE_BYTES // itemsize)
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
    """Yield where runs begin, in order, some at a time.

    Args:
        wanted: the indices of some axes.
        shape: how long these are.
        stride: elements of one index of the last of them.
        low: where the first run begins.
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
    """Return the elements of the runs of a piece.

    Args:
        window: its elements, flat.
        runs: as `Piece` has them.
        size: of how many elements they are in all.
    """
    plain = window.view(f"V{window.itemsize}")  # NumPy has no windows of types of ml_dtypes
    found = np.lib.stride_tricks.sliding_window_view(plain, size // len(runs))[runs]
    return found.reshape(-1).view(window.dtype)
