from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.insight.analysis.slicing import Cut, map_cut
from ztensor.numpy import save_file

RNG = np.random.default_rng(3)
CUBE = RNG.normal(size=(6, 40, 50)).astype(np.float32)
WIDE = RNG.normal(size=(600, 900)).astype(np.float32)
QUANTIZED = ztensor.Tensor.quantize(WIDE[:64, :128], bits=4, group_size=32)
SPARSE = ztensor.Tensor.csr(np.ones(2, np.float32), [1, 3], [0, 1, 1, 2], (3, 4))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("slicing") / "model.zt"
    tensors: dict[str, Any] = {
        "cube": CUBE, "wide": WIDE, "line": CUBE[0, 0], "ints": np.arange(20).reshape(4, 5),
        "complex": CUBE[0].astype(np.complex64) * 1j, "quantized": QUANTIZED, "sparse": SPARSE,
    }  # fmt: skip
    save_file(tensors, path)
    return path


CASES = [
    ("cube", Cut(2, 0, (0, 7, 0), ((10, 20), (1, 5))), CUBE[1:5, 7, 10:20].T),
    ("cube", Cut(1, 2, (3, 0, 0), ((0, 40), (0, 50))), CUBE[3]),
    ("cube", Cut(0, 1, (0, 0, 49), ((0, 6), (39, 40))), CUBE[:, 39:40, 49]),
    ("line", Cut(None, 0, (0,), ((0, 1), (2, 40))), CUBE[0, 0, None, 2:40]),
    ("wide", Cut(0, 1, (0, 0), ((3, 597), (1, 900))), WIDE[3:597, 1:]),
    ("wide", Cut(1, 0, (0, 0), ((3, 9), (0, 600))), WIDE.T[3:9]),
    ("ints", Cut(0, 1, (0, 0), ((1, 3), (0, 5))), np.arange(20).reshape(4, 5)[1:3]),
    ("complex", Cut(0, 1, (0, 0), ((0, 9), (0, 9))), np.abs(CUBE[0, :9, :9])),
    ("quantized", Cut(0, 1, (0, 0), ((3, 60), (2, 40))), QUANTIZED.dequantize()[3:60, 2:40]),
    ("quantized", Cut(1, 0, (0, 0), ((3, 9), (33, 64))), QUANTIZED.dequantize()[33:, 3:9].T),
    ("sparse", Cut(0, 1, (0, 0), ((0, 3), (0, 4))), SPARSE.to_dense()),
]


@pytest.mark.parametrize(("name", "cut", "expected"), CASES)
def test_a_cut_is_what_numpy_cuts(model: Path, name: str, cut: Cut, expected: Any) -> None:
    with ztensor.open(model) as reader:
        found = map_cut(reader, name, cut, (32, 64), lambda: None)
    wide = np.asarray(expected, np.float64)
    assert found.shape == wide.shape
    rows = np.sqrt((wide * wide).sum(1))
    assert found.channels.rows.max == pytest.approx(rows.max(), rel=1e-5)
    assert found.channels.columns.count == wide.shape[1]
    if wide.shape[0] <= 32 and wide.shape[1] <= 64:
        assert found.values is not None
        assert np.allclose(np.reshape(found.values, wide.shape), wide, rtol=1e-6)
    else:
        assert found.values is None


@pytest.mark.parametrize(
    "cut",
    [
        Cut(0, 0, (0, 0, 0), ((0, 1), (0, 1))), Cut(0, 3, (0, 0, 0), ((0, 1), (0, 1))),
        Cut(None, 1, (0, 0, 0), ((0, 1), (0, 1))), Cut(0, 1, (0, 0), ((0, 1), (0, 1))),
        Cut(0, 1, (0, 0, 50), ((0, 1), (0, 1))), Cut(0, 1, (0, 0, -1), ((0, 1), (0, 1))),
        Cut(0, 1, (0, 0, 0), ((0, 7), (0, 1))), Cut(0, 1, (0, 0, 0), ((2, 2), (0, 1))),
        Cut(0, 1, (0, 0, 0), ((-1, 2), (0, 1))), Cut(-1, 1, (0, 0, 0), ((0, 1), (0, 1))),
    ],
)  # fmt: skip
def test_a_cut_that_does_not_fit_is_refused(model: Path, cut: Cut) -> None:
    with ztensor.open(model) as reader, pytest.raises(ztensor.errors.ArgumentValueError):
        map_cut(reader, "cube", cut, (32, 64), lambda: None)
