"""Torch tensors and models in several files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, SourceError, UsageError

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
ztorch: Any = pytest.importorskip("ztensor.torch")


def tensors() -> dict[str, Any]:
    result = {f"layer.{n}": torch.full((500,), n, dtype=torch.bfloat16) for n in range(7)}
    result["tied"] = result["layer.0"]
    result["other"] = torch.arange(6).reshape(2, 3).t()
    return result


def same(found: dict[str, Any]) -> bool:
    expected = tensors()
    return found.keys() == expected.keys() and all(
        torch.equal(found[name], expected[name]) for name in expected
    )


@pytest.mark.parametrize("size", ["2.5kB", "1kB", "5GB"])
def test_a_dict_in_several_files(size: str, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    shared = ztorch.save_file(tensors(), tmp_path / "m.zt", {"format": "pt"}, max_shard_size=size)
    assert shared == {"tied": "layer.0"}
    for source in (tmp_path, tmp_path / "m.zt"):
        for options in ({}, {"copy": True}, {"verify": True}):
            assert same(ztorch.load_file(source, **options))
    ztorch.load_file(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) == sum(name.endswith(".zt") for name in os.listdir(tmp_path))
    assert seen[-1][0] == seen[-1][1]


def test_nothing_is_read_for_meta(tmp_path: Path) -> None:
    ztorch.save_file(tensors(), tmp_path / "m.zt", max_shard_size="1kB")
    found = ztorch.load_file(tmp_path, "meta")
    assert all(tensor.is_meta for tensor in found.values())
    assert found["other"].shape == (3, 2)


def test_a_reader_gives_tensors_of_all_files(tmp_path: Path) -> None:
    ztorch.save_file(tensors(), tmp_path / "m.zt", max_shard_size="1kB")
    with ztensor.open(tmp_path) as reader:
        assert same(reader.read_torch(tensors()))
        assert list(reader.read_torch(["layer.5", "layer.1"])) == ["layer.5", "layer.1"]
        assert reader.read_torch("layer.3")[0] == 3
        target = torch.zeros(500, dtype=torch.bfloat16)
        reader.read_into("layer.6", target)
        assert target[0] == 6
        with pytest.raises(ztensor.ObjectNotFoundError):
            reader.read_torch(["layer.5", "x"])
        with pytest.raises(TypeError):
            reader.read_torch(5)  # type: ignore[call-overload]


def network(seed: int) -> Any:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize("size", ["200B", "5GB"])
def test_a_model_in_a_folder(size: str, tmp_path: Path) -> None:
    model, other = network(1), network(2)
    folder = tmp_path / "new" / "folder"
    assert ztorch.save_pretrained(model, folder, max_shard_size=size) == {"2.weight": "0.weight"}
    assert ("model.zt" in os.listdir(folder)) is (size == "5GB")
    with ztensor.open(folder) as reader:
        assert reader.attributes == {"format": "pt"}
    assert ztorch.load_pretrained(other, folder) == ([], [])
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )
    assert other[0].weight is other[2].weight


@pytest.mark.parametrize("size", ["200B", "5GB"])
def test_a_model_in_a_store(size: str) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    model, other = network(1), network(2)
    folder = ztensor.Remote("s3://bucket/m", store)
    ztorch.save_pretrained(model, folder, max_shard_size=size)
    assert ztorch.load_pretrained(other, folder) == ([], [])
    assert other[2].weight.equal(model[2].weight)


def test_a_state_in_a_folder(tmp_path: Path) -> None:
    state = {**network(1).state_dict(), "zeros": torch.zeros(999)}
    ztorch.save_pretrained(state, tmp_path, metadata={"k": "v"}, compression=True)
    with ztensor.open(tmp_path) as reader:
        assert reader.attributes == {"k": "v"}
        assert reader.metadata("zeros").components["data"].encoding == "zstd"


def test_a_module_that_is_a_mapping_too(tmp_path: Path) -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2)})
    ztorch.save_pretrained(model, tmp_path)
    assert set(ztorch.load_file(tmp_path)) == {"a.weight", "a.bias"}


def test_what_cannot_be_kept_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError):
        ztorch.save_pretrained(network(1), tmp_path / "file")
    with pytest.raises(ArgumentTypeError):
        ztorch.save_pretrained([1], tmp_path)
    ztorch.save_pretrained(torch.nn.Linear(2, 2), tmp_path)
    with pytest.raises(UsageError):
        ztorch.load_pretrained(network(1), tmp_path)
    missing, unexpected = ztorch.load_pretrained(network(1), tmp_path, strict=False)
    assert "0.weight" in missing
    assert unexpected == ["bias", "weight"]
