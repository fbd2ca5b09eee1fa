"""Counts, extremes and moments of elements that pass by in blocks, whatever their type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator


PIECE = 1 << 17  # elements: calls take long enough for threads, and copies stay in cache


class Moments:
    """Count, extremes, mean and sum of squared deviations of parts, put together (Chan et al.)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0
        self.least: Any = None
        self.most: Any = None

    def reach(self, least: Any, most: Any) -> None:
        """Take extremes of a part; None of one without finite elements."""
        if least is not None:
            self.least = least if self.least is None else min(self.least, least)
            self.most = most if self.most is None else max(self.most, most)

    def merge(self, count: int, mean: float, squares: float) -> None:
        """Take the count, mean and sum of squared deviations of a part."""
        if not count:
            return
        share = count / (self.count + count)
        if self.count:
            apart = mean - self.mean
            squares += apart * apart * share * self.count
        self.squares += squares
        self.mean = self.mean * (1 - share) + mean * share  # no sum that could overflow
        self.count += count

    def as_fields(self) -> dict[str, Any]:
        """Return what `TensorStats` has of it; nothing of no elements."""
        if not self.count:
            return {}
        std = math.sqrt(self.squares / self.count) if self.squares >= 0 else math.nan
        return {"min": self.least, "max": self.most, "mean": self.mean, "std": std}


class Sums:
    """Takes blocks of elements, of which no more than a piece is held as float64.

    Attributes:
        count: how many there were.
        zeros: how many were zero, or False.
        nans: how many were NaN, of complex ones those of NaN magnitude.
        infs: how many were infinite.
        negative_infs: how many of those were below zero.
        moments: of the finite ones; of complex ones those of magnitudes.
        total: their sum, which may be infinite where the mean is not.
    """

    def __init__(self) -> None:
        self.count = self.zeros = self.nans = self.infs = self.negative_infs = 0
        self.moments = Moments()
        self.total = 0.0
        self._wide = np.empty(0)  # of a piece; a new one each time is twice as slow

    def take(self, block: Array) -> None:
        """Take the next elements."""
        for _ in self.pieces(block):
            pass

    def pieces(self, block: Array) -> Iterator[Array]:
        """Take the next elements, and yield them so many at a time that they stay in cache.

        Args:
            block: flat, of any element type.

        Yields:
            Arrays of a type that NumPy compares and sums, valid until the next one: of complex
            elements their magnitudes.
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
        if not math.isfinite(mean):  # the sum of the largest numbers is beyond them
            mean = float((values / values.size).sum())
        values -= mean
        values *= values
        self.moments.merge(values.size, mean, float(values.sum()))
