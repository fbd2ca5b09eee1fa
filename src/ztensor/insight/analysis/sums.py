"""Counts, extremes and moments of elements of any type, accumulated in blocks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


PIECE = 1 << 17  # elements: calls take long enough for threads, and copies stay in cache


class Moments:
    """Count, extremes, mean and sum of squared deviations, merged from parts (Chan et al.)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0
        self.least: Any = None
        self.most: Any = None

    def reach(self, least: Any, most: Any) -> None:
        """Merge the extremes of a part; None if it has no finite elements."""
        if least is not None:
            self.least = least if self.least is None else min(self.least, least)
            self.most = most if self.most is None else max(self.most, most)

    def merge(self, count: int, mean: float, squares: float) -> None:
        """Merge the count, mean and sum of squared deviations of a part."""
        if not count:
            return
        share = count / (self.count + count)
        if self.count:
            apart = mean - self.mean
            squares += apart * apart * share * self.count
        self.squares += squares
        self.mean = self.mean * (1 - share) + mean * share  # a sum could overflow
        self.count += count

    def as_fields(self) -> dict[str, Any]:
        """Return the fields of `TensorStats`; empty if there are no elements."""
        if not self.count:
            return {}
        std = math.sqrt(self.squares / self.count) if self.squares >= 0 else math.nan
        return {"min": self.least, "max": self.most, "mean": self.mean, "std": std}


class Sums:
    """Accumulates blocks of elements; only a small piece is widened to float64 at a time.

    Attributes:
        count: the number of elements.
        zeros: the number of zeros, or False.
        nans: the number of NaNs; complex elements count if their magnitude is NaN.
        infs: the number of infinite elements.
        negative_infs: the number of negative infinities.
        moments: of the finite elements; of the magnitudes of complex ones.
        total: the sum of the finite elements; may overflow to infinity where the mean does not.
    """

    def __init__(self) -> None:
        self.count = self.zeros = self.nans = self.infs = self.negative_infs = 0
        self.moments = Moments()
        self.total = 0.0
        self._wide = np.empty(0)  # buffer of a piece: a new one each time is twice as slow

    def take(self, block: Array) -> None:
        """Take the next elements."""
        for _ in self.pieces(block):
            pass

    def pieces(self, block: Array) -> Iterator[Array]:
        """Accumulate the next elements, and yield them in pieces that fit the cache.

        Args:
            block: (n,), any element type.

        Yields:
            Arrays of a type that NumPy computes with, valid until the next one; magnitudes of
            complex elements.
        """
        for start in range(0, block.size, PIECE):
            piece = block[start : start + PIECE]
            if piece.dtype.kind == "c":
                piece = np.abs(piece)
            elif piece.itemsize <= 2:
                piece = piece.astype(np.int32 if piece.dtype.kind in "iub" else np.float32)
            self.count += piece.size
            self._sum_up(piece)
            yield piece

    def _sum_up(self, piece: Array) -> None:
        self.zeros += int(np.count_nonzero(piece == 0))
        least, most = piece.min(), piece.max()
        if not (np.isfinite(least) and np.isfinite(most)):
            nans = int(np.count_nonzero(np.isnan(piece)))
            finite = np.isfinite(piece)
            self.nans += nans
            self.negative_infs += int(np.count_nonzero(piece == -np.inf))
            piece = piece[finite]
            self.infs += finite.size - nans - piece.size
            if not piece.size:
                return
            least, most = piece.min(), piece.max()
        self.moments.reach(least.item(), most.item())
        if self._wide.size < piece.size:
            self._wide = np.empty(piece.size)
        values = self._wide[: piece.size]
        values[...] = piece
        total = float(values.sum())
        self.total += total
        mean = total / values.size
        if not math.isfinite(mean):  # the sum overflowed
            mean = float((values / values.size).sum())
        values -= mean
        values *= values
        self.moments.merge(values.size, mean, float(values.sum()))
