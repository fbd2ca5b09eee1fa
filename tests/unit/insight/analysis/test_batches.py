"""Small tensors of one file give what each gives in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.insight.analysis.test_channels import FLOATS
from ztensor.numpy import save, save_file

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)
INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.int64, np.uint64]
SHAPES: list[tuple[int, ...]] = [(), (1,), (7,), (2, 2), (65, 9), (3, 4, 5), (1, 4)]


def values(dtype: Any, shape: tuple[int, ...], kind: int) -> Any:
    wide = RNG.normal(0, 3, shape)
    if kind == 1:
        wide = np.zeros(shape)
    elif kind == 2:
        wide = np.full(shape, 2.0)
    elif kind == 3:
        wide = np.round(wide) * 2
    elif kind == 4 and wide.ndim:
        wide[0] = 0
    elif kind == 5:
        wide = wide * 1e30
    array = wide.astype(dtype) if dtype not in (np.uint8, np.uint64) else np.abs(wide).astype(dtype)
    if kind >= 6 and np.dtype(dtype) not in map(np.dtype, INTEGERS) and array.size:
        array = array.copy()
        array.reshape(-1)[array.size // 2] = [np.nan, np.inf, -np.inf][kind - 6]
    return array


def model() -> dict[str, Any]:
    return {
        f"{np.dtype(dtype).name}.{'x'.join(map(str, shape))}.{kind}": values(dtype, shape, kind)
        for dtype in [*FLOATS, *INTEGERS]
        for shape in SHAPES
        for kind in range(9)
    }


@pytest.mark.parametrize("compression", [False, True])
def test_the_same_in_one_file_and_each_in_its_own(compression: bool) -> None:
    with np.errstate(all="ignore"):
        tensors = model()
    together = ztensor.stats(save(tensors, compression=compression), channels=(4, 8))
    for name, array in tensors.items():
        alone = ztensor.stats(save({name: array}, compression=compression), channels=(4, 8))
        assert repr(together[name]) == repr(alone[name])


def test_bytes_of_several_tensors_are_within_the_budget(tmp_path: Path) -> None:
    """Objects over one another's bytes are left to what counts how often that is."""
    one = np.arange(64, dtype=np.float32)
    save_file({"a": one, "b": one, "c": one.view(np.int32)}, tmp_path / "tied.zt")
    found = ztensor.stats(tmp_path / "tied.zt")
    assert found["a"].max == found["b"].max == 63
    assert found["c"].dtype == "int32"


def test_types_of_8_bits_count_values_at_their_limit(tmp_path: Path) -> None:
    full = np.full((4, 4), 448).astype(ml_dtypes.float8_e4m3fn)
    save_file({"a": full, "b": np.full((4, 4), 127, np.int8)}, tmp_path / "a.zt")
    found = ztensor.stats(tmp_path / "a.zt")
    assert (found["a"].at_limit, found["b"].at_limit) == (16, 0)
