"""Frameworks get the tensors from planes as from any other bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy as znumpy

CHANCE = np.random.default_rng(17)
MATRIX = CHANCE.normal(0, 0.02, (600, 512)).astype("f4").astype(ml_dtypes.bfloat16)
VECTOR = CHANCE.normal(0, 0.02, 1000).astype("f4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "x.zt"
    znumpy.save_file({"m": MATRIX, "v": VECTOR}, path, compression="planes")
    return path


def test_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    import ztensor.torch as ztorch

    found = ztorch.load_file(path)
    assert found["m"].dtype == torch.bfloat16
    assert found["m"].view(torch.int16).numpy().tobytes() == MATRIX.tobytes()
    with ztensor.safe_open(path, framework="pt") as file:
        part = file.get_slice("m")[100:300:7, 5:]
    assert part.contiguous().view(torch.int16).numpy().tobytes() == MATRIX[100:300:7, 5:].tobytes()


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_checkpoint_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    import ztensor.torch as ztorch

    state: dict[str, Any] = {
        "m": torch.from_numpy(MATRIX.view("i2").copy()),
        "v": torch.from_numpy(VECTOR),
    }
    state["m"] = state["m"].view(torch.bfloat16)
    writer = ztorch.StorageWriter(tmp_path / "step", compression="planes")
    dcp.save(dict(state), storage_writer=writer, no_dist=True)
    found = {name: torch.zeros_like(tensor) for name, tensor in state.items()}
    dcp.load(found, storage_reader=ztorch.StorageReader(tmp_path / "step"), no_dist=True)
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    with ztensor.open(tmp_path / "step") as reader:
        assert reader.metadata("m").components["data"].encoding == "pyztensor.planes/1"
        assert reader.get_slice("m")[300:310].tobytes() == MATRIX[300:310].tobytes()
        assert reader.verify().ok


def test_jax(path: Path) -> None:
    jax = pytest.importorskip("jax")
    import ztensor.jax as zjax

    found = zjax.load_file(path)
    assert np.asarray(found["m"]).tobytes() == MATRIX.tobytes()
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    found = zjax.load_file(path, sharding=rows)
    assert np.asarray(found["v"]).tobytes() == VECTOR.tobytes()
    assert np.asarray(found["m"]).tobytes() == MATRIX.tobytes()
