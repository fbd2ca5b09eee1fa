"""Norms of the rows and columns of a matrix, and the RMS of its tiles.

Blocks are flat and end anywhere. Squares are summed in float32 in pieces that fit the cache, and
again in float64 if that overflowed or may have lost a nonzero value.
"""

from __future__ import annotations

import array
import bisect
import dataclasses
import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence


OUTLIER = 6.5  # times the median norm
STRIP = 64  # most bins of a strip of norms

_MOST = 1 << 20  # most channels on an axis: their sums are held in memory
# Sums of squares must be below the first, and above the second for full precision.
_RANGES = {np.dtype(np.float32): (1e38, 1e-30), np.dtype(np.float64): (1e308, 1e-290)}
_PIECE = 1 << 18  # elements whose squares stay in cache
_BFLOAT16, _FLOAT16_INFINITY = np.dtype(ml_dtypes.bfloat16), 0x7C00


@dataclasses.dataclass(frozen=True, slots=True)
class Norms:
    """Euclidean norms of all rows or columns of a matrix; of finite values only.

    Attributes:
        count: the number of rows or columns.
        median: the median norm.
        max: the largest norm.
        argmax: its index.
        dead: the number of rows or columns that are all zero; NaN and infinity are not zero.
        outliers: the number of norms above `OUTLIER` times the median.
        strip: the largest norm of each of at most 64 bins of neighbours, in order.
    """

    count: int
    median: float
    max: float
    argmax: int
    dead: int
    outliers: int
    strip: array.array[float]


@dataclasses.dataclass(frozen=True, slots=True)
class Channels:
    """Norms of rows and columns of one object, and the RMS of its tiles.

    Rows are along the first dimension, columns along all others together.

    Attributes:
        rows: norms of rows.
        columns: norms of columns.
        tile_shape: the number of tiles along each axis.
        tiles: the RMS of the finite values of each tile, row by row.
    """

    rows: Norms
    columns: Norms
    tile_shape: tuple[int, int]
    tiles: array.array[float]


