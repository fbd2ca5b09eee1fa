"""What Dask names a graph by: the same for the same elements, another one for other elements."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import save, save_file

ONES, TWOS = np.ones((8, 4), np.float32), np.full((8, 4), 2, np.float32)
WRITERS: dict[str, Callable[[Any, Path], object]] = {
    "m.zt": save_file,
    "no digests.zt": lambda arrays, path: save_file(arrays, path, checksum=None),
    "sha256.zt": lambda arrays, path: save_file(arrays, path, checksum="sha256"),
    "zstd.zt": lambda arrays, path: save_file(arrays, path, compression=True),
    "m.safetensors": save_file,
    "m.npz": save_file,
}
NAMES = [
    pytest.param(name, marks=[] if name.endswith(".zt") else [pytest.mark.wing]) for name in WRITERS
]


def token(thing: Any) -> Any:
    """Return the token for Dask, and require plain values, which Dask need not pickle."""
    found = thing.__dask_tokenize__()

    def require_plain(value: Any) -> None:
        assert isinstance(value, (tuple, str, int, bool, type(None))), value
        for one in value if isinstance(value, tuple) else ():
            require_plain(one)

    require_plain(found)
    return found


def slice_of(path: Path, name: str = "w") -> Any:
    return ztensor.open(path).get_slice(name)


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_file_that_is_replaced_gets_another_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    WRITERS[kind]({"w": ONES}, path)
    times = os.stat(path)
    before = token(slice_of(path))
    WRITERS[kind]({"w": TWOS}, path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert os.stat(path).st_mtime_ns == times.st_mtime_ns
    assert token(slice_of(path)) != before


def test_a_file_that_is_written_to_in_place_gets_another_name(kind: str, tmp_path: Path) -> None:
    path, other = tmp_path / kind, tmp_path / f"other {kind}"
    WRITERS[kind]({"w": ONES}, path)
    WRITERS[kind]({"w": TWOS}, other)
    before = token(slice_of(path))
    inode = os.stat(path).st_ino
    path.write_bytes(other.read_bytes())
    assert os.stat(path).st_ino == inode
    os.utime(path, ns=(1, 1))
    assert token(slice_of(path)) != before


def test_the_same_file_keeps_its_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    WRITERS[kind]({"v": ONES, "w": ONES}, path)
    part = slice_of(path)
    assert token(part) == token(slice_of(path)) == token(pickle.loads(pickle.dumps(part)))
    assert token(part) == token(ztensor.open(path, mmap=False).get_slice("w"))
    assert token(ztensor.open(path)) == token(ztensor.open(path))


def test_a_strong_digest_names_the_elements_wherever_they_are(tmp_path: Path) -> None:
    save_file({"w": ONES}, tmp_path / "m.zt", checksum="sha256")
    save_file({"v": TWOS, "w": ONES}, tmp_path / "n.zt", checksum="sha256")
    assert token(slice_of(tmp_path / "m.zt")) == token(slice_of(tmp_path / "n.zt"))
    save_file({"w": ONES}, tmp_path / "o.zt")
    shutil.copy(tmp_path / "o.zt", tmp_path / "p.zt")
    assert token(slice_of(tmp_path / "o.zt")) != token(slice_of(tmp_path / "p.zt"))


def test_bytes_and_file_objects_are_named_by_what_they_hold() -> None:
    one, other = save({"w": ONES}), save({"w": TWOS})
    found = [token(ztensor.open(data).get_slice("w")) for data in (one, bytearray(one), other)]
    assert found[0] == found[1] != found[2]
    assert token(ztensor.open(io.BytesIO(one)).get_slice("w")) == found[0]
    assert token(ztensor.open(one)) != token(ztensor.open(other))


@pytest.mark.wing
def test_what_an_object_means_is_in_its_name(tmp_path: Path) -> None:
    weights = np.linspace(-1, 1, 256, dtype=np.float32).reshape(32, 8)
    tensor = ztensor.Tensor.quantize(weights, group_size=16)
    changed = {**tensor.attributes, "note": 1}
    arrays = {
        "w": tensor,
        "v": ztensor.Tensor(
            tensor.components, shape=tensor.shape, format=tensor.format, attributes=changed
        ),
    }
    save_file(arrays, tmp_path / "m.zt", checksum="sha256")
    assert token(slice_of(tmp_path / "m.zt", "w")) != token(slice_of(tmp_path / "m.zt", "v"))


def test_a_set_is_named_by_its_files(tmp_path: Path) -> None:
    arrays = {f"w{number}": ONES + number for number in range(4)}
    save_file(arrays, tmp_path / "model.zt", max_shard_size=200)
    before, part = token(ztensor.open(tmp_path)), token(slice_of(tmp_path, "w3"))
    assert token(ztensor.open(tmp_path)) == before
    shard = next(iter(sorted(tmp_path.glob("*.zt"))))
    os.utime(shard, ns=(1, 1))
    assert token(ztensor.open(tmp_path)) != before
    assert token(slice_of(tmp_path, "w3")) == part  # it is in another file


@pytest.mark.wing
def test_data_beside_an_onnx_model_is_in_the_name(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")

    def write(array: Any) -> None:
        graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(array, "w")])
        onnx.save_model(
            onnx.helper.make_model(graph), tmp_path / "m.onnx", save_as_external_data=True,
            location="m.data", size_threshold=0,
        )  # fmt: skip

    write(ONES)
    model, times = (tmp_path / "m.onnx").read_bytes(), os.stat(tmp_path / "m.onnx")
    before = token(slice_of(tmp_path / "m.onnx"))
    (tmp_path / "m.data").write_bytes(TWOS.tobytes())
    os.utime(tmp_path / "m.data", ns=(1, 1))
    assert (tmp_path / "m.onnx").read_bytes() == model
    assert os.stat(tmp_path / "m.onnx").st_mtime_ns == times.st_mtime_ns
    assert token(slice_of(tmp_path / "m.onnx")) != before


@pytest.mark.wing
def test_a_handle_is_named_by_its_framework_too(tmp_path: Path) -> None:
    save_file({"w": ONES}, tmp_path / "m.zt")
    numpy = ztensor.safe_open(tmp_path / "m.zt", framework="np")
    assert token(numpy) == token(ztensor.safe_open(tmp_path / "m.zt", framework="np"))
    pytest.importorskip("torch", reason="PyTorch is not installed")
    torch = ztensor.safe_open(tmp_path / "m.zt", framework="pt")
    assert token(numpy) != token(torch)
    assert token(numpy.get_slice("w")) != token(torch.get_slice("w"))
