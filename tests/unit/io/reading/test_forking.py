"""A child that is forked while another thread is inside a reader can use that reader."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.distributed import PartWriter, commit
from ztensor.numpy import save_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning"),  # of JAX, where it is loaded
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning"),
]

SECONDS = 30.0
ARRAYS = {f"t{i}": np.full((64, 300), i, np.float32) for i in range(4)}


def _torch(path: Path, **options: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.save({name: torch.from_numpy(one) for name, one in ARRAYS.items()}, path, **options)


def _dcp(path: Path) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    state = {name: torch.from_numpy(one) for name, one in ARRAYS.items()}
    dcp.save({**state, "step": 3}, checkpoint_id=path, no_dist=True)


def _divided(path: Path) -> None:
    path.mkdir()
    with PartWriter(path) as part:
        for name, array in ARRAYS.items():
            part.add(name, array)
        commit(path, [part.finish()], {"array": np.arange(3)})


def _hdf5(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        for name, array in ARRAYS.items():
            file.create_dataset(name, data=array, chunks=(16, 100), compression="gzip")


MADE: dict[str, Callable[[Path], object]] = {
    "raw.zt": lambda path: save_file(ARRAYS, path),
    "compressed.zt": lambda path: save_file(ARRAYS, path, compression=True),
    "2.zt": lambda path: save_file(ARRAYS, path, version="2.1", compression=True),
    "shards.zt": lambda path: save_file(ARRAYS, path, max_shard_size=100_000),
    "divided": _divided,
    "raw.npz": lambda path: np.savez(path, **ARRAYS),  # type: ignore[arg-type]
    "compressed.npz": lambda path: np.savez_compressed(path, **ARRAYS),  # type: ignore[arg-type]
    "archive.pt": _torch,
    "legacy.pt": lambda path: _torch(path, _use_new_zipfile_serialization=False),
    "dcp": _dcp,
    "chunks.h5": _hdf5,
    "a.safetensors": lambda path: save_file(ARRAYS, path),
}


def use(reader: ztensor.Reader) -> None:
    """Go through every way to a reader that may wait for a lock."""
    _ = reader.attributes, reader.metadata("t1")
    for name in ARRAYS:
        assert np.array_equal(np.asarray(reader.read_numpy(name)), ARRAYS[name])
    assert np.array_equal(reader.get_slice("t2")[5:7, 3:], ARRAYS["t2"][5:7, 3:])
    reader.verify()


def ends(child: int) -> bool:
    """Return whether a child ends well; one that does not end is killed."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def used_in_child(reader: ztensor.Reader) -> bool:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            use(reader)
            status = 0
        finally:
            os._exit(status)
    return ends(child)


@pytest.mark.parametrize("name", MADE)
def test_a_child_forked_while_a_thread_reads_can_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / name, 12
    MADE[name](path)
    if name == "shards.zt":
        path = next(tmp_path.glob("*.json"))
    preadv = os.preadv
    for call in range(calls):
        with ztensor.open(path, mmap=False) as reader:
            inside, go = threading.Event(), threading.Event()
            left = call

            def met(*arguments: Any, inside: Any = inside, go: Any = go) -> int:
                nonlocal left
                if threading.current_thread().name == "reader":
                    if left == 0:
                        inside.set()
                        go.wait(SECONDS)
                    left -= 1
                return preadv(*arguments)

            monkeypatch.setattr(os, "preadv", met)
            thread = threading.Thread(target=use, args=(reader,), name="reader")
            thread.start()
            while not inside.wait(0.002) and thread.is_alive():
                pass
            is_over = not thread.is_alive()
            try:
                assert used_in_child(reader), call
            finally:
                go.set()
                thread.join()
            monkeypatch.undo()
            if is_over:
                return
