"""Element-wise differences of two arrays, accumulated in pairs of blocks."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from ztensor.ext import element_count
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


_CACHED = 1 << 17  # elements: calls take long enough for threads, and copies stay in cache


@dataclasses.dataclass(frozen=True, slots=True)
class ValueDiff:
    """Differences of the values of two objects of one shape.

    Numbers are compared in float64, integers exactly; NaN equals NaN unless `nan_differs`.

    Attributes:
        count: the number of pairs of values.
        changed: pairs that are not equal.
        beyond: pairs that differ by more than the tolerance.
        max_abs: largest `|a - b|` of pairs of numbers, including infinite ones.
        max_rel: largest `|a - b| / max(|a|, |b|)` of pairs of finite numbers, from 0 to 2.
        cosine: cosine of the angle between the two vectors of finite pairs; None if either is zero.
        first: index of the first pair that is not equal, or None.
        relative: `||b - a|| / ||a||` of pairs of finite numbers; None if `a` is zero.
    """

    count: int
    changed: int = 0
    beyond: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    cosine: float | None = None
    first: tuple[int, ...] | None = None
    relative: float | None = None

    @property
    def snr_db(self) -> float | None:
        """Return the ratio of `a` to `b - a` in decibels: the quality of `b` as a copy of `a`."""
        return -20 * math.log10(self.relative) if self.relative else None


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """The definition of a difference.

    Attributes:
        atol: absolute tolerance.
        rtol: relative tolerance.
        nan_differs: NaN is not equal to NaN.
        values_only: types, layouts and attributes may differ.
        digests: equal digests prove equal values.
    """

    atol: float = 0.0
    rtol: float = 0.0
    nan_differs: bool = False
    values_only: bool = False
    digests: bool = True


class _Tally:
    """Accumulates the differences of two flat arrays."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._count = self._changed = self._beyond = 0
        self._first: int | None = None
        self._max_abs = self._max_rel = 0.0
        self._dot = self._ours = self._theirs = self._apart = 0.0

    def feed(self, ours: Array, theirs: Array) -> None:
        ours, theirs = _widened(ours), _widened(theirs)
        changed = ours != theirs
        if not self._rules.nan_differs:
            changed &= ~((ours != ours) & (theirs != theirs))  # NaN
        kind = np.complex128 if "c" in (ours.dtype.kind, theirs.dtype.kind) else np.float64
        x, y = ours.astype(kind), theirs.astype(kind)
        if changed.any():
            self._look(changed, ours, theirs, x, y)
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            x, y = x[finite], y[finite]
        x, y = x.view(np.float64), y.view(np.float64)
        self._dot += float((x * y).sum())
        self._ours += float((x * x).sum())
        self._theirs += float((y * y).sum())
        apart = y - x
        self._apart += float((apart * apart).sum())
        self._count += ours.size

    def _look(self, changed: Array, ours: Array, theirs: Array, x: Array, y: Array) -> None:
        """Measure the pairs that are not equal."""
        if self._first is None:
            self._first = self._count + int(changed.argmax())
        x, y = x[changed], y[changed]
        apart, size = np.abs(x - y), np.maximum(np.abs(x), np.abs(y))
        if ours.dtype == theirs.dtype and ours.dtype.kind in "iu":  # 64 bits need more than floats
            unsigned = np.dtype(f"u{ours.itemsize}")
            top, low = np.maximum(ours, theirs)[changed], np.minimum(ours, theirs)[changed]
            apart = (top.view(unsigned) - low.view(unsigned)).astype(np.float64)
        within = (apart <= self._rules.atol + self._rules.rtol * size) & np.isfinite(apart)
        self._changed += apart.size
        self._beyond += apart.size - int(np.count_nonzero(within))
        # fmax ignores NaN: of pairs with a NaN, and of infinity divided by infinity.
        self._max_abs = float(np.fmax.reduce(apart, initial=self._max_abs))
        self._max_rel = float(np.fmax.reduce(apart / size, initial=self._max_rel))

    def result(self, shape: Sequence[int]) -> ValueDiff:
        cosine = None
        if self._ours and self._theirs:
            cosine = self._dot / math.sqrt(self._ours) / math.sqrt(self._theirs)
            cosine = max(-1.0, min(cosine, 1.0)) if math.isfinite(cosine) else None
        is_whole = self._count == element_count(shape)
        return ValueDiff(
            self._count,
            self._changed,
            self._beyond,
            self._max_abs,
            self._max_rel,
            cosine,
            _index(self._first, shape) if self._first is not None and is_whole else None,
            math.sqrt(self._apart / self._ours) if self._ours else None,
        )


def compare_numbers(
    blocks: Iterator[tuple[Array, Array]],
    shape: Sequence[int],
    rules: Rules,
    report: Callable[[int], None],
) -> ValueDiff:
    """Return the differences of two arrays of one shape.

    Args:
        blocks: pairs of flat blocks of equal length.
        shape: the shape of both.
        rules: the definition of a difference.
        report: called with the bytes of the first array that were compared.
    """
    tally = _Tally(rules)
    with np.errstate(all="ignore"):  # NaN and overflow are expected
        for ours, theirs in blocks:
            for start in range(0, ours.size, _CACHED):
                piece = slice(start, start + _CACHED)
                tally.feed(ours[piece], theirs[piece])
            report(ours.nbytes)
    return tally.result(shape)


def _widened(block: Array) -> Array:
    """Return elements in a type NumPy computes with: small floats as float32, bools as uint8."""
    if block.dtype.kind == "b":
        return np.not_equal(block.view(np.uint8), 0).view(np.uint8)
    if block.dtype.kind in "iuc" or (block.dtype.kind == "f" and block.itemsize >= 4):
        return block
    return block.astype(np.float32)


def _index(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the index of an element by its flat number; the shape may exceed NumPy's limits."""
    index = []
    for length in reversed(shape):
        flat, within = divmod(flat, length)
        index.append(within)
    return tuple(reversed(index))
