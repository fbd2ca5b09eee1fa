from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor import Tensor
from ztensor.errors import ArgumentTypeError
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


def test_memory_of_its_own_or_a_view(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "m.zt")
    views, copies = load_file(tmp_path / "m.zt"), load_file(tmp_path / "m.zt", copy=True)
    for found in (views, copies):
        found["a"][0] = 9
        assert found["a"].flags.writeable
    assert load_file(tmp_path / "m.zt")["a"][0] == 0


def test_metadata_is_the_files_attributes() -> None:
    with ztensor.open(save(TENSORS, {"format": "np", "n": [1, {"a": None}]})) as reader:
        assert reader.attributes == {"format": "np", "n": [1, {"a": None}]}
    with ztensor.open(save(TENSORS)) as reader:
        assert reader.attributes == {}


def test_progress_counts_bytes_to_the_end(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    tensors = {**TENSORS, "a list counts none": [1.0, 2.0]}
    save_file(tensors, tmp_path / "m.zt", progress=lambda *call: calls.append(call))
    total = sum(value.nbytes for value in TENSORS.values())
    assert calls == sorted(calls)
    assert calls[-1] == (total, total)
    assert len(calls) == len(tensors)


def test_a_path_is_not_bytes(tmp_path: Path) -> None:
    for path in (tmp_path / "m.zt", "m.zt"):
        with pytest.raises(ArgumentTypeError):
            load(path)  # type: ignore[arg-type]
