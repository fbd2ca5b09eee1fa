from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ztensor import Tensor
from ztensor.numpy import load, load_file, save, save_file

FOUR = np.arange(4, dtype=np.float32)
TENSORS: dict[str, Any] = {
    "a": FOUR,
    "b": np.zeros((0, 2)),
    "s": Tensor.csr([1.0], [2], [0, 1], (1, 3)),
}


@pytest.mark.parametrize("compression", [False, True, 9], ids=["raw", "zstd", "zstd 9"])
@pytest.mark.parametrize("copy", [False, True], ids=["views", "copies"])
def test_a_dict_comes_back(tmp_path: Path, copy: bool, compression: bool | int) -> None:
    save_file(TENSORS, tmp_path / "m.zt", {"k": "v"}, compression=compression)
    data = save(TENSORS, {"k": "v"}, compression=compression)
    assert (tmp_path / "m.zt").read_bytes() == data
    found: dict[str, Any]
    for found in (load_file(tmp_path / "m.zt", copy=copy), load(data, copy=copy)):
        assert list(found) == sorted(TENSORS)
        assert type(found["a"]) is np.ndarray
        assert found["a"].tolist() == [0, 1, 2, 3]
        assert (found["b"].shape, found["b"].dtype) == ((0, 2), np.dtype("f8"))
        assert found["s"].to_dense().tolist() == [[0, 0, 1]]
        assert save(found, {"k": "v"}, compression=compression) == data


def test_progress_counts_bytes_to_the_end(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    tensors = {**TENSORS, "a list counts none": [1.0, 2.0]}
    save_file(tensors, tmp_path / "m.zt", progress=lambda *call: calls.append(call))
    total = sum(value.nbytes for value in TENSORS.values())
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) == len(tensors)
