"""Threads are started where work is worth their start, and nowhere else."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from ztensor.threads.sharing import thread_count

pytestmark = pytest.mark.slow

MIB = 1 << 20


SAVED: dict[str, Any] = {
    "a.zt": lambda path, arrays: ztensor.numpy.save_file(arrays, path),
    "b.zt": lambda path, arrays: ztensor.numpy.save_file(arrays, path, compression="zstd"),
    "c.npz": lambda path, arrays: np.savez(path, **arrays),
    "d.npz": lambda path, arrays: np.savez_compressed(path, **arrays),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("size", [1000, 3 * MIB], ids=["little", "much"])
def test_little_work_starts_no_thread(
    name: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 small files were verified in half the processor's time with threads=1."""
    rng = np.random.default_rng(1)
    arrays = {f"t{i}": rng.integers(0, 9, size, np.uint8) for i in range(4)}
    SAVED[name](tmp_path / name, arrays)
    started: list[str] = []
    start = threading.Thread.start

    def counted(self: threading.Thread) -> None:
        started.append(self.name)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", counted)
    with ztensor.open(tmp_path / name) as reader:
        assert reader.verify(threads=4).ok
    assert bool(started) is (size > MIB)
    loaded = ztensor.numpy.load_file(tmp_path / name, copy=True, threads=4)
    assert all(np.array_equal(loaded[key], array) for key, array in arrays.items())
    if size < MIB:
        assert not started


@pytest.mark.parametrize(
    ("cores", "processes", "count"),
    [(1, 1, 1), (2, 1, 2), (64, 1, 4), (2, 2, 1), (2, 9, 1), (64, 8, 4), (16, 8, 2), (15, 8, 1)],
)
def test_processes_of_a_machine_share_its_cores(
    monkeypatch: pytest.MonkeyPatch, cores: int, processes: int, count: int
) -> None:
    monkeypatch.delenv("ZTENSOR_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)
    assert thread_count(processes=processes) == count
    assert thread_count(3, processes=processes) == 3  # who asks for so many gets them
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", "7")
    assert thread_count(processes=processes) == 7


# --- Where the system, or an interpreter that ends, starts no more threads ---------------------


def _calls(folder: Path, arrays: dict[str, Any]) -> dict[str, Any]:
    return {
        "raw": lambda: ztensor.numpy.save_file(arrays, folder / "raw.zt"),
        "compressed": lambda: ztensor.numpy.save_file(arrays, folder / "c.zt", compression=True),
        "2.1": lambda: ztensor.numpy.save_file(arrays, folder / "2.zt", version="2.1"),
        "loaded": lambda: ztensor.numpy.load_file(folder / "old.zt", copy=True),
        "converted": lambda: ztensor.convert(folder / "old.npz", folder / "new.zt", threads=3),
        "exported": lambda: ztensor.convert(folder / "old.zt", folder / "new.npz", threads=3),
        "verified": lambda: ztensor.open(folder / "old.zt").verify(deep=True, threads=3),
        "step": lambda: ztensor.CheckpointManager(folder / "run").save(1, arrays),
    }


@pytest.mark.parametrize("name", list(_calls(Path(), {})))
def test_work_is_done_where_no_thread_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(2)
    arrays = {f"t{i}": rng.integers(0, 9, 2 * MIB, np.uint8) for i in range(4)}
    ztensor.numpy.save_file(arrays, tmp_path / "old.zt", compression=True)
    np.savez_compressed(tmp_path / "old.npz", allow_pickle=False, **arrays)

    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    _calls(tmp_path, arrays)[name]()
    monkeypatch.undo()
    for written in (*tmp_path.glob("*.zt"), *tmp_path.glob("run/*.zt")):
        loaded = ztensor.numpy.load_file(written)
        assert all(np.array_equal(loaded[one], arrays[one]) for one in arrays)
