from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.insight.analysis.singular import singular_values
from ztensor.numpy import save_file

RNG = np.random.default_rng(4)


def found(tmp_path: Path, matrix: Any) -> Any:
    path = tmp_path / "m.zt"
    save_file({"m": matrix}, path)
    with ztensor.open(path) as reader:
        return singular_values(reader, "m", lambda: None)


@pytest.mark.parametrize(
    "shape", [(300, 20), (20, 300), (64, 64), (5, 4, 6), (600, 1100), (3000, 2)]
)
def test_all_singular_values_where_one_side_is_short(tmp_path: Path, shape: Any) -> None:
    matrix = RNG.normal(size=shape).astype(np.float32)
    ours = found(tmp_path, matrix)
    expected = np.linalg.svd(matrix.reshape(shape[0], -1).astype(np.float64), compute_uv=False)
    assert ours.is_exact
    assert np.allclose(ours.values, expected, rtol=1e-6)
    assert ours.stable_rank == pytest.approx((expected**2).sum() / expected[0] ** 2)
    assert np.allclose(found(tmp_path, matrix * 1j).values, expected, rtol=1e-6)
    assert found(tmp_path, matrix * 0).stable_rank == 0


def test_the_first_ones_of_a_large_matrix_are_at_least_so_large(tmp_path: Path) -> None:
    left, right = (np.linalg.qr(RNG.normal(size=(1100, 60)))[0] for _ in range(2))
    true = 2.0 ** -(np.arange(60) / 4)
    ours = found(tmp_path, ((left * true) @ right.T).astype(np.float32))
    assert not ours.is_exact
    assert len(ours.values) == 32
    assert np.allclose(ours.values, true[:32], rtol=1e-3)
    assert ours.stable_rank == pytest.approx((true**2).sum(), rel=1e-3)


@pytest.mark.parametrize("value", [np.zeros(5), np.zeros((1, 5)), np.float32(3), np.zeros((0, 4))])
def test_tensors_that_are_not_matrices_are_refused(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError, match="dense matrix"):
        found(tmp_path, value)


def test_values_that_are_not_finite_and_large_matrices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError, match="not finite"):
        found(tmp_path, np.full((4, 4), np.nan))
    with pytest.raises(ztensor.LimitError):
        found(tmp_path, np.zeros((1 << 20) * 2 + 2, np.int8).reshape(-1, 2))
