from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import ztensor
from ztensor.encoding.zstd import Zstd
from ztensor.numpy import save, save_file
from ztensor.reading import runs

if TYPE_CHECKING:
    from pathlib import Path

ROWS, WIDTH, CHUNK = 2000, 50, 40  # 50 frames of 8,000 bytes
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


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of each frame that is decoded."""
    starts: list[int] = []
    decode = Zstd.decode_run

    def counting(self: Any, stored: Any, start: int, stop: int, *rest: Any) -> None:
        starts.append(start)
        decode(self, stored, start, stop, *rest)

    monkeypatch.setattr(Zstd, "decode_run", counting)
    return starts


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threads", ["1", "3"])
@pytest.mark.parametrize("chunk", [1, 7, CHUNK, 1999])
def test_rows_are_those_of_the_array(
    kind: str, threads: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
    monkeypatch.setattr(runs, "_WORTH_BYTES", 1)
    monkeypatch.setattr(runs, "_BATCH_BYTES", 1)
    key = KEYS[kind]
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=chunk)) as reader:
        for part in (reader.get_slice("w"), reader.get_slice("w")):  # the second finds some kept
            found = part[key]
            assert found.shape == W[key].shape
            assert np.array_equal(found, W[key])


@pytest.mark.parametrize("frame_bytes", [300, 64 << 10])
def test_rows_that_lie_in_two_frames(frame_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ztensor.encoding.base.RUN_BYTES", 1)
    monkeypatch.setattr("ztensor.writing.frames._row_bytes", lambda *_: None)  # another's file
    monkeypatch.setattr("ztensor.encoding.zstd.FRAME_BYTES", frame_bytes)
    with ztensor.open(save({"w": W}, compression=1)) as reader:
        for key in KEYS.values():
            assert np.array_equal(reader.get_slice("w")[key], W[key])


@pytest.mark.parametrize("threads", ["1", "4"])
def test_each_frame_is_decoded_once_for_an_index(
    threads: str, decoded: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", threads)
    monkeypatch.setattr(runs, "_WORTH_BYTES", 1)
    monkeypatch.setattr(runs, "KEPT_BYTES", 0)
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=CHUNK)) as reader:
        reader.get_slice("w")[KEYS["many"]]
        assert len(decoded) == len(set(decoded)) == ROWS // CHUNK


def test_neighbours_are_decoded_once_whoever_asks(decoded: list[int]) -> None:
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=CHUNK)) as reader:
        for row in range(CHUNK, 3 * CHUNK):
            assert reader.get_slice("w")[row].tolist() == W[row].tolist()
        assert len(decoded) == 2
        reader.get_slice("w")[KEYS["some"]]
        assert len(decoded) == 5


def test_a_frame_that_is_kept_is_not_decoded_again_as_a_whole(decoded: list[int]) -> None:
    with ztensor.open(save({"w": W}, compression=1, chunk_rows=CHUNK)) as reader:
        part, whole = reader.get_slice("w"), slice(CHUNK, 2 * CHUNK)
        part[CHUNK + 3]
        assert np.array_equal(part[whole], W[whole])
        assert len(decoded) == 1


def test_frames_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    find = Zstd.find_runs

    def counting(*given: Any) -> Any:
        found.append(1)
        return find(*given)

    monkeypatch.setattr(Zstd, "find_runs", counting)
    data = save({"v": W + 1, "w": W}, compression=1, chunk_rows=CHUNK)
    with ztensor.open(data) as reader:
        for row, name in itertools.product(range(0, ROWS, 400), "vw"):
            reader.get_slice(name)[row]
    assert len(found) == 2


def test_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "KEPT_BYTES", 20_000)
    monkeypatch.setattr(runs, "KEPT_TABLE_BYTES", 900)  # one component has 51 * 2 * 8
    data = save({"v": W + 1, "w": W}, compression=1, chunk_rows=CHUNK)
    with ztensor.open(data) as reader:
        for row, name in itertools.product(range(0, ROWS, 20), "vw"):
            reader.get_slice(name)[row]
        cache = reader.objects.parts()[0].fetching.runs
        assert [run.nbytes for run in cache._decoded.values()] == [8000, 8000]
        assert cache._decoded_bytes == 16_000
        assert len(cache._tables) == 1
    assert not cache._decoded
    assert not cache._tables


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
