from __future__ import annotations

import itertools
import threading
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save, save_file

if TYPE_CHECKING:
    from pathlib import Path

ROWS, WIDTH, CHUNK = 2000, 500, 40  # 50 frames of 80,000 bytes; all are worth several threads
W = np.random.default_rng(0).integers(0, 100, (ROWS, WIDTH)).astype(np.float32)
KEYS: dict[str, Any] = {
    "one": 1234,
    "last": -1,
    "none": [],
    "some": [1999, 3, 3, 700, 701, 1999, 0],
    "many": np.random.default_rng(1).integers(-ROWS, ROWS, 900),
    "mask": W[:, 0] > 90,
    "run": slice(17, 1503),
    "steps": slice(5, 1900, 7),
    "far steps": slice(None, None, 400),
    "back": slice(None, None, -3),
    "two axes": np.arange(12).reshape(3, 4) * 100,
    "new axis": (None, slice(3, 300)),
    "columns": ([5, 900, 1500], slice(2, 9)),
    "whole": ...,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("chunk", [1, 7, CHUNK, 1999])
def test_rows_are_those_of_the_array(
    kind: str, threads: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
    key = KEYS[kind]
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=chunk)) as reader:
        for part in (reader.get_slice("w"), reader.get_slice("w")):  # the second finds some kept
            found = part[key]
            assert found.shape == W[key].shape
            assert np.array_equal(found, W[key])


def test_little_is_kept() -> None:
    """4 MiB of frames that were decoded, and where they are."""
    data = save({"v": W + 1, "w": W, "x": W + 2}, compression=1, chunk_rows=CHUNK)
    with ztensor.open(data) as reader:
        reader.get_slice("v")[0]
        tracemalloc.start()
        try:
            for row, name in itertools.product(range(0, ROWS, 20), "vwx"):
                reader.get_slice(name)[row]
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept < 5 << 20 < 3 * W.nbytes


def test_what_is_kept_does_not_change_with_what_was_given() -> None:
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=CHUNK)) as reader:
        part = reader.get_slice("w")
        for key in (3, [3, 4, 9], slice(0, CHUNK), slice(2, 9)):
            part[key][...] = -1
            assert np.array_equal(part[key], W[key])


def test_threads_share_a_slice() -> None:
    data = save({"w": W}, compression=1, chunk_rows=3)
    wrong: list[int] = []
    with ztensor.open(data) as reader:
        part = reader.get_slice("w")

        def look(seed: int) -> None:
            rows = np.random.default_rng(seed).integers(0, ROWS, 300).tolist()
            wrong.extend(row for row in rows if not np.array_equal(part[row], W[row]))

        threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong


def test_objects_over_the_same_bytes_have_rows_of_their_own() -> None:
    tensors = {"turned": W.reshape(-1, 25), "w": W}
    with ztensor.open(save(tensors, compression=1, chunk_rows=CHUNK)) as reader:
        for row in (5, 3900, 7):
            assert reader.get_slice("turned")[row].tolist() == W.reshape(-1, 25)[row].tolist()
        assert reader.get_slice("w")[1999].tolist() == W[1999].tolist()


def test_a_changed_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file({"w": W}, path, compression=1, chunk_rows=CHUNK)
    with ztensor.open(path) as reader:
        part = reader.get_slice("w")
        part[3]
        with path.open("r+b") as file:
            file.truncate(200)
        with pytest.raises(ztensor.SourceError):
            part[1999]
