"""`only=` and `dequantize=` of every function that loads all of a file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from ztensor.errors import DigestMismatchError, ObjectNotFoundError
from ztensor.numpy import save_file

CODES = np.arange(-32, 32).reshape(8, 8).astype(np.int8)
QUANTIZED = ztensor.Tensor.from_int8(CODES, np.full(8, 0.5, np.float32))
TENSORS: dict[str, Any] = {
    "layers.0.w": np.ones(3, np.float32),
    "layers.1.w": np.zeros(2, np.float32),
    "packed": QUANTIZED,
}


@pytest.fixture(params=["one file", "a set"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "m.zt", max_shard_size=16 if request.param == "a set" else None)
    return tmp_path


@pytest.fixture(params=["numpy", "torch", "jax"])
def face(request: pytest.FixtureRequest) -> Any:
    if request.param != "numpy":
        pytest.importorskip(request.param)
    return importlib.import_module(f"ztensor.{request.param}")


def test_some_by_patterns(face: Any, path: Path) -> None:
    assert list(face.load_file(path, only="layers.*")) == ["layers.0.w", "layers.1.w"]
    assert list(face.load_file(path, only=["*.1.*", "packed"])) == ["layers.1.w", "packed"]
    for nothing in ("layer", [], ["x*", "y?"]):
        with pytest.raises(ObjectNotFoundError):
            face.load_file(path, only=nothing)


def test_files_without_any_of_them_are_not_opened(face: Any, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "m.zt", max_shard_size=16)
    with ztensor.open(tmp_path) as reader:
        (home,) = {part.name for part in reader.objects.parts() if "packed" in part.names}
    Path(home).write_bytes(b"no file of ours")
    assert list(face.load_file(tmp_path, only="layers.*")) == ["layers.0.w", "layers.1.w"]


def test_a_part_of_a_tree_reads_nothing_of_another_file(tmp_path: Path) -> None:
    tree = {"a": np.ones(3), "b": [np.zeros(2), QUANTIZED]}
    ztensor.save_tree(tree, tmp_path / "t.zt", max_shard_size=16)
    with ztensor.open(tmp_path) as reader:
        (home,) = {part.name for part in reader.objects.parts() if "b.1" in part.names}
    data = bytearray(Path(home).read_bytes())
    data[data.index(CODES.tobytes())] ^= 1
    Path(home).write_bytes(data)
    found = ztensor.load_tree(tmp_path, only=["a", "b.0"])
    assert found["a"].tolist() == [1, 1, 1]
    assert found["b"][0].tolist() == [0, 0]
    with pytest.raises(DigestMismatchError):
        ztensor.load_tree(tmp_path)


@pytest.mark.parametrize("copy", [False, True])
def test_floats_in_the_place_of_quantized_ones(face: Any, path: Path, *, copy: bool) -> None:
    plain, floats = (face.load_file(path, copy=copy, dequantize=how) for how in (False, True))
    assert isinstance(plain["packed"], ztensor.Tensor)
    assert type(floats["packed"]) is type(floats["layers.0.w"])
    assert np.array_equal(np.asarray(floats["packed"]), QUANTIZED.dequantize())
    assert np.array_equal(np.asarray(floats["layers.0.w"]), TENSORS["layers.0.w"])


def test_what_is_made_floats_is_checked(face: Any, tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "m.zt")
    flip(tmp_path / "m.zt", (tmp_path / "m.zt").read_bytes().index(CODES.tobytes()))
    face.load_file(tmp_path / "m.zt", only="layers.*", dequantize=True)
    with pytest.raises(DigestMismatchError, match="packed"):
        face.load_file(tmp_path / "m.zt", dequantize=True)


def test_a_model_takes_the_floats(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from ztensor.torch import load_model

    save_file({"weight": QUANTIZED}, tmp_path / "m.zt")
    model = torch.nn.Linear(8, 8, bias=False)
    assert load_model(model, tmp_path / "m.zt", dequantize=True) == ([], [])
    assert np.array_equal(model.weight.detach().numpy(), QUANTIZED.dequantize())


def test_sharded_arrays_beside_floats(path: Path) -> None:
    jax = pytest.importorskip("jax")
    from ztensor.jax import load_file

    sharding = {"layers.0.w": jax.sharding.SingleDeviceSharding(jax.devices()[0])}
    done: list[tuple[int, int]] = []
    found = load_file(
        path, sharding=sharding, only=["layers.0.*", "packed"], dequantize=True,
        progress=lambda *step: done.append(step),
    )  # fmt: skip
    assert list(found) == ["layers.0.w", "packed"]
    assert all(isinstance(value, jax.Array) for value in found.values())
    assert done[-1][0] == done[-1][1] > 0


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
def test_a_tree_of_floats(tmp_path: Path, name: str) -> None:
    if name != "numpy":
        pytest.importorskip(name)
    load_tree = importlib.import_module("ztensor" if name == "numpy" else f"ztensor.{name}")
    ztensor.save_tree({"a": [QUANTIZED, 3], "w": np.ones(2)}, tmp_path / "t.zt")
    found = load_tree.load_tree(tmp_path / "t.zt", dequantize=True)
    assert np.array_equal(np.asarray(found["a"][0]), QUANTIZED.dequantize())
    kinds = {"numpy": "ndarray", "torch": "Tensor", "jax": "ArrayImpl"}
    assert type(found["a"][0]).__name__ == kinds[name]
    assert found["a"][1] == 3
