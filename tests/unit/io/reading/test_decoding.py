"""Large encoded tensors decoded by several threads: the values, and one error for damage."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import ztensor
from tests.unit.io.reading.counted import Near, reader_of
from ztensor.errors import DigestMismatchError, EncodingError
from ztensor.ext import load_files
from ztensor.numpy import load_file, save, save_file
from ztensor.testing.builder_2 import File2, dense, seekable

MIB = 1 << 20


@pytest.fixture(scope="module")
def large() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "large": random.integers(0, 9, (5 * MIB // 8 + 3, 2), np.int32),
        "middle": random.integers(0, 9, MIB, np.int8),
        "little": np.arange(300),
    }


@pytest.fixture(scope="module", params=["1.2.0", "2.1"])
def saved(large: Any, request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("large") / "m.zt"
    save_file(large, path, version=request.param, compression=True)
    return path


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("separate", [False, True])
def test_every_use_gives_the_same(
    saved: Path, large: Any, threads: int, separate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load_file(saved, threads=threads, copy=separate)
    for name, array in large.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", str(threads))
    with ztensor.open(saved) as reader:
        assert np.array_equal(reader["large"], large["large"])
        target = np.empty_like(large["large"])
        reader.read_into("large", target)
        assert np.array_equal(target, large["large"])
        assert np.array_equal(reader.get_slice("large")[5:-3], large["large"][5:-3])


class Meeting(Near):
    """A source of which the first read of each thread waits for that of another thread."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.barrier = threading.Barrier(2)
        self.threads: set[int] = set()

    def read_into(self, offset: int, destination: memoryview) -> None:
        if threading.get_ident() not in self.threads:
            self.threads.add(threading.get_ident())
            self.barrier.wait(10)
        super().read_into(offset, destination)


@pytest.mark.parametrize("use", ["slice", "whole"])
def test_threads_share_the_frames(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZTENSOR_NUM_THREADS", "2")
    random = np.random.default_rng(0)
    array = random.integers(
        0, 100, (160, 64 << 10), np.uint8
    )  # too long to be kept as it is stored
    source = Meeting(save({"w": array}, compression=True, checksum=None))
    source.threads.add(threading.get_ident())
    reader = reader_of(source)
    if use == "slice":
        assert np.array_equal(reader.get_slice("w")[1:], array[1:])
    else:
        assert np.array_equal(reader.read_numpy("w"), array)
    assert len(source.threads) == 3


@pytest.mark.parametrize("at", [0.2, 0.9])
@pytest.mark.parametrize("verify", [None, False])
def test_damage_is_one_error(saved: Path, tmp_path: Path, at: float, verify: bool | None) -> None:
    data = bytearray(saved.read_bytes())
    with ztensor.open(saved) as reader:
        place = reader.location("large")
    start = place.offset + int(place.length * at)
    data[start : start + (64 << 10)] = b"\xff" * (64 << 10)  # a frame's head among them
    (tmp_path / "bad.zt").write_bytes(data)
    errors = []
    for threads in (1, 3):
        with pytest.raises((DigestMismatchError, EncodingError)) as caught:
            load_file(tmp_path / "bad.zt", threads=threads, verify=verify)
        assert (caught.value.object_name, caught.value.component) == ("large", "data")
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [3 * MIB, 5 * MIB, 600])
def test_a_digest_of_decoded_bytes_is_checked(size: int, threads: int) -> None:
    data = np.random.default_rng(0).integers(0, 9, size, np.uint8)
    cuts = [data[start : start + MIB].tobytes() for start in range(0, size, MIB)]
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    for digest in (None, "xxh3:0123456789abcdef"):
        file = File2()
        part = file.packed(data.tobytes(), seekable(map(compressor.compress, cuts), map(len, cuts)))
        if digest is not None:
            part["digest"] = digest
        # As many as it takes for a table.
        objects = {name: dense(part, [size]) for name in "abcdefgh"}
        with ztensor.open(file.seal({"objects": objects})) as reader:
            if digest is None:
                found = load_files(reader.objects, copy=False, threads=threads)
                assert all(np.array_equal(array, data) for array in found.values())
                continue
            with pytest.raises(DigestMismatchError):
                load_files(reader.objects, copy=False, threads=threads)
            with pytest.raises(DigestMismatchError):
                reader.read_numpy("a")
