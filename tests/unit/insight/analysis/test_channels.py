from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ztensor.insight.analysis.channels import Channels, ChannelSums, has_channels

FLOATS = [
    np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2, np.complex64, np.complex128,
]  # fmt: skip
RNG = np.random.default_rng(19)


def channels(array: Any, tiles: tuple[int, int] = (4, 8), cut: int = 1000) -> Channels:
    sums = ChannelSums(array.shape, tiles)
    flat = array.reshape(-1)
    with np.errstate(all="ignore"):
        for start in range(0, flat.size, cut):
            sums.feed(flat[start : start + cut])
    found = sums.finish()
    assert found is not None
    return found


def finite_magnitudes(array: Any) -> Any:
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return np.where(np.isfinite(wide), wide, 0).reshape(array.shape[0], -1)


@pytest.mark.parametrize("cut", [1, 7, 97, 100_000])
@pytest.mark.parametrize("shape", [(2, 2), (50, 97), (97, 50), (1000, 3), (3, 1000), (6, 4, 3, 3)])
def test_norms_and_tiles_are_those_of_numpy_wherever_blocks_end(
    shape: tuple[int, ...], cut: int
) -> None:
    if cut == 1 and np.prod(shape) > 300:
        cut = 13
    array = RNG.standard_normal(shape).astype(np.float32)
    found, wide = channels(array, cut=cut), finite_magnitudes(array)
    for norms, axis in ((found.rows, 1), (found.columns, 0)):
        expected = np.sqrt((wide * wide).sum(axis))
        assert norms.count == expected.size
        assert norms.median == pytest.approx(np.median(expected), rel=1e-5)
        assert norms.max == pytest.approx(expected.max(), rel=1e-5)
        assert norms.argmax == expected.argmax()
        assert max(norms.strip) == pytest.approx(norms.max, rel=1e-5)
        assert len(norms.strip) == min(64, expected.size)
    rows, columns = found.tile_shape
    assert (rows, columns) == (min(4, wide.shape[0]), min(8, wide.shape[1]))
    row = [np.arange(rows + 1) * wide.shape[0] // rows, np.arange(columns + 1)]
    row[1] = row[1] * wide.shape[1] // columns
    for i in range(rows):
        for k in range(columns):
            part = wide[row[0][i] : row[0][i + 1], row[1][k] : row[1][k + 1]]
            expected_rms = np.sqrt((part * part).mean())
            assert found.tiles[i * columns + k] == pytest.approx(expected_rms, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e18, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float64])
def test_squares_that_float32_cannot_hold(dtype: Any, scale: float) -> None:
    array = (RNG.standard_normal((64, 64)) * scale).astype(dtype)
    array[3] = 0
    found, wide = channels(array), finite_magnitudes(array)
    assert (found.rows.dead, found.columns.dead) == (1, 0)
    assert found.columns.max == pytest.approx(np.sqrt((wide * wide).sum(0)).max(), rel=1e-4)
    many = channels(np.full((3, 20_000), scale * 1e-12, dtype), cut=1 << 18)  # of many squares
    assert many.rows.max == pytest.approx(float(dtype(scale * 1e-12)) * 20_000**0.5, rel=1e-5)
    assert many.columns.max == pytest.approx(float(dtype(scale * 1e-12)) * 3**0.5, rel=1e-5)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda kind: np.dtype(kind).name)
def test_channels_with_nan_or_infinity_are_not_dead(dtype: Any) -> None:
    array = np.zeros((70, 66)).astype(dtype)
    array[:40, :30] = 1
    found = channels(array, cut=1001)
    assert (found.rows.dead, found.columns.dead) == (30, 36)
    array[50, 60] = np.nan
    found = channels(array, cut=1001)
    assert (found.rows.dead, found.columns.dead) == (29, 35)
    array[:] = np.nan
    found = channels(array)
    assert (found.rows.dead, found.columns.dead) == (0, 0)


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((2, 2), np.float32, True),
        ((2, 2), ml_dtypes.bfloat16, True),
        ((2, 2), ml_dtypes.int4, False),
        ((2, 2), np.int8, False),
        ((2, 2), np.bool_, False),
        ((4,), np.float32, False),
        ((), np.float32, False),
        ((1, 9), np.float32, False),
        ((9, 1), np.float32, False),
        ((0, 4), np.float32, False),
        ((2, (1 << 20) + 1), np.float32, False),
    ],
    ids=str,
)
def test_which_arrays_have_channels(shape: tuple[int, ...], dtype: Any, expected: bool) -> None:
    assert has_channels(shape, np.dtype(dtype)) is expected