def has_channels(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Return whether an object is a float matrix with at least two rows and columns."""
    if len(shape) < 2 or not is_float(dtype):
        return False
    return all(2 <= count <= _MOST for count in (shape[0], math.prod(shape[1:])))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are real or complex floats; types of ml_dtypes have no kind."""
    return dtype.kind in "fc" or "float" in dtype.name


class ChannelSums:
    """Accumulates the elements of one object in blocks, in order.

    Args:
        shape: the shape of the object; see `has_channels`.
        tiles: the most tiles along each axis.
    """

    def __init__(self, shape: Sequence[int], tiles: tuple[int, int]) -> None:
        self._rows, self._columns = shape[0], math.prod(shape[1:])
        self._row_sums, self._column_sums = np.zeros(self._rows), np.zeros(self._columns)
        self._row_ends = borders(self._rows, tiles[0]).tolist()
        self._column_ends = borders(self._columns, tiles[1]).tolist()
        self._lefts: list[int] | Array = np.array(self._column_ends[:-1])  # faster than a list
        self._tiles = np.zeros((len(self._row_ends) - 1, len(self._column_ends) - 1))
        # Rows and columns with NaN or infinity: these are not dead.
        self._strange_rows = np.zeros(self._rows, np.bool_)
        self._strange_columns = np.zeros(self._columns, np.bool_)
        self._done = 0
        most = min(self._rows * self._columns, _PIECE)
        self._scratch: Array = np.empty(most, np.float32)  # squares of a piece
        self._ones = np.ones(most, np.float32)

    def feed(self, block: Array) -> None:
        """Accumulate the next elements, (n,), of any float type."""
        at = 0
        while at < block.size and self._done < self._rows * self._columns:
            row, column = divmod(self._done, self._columns)
            rows = min(block.size - at, _PIECE) // self._columns
            if column or not rows:  # an incomplete row
                size = min(block.size - at, self._columns - column, _PIECE)
                piece = block[at : at + size].reshape(1, -1)
            else:
                size = min(rows, self._rows - row) * self._columns
                piece = block[at : at + size].reshape(-1, self._columns)
            self._take(piece, row, column)
            at += size
            self._done += size

    def _take(self, piece: Array, row: int, column: int) -> None:
        height, width = piece.shape
        tile, tops = _cut(self._row_ends, row, row + height)
        squares = self._squares(piece).reshape(piece.shape)
        by_row, lines = self._sums_of(squares, tops)
        if not _is_exact(piece, by_row, lines):
            by_row, lines = self._sums_of(exact_squares(piece), tops)
            is_strange = ~np.isfinite(np.abs(piece) if piece.dtype.kind == "c" else piece)
            self._strange_rows[row : row + height] |= is_strange.any(1)
            self._strange_columns[column : column + width] |= is_strange.any(0)
        self._row_sums[row : row + height] += by_row
        for line in lines:
            self._column_sums[column : column + width] += line
        left, lefts = 0, self._lefts
        if width < self._columns:
            left, lefts = _cut(self._column_ends, column, column + width)
        tiles = self._tiles[tile : tile + len(tops), left : left + len(lefts)]
        tiles += np.add.reduceat(lines, lefts, axis=1, dtype=np.float64)

    def _sums_of(self, squares: Array, tops: list[int]) -> tuple[Array, Array]:
        """Return the sums of rows, and the sums of columns for each row of tiles."""
        height, width = squares.shape
        lines = np.empty((len(tops), width), squares.dtype)
        for at, (top, end) in enumerate(itertools.pairwise([*tops, height])):
            np.matmul(self._ones[: end - top], squares[top:end], out=lines[at])
        return squares @ self._ones[:width], lines

    def _squares(self, piece: Array) -> Array:
        """Return squares as float32 or float64; squared magnitudes of complex elements."""
        flat, squares = piece.reshape(-1), self._scratch[: piece.size]
        if flat.dtype == _BFLOAT16:  # three times as fast as casts, as those below are
            bits = squares.view(np.uint32)
            bits[...] = flat.view(np.uint16)
            flat = np.left_shift(bits, 16, out=bits).view(np.float32)
        elif flat.dtype == np.float16:
            magnitudes = flat.view(np.uint16) & 0x7FFF
            is_finite = magnitudes.max() < _FLOAT16_INFINITY
            bits = squares.view(np.uint32)
            bits[...] = magnitudes
            flat = np.left_shift(bits, 13, out=bits).view(np.float32)
            flat *= np.float32(2.0**112 if is_finite else np.inf)  # exponents are 112 apart
        elif flat.itemsize == 1:
            table, patterns = _squares_of(flat.dtype), flat.view(np.uint8)
            return np.take(table, patterns, out=squares, mode="clip")  # without checks
        elif flat.dtype.kind == "c":
            flat = np.abs(flat)
        if flat.dtype != squares.dtype:
            self._scratch = np.empty(self._scratch.size, flat.dtype)
            squares = self._scratch[: piece.size]
        return np.multiply(flat, flat, out=squares)

    def finish(self) -> Channels | None:
        """Return the channels; None if elements are missing."""
        if self._done != self._rows * self._columns:
            return None
        heights, widths = np.diff(self._row_ends), np.diff(self._column_ends)
        tiles = np.sqrt(self._tiles / np.outer(heights, widths)).astype(np.float32)
        return Channels(
            _norms(self._row_sums, self._strange_rows),
            _norms(self._column_sums, self._strange_columns),
            (len(heights), len(widths)),
            array.array("f", tiles.tobytes()),
        )


def _cut(ends: list[int], start: int, stop: int) -> tuple[int, list[int]]:
    """Return the part that a range starts in, and the offsets of this and the next parts in it."""
    first = bisect.bisect_right(ends, start) - 1
    inside = ends[first + 1 : bisect.bisect_left(ends, stop)]
    return first, [0, *(end - start for end in inside)]


def _is_exact(piece: Array, by_row: Array, lines: Array) -> bool:
    """Return whether no square overflowed or underflowed."""
    most, little = _RANGES[by_row.dtype]
    if not np.add.reduce(by_row) < most:  # a bound for every column
        return False
    if np.minimum.reduce(by_row) >= little and np.minimum.reduce(lines, None) >= little:
        return True
    suspects = piece[by_row < little], piece[:, lines.sum(0) < little]
    return not any((values != 0).any() for values in suspects)


def borders(count: int, most: int) -> Array:
    """Return the bounds of at most `most` parts of about equal length."""
    parts = min(count, most)
    return np.arange(parts + 1) * count // parts


def _norms(sums: Array, is_strange: Array) -> Norms:
    norms = np.sqrt(sums)
    median = float(np.median(norms))
    strip = np.maximum.reduceat(norms, borders(norms.size, STRIP)[:-1]).astype(np.float32)
    return Norms(
        count=norms.size,
        median=median,
        max=float(norms.max()),
        argmax=int(norms.argmax()),
        dead=int(np.count_nonzero((norms == 0) & ~is_strange)),
        outliers=int(np.count_nonzero(norms > OUTLIER * median)) if median else 0,
        strip=array.array("f", strip.tobytes()),
    )


@functools.cache
def _squares_of(dtype: np.dtype[Any]) -> Array:
    """Return the square of the value of each bit pattern of an 8-bit type."""
    return np.square(np.arange(256).astype(np.uint8).view(dtype).astype(np.float32))


def exact_squares(piece: Array) -> Array:
    """Return squares in float64: 0 for zero and for values that are not finite, else positive."""
    values = (np.abs(piece) if piece.dtype.kind == "c" else piece).astype(np.float64)
    values[~np.isfinite(values)] = 0
    squares = np.clip(values * values, 1e-300, 1e300)
    squares[values == 0] = 0
    return squares
