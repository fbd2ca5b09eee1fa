"""Sets of shards in other formats than ours: whole, old or new, and as model hubs have them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.unit.cli.conftest import Run
from ztensor.edit import split
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    NotRepresentableError,
    UsageError,
)
from ztensor.numpy import load_file, save_file

TENSORS: dict[str, Any] = {f"layers.{n}": np.full((10, 10), n, np.float32) for n in range(5)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.zt", {"format": "pt"})
    return tmp_path / "model.zt"


def require_of_hub(folder: Path, count: int = 3) -> None:
    """Raise unless a folder is a sharded model as on the hub."""
    shards = [f"model-{n:05d}-of-{count:05d}.safetensors" for n in range(1, count + 1)]
    assert sorted(os.listdir(folder)) == [*shards, "model.safetensors.index.json"]
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in TENSORS.values())
    assert sorted(index["weight_map"]) == sorted(TENSORS)
    assert sorted(set(index["weight_map"].values())) == shards
    library = pytest.importorskip("safetensors")
    for shard in shards:  # as transformers loads them
        with library.safe_open(folder / shard, framework="np") as file:
            assert file.metadata() == {"format": "pt"}
            held = [name for name, place in index["weight_map"].items() if place == shard]
            assert sorted(file.keys()) == sorted(held)
            for name in held:
                assert (file.get_tensor(name) == TENSORS[name]).all()
    loaded = load_file(folder)
    assert all((loaded[name] == array).all() for name, array in TENSORS.items())


def test_convert_writes_a_set_of_safetensors(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    report = ztensor.convert(model, out / "model.safetensors", max_shard_size=900, check=True)
    require_of_hub(out)
    assert report.path == str(out / "model.safetensors.index.json")
    assert report.files == (*sorted(map(str, out.glob("*.safetensors"))), report.path)
    assert report.is_lossless
    assert report.is_checked
    assert (report.objects, report.nbytes) == (5, sum(map(os.path.getsize, report.files)))
    paths = split(model, tmp_path / "a" / "b", to="safetensors", max_shard_size=900)
    require_of_hub(tmp_path / "a" / "b")
    assert sorted(paths) == sorted(map(str, (tmp_path / "a" / "b").iterdir()))
    with ztensor.open(tmp_path / "a" / "b") as reader:
        assert reader.verify().ok  # by the digests of the index
    with pytest.raises(ztensor.SourceError):
        split(model, model / "x")  # a folder in a file


def test_a_small_model_is_one_file_and_replaces_a_set(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for size, count in ((900, 4), (400, 6), ("1MB", 1), (900, 4)):
        ztensor.convert(model, out / "model.safetensors", max_shard_size=size)
        assert len(os.listdir(out)) == count, size
        assert load_file(out).keys() == TENSORS.keys()


@pytest.mark.parametrize("suffix", ["zt", "safetensors"])
def test_a_set_that_fails_on_the_way_leaves_the_old_one(
    model: Path, tmp_path: Path, suffix: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    ztensor.convert(model, out / f"model.{suffix}", max_shard_size=900)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    flip_object(model, "layers.4")
    with pytest.raises(DigestMismatchError):
        ztensor.convert(model, out / f"model.{suffix}", max_shard_size=400)
    with pytest.raises(DigestMismatchError):
        split(model, tmp_path / "a" / "b", to=suffix, max_shard_size=400)
    assert not (tmp_path / "a").exists()
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_losses_are_reported_once(tmp_path: Path) -> None:
    tensors = {**TENSORS, "sparse": ztensor.Tensor.csr([1.0], [2], [0, 1], (1, 3))}
    save_file(tensors, tmp_path / "a.zt", {"n": 1})
    target = tmp_path / "b.safetensors"
    report = ztensor.convert(tmp_path / "a.zt", target, max_shard_size=900)
    assert [loss.object_name for loss in report.lost].count(None) == 1
    index = json.loads(Path(report.path).read_text())
    assert "sparse.values" in index["weight_map"]
    with pytest.raises(NotRepresentableError):
        ztensor.convert(tmp_path / "a.zt", target, max_shard_size=900, strict=True)
    assert json.loads(Path(report.path).read_text()) == index


def test_inputs_are_not_overwritten(model: Path, tmp_path: Path) -> None:
    ztensor.convert(model, tmp_path / "m.safetensors", max_shard_size=900)
    for source in (
        tmp_path / "m.safetensors.index.json",
        tmp_path / "m-00001-of-00003.safetensors",
    ):
        with pytest.raises(UsageError):
            ztensor.convert(source, tmp_path / "m.safetensors", max_shard_size=100)


@pytest.mark.parametrize("suffix", ["npz", "gguf", "npy", "h5"])
def test_other_formats_have_no_shards_with_an_index(model: Path, suffix: str) -> None:
    with pytest.raises(ArgumentValueError):
        ztensor.convert(model, model.with_suffix(f".{suffix}"), max_shard_size=900)
    with pytest.raises(ArgumentValueError):
        split(model, to=suffix)


def test_by_the_command(run: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    target = out / "model.safetensors"
    dry = run("convert", model, target, "--max-shard-size", "900", "--dry-run", "--json")
    assert (dry.code, os.listdir(out)) == (0, [])
    done = run("convert", model, target, "--max-shard-size", "900", "--json")
    assert dry.json["files"] == done.json["files"]
    assert done.json["output"] == done.json["files"][-1]
    require_of_hub(out)
    for size in ("900", "400", "1MB"):
        assert run("convert", model, target, "--max-shard-size", size).code == 2
    require_of_hub(out)
    split_into = tmp_path / "x" / "y"
    arguments = "split", model, "--into", split_into, "--to", "safetensors", "--max-shard-size=900"
    assert run(*arguments, "--dry-run").code == 0
    assert not split_into.parent.exists()
    assert run(*arguments).code == 0
    require_of_hub(split_into)
    assert run("convert", model, target, "--max-shard-size", "1MB", "--force").code == 0
    assert os.listdir(out) == ["model.safetensors"]
