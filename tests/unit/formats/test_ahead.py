"""Decoding on other threads: the same bytes, the same errors, bounded, and no thread left."""

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
from ztensor.errors import ArgumentValueError, EncodingError
from ztensor.formats import ahead
from ztensor.formats.ahead import Ahead
from ztensor.io.reading.file import FileObjects
from ztensor.io.source.memory import MemorySource
from ztensor.spec.encoding.raw import Raw
from ztensor.spec.model.manifest import Component, Manifest, TensorObject

MIB = 1 << 20
THREADS = 3
Arrays = dict[str, Any]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever happens, who converted is alone afterwards."""
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tensors of these tests were large."""
    monkeypatch.setattr(ahead, "_MOST_BYTES", MIB // 4)
    monkeypatch.setattr(ahead, "_MOST_OF_FIRST_BYTES", MIB // 16)
    monkeypatch.setattr(ahead, "_LEAST_BYTES", 4 << 10)


def noise(count: int, seed: int) -> Any:
    # Small numbers: they take work to inflate, and come out shorter than they are.
    return np.random.default_rng(seed).integers(0, 40, count).astype(np.int32)


def some(count: int, length: int) -> Arrays:
    return {f"w{index:03}": noise(length, index).reshape(-1, 16) for index in range(count)}


SETS: dict[str, Arrays] = {
    "some": some(12, 1 << 13),
    "small beside large": some(60, 64) | some(3, 1 << 13) | {"huge": noise(MIB // 4, 1)},
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
@pytest.mark.usefixtures("small_bounds")
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
def test_shards_are_decoded_each_by_its_own_reader(tmp_path: Path) -> None:
    for index, arrays in enumerate((some(4, 1 << 13), {"x": noise(1 << 13, 9)})):
        compressed_zt(tmp_path / f"{index}.zt", arrays)
    parts = [tmp_path / "0.zt", tmp_path / "1.zt"]
    ztensor.convert(parts, tmp_path / "out.zt", compression=False, threads=THREADS)
    with ztensor.open(tmp_path / "out.zt") as reader:
        assert np.array_equal(reader["w003"], some(4, 1 << 13)["w003"])
        assert np.array_equal(reader["x"], noise(1 << 13, 9))


# --- Errors ---------------------------------------------------------------------------------


def damage(path: Path, name: str) -> None:
    """Change one byte amid a deflated member."""
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo(f"{name}.npy")
    flip(path, member.header_offset + member.compress_size // 2, 0x40)


@pytest.mark.wing
@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("target", ["out.zt", "out.safetensors", "out.npz"])
@pytest.mark.parametrize("name", ["w005", "huge"])
def test_an_error_is_that_of_the_first_damaged_object(
    tmp_path: Path, name: str, target: str
) -> None:
    path = tmp_path / "in.npz"
    deflated_npz(path, some(6, 1 << 13) | {"huge": noise(MIB // 4, 1), "z": noise(1 << 13, 2)})
    damage(path, name)
    damage(path, "z")  # is decoded meanwhile, and not what is told
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
@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize("target", ["out.zt", "out.safetensors", "out.npz", "out.gguf", "out.h5"])
def test_an_interrupt_leaves_nothing(tmp_path: Path, target: str) -> None:
    deflated_npz(tmp_path / "in.npz", SETS["small beside large"])

    def interrupt(done: int, total: int) -> None:
        if done > total // 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ztensor.convert(tmp_path / "in.npz", tmp_path / target, threads=THREADS, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["in.npz"]


@pytest.mark.wing
def test_no_threads_are_refused(tmp_path: Path) -> None:
    deflated_npz(tmp_path / "in.npz", some(1, 64))
    with pytest.raises(ArgumentValueError):
        ztensor.convert(tmp_path / "in.npz", tmp_path / "out.npz", threads=0)


# --- What is decoded when -------------------------------------------------------------------


class Counted(Raw):
    """Pieces of a MiB, each counted from when it is made until it is let go."""

    name = "counted"

    def __init__(self) -> None:
        self.alive = self.most = self.made = 0
        self.threads: set[int] = set()
        self.meet: threading.Barrier | None = None
        self.is_whole = False
        self._lock = threading.Lock()

    def is_streamed(self, stored: Any) -> bool:
        return not self.is_whole

    def decode_chunks(self, stored: Any, expected_length: int | None, limits: Any) -> Any:
        if self.is_whole:
            yield from [memoryview(Piece(self)) for _ in range((expected_length or 0) // MIB)]
            return
        for _ in range((expected_length or 0) // MIB):
            if self.meet is not None and threading.get_ident() not in self.threads:
                self.threads.add(threading.get_ident())
                self.meet.wait(10)
            self.threads.add(threading.get_ident())
            yield memoryview(Piece(self))


class Piece(bytearray):
    """A MiB that tells when it is let go."""

    def __init__(self, encoding: Counted) -> None:
        super().__init__(MIB)
        self._encoding = encoding
        with encoding._lock:
            encoding.made += 1
            encoding.alive += 1
            encoding.most = max(encoding.most, encoding.alive)

    def __del__(self) -> None:
        with self._encoding._lock:
            self._encoding.alive -= 1


def counted(*sizes: int) -> tuple[Counted, FileObjects, list[tuple[FileObjects, str, str]]]:
    """Return a reader of objects of so many MiB, and what to ask it for."""
    encoding = Counted()
    objects = {
        str(index): TensorObject(
            (size * MIB,),
            "dense",
            {"data": Component("u8", index, 1, None, "counted", decoded_length=size * MIB)},
        )
        for index, size in enumerate(sizes)
    }
    file = FileObjects(
        MemorySource(bytes(len(sizes))),
        Manifest("", objects, None),
        encodings={"counted": encoding},
    )
    return encoding, file, [(file, name, "data") for name in objects]


def read(chunks: Iterator[memoryview]) -> int:
    return sum(chunk.nbytes for chunk in chunks) // MIB


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes",
    [(8,) * 20, (100,), (100, 100), (1, 100, 39, 39), (30, 100, 30)],
    ids=str,
)
def test_what_waits_is_bounded(sizes: tuple[int, ...]) -> None:
    encoding, _, keys = counted(*sizes)
    with Ahead(keys, THREADS) as decoding:
        for key, size in zip(keys, sizes, strict=True):
            taken = 0
            for chunk in decoding.chunks(*key):
                settle(encoding)
                taken += chunk.nbytes // MIB
            assert taken == size
    del chunk
    # One piece with each thread, and one with who asks.
    most = (ahead._MOST_BYTES + ahead._MOST_OF_FIRST_BYTES) // MIB + THREADS + 1
    assert encoding.most <= most
    assert encoding.alive == 0


def settle(encoding: Counted) -> None:
    """Let the threads go as far as they go."""
    made = -1
    while made != encoding.made:
        made = encoding.made
        threading.Event().wait(0.001)


@pytest.mark.parametrize(
    "order",
    [(0, 0, 1, 1), (0, 3), (3, 0, 1), (2, 2, 2), (1, 0, 1)],
    ids=str,
)
def test_any_order_gives_the_bytes(order: tuple[int, ...]) -> None:
    _, _, keys = counted(1, 60, 2, 3)
    with Ahead(keys, THREADS) as decoding:
        assert [read(decoding.chunks(*keys[at])) for at in order] == [
            (1, 60, 2, 3)[at] for at in order
        ]


def test_a_component_that_is_not_read_to_its_end_holds_nobody_up() -> None:
    encoding, _, keys = counted(100, 5, 100)
    with Ahead(keys, THREADS) as decoding:
        next(decoding.chunks(*keys[0]))
        assert read(decoding.chunks(*keys[1])) == 5
        next(decoding.chunks(*keys[2]))
    assert encoding.alive == 0
