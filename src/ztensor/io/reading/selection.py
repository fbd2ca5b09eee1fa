"""Index arithmetic: which elements a NumPy index needs, and in which pieces to read them.

Pure: shapes and indices in, offsets out. `select` takes an index apart axis by axis; `plan` says
which runs of elements hold what is needed, and where each belongs.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ztensor.spec.layout.base import Indices

# Bytes that are cheaper to read than to jump over; so there are at most that few reads.
GAP_BYTES = 64 << 10
# Most bytes of one read that also holds what is not needed.
PIECE_BYTES = 8 << 20
_MOST_RUNS = 1 << 18  # whose places are worked out at a time


# --- Which indices --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
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
        if item is None or isinstance(item, np.bool_):
            places.append(item)  # both make an axis, and index none
        elif isinstance(item, _Rest):
            wanted.extend(range(length) for length in shape[len(wanted) : len(wanted) + item.axes])
            places.extend([Ellipsis] * item.is_written)  # it makes a scalar an array
        else:
            axis = len(wanted)
            indices, place = _along(item, axis, shape[axis])
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
    parts: list[Any] = []
    for part in _per_axis(key, shape):
        parts.extend([slice(None)] * part.axes if isinstance(part, _Rest) else [part])
    first, *others = parts
    for item, length in zip(others, shape[1:], strict=False):
        if not isinstance(item, slice) or _sliced(item, length) != range(length):
            raise _only_rows(key)
    if isinstance(first, slice):
        return _sliced(first, shape[0])
    if isinstance(first, int):
        return _along(first, 0, shape[0])[0]
    if isinstance(first, np.ndarray) and first.ndim == 1:
        unique, places = _along(first, 0, shape[0])
        if not first.size:
            return range(0)
        rows: NDArray[np.intp] = np.asarray(unique, np.intp)[places]
        return rows
    raise _only_rows(key)


def _only_rows(key: object) -> ArgumentValueError:
    return ArgumentValueError(
        "only rows of such an object can be selected",
        expected="one index for the first axis: an integer, a slice, a list of integers, a mask",
        found=describe(key, 60),
    )


class _Rest(NamedTuple):
    """`...`, or what an index leaves out at its end: so many whole axes."""

    axes: int
    is_written: bool


def _per_axis(key: object, shape: tuple[int, ...]) -> list[Any]:
    """Return the parts of an index, each for one axis; None, single bools and `_Rest` apart.

    A boolean array stands for the integer arrays of its true places, as NumPy has it.
    """
    items: list[Any] = []
    rest_at = None
    axis = 0
    for given in key if isinstance(key, tuple) else (key,):
        item = _plain(given)
        if item is Ellipsis:
            if rest_at is not None:
                raise ArgumentValueError("an index has one ... at most", found=describe(key, 60))
            rest_at = len(items)
        elif isinstance(item, np.ndarray) and item.dtype.kind == "b":
            axis += item.ndim
            items.append(item)
            continue
        elif item is not None and not isinstance(item, np.bool_):
            axis += 1
        items.append(item)
    left = len(shape) - axis
    if left < 0:
        raise ArgumentValueError(
            "the index has too many dimensions",
            expected=f"at most {len(shape)} for shape {describe(shape, 60)}",
            found=str(axis),
        )
    if rest_at is None:
        items.append(_Rest(left, is_written=False))
    else:
        items[rest_at] = _Rest(left, is_written=True)
    axis = 0
    parts: list[Any] = []
    for item in items:
        if isinstance(item, _Rest):
            axis += item.axes
            parts.append(item)
        elif isinstance(item, np.ndarray) and item.dtype.kind == "b":
            if item.shape != shape[axis : axis + item.ndim]:
                raise ArgumentValueError(
                    "a boolean index has the lengths of the axes it is for",
                    expected=f"shape {describe(shape[axis : axis + item.ndim], 60)}",
                    found=describe(item.shape),
                )
            axis += item.ndim
            parts.extend(item.nonzero())
        else:
            axis += item is not None and not isinstance(item, np.bool_)
            parts.append(item)
    return parts


def _plain(item: Any) -> Any:
    """Return one part of an index as None, ..., a slice, an integer, a bool or an array."""
    if item is None or item is Ellipsis or isinstance(item, (slice, int, np.bool_)):
        return np.bool_(item) if isinstance(item, bool) else item
    try:
        return operator.index(item)
    except TypeError:  # also of an array, unless it is one integer without dimensions
        pass
    try:
        found = np.asarray(item)
    except (ValueError, TypeError) as error:
        raise _no_index(item) from error
    if found.size == 0 and not isinstance(item, np.ndarray):
        found = found.astype(np.intp)  # an empty list has no type of its own
    if found.dtype.kind not in "iub":
        raise _no_index(item)
    return found if found.ndim else np.bool_(found)


def _no_index(item: object) -> ArgumentTypeError:
    return ArgumentTypeError(
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
        index = item + length if item < 0 else item
        return range(index, index + 1), 0
    if not item.size:
        return range(0), item.astype(np.intp)
    if length > sys.maxsize:
        raise ArgumentValueError(
            "an axis this long takes integers and slices only", found=f"{length} along axis {axis}"
        )
    _require_inside(int(item.min()), int(item.max()), axis, length)
    flat = item.reshape(-1).astype(np.intp)
    if item.dtype.kind == "i":
        flat[flat < 0] += length
    unique, places = np.unique(flat, return_inverse=True)
    first, last = int(unique[0]), int(unique[-1])
    indices = range(first, last + 1) if last - first + 1 == unique.size else unique
    return indices, places.reshape(item.shape)


def _sliced(item: slice, length: int) -> range:
    try:
        chosen = range(length)[item]
    except TypeError as error:  # a slice between things that are no integers
        raise ArgumentTypeError(
            f"a slice takes integers: {error}", found=describe(item, 60)
        ) from error
    except ValueError as error:
        raise ArgumentValueError(
            f"the slice does not fit: {error}", found=describe(item, 60)
        ) from error
    return chosen if chosen else range(0)


def _require_inside(low: int, high: int, axis: int, length: int) -> None:
    if low < -length or high >= length:
        raise ArgumentValueError(
            "the index is out of bounds",
            expected=f"{-length} to {length - 1} along axis {axis}"
            if length
            else f"none: axis {axis} is empty",
            found=describe(low if low < -length else high),
        )


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
