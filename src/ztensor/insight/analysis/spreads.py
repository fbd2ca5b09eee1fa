"""The distribution of values as ranges and counts, its quantiles and histograms."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from ztensor.errors import counted
from ztensor.insight.text import short_repr
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

Scale = Literal["linear", "log"]

_MIDDLE = 0.01, 0.99  # quantiles between which the middle is
_SQUEEZED = 4  # a histogram of all values is this many times wider to need one of the middle


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram:
    """The number of finite values in each of several bins.

    A value on the border of two bins counts in the upper one, and the largest in the last.

    Attributes:
        edges: borders of the bins, one more than bins.
        counts: values in each bin.
        scale: `linear`: bins of equal width over all finite values; `log`: bins of equal ratio over
            nonzero magnitudes.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    scale: Scale = "linear"

    def __repr__(self) -> str:
        """Return the number of bins."""
        return short_repr("insight.Histogram", [counted(len(self.counts), "bin"), self.scale])


class Spread:
    """The distribution of finite values: ascending ranges, and the number of values in each.

    A range without width is one value. Inside of others a uniform distribution is assumed.

    Args:
        lows: (n,) the lower end of each range.
        highs: (n,) the upper end, at most the next lower end.
        counts: (n,) the number of values in each.
        error: bound on the relative error of a value.
    """

    def __init__(self, lows: Array, highs: Array, counts: Array, error: float = 0.0) -> None:
        kept = counts > 0
        self.lows, self.highs, self.counts = lows[kept], highs[kept], counts[kept]
        self.error = error if (self.lows < self.highs).any() else 0.0
        self.ends = np.cumsum(self.counts, dtype=np.float64)  # a sparse shape may exceed int64

    @property
    def size(self) -> float:
        """Return the number of values."""
        return float(self.ends[-1]) if self.ends.size else 0.0

    def with_zeros(self, count: int) -> Spread:
        """Return the spread with more zeros."""
        at = int(np.searchsorted(self.lows, 0.0, "left"))
        lows, highs = (np.insert(side, at, 0.0) for side in (self.lows, self.highs))
        counts = np.insert(self.counts.astype(np.float64), at, float(count))
        return Spread(lows, highs, counts, self.error)

    def _at(self, ranks: Array) -> Array:
        """Return the values of given ranks."""
        at = np.minimum(np.searchsorted(self.ends, ranks, "right"), self.ends.size - 1)
        low, high, count = self.lows[at], self.highs[at], self.counts[at]
        found: Array = low + (high - low) * ((ranks - (self.ends[at] - count) + 0.5) / count)
        return found

    def kurtosis(self, mean: float, std: float) -> float | None:
        """Return the fourth moment over the square of the second; None if all values are equal."""
        if not (std and math.isfinite(std) and self.size):
            return None
        apart = ((self.lows + self.highs) / 2 - mean) / std
        apart *= apart
        return float((apart * apart * self.counts).sum() / self.size)

    def count_beyond(self, limit: float) -> int:
        """Return the number of values of at least this magnitude."""
        return int(self.counts[(self.lows >= limit) | (self.highs <= -limit)].sum())

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Return quantiles as `numpy.quantile` interpolates them."""
        if not self.size or not shares:
            return []
        ranks = (self.size - 1) * np.asarray(shares, np.float64)
        before = np.floor(ranks)
        low, high = self._at(before), self._at(np.minimum(before + 1, self.size - 1))
        part = ranks - before
        found: list[float] = np.where(low == high, low, low * (1 - part) + high * part).tolist()
        return found

    def histogram(self, bins: int, scale: Scale) -> Histogram | None:
        """Return a histogram; None if there are no values."""
        if scale == "log":
            return self._folded()._binned(bins, scale)
        return self._binned(bins, scale)

    def middle(self, bins: int) -> Histogram | None:
        """Return the histogram between the 1 % and the 99 % quantile.

        Returns:
            None if all values span less than four times that range.
        """
        if not self.size:
            return None
        least, (low, high), most = self.lows[0], self.quantiles(_MIDDLE), self.highs[-1]
        if not low < high or most / _SQUEEZED - least / _SQUEEZED <= high - low:
            return None
        part = np.linspace(0.0, 1.0, bins + 1)
        edges = np.maximum.accumulate(np.clip(low * (1 - part) + high * part, low, high))
        counts = np.diff(np.rint(self._below(edges)))
        return Histogram(tuple(edges.tolist()), tuple(int(n) for n in counts.tolist()))

    def _folded(self) -> Spread:
        """Return the spread of magnitudes, without ranges that touch zero."""
        is_below = self.highs <= 0
        lows = np.where(is_below, -self.highs, self.lows)
        highs = np.where(is_below, -self.lows, self.highs)
        kept = lows > 0
        lows, order = np.unique(lows[kept], return_inverse=True)
        ends = np.zeros(lows.size)
        np.maximum.at(ends, order, highs[kept])
        return Spread(lows, ends, np.bincount(order, self.counts[kept], lows.size), self.error)

    def _binned(self, bins: int, scale: Scale) -> Histogram | None:
        if not self.size:
            return None
        least, most = float(self.lows[0]), float(self.highs[-1])
        if least == most:
            return Histogram((least, most), (int(self.size),), scale)
        part = np.linspace(0.0, 1.0, bins + 1)
        if scale == "log":
            edges = np.exp(math.log(least) * (1 - part) + math.log(most) * part)
        else:
            edges = least * (1 - part) + most * part
        edges = np.maximum.accumulate(np.clip(edges, least, most))
        edges[0], edges[-1] = least, most
        sums = np.rint(self._below(edges))
        sums[-1] = self.size
        return Histogram(
            tuple(edges.tolist()), tuple(int(n) for n in np.diff(sums).tolist()), scale
        )

    def _below(self, edges: Array) -> Array:
        """Return the number of values below each edge; the first edge is the least value."""
        at = np.maximum(np.searchsorted(self.lows, edges, "left") - 1, 0)
        width = self.highs[at] - self.lows[at]
        part = np.where(width > 0, (edges - self.lows[at]) / np.where(width > 0, width, 1), 1)
        below = self.ends[at] - self.counts[at] * (1 - np.clip(part, 0, 1))
        return np.where(edges > self.lows[0], below, 0)
