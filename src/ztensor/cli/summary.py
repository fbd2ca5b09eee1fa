"""Smallest, largest, mean, NaNs of elements that pass by in blocks, whatever their type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.layout.base import Array

FIRST = 8
# Elements converted at a time: the floats of a block stay in cache.
_BLOCK = 1 << 17


class Summary:
    """Takes flat arrays of elements and sums them up.

    Infinite values and NaNs are counted; smallest, largest and mean are of the finite ones. Small
    floats are widened exactly first. Of complex numbers only NaNs and infinities are counted, of
    bools the true ones.

    Args:
        count: elements to look at; those after them are padding.
        progress: called with the bytes of elements seen so far and those to see.
        nbytes: the bytes to see.

    Attributes:
        count: elements seen.
        first: the first of them, as plain numbers.
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        nbytes: int = 0,
    ) -> None:
        self._progress = progress
        self._nbytes = nbytes
        self._seen = 0
        self._missing = count
        self.count = 0
        self.first: list[Any] = []
        self._finite = 0
        self._nans: int | None = None
        self._infinities: int | None = None
        self._trues: int | None = None
        self._least: float | int | None = None
        self._most: float | int | None = None
        self._sum = 0.0

    def feed(self, block: Array) -> None:
        """Take the next elements."""
        if self._missing is not None:
            block = block[: max(self._missing - self.count, 0)]
        missing = FIRST - len(self.first)
        if missing > 0:
            self.first.extend(_widened(block[:missing]).tolist())
        self.count += block.size
        # Overflow and NaN are what is being looked for, not surprises.
        with np.errstate(all="ignore"):
            for start in range(0, block.size, _BLOCK):
                piece = block[start : start + _BLOCK]
                self._take(_widened(piece))
                self._seen += piece.nbytes
                if self._progress is not None:
                    self._progress(min(self._seen, self._nbytes), self._nbytes)

    def finish(self, counts: Mapping[str, int]) -> None:
        """Do nothing: any elements are good."""

    def _take(self, block: Array) -> None:
        kind = block.dtype.kind
        if kind == "b":
            self._trues = (self._trues or 0) + int(np.count_nonzero(block))
            return
        if kind in "fc":
            finite = np.isfinite(block)
            nans = int(np.count_nonzero(np.isnan(block)))
            kept = int(np.count_nonzero(finite))
            self._nans = (self._nans or 0) + nans
            self._infinities = (self._infinities or 0) + block.size - kept - nans
            block = block if kept == block.size else block[finite]
        if kind == "c" or not block.size:
            return
        least, most = block.min().item(), block.max().item()
        self._least = least if self._least is None else min(self._least, least)
        self._most = most if self._most is None else max(self._most, most)
        self._finite += block.size
        self._sum += float(block.sum(dtype=np.float64))

    def as_plain(self) -> dict[str, Any]:
        """Return everything by name; None where it has no meaning for the type."""
        has_order = self._least is not None
        return {
            "count": self.count,
            "first": self.first,
            "min": self._least,
            "max": self._most,
            "mean": self._sum / self._finite if has_order else None,
            "nan_count": self._nans,
            "inf_count": self._infinities,
            "true_count": self._trues,
        }


def _widened(block: Array) -> Array:
    """Return elements in a type NumPy can compare: bfloat16, fp8, fp4 and float16 as float32."""
    if block.dtype.kind in "biuc" or (block.dtype.kind == "f" and block.itemsize >= 4):
        return block
    return block.astype(np.float32)
