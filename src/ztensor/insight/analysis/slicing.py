"""A matrix of a tensor, by two of its axes and an index on every other axis, as a map of tiles.

It is read in groups of rows, so memory does not depend on the size; the caller may stop it between
groups.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import TensorSlice
from ztensor.errors import ArgumentValueError, LimitError, Reason, describe
from ztensor.ext import ObjectReader, slice_of
from ztensor.insight.analysis.channels import Channels, ChannelSums, is_float
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_PIECE = 1 << 18  # values read at once
_MOST_CHANNELS = 1 << 20  # most on an axis: their sums are held in memory


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """The choice of a matrix in a tensor.

    Attributes:
        rows: the axis of the rows; None for a tensor of one axis, which is one row.
        columns: the axis of the columns.
        at: an index on each axis, ignored for `rows` and `columns`.
        spans: half-open ranges of the rows and of the columns.
    """

    rows: int | None
    columns: int
    at: tuple[int, ...]
    spans: tuple[tuple[int, int], tuple[int, int]]


@dataclasses.dataclass(frozen=True, slots=True)
class CutMap:
    """The map of a cut.

    Attributes:
        channels: norms of its rows and columns, and the RMS of its tiles.
        values: the values, row by row, if each is a tile; else None.
        shape: the number of rows and columns.
    """

    channels: Channels
    values: tuple[float, ...] | None
    shape: tuple[int, int]


def map_cut(
    reader: ObjectReader,
    name: str,
    cut: Cut,
    tiles: tuple[int, int],
    check: Callable[[], None],
) -> CutMap:
    """Return the map of a matrix of a tensor. Digests are not checked if only parts are read.

    Args:
        reader: an open file or set.
        name: the tensor.
        cut: the matrix.
        tiles: the most tiles along each axis.
        check: called between pieces; may raise to end the work.

    Raises:
        ArgumentValueError: the cut does not fit the tensor.
        UsageError: the tensor's layout has no slices.
        FormatError: the stored bytes are damaged.
        LimitError: the cut has more than 2^20 rows or columns, or a safety cap is exceeded.
        SourceError: the bytes could not be read.
    """
    file = reader.objects.part(name)
    part, is_dense = slice_of(file, name, copy=True), file.object(name).format == "dense"
    _require_fit(part, cut)
    (top, bottom), (left, right) = cut.spans
    shape = bottom - top, right - left
    sums, kept = ChannelSums(shape, tiles), []
    is_whole = shape[0] <= tiles[0] and shape[1] <= tiles[1]
    with np.errstate(all="ignore"):  # NaN and overflow are counted
        for block in _pieces(part, cut, shape, is_dense=is_dense):
            check()
            flat = block.reshape(-1)
            sums.feed(flat if is_float(flat.dtype) else flat.astype(np.float64))
            if is_whole:
                kept.append(np.abs(flat) if flat.dtype.kind == "c" else flat)
    channels = sums.finish()
    if channels is None:  # no elements
        raise ArgumentValueError("the matrix has no elements", found=describe(shape))
    values = None
    if is_whole:
        values = tuple(np.concatenate(kept).astype(np.float64).tolist())
    return CutMap(channels, values, shape)


def _require_fit(part: TensorSlice, cut: Cut) -> None:
    shape, rank = part.shape, len(part.shape)
    axes = [cut.columns] if cut.rows is None else [cut.rows, cut.columns]
    fits = rank > 0 and (cut.rows is None) == (rank == 1) and len(set(axes)) == len(axes)
    fits = fits and all(0 <= axis < rank for axis in axes) and len(cut.at) == rank
    if not fits:
        raise ArgumentValueError("the axes do not fit the tensor", found=describe(axes))
    for axis, (place, length) in enumerate(zip(cut.at, shape, strict=True)):
        if axis not in axes and not 0 <= place < length:
            raise ArgumentValueError(
                "an index is out of range", expected=f"below {length}", found=str(place)
            )
    lengths = [1 if cut.rows is None else shape[cut.rows], shape[cut.columns]]
    for (start, stop), length in zip(cut.spans, lengths, strict=True):
        if not 0 <= start < stop <= length:
            raise ArgumentValueError(
                "rows or columns are out of range",
                expected=f"some of {length}",
                found=f"{start} to {stop}",
            )
        if stop - start > _MOST_CHANNELS:
            raise LimitError(
                "too many rows or columns",
                reason=Reason.LIMIT_COST,
                expected=f"at most {_MOST_CHANNELS}",
                found=str(stop - start),
            )


def _pieces(
    part: TensorSlice, cut: Cut, shape: tuple[int, int], *, is_dense: bool
) -> Iterator[Array]:
    """Yield the values of a cut in order, in groups of rows or in parts of a row."""
    (top, _), (left, right) = cut.spans
    height = max(_PIECE // shape[1], 1)
    for row in range(top, top + shape[0], height):
        rows = slice(row, min(row + height, top + shape[0]))
        for column in range(left, right, _PIECE):
            columns = slice(column, min(column + _PIECE, right))
            yield _read(part, cut, rows, columns, is_dense=is_dense)


def _read(part: TensorSlice, cut: Cut, rows: slice, columns: slice, *, is_dense: bool) -> Array:
    key: list[Any] = list(cut.at)
    key[cut.columns] = columns
    if cut.rows is not None:
        key[cut.rows] = rows
    if is_dense:
        found: Array = np.asarray(part[tuple(key)])
    else:
        found = _rows_of(part, key[0])[(slice(None), *key[1:])]
        found = found if isinstance(key[0], slice) else found[0]
    if cut.rows is not None and cut.rows > cut.columns:
        found = found.T
    return np.ascontiguousarray(found)


def _rows_of(part: TensorSlice, rows: Any) -> Array:
    """Return rows of an object that is not dense, as an array."""
    whole = rows if isinstance(rows, slice) else slice(rows, rows + 1)
    unit = max(part.row_unit, 1)
    start = whole.start // unit * unit
    stop = min(-(-whole.stop // unit) * unit, part.shape[0])
    if (stop - start) * math.prod(part.shape[1:]) > 64 * _PIECE:
        raise LimitError(
            "the rows have too many values to be dequantized at once",
            reason=Reason.LIMIT_COST,
            expected=f"at most {64 * _PIECE}",
            found=str((stop - start) * math.prod(part.shape[1:])),
        )
    tensor: Any = part[start:stop]
    is_sparse = tensor.format.startswith("sparse")
    array: Array = np.asarray(tensor.to_dense() if is_sparse else tensor.dequantize())
    return array[whole.start - start : whole.stop - start]
