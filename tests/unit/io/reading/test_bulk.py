"""Many tensors at once give the same values, errors and reports as one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.io.reading.counted import Counted, Near, reader_of
from ztensor.numpy import load_file, save, save_file
from ztensor.typing import Array

COUNT = 600
VERSIONS = ["1.1.0", "1.2.0", "2.1"]


def some() -> dict[str, Array]:
    """Return tensors that compress, that do not, empty ones, scalars, bools, and a large one."""
    random = np.random.default_rng(0)
    kinds: list[Any] = [
        np.zeros((8, 8), np.float32),
        random.integers(0, 256, 300).astype(np.uint8),
        np.array(2.5),
        np.zeros((0, 3), np.int16),
        np.arange(300).astype(ml_dtypes.bfloat16),
        np.array([True, False]),
    ]
    made = {f"w{index:03}": kinds[index % len(kinds)].copy() for index in range(COUNT)}
    return {**made, "large": np.arange(1 << 20, dtype=np.int64)}


@pytest.fixture(scope="module", params=[(v, z) for v in VERSIONS for z in (False, True)], ids=str)
def saved(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    path: Path = tmp_path_factory.mktemp("many") / "m.zt"
    version, compression = request.param
    save_file(some(), path, version=version, compression=compression)
    return path


@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("verify", [None, True, False])
def test_every_tensor_is_loaded(saved: Path, copy: bool, threads: int, verify: bool | None) -> None:
    found = load_file(saved, copy=copy, threads=threads, verify=verify)
    expected = some()
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_the_report_counts_every_digest(saved: Path) -> None:
    done: list[tuple[int, int]] = []
    with ztensor.open(saved) as reader:
        report = reader.verify(progress=lambda *at: done.append(at))
        names = ["w001", "w005", "large"]
        some_of_it = reader.verify(names)
    assert report.ok
    assert (report.objects, report.checked) == (COUNT + 1, COUNT + 1)
    assert done[-1] == (report.nbytes, report.nbytes)
    assert [one[0] for one in done] == sorted(one[0] for one in done)
    assert (some_of_it.ok, some_of_it.objects, some_of_it.checked) == (True, 3, 3)


@pytest.mark.parametrize("at", [0, -1], ids=["first byte", "last byte"])
@pytest.mark.parametrize("name", ["w000", "w301", "w005", "large"])
def test_damage_is_found_in_the_object_it_is_in(
    saved: Path, tmp_path: Path, name: str, at: int
) -> None:
    data = bytearray(saved.read_bytes())
    with ztensor.open(saved) as reader:
        where = reader.location(name)
        sharing = {one for one in reader if reader.location(one) == where}
    data[range(where.offset, where.offset + where.length)[at]] ^= 0x80
    path = tmp_path / "bad.zt"
    path.write_bytes(data)
    with pytest.raises(ztensor.FormatError) as caught:
        load_file(path, copy=True)
    assert caught.value.object_name in sharing
    with ztensor.open(path) as reader:
        report = reader.verify()
        assert {problem.object_name for problem in report.problems} == sharing
        for one in sorted(sharing)[:3]:
            with pytest.raises(ztensor.FormatError):
                reader.read_numpy(one, copy=True)


def half_random(nbytes: int, seed: int) -> Array:
    """Return bytes that zstd halves: random ones, then zeros."""
    made = np.zeros(nbytes, np.uint8)
    made[: nbytes // 2] = np.random.default_rng(seed).integers(0, 256, nbytes // 2, np.uint8)
    return made


@pytest.mark.parametrize("compression", [False, True])
def test_of_objects_outside_the_names_no_byte_is_read(compression: bool) -> None:
    tensors = {f"w{index:02}": half_random(60_000, index) for index in range(30)}
    source = Counted(save(tensors, version="2.1", compression=compression))
    report = reader_of(source).objects.check(list(tensors)[::3])
    assert (report.ok, report.checked) == (True, 10)
    assert source.count == report.nbytes < sum(map(len, tensors.values())) / 2


@pytest.mark.parametrize(
    ("compression", "reads"),
    [(False, [1, 1]), (True, [1, 1, 1])],  # 6 MB; 3 MB and 6 MB that they decode to
)
def test_neighbours_are_one_read_of_at_most_4_mib(compression: bool, reads: list[int]) -> None:
    tensors = {f"w{index:03}": half_random(60_000, index) for index in range(100)}
    source = Near(save(tensors, version="1.2.0", compression=compression))
    report = reader_of(source).objects.check()
    assert report.ok
    assert [len(request) for request in source.asked] == reads
