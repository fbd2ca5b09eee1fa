"""Where in a matrix its large values are: norms of rows and columns, and the RMS of tiles.

Blocks are flat and end anywhere. Squares are summed up in float32 in pieces that stay in cache, and
once more in float64 where that overflowed, or may have lost a value that is not zero.
"""

from __future__ import annotations

import array
import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.layout.base import Array

OUTLIER = 6.0  # times the median norm
STRIP = 64  # bins of a strip of norms

_MOST = 1 << 20  # channels on an axis: their sums are held in memory
_BFLOAT16, _FLOAT16_INFINITY = np.dtype(ml_dtypes.bfloat16), 0x7C00
_PIECE = 1 << 15  # elements whose squares stay in cache


@dataclasses.dataclass(frozen=True, slots=True)
class Norms:
    """Euclidean norms of all rows of a matrix, or of all columns; of finite values only.

    Attributes:
        count: how many there are.
        median: the one in the middle.
        max: the largest.
        argmax: which one that is.
        dead: how many are 0, so that all values are.
        outliers: how many are more than six times the median.
        strip: the largest of each of at most 64 bins of neighbours, in order.
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
        tile_shape: how many tiles there are along each axis.
        tiles: the RMS of the finite values of each tile, row by row.
    """

    rows: Norms
    columns: Norms
    tile_shape: tuple[int, int]
    tiles: array.array[float]


def has_channels(shape: Sequence[int], dtype: np.dtype[Any]) -> bool:
    """Return whether channels mean something: of floats, and two or more rows and columns."""
    if len(shape) < 2 or not is_float(dtype):
        return False
    return all(2 <= count <= _MOST for count in (shape[0], math.prod(shape[1:])))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether elements are real or complex floats; those of ml_dtypes have no kind."""
    return dtype.kind in "fc" or "float" in dtype.name


class ChannelSums:
    """Takes the elements of one object in blocks, in order.

    Args:
        shape: of the object; see `has_channels`.
        tiles: how many tiles along each axis, at most.
    """

    def __init__(self, shape: Sequence[int], tiles: tuple[int, int]) -> None:
        self._rows, self._columns = shape[0], math.prod(shape[1:])
        self._row_sums, self._column_sums = np.zeros(self._rows), np.zeros(self._columns)
        self._row_ends = borders(self._rows, tiles[0])
        self._column_ends = borders(self._columns, tiles[1])
        self._tiles = np.zeros((len(self._row_ends) - 1, len(self._column_ends) - 1))
        self._line = np.zeros(self._columns)  # sums of the columns in the rows of a tile
        self._done = self._tile = 0

    def feed(self, block: Array) -> None:
        """Take the next elements, flat, of any element type that stands for floats."""
        at = 0
        most = max(_PIECE // self._columns, 1)
        while at < block.size and self._done < self._rows * self._columns:
            row, column = divmod(self._done, self._columns)
            count = (block.size - at) // self._columns
            if column or not count:
                piece = block[at : at + self._columns - column].reshape(1, -1)
            else:
                count = min(count, most, int(self._row_ends[self._tile + 1]) - row)
                piece = block[at : at + count * self._columns].reshape(count, -1)
            self._take(piece, row, column)
            at += piece.size
            self._done += piece.size
            if self._done == int(self._row_ends[self._tile + 1]) * self._columns:
                self._column_sums += self._line
                self._tiles[self._tile] = np.add.reduceat(self._line, self._column_ends[:-1])
                self._line[:] = 0
                self._tile += 1

    def _take(self, piece: Array, row: int, column: int) -> None:
        squares = _squares(piece)
        one = squares.dtype.type(1)
        by_row = squares @ np.full(squares.shape[1], one)
        by_column = np.full(squares.shape[0], one) @ squares
        if not (np.isfinite(by_row).all() and by_row.all() and by_column.all()):
            squares = exact_squares(piece)
            by_row, by_column = squares.sum(1), squares.sum(0)
        self._row_sums[row : row + len(by_row)] += by_row
        self._line[column : column + len(by_column)] += by_column

    def finish(self) -> Channels | None:
        """Return the channels; None where not all elements came."""
        if self._done != self._rows * self._columns:
            return None
        heights, widths = np.diff(self._row_ends), np.diff(self._column_ends)
        tiles = np.sqrt(self._tiles / np.outer(heights, widths)).astype(np.float32)
        return Channels(
            _norms(self._row_sums),
            _norms(self._column_sums),
            (len(heights), len(widths)),
            array.array("f", tiles.tobytes()),
        )


def borders(count: int, most: int) -> Array:
    """Return where each of at most so many parts of about one length begins, and the end."""
    parts = min(count, most)
    return np.arange(parts + 1) * count // parts


def _norms(sums: Array) -> Norms:
    norms = np.sqrt(sums)
    median = float(np.median(norms))
    strip = np.maximum.reduceat(norms, borders(norms.size, STRIP)[:-1]).astype(np.float32)
    return Norms(
        count=norms.size,
        median=median,
        max=float(norms.max()),
        argmax=int(norms.argmax()),
        dead=int(np.count_nonzero(norms == 0)),
        outliers=int(np.count_nonzero(norms > OUTLIER * median)) if median else 0,
        strip=array.array("f", strip.tobytes()),
    )


def _squares(piece: Array) -> Array:
    """Return squares as float32 or float64, of complex elements those of their magnitudes.

    A square that is not finite, or 0, is one that `exact_squares` may know better.
    """
    if piece.dtype.kind == "c":
        piece = np.abs(piece)
    elif piece.dtype == _BFLOAT16:  # three times as fast as casts, as those below are
        piece = (piece.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    elif piece.dtype == np.float16:
        magnitudes = piece.view(np.uint16) & 0x7FFF
        is_finite = magnitudes.max() < _FLOAT16_INFINITY
        scale = np.float32(2.0**112 if is_finite else np.inf)  # exponents are 112 apart
        piece = (magnitudes.astype(np.uint32) << 13).view(np.float32) * scale
    elif piece.itemsize == 1:
        piece = _values_of(piece.dtype)[piece.view(np.uint8)]
    squares: Array = piece * piece
    return squares


@functools.cache
def _values_of(dtype: np.dtype[Any]) -> Array:
    return np.arange(256).astype(np.uint8).view(dtype).astype(np.float32)


def exact_squares(piece: Array) -> Array:
    """Return squares in float64: 0 of what is not finite, and of nothing else but 0."""
    values = (np.abs(piece) if piece.dtype.kind == "c" else piece).astype(np.float64)
    values[~np.isfinite(values)] = 0
    squares = np.clip(values * values, 1e-300, 1e300)
    squares[values == 0] = 0
    return squares
