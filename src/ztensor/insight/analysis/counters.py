"""The distribution of values, counted block by block.

For types of at most 16 bits each bit pattern is counted. Wider elements are kept while they are
few; then their leading bits are counted.
"""

from __future__ import annotations

import abc
import functools
import math
from typing import Any

import numpy as np

from ztensor.insight.analysis.spreads import Spread
from ztensor.insight.analysis.sums import PIECE, Sums
from ztensor.typing import Array

_SORTED = 1 << 16  # most elements that are kept and sorted
_FEW = 1 << 12  # elements up to which sorting is faster than a table of patterns
_PATTERNS = 1 << 18  # patterns of 16 bits counted at once
# Leading bits that are counted: sign, exponent, and 9 bits of the fraction, or 8 of float64.
_LEADING = {"float32": 18, "float64": 20}


class Counter(Sums, abc.ABC):
    """Accumulates blocks of elements into a `Spread`."""

    @abc.abstractmethod
    def feed(self, block: Array) -> None:
        """Accumulate the next elements, (n,)."""

    @abc.abstractmethod
    def finish(self) -> Spread:
        """Return the spread of all finite values; the sums are then complete."""


def counter_of(dtype: np.dtype[Any], count: int) -> Counter:
    """Return the counter for elements of a type."""
    if dtype.itemsize <= 2 and count > _FEW:
        return _PatternCounter(dtype, count)
    return _LeadingCounter(dtype, count)


class _Keys:
    """Counts keys in batches, as each count walks the whole table.

    Args:
        size: the size of the table; keys are smaller.
        most: the number of keys in a batch.
    """

    def __init__(self, size: int, most: int) -> None:
        self.counts = np.zeros(size, np.int64)
        self._gathered = np.empty(most, np.intp)
        self._filled = 0

    def add(self, keys: Array) -> None:
        """Count unsigned keys of any width."""
        while keys.size:
            part = keys[: self._gathered.size - self._filled]
            end = self._filled + part.size
            self._gathered[self._filled : end] = part
            self._filled = end
            if end == self._gathered.size:
                self.finish()
            keys = keys[part.size :]

    def finish(self) -> Array:
        """Return the counts by key."""
        counts = np.bincount(self._gathered[: self._filled])
        self.counts[: counts.size] += counts
        self._filled = 0
        return self.counts


class _PatternCounter(Counter):
    """Counts every bit pattern of elements of 8 or 16 bits; `finish` derives the rest."""

    def __init__(self, dtype: np.dtype[Any], count: int) -> None:
        super().__init__()
        self._dtype = dtype
        self._keys = _Keys(1 << 16, min(count, _PATTERNS))
        self._odd = np.zeros(1 << 8, np.int64)

    def feed(self, block: Array) -> None:
        self.count += block.size
        bits = block.view(f"u{block.itemsize}")
        if bits.itemsize == 1:  # in pairs: half the number of keys
            even = bits.size // 2 * 2
            self._odd[bits[even:]] += 1
            bits = bits[:even].view(np.uint16)
        self._keys.add(bits)

    def finish(self) -> Spread:
        values = values_of(self._dtype)
        counts = self._keys.finish()
        if values.size == self._odd.size:
            pairs = counts.reshape(256, 256)
            counts = pairs.sum(0) + pairs.sum(1) + self._odd
        self.zeros = int(counts[values == 0].sum())
        self.nans = int(counts[np.isnan(values)].sum())
        self.infs = int(counts[np.isinf(values)].sum())
        self.negative_infs = int(counts[values == -np.inf].sum())
        kept = np.isfinite(values) & (counts > 0)
        values, order = np.unique(values[kept], return_inverse=True)  # zero has two patterns
        counts = np.bincount(order, counts[kept], values.size)
        if values.size:
            total = counts.sum()
            mean = float((values * counts).sum() / total)
            self.moments.merge(int(total), mean, float(((values - mean) ** 2 * counts).sum()))
            kind = int if self._dtype.kind in "iub" else float
            self.moments.reach(kind(values[0]), kind(values[-1]))
        return Spread(values, values, counts)


@functools.cache
def values_of(dtype: np.dtype[Any]) -> Array:
    """Return the value of each bit pattern of a type of 8 or 16 bits, as float64."""
    patterns = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}")
    typed = patterns != 0 if dtype.kind == "b" else patterns.view(dtype)
    return typed.astype(np.float64)


class _LeadingCounter(Counter):
    """Keeps wider elements while they are few, then counts their leading bits."""

    def __init__(self, dtype: np.dtype[Any], count: int) -> None:
        super().__init__()
        is_double = dtype in (np.dtype(np.float64), np.dtype(np.complex128))
        self._is_whole = dtype.kind in "iub"
        self._float = np.dtype(np.float64 if is_double else np.float32)
        self._shift = self._float.itemsize * 8 - _LEADING[self._float.name]
        self._most = count
        self._kept: list[Array] = []
        self._keys: _Keys | None = None
        self._shifted = np.empty(0)

    def feed(self, block: Array) -> None:
        for piece in self.pieces(block):
            if self._keys is not None:
                self._count(self._keys, piece)
            elif self.count <= _SORTED:
                self._kept.append(piece.copy())
            else:
                size = 1 << _LEADING[self._float.name]
                self._keys = _Keys(size, min(size, self._most))
                self._shifted = np.empty(PIECE, f"u{self._float.itemsize}")
                for part in (*self._kept, piece):
                    self._count(self._keys, part)
                self._kept = []

    def _count(self, keys: _Keys, piece: Array) -> None:
        bits = piece.astype(self._float, copy=False).view(self._shifted.dtype)
        keys.add(np.right_shift(bits, self._shift, out=self._shifted[: bits.size]))

    def finish(self) -> Spread:
        if self._keys is None:
            parts = self._kept or [np.zeros(0)]
            values = np.concatenate(parts).astype(np.float64)
            values, counts = np.unique(values[np.isfinite(values)], return_counts=True)
            return Spread(values, values, counts)
        counted = self._keys.finish()
        half = counted.size // 2
        infinity = np.array(math.inf, self._float).view(f"u{self._float.itemsize}")
        finite = int(infinity) >> self._shift
        below = np.flatnonzero(counted[half : half + finite])[::-1]
        above = np.flatnonzero(counted[:finite])
        (far, near), (low, high) = self._borders(below), self._borders(above)
        least, most = self.moments.least or 0, self.moments.most or 0
        return Spread(
            np.clip(np.concatenate((-near, low)), least, most),
            np.clip(np.concatenate((-far, high)), least, most),
            np.concatenate((counted[half + below], counted[above])),
            2.0 ** -(9 if self._float.itemsize == 4 else 8),
        )

    def _borders(self, keys: Array) -> tuple[Array, Array]:
        """Return the least and the greatest magnitude of leading bits."""
        bits = np.stack((keys, keys + 1)).astype(f"u{self._float.itemsize}") << self._shift
        begins, ends = bits.view(self._float).astype(np.float64)
        if self._is_whole:
            begins, ends = np.ceil(begins), np.ceil(ends) - 1
        ends[keys == 0] = 0.0  # below 1e-40 is treated as zero
        return begins, ends
