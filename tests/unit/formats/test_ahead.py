"""Conversion with several threads: the same bytes, the same errors, and no thread left."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from ztensor.errors import EncodingError

THREADS = 3
Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def noise(count: int, seed: int) -> Any:
    # Small numbers: they take work to inflate, and come out shorter than they are.
    return np.random.default_rng(seed).integers(0, 40, count).astype(np.int32)


def arrays_of(count: int, length: int) -> Arrays:
    return {f"w{index:03}": noise(length, index).reshape(-1, 16) for index in range(count)}


SETS: dict[str, Arrays] = {
    "equal": arrays_of(6, 1 << 15),
    "small beside large": arrays_of(60, 64) | {"large": noise(1 << 18, 1)},
    "nothing": {"empty": np.zeros((0, 4), np.int32), "one": np.ones(1, np.int32)},
}


# --- Sources --------------------------------------------------------------------------------


def deflated_npz(path: Path, arrays: Arrays) -> None:
    np.savez_compressed(path, allow_pickle=False, **arrays)


def fortran_npz(path: Path, arrays: Arrays) -> None:
    turned = {name: np.asarray(array, order="F") for name, array in arrays.items()}
    np.savez_compressed(path, allow_pickle=False, **turned)


def chunked_hdf5(path: Path, arrays: Arrays) -> None:
    h5py = pytest.importorskip("h5py", reason="writes the file")
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            how = {"chunks": True, "compression": "gzip"} if array.size else {}
            file.create_dataset(name, data=array, **how)


def compressed_zt(path: Path, arrays: Arrays) -> None:
    with ztensor.Writer(path, compression=1, durable=False) as writer:
        for name, array in arrays.items():
            writer.write(name, array)


def strided_pt(path: Path, arrays: Arrays) -> None:
    torch = pytest.importorskip("torch", reason="writes the file")
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    torch.save(
        {name: one.t() if one.ndim == 2 else one[::2] for name, one in tensors.items()}, path
    )


def deflated_pt(path: Path, arrays: Arrays) -> None:
    plain = path.with_suffix(".plain")
    strided_pt(plain, arrays)
    with zipfile.ZipFile(plain) as one, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as other:
        for member in one.infolist():
            other.writestr(member.filename, one.read(member))


SOURCES: dict[str, Callable[[Path, Arrays], None]] = {
    "deflated.npz": deflated_npz,
    "fortran.npz": fortran_npz,
    "chunked.h5": chunked_hdf5,
    "zstd.zt": compressed_zt,
    "strided.pt": strided_pt,
    "deflated.pt": deflated_pt,
}


TARGETS = {"zt": False, "safetensors": None, "npz": None, "gguf": None, "hdf5": None}
PAIRS = [(source, "zt") for source in SOURCES] + [
    (source, target) for source in ("deflated.npz", "zstd.zt") for target in list(TARGETS)[1:]
]


@pytest.mark.wing
@pytest.mark.parametrize("arrays", SETS.values(), ids=SETS)
@pytest.mark.parametrize(("source", "target"), PAIRS, ids=map("->".join, PAIRS))
def test_the_bytes_are_those_of_one_thread(
    tmp_path: Path, source: str, target: str, arrays: Arrays
) -> None:
    SOURCES[source](tmp_path / source, arrays)
    found = []
    for threads in (1, THREADS):
        path = tmp_path / "out"
        ztensor.convert(
            tmp_path / source, path, to=target, threads=threads, compression=TARGETS[target]
        )
        found.append(path.read_bytes())
    assert found[0] == found[1]


@pytest.mark.wing
@pytest.mark.slow  # components of 48 MiB
def test_a_component_longer_than_what_may_wait(tmp_path: Path) -> None:
    fortran_npz(tmp_path / "in.npz", arrays_of(2, 12 << 20) | SETS["equal"])
    ztensor.convert(tmp_path / "in.npz", tmp_path / "out.zt", threads=THREADS, check=True)


# --- Errors ---------------------------------------------------------------------------------


def damage(path: Path, name: str) -> None:
    """Change one byte amid a deflated member."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
    flip(path, member.header_offset + member.compress_size // 2, 0x40)


@pytest.mark.wing
@pytest.mark.parametrize("target", ["out.zt", "out.safetensors", "out.npz"])
def test_an_error_names_the_first_damaged_object(tmp_path: Path, target: str) -> None:
    path, name = tmp_path / "in.npz", "w003"
    deflated_npz(path, SETS["equal"])
    damage(path, name)
    damage(path, "w004")  # decoded meanwhile
    errors = []
    for threads in (1, THREADS):
        with pytest.raises(EncodingError) as caught:
            ztensor.convert(path, tmp_path / target, threads=threads)
        errors.append(caught.value)
    assert str(errors[0]) == str(errors[1])
    for error in errors:
        assert (error.object_name, error.component) == (name, "data")
        assert error.file == str(path)
    assert [one.name for one in tmp_path.iterdir()] == ["in.npz"]


@pytest.mark.wing
@pytest.mark.parametrize("target", ["out.zt", "out.safetensors", "out.npz", "out.gguf", "out.h5"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, target: str) -> None:
    deflated_npz(tmp_path / "in.npz", SETS["small beside large"])

    def interrupt(done: int, total: int) -> None:
        if done > total // 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ztensor.convert(tmp_path / "in.npz", tmp_path / target, threads=THREADS, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]
