"""Dask arrays over objects: equal in every scheduler, and never a stale result."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ztensor.errors import ArgumentTypeError, ObjectNotFoundError, SourceError, UsageError
from ztensor.numpy import save_file

dask: Any = pytest.importorskip("dask.array", reason="pip install dask[array]")
from_file: Any = pytest.importorskip("ztensor.dask", exc_type=ImportError).from_file

ROWS = np.arange(3000 * 64, dtype=np.float32).reshape(3000, 64)
ARRAYS: dict[str, Any] = {
    "rows": ROWS,
    "half": ROWS[:100].astype(ml_dtypes.bfloat16),
    "cube": ROWS.reshape(30, 100, 64),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 4), np.float32),
    "wide": ROWS.reshape(2, -1),
}


@pytest.fixture(autouse=True)
def small_chunks() -> Iterator[None]:
    import dask as settings

    with settings.config.set({"array.chunk-size": "100 KiB"}):
        yield


@pytest.fixture(params=[False, True], ids=["raw", "zstd"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save_file(ARRAYS, tmp_path / "a.zt", compression=request.param)
    return tmp_path / "a.zt"


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_arrays_are_equal(path: Path, scheduler: str) -> None:
    for name, expected in ARRAYS.items():
        lazy = from_file(path, name)
        assert (lazy.shape, lazy.dtype) == (expected.shape, expected.dtype)
        assert type(lazy._meta) is np.ndarray
        np.testing.assert_array_equal(lazy.compute(scheduler=scheduler), expected)
    lazy = from_file(path, "rows", chunks=(700, 10))
    np.testing.assert_array_equal(lazy[5:2000:3, ::-1].compute(scheduler=scheduler),
                                  ROWS[5:2000:3, ::-1])  # fmt: skip
    np.testing.assert_array_equal((lazy + 1).max(axis=0).compute(), ROWS[-1] + 1)


@pytest.mark.slow
def test_other_processes_open_the_file(tmp_path: Path) -> None:
    save_file({"rows": ROWS}, tmp_path / "a.zt", compression=True)
    lazy = from_file(tmp_path / "a.zt", "rows")
    assert len(lazy.chunks[0]) > 1
    assert lazy.max().compute(scheduler="processes", num_workers=1) == ROWS.max()


def test_chunks_are_whole_rows_that_are_decoded_together(tmp_path: Path) -> None:
    save_file({"w": ROWS}, tmp_path / "a.zt", compression=True, chunk_rows=170)
    assert from_file(tmp_path / "a.zt", "w").chunks == ((340,) * 8 + (280,), (64,))
    save_file({"w": ROWS}, tmp_path / "b.zt")
    assert from_file(tmp_path / "b.zt", "w").chunks == ((400,) * 7 + (200,), (64,))
    # A row that is larger than a chunk is divided, too.
    wide = from_file(tmp_path / "b.zt", "w", chunks="auto").reshape(-1)
    assert wide.size == ROWS.size
    save_file({"w": ROWS.reshape(2, -1)}, tmp_path / "c.zt")
    assert all(part * 4 <= 100 << 10 for part in from_file(tmp_path / "c.zt", "w").chunks[1])


def test_names_change_when_the_file_does(path: Path) -> None:
    name = from_file(path, "rows").name
    assert from_file(path, "rows").name == name
    assert from_file(path, "rows", chunks=(100, 64)).name != name
    assert from_file(path, "cube").name != name
    save_file({**ARRAYS, "rows": ROWS + 1}, path)
    other = from_file(path, "rows")
    assert other.name != name
    os.utime(path, ns=(1, 1))
    assert from_file(path, "rows").name != other.name


def test_a_graph_of_a_file_that_was_replaced_fails_where_it_is_opened_anew(path: Path) -> None:
    lazy = from_file(path, "rows")
    graph = pickle.dumps(lazy)
    np.testing.assert_array_equal(pickle.loads(graph).compute(), ROWS)
    other = from_file(path, "cube")
    sent = pickle.dumps(other)
    save_file({**ARRAYS, "rows": ROWS + 1}, path)
    with pytest.raises(SourceError):
        pickle.loads(sent).compute()
    # Who has it open still has the old one.
    np.testing.assert_array_equal(lazy.compute(scheduler="threads"), ROWS)


def test_what_cannot_be_an_array_is_told(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        from_file(path, "nothing")
    with pytest.raises(UsageError):
        from_file(path, "rows", chunks=(1, 2, 3))
    with path.open("rb") as file, pytest.raises(UsageError):
        from_file(file, "rows")
    import ztensor

    sparse = ztensor.Tensor.csr([1.0], [0], [0, 1], (1, 3))
    save_file({"s": sparse}, tmp_path / "s.zt")
    with pytest.raises(ArgumentTypeError):
        from_file(tmp_path / "s.zt", "s")


def test_workers_of_distributed_compute_it(path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="pip install distributed")
    with distributed.Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ):
        np.testing.assert_array_equal(from_file(path, "rows").compute(), ROWS)
