from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from tests.unit.distributed.test_opened import TENSORS
from ztensor.distributed import PartWriter, repair

W = np.arange(24.0).reshape(6, 4)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("compression", [False, True])
def test_a_lost_root_is_made_of_the_files(tmp_path: Path, axis: int, compression: bool) -> None:
    sparse = ztensor.Tensor.csr([1.0], np.array([1]), np.array([0, 1]), (1, 3))
    save(tmp_path, {**TENSORS, "sparse": sparse}, axis=axis, compression=compression)
    (tmp_path / "checkpoint.zt").unlink()
    report = repair(tmp_path)
    assert report.tensors == len(TENSORS) + 1
    with ztensor.open(tmp_path) as reader:
        for name, value in TENSORS.items():
            assert reader[name].tobytes() == np.asarray(value).tobytes()
        assert (reader.read("sparse").to_dense() == sparse.to_dense()).all()
        assert reader.verify().ok
    assert repair(tmp_path).written is None


def test_files_that_do_not_cover_a_tensor_make_no_root(tmp_path: Path) -> None:
    """The caller vouches for them, and their boxes show that one is missing."""
    records = []
    for process in range(3):
        with PartWriter(tmp_path, process=process) as part:
            part.add("w", W[2 * process : 2 * process + 2], shape=(6, 4), offsets=(2 * process, 0))
            records.append(part.finish())
    next(tmp_path.glob("00001-*.zt")).unlink()
    with pytest.raises(ztensor.UsageError, match=r"'w'.*do not cover"):
        repair(tmp_path, one_save=True)
