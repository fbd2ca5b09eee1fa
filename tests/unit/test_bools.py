"""Bytes of bools other than 0 and 1: kept by every read of 1.x, written to 1.x alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import ztensor
from tests.refusals import refused
from ztensor import Reader
from ztensor.errors import FormatError, Reason
from ztensor.numpy import load_file, save_file

BYTES = np.array([[0, 1], [2, 255]], np.uint8)
ODD = BYTES.view(np.bool_)
ENDS = np.arange(5, dtype=np.uint64)
SPARSE = ztensor.Tensor.csr(ODD.reshape(-1), ENDS[:4], ENDS, (4, 4))


def filled(reader: Reader) -> Any:
    target = np.empty((2, 2), np.bool_)
    reader.read_into("b", target)
    return target


KEEPING: dict[str, Callable[[Reader], Any]] = {
    "a view": lambda reader: reader["b"],
    "a copy": lambda reader: reader.read_numpy("b"),
    "a part": lambda reader: np.concatenate([reader.get_slice("b")[n : n + 1] for n in (0, 1)]),
    "rows": lambda reader: reader.get_slice("b")[[0, 1]],
    "read_into": filled,
    "read_slices": lambda reader: reader.read_slices({"b": slice(0, 2)})["b"],
    "chunks": lambda reader: np.frombuffer(b"".join(reader.decoded_chunks("b")), np.bool_),
    "sparse values": lambda reader: reader.read("s").components["values"],
    "rows of sparse": lambda reader: np.asarray(
        cast("Any", reader.get_slice("s")[0:4]).components["values"]
    ),
    "sparse made dense": lambda reader: np.diagonal(reader.read("s").to_dense()),
    "load_file": lambda reader: load_file(reader.name)["b"],
}


@pytest.fixture(params=["1.2", "1.2 compressed", "1.1"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    version, _, is_compressed = request.param.partition(" ")
    target = tmp_path / "odd.zt"
    with ztensor.Writer(target, version=version, compression=bool(is_compressed)) as writer:
        writer.write("b", ODD)
        writer.write("s", SPARSE)
    return target


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("use", KEEPING)
def test_1_x_keeps_them_on_every_way_and_verify_reports_them(
    path: Path, use: str, *, mmap: bool
) -> None:
    with ztensor.open(path, mmap=mmap) as reader:
        array = np.asarray(KEEPING[use](reader))
        assert array.dtype == np.bool_
        assert np.array_equal(np.ascontiguousarray(array).view(np.uint8).ravel(), BYTES.ravel())
        del array
        problems = reader.verify().problems
        assert {problem.reason for problem in problems} == {Reason.BOOL_VALUE}
        assert len(problems) == 2


def test_0_1_reads_them_as_true(tmp_path: Path) -> None:
    save_file({"b": ODD}, tmp_path / "old.zt", version="0.1")
    with ztensor.open(tmp_path / "old.zt") as reader:
        assert reader["b"].view(np.uint8).tolist() == [[0, 1], [1, 1]]
        assert reader.verify().problems == ()


@pytest.mark.wing
@pytest.mark.parametrize("name", ["copy.zt", "b.npy", "b.npz", "b.safetensors", "b.h5"])
@pytest.mark.parametrize("of", ["b", "s"])
def test_no_other_format_gets_them(path: Path, tmp_path: Path, name: str, of: str) -> None:
    if name == "b.h5":
        pytest.importorskip("h5py", reason="h5py writes HDF5")
    if name == "b.npy" and of == "s":
        return  # one array only
    with refused(FormatError, Reason.BOOL_VALUE) as caught:
        options: dict[str, Any] = {"version": "2.1"} if name.endswith(".zt") else {}
        ztensor.convert(path, tmp_path / name, include=of, **options)
    assert caught.value.object_name == of
    assert not (tmp_path / name).exists()
    assert ztensor.convert(path, tmp_path / "1.zt", check=True).is_lossless  # 1.x keeps them


def torch_save(target: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"b": torch.from_numpy(ODD.copy())}, target)


SOURCES: dict[str, Callable[[Path], object]] = {
    "b.npz": lambda target: np.savez(target, b=ODD),
    "b.npy": lambda target: np.save(target, ODD),
    "b.safetensors": lambda target: pytest.importorskip("safetensors.numpy").save_file(
        {"b": ODD}, target
    ),
    "b.pt": torch_save,
}


@pytest.mark.wing
@pytest.mark.parametrize("name", SOURCES)
def test_other_formats_are_read_as_1_x_is(tmp_path: Path, name: str) -> None:
    SOURCES[name](tmp_path / name)
    with ztensor.open(tmp_path / name) as reader:
        (own,) = reader
        for array in (reader[own], reader.read_numpy(own), reader.get_slice(own)[0:2]):
            assert np.asarray(array).view(np.uint8).tolist() == BYTES.tolist()
        assert [one.reason for one in reader.verify().problems] == [Reason.BOOL_VALUE]
    assert ztensor.convert(tmp_path / name, tmp_path / "to.zt", check=True).is_lossless
    with refused(FormatError, Reason.BOOL_VALUE):
        ztensor.convert(tmp_path / name, tmp_path / "new.zt", version="2.1")


def streamed(target: Path) -> None:
    with (
        ztensor.Writer(target, version="2.1") as writer,
        writer.stream("b", (2, 2), "bool") as sink,
    ):
        sink.write(ODD)


WRITES: dict[str, Callable[[Path], object]] = {
    "save_file": lambda target: save_file({"b": ODD}, target, version="2.1"),
    "compressed": lambda target: save_file({"b": ODD}, target, version="2.1", compression=True),
    "canonical": lambda target: save_file({"b": ODD}, target, version="2.1", canonical=True),
    "sparse": lambda target: save_file({"b": SPARSE}, target, version="2.1"),
    "long": lambda target: save_file({"b": np.tile(ODD, (1 << 16, 1))}, target, version="2.1"),
    "not contiguous": lambda target: save_file({"b": ODD[:, ::-1]}, target, version="2.1"),
    "a stream": streamed,
}


@pytest.mark.parametrize("way", WRITES)
def test_2_x_is_never_written_with_them(tmp_path: Path, way: str) -> None:
    with refused(FormatError, Reason.BOOL_VALUE):
        WRITES[way](tmp_path / "new.zt")
    assert not (tmp_path / "new.zt").exists()
