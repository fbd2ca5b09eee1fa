"""`ztensor.iterate`: order, frameworks, places, and how much is in memory at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.tracing import traced
from ztensor.errors import ArgumentValueError, DigestMismatchError, SourceNotFoundError
from ztensor.numpy import save_file

MIB = 1 << 20


def tensors(count: int = 12, nbytes: int = MIB // 4) -> dict[str, Any]:
    draw = np.random.default_rng(7)
    # Names that are not in the order of the file when they are sorted.
    return {f"t{(7 * n) % 32}": draw.standard_normal(nbytes // 8) for n in range(count)}


def places(folder: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return the same tensors in a file, compressed, as shards, on a server, and of others."""
    with ztensor.Writer(folder / "a.zt") as writer:  # in the order given; `save_file` has its own
        for name, array in given.items():
            writer.write(name, array)
    save_file(given, folder / "zstd.zt", compression=True)
    (folder / "set").mkdir()
    save_file(given, folder / "set" / "model.zt", max_shard_size=MIB)
    np.savez(folder / "a.npz", **given)
    found: dict[str, Any] = {
        "file": folder / "a.zt",
        "zstd": folder / "zstd.zt",
        "folder": folder / "set",
        "npz": folder / "a.npz",
    }
    try:
        from obstore.store import MemoryStore
    except ImportError:
        return found
    found["url"] = ztensor.Remote("memory://b/a.zt", MemoryStore())
    found["shards of a url"] = ztensor.Remote("memory://b/set/model.zt", MemoryStore())
    save_file(given, found["url"])
    save_file(given, found["shards of a url"], max_shard_size=MIB)
    found["shards of a url"] = ztensor.Remote(
        "memory://b/set/model.zt.index.json", found["shards of a url"].storage
    )
    return found


def test_every_place_gives_all_tensors_in_the_order_of_the_file(tmp_path: Path) -> None:
    given = tensors()
    for kind, place in places(tmp_path, given).items():
        names = []
        for name, array in ztensor.iterate(place, ahead=MIB, threads=2):
            names.append(name)
            assert np.array_equal(array, given[name]), kind
        assert names == (list(given) if kind in ("file", "npz") else sorted(given)), kind


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["file", "zstd", "folder"])
def test_no_more_is_in_memory_than_was_said(tmp_path: Path, kind: str, threads: int) -> None:
    place = places(tmp_path, tensors(32, MIB))[kind]
    for _ in ztensor.iterate(place, ahead=MIB):
        pass  # what is loaded once, and stays
    ahead, own, decoding = 4 * MIB, MIB, threads * 2 * MIB if kind == "zstd" else MIB // 2
    with traced() as memory:
        for _, array in ztensor.iterate(place, ahead="4MiB", threads=threads):
            del array
        peak = memory()[1]
    assert MIB < peak < ahead + own + decoding


def test_a_tensor_that_is_longer_than_what_may_wait_is_read_alone(tmp_path: Path) -> None:
    save_file(
        {"a": np.ones(1000), "long": np.ones(1 << 17), "b": np.zeros(1000)}, tmp_path / "a.zt"
    )
    found = {name: array.nbytes for name, array in ztensor.iterate(tmp_path / "a.zt", ahead=10)}
    assert found == {"a": 8000, "long": MIB, "b": 8000}


def test_only_the_names_of_a_pattern_are_read(tmp_path: Path) -> None:
    given = tensors()
    save_file(given, tmp_path / "a.zt")
    flip_object(tmp_path / "a.zt", "t7")
    found = [name for name, _ in ztensor.iterate(tmp_path / "a.zt", only=["t1*", "t0"])]
    assert found == sorted(name for name in given if name == "t0" or name.startswith("t1"))


def test_damage_is_told_when_its_tensor_is_asked_for(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.zt")
    data = bytearray((tmp_path / "a.zt").read_bytes())
    with ztensor.open(tmp_path / "a.zt") as reader:
        order = list(reader)
        data[reader.location(order[3]).offset] ^= 1
    (tmp_path / "a.zt").write_bytes(data)
    weights = ztensor.iterate(tmp_path / "a.zt")
    assert [next(weights)[0] for _ in range(3)] == order[:3]
    with pytest.raises(DigestMismatchError) as caught:
        next(weights)
    assert caught.value.object_name == order[3]
    assert len(list(ztensor.iterate(tmp_path / "a.zt", verify=False))) == len(order)


def test_torch_gets_its_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    quantized = ztensor.Tensor.from_int8(np.zeros((8, 8), np.int8), np.ones(8, np.float32))
    given = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "q": quantized}
    save_file(given, tmp_path / "a.zt")
    found = dict(ztensor.iterate(tmp_path / "a.zt", "pt", "cpu"))
    assert torch.equal(found["w"], torch.arange(6.0).reshape(2, 3))
    assert isinstance(found["q"], ztensor.Tensor)  # torch has no such layout
    meta = dict(ztensor.iterate(tmp_path / "a.zt", "torch", "meta", only="w"))
    assert meta["w"].is_meta

    class Model(torch.nn.Module):  # type: ignore[name-defined, misc, unused-ignore]
        def load_weights(self, weights: Any) -> None:
            for name, tensor in weights:
                self.register_buffer(name, tensor)

    model = Model()
    model.load_weights(ztensor.iterate(tmp_path / "a.zt", "pt", only="w"))
    assert torch.equal(model.state_dict()["w"], found["w"])


def test_one_may_stop_early(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "a.zt")
    weights: Any = ztensor.iterate(tmp_path / "a.zt", threads=2)
    _, first = next(weights)
    weights.close()
    assert first.sum() != 0  # its memory is its own
    assert list(weights) == []


def test_what_is_wrong_is_told_by_the_call(tmp_path: Path) -> None:
    save_file({"w": np.ones(3)}, tmp_path / "a.zt")
    with pytest.raises(SourceNotFoundError):
        ztensor.iterate(tmp_path / "b.zt")
    wrong: dict[str, Any]
    for wrong in ({"framework": "caffe"}, {"ahead": "much"}, {"device": "cuda"}, {"threads": 0}):
        with pytest.raises(ArgumentValueError):
            ztensor.iterate(tmp_path / "a.zt", **wrong)
