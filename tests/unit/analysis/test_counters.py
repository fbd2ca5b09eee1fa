"""Spreads are those that NumPy counts in the slow way, wherever blocks end."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ztensor.analysis import counters
from ztensor.analysis.counters import counter_of
from ztensor.analysis.spreads import Spread

RNG = np.random.default_rng(11)
WIDE = {np.float32: (14, np.uint32), np.float64: (44, np.uint64)}
NARROW = [
    np.float16, np.int16, np.uint16, np.int8, np.bool_,
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
]  # fmt: skip


def spread(array: Any, cut: int) -> Spread:
    counter = counter_of(array.dtype, array.size)
    with np.errstate(all="ignore"):
        for start in range(0, array.size, cut):
            counter.feed(array[start : start + cut])
        assert counter.count == array.size
        return counter.finish()


@pytest.mark.parametrize("cut", [1021, 1 << 16, 1 << 30])
@pytest.mark.parametrize("dtype", NARROW, ids=lambda kind: np.dtype(kind).name)
def test_every_pattern_is_counted(dtype: Any, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_PATTERNS", 999)  # so that it is full many times
    array = (RNG.normal(0, 40, 9001) * (RNG.random(9001) > 0.1)).astype(dtype)
    if np.dtype(dtype).kind not in "iub":
        array[17] = np.nan
    found, wide = spread(array, cut), array.astype(np.float64)
    values, counts = np.unique(wide[np.isfinite(wide)], return_counts=True)
    assert np.array_equal(found.lows, values)
    assert np.array_equal(found.highs, values)
    assert np.array_equal(found.counts, counts)


@pytest.mark.parametrize("cut", [10_007, 1 << 30])
@pytest.mark.parametrize("count", [65_536, 65_537, 300_001])
@pytest.mark.parametrize("dtype", WIDE, ids=lambda kind: kind.__name__)
def test_leading_bits_are_counted(dtype: Any, count: int, cut: int) -> None:
    array = (RNG.normal(0, 1, count) * np.exp(RNG.normal(0, 9, count))).astype(dtype)
    array[::7] = 0
    array[3:6] = np.nan, np.inf, -np.inf
    found = spread(array, cut)
    finite = array[np.isfinite(array)]
    if count <= 65_536:
        values, counts = np.unique(finite, return_counts=True)
        assert np.array_equal(found.lows, values)
    else:
        shift, bits = WIDE[dtype]
        keys, counts = np.unique(finite.view(bits) >> np.array(shift, bits), return_counts=True)
        is_negative = keys >= keys.dtype.type(1 << np.dtype(dtype).itemsize * 8 - 1 - shift)
        counts = np.concatenate((counts[is_negative][::-1], counts[~is_negative]))
    assert np.array_equal(found.counts, counts)
    assert found.size == finite.size
    ends = np.cumsum(counts)
    ordered = np.sort(finite)
    assert (found.lows <= ordered[ends - counts]).all()
    assert (ordered[ends - 1] <= found.highs).all()
