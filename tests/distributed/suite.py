"""What torch's own tests of distributed checkpoints ask of a writer and a reader, in our words.

Each function runs in every process of a run, with our library or with torch's as a control, and
raises where a state does not come back. `tests/distributed/test_suite.py` names torch's tests.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import (
    ChunkShardingSpec,
    EnumerableShardingSpec,
    ShardMetadata,
)
from torch.distributed.checkpoint import format_utils
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import (
    _load_state_dict,
    _load_state_dict_from_keys,
)
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, _save_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from tests.distributed.tasks import reader_of, writer_of

ROOTS = ["checkpoint.zt", ".metadata"]
# Placements by name; a second letter is for the second dimension of a mesh.
PLACEMENTS: dict[str, list[Any]] = {
    "rr": [Replicate(), Replicate()],
    "r0": [Replicate(), Shard(0)],
    "0r": [Shard(0), Replicate()],
    "00": [Shard(0), Shard(0)],
}


def save(
    library: str,
    folder: str,
    state: dict[str, Any],
    writer: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    return dcp.save(state, storage_writer=writer_of(library, folder, writer or {}), **options)


def load(library: str, folder: str, state: dict[str, Any], **options: Any) -> dict[str, Any]:
    dcp.load(state, storage_reader=reader_of(library, folder, {}), **options)
    return state


def whole(value: Any) -> Any:
    """Return a tensor as every process has it."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def require_same(found: Any, expected: Any, at: str = "") -> None:
    """Raise where two nested states differ: in keys, types or any element."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), at
        for name, value in expected.items():
            require_same(found[name], value, f"{at}.{name}")
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(whole(found), whole(expected)), at
    elif isinstance(expected, io.BytesIO):
        assert found.getvalue() == expected.getvalue(), at
    else:
        assert found == expected, (at, found, expected)


def is_same(found: Any, expected: Any) -> bool:
    try:
        require_same(found, expected)
    except AssertionError:
        return False
    return True


def names_of(folder: str) -> list[str]:
    """Return the files in a folder once all processes are there."""
    dist.barrier()
    names = sorted(os.listdir(folder))
    dist.barrier()
    return names


def failure_of(call: Callable[[], object]) -> dict[int, BaseException]:
    """Return the error of `call` in each process, from the exception of DCP."""
    try:
        call()
    except dcp.CheckpointException as error:
        return {rank: pair[0] for rank, pair in error.failures.items()}
    raise AssertionError("nothing was raised")


# --- One state by both libraries ------------------------------------------------------------------


def write_both(folder: str) -> None:
    """Save one state with both libraries."""
    world = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    state: dict[str, Any] = {
        name: distribute_tensor(torch.arange(60.0).view(10, 6), mesh, placements)
        for name, placements in PLACEMENTS.items()
    }
    state["sharded"] = shards(0, 8)
    state["plain"] = torch.arange(5)
    for library in ("ztensor", "torch"):
        save(library, f"{folder}/{library}", state)


# --- One process, and ShardedTensors --------------------------------------------------------------


class Small(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Three layers, without a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(5, 5)
        self.linear_2 = nn.Linear(5, 1)
        self.emb = nn.EmbeddingBag(5, 10)


class Blob:
    """An object with a state of bytes."""

    def __init__(self, value: object) -> None:
        self.state = {"blob": value}

    def state_dict(self) -> dict[str, object]:
        return self.state

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.state = state


def one_model(library: str, folder: str, options: dict[str, Any]) -> None:
    """Save and load a model in one process, and an object that has bytes."""
    if options.pop("zstd", False):
        from torch.distributed.checkpoint._extension import ZStandard

        options["_extensions"] = [ZStandard()]
    saved: dict[str, Any] = Small().state_dict()
    state: dict[str, Any] = Small().state_dict()
    assert not is_same(state, saved)
    old, new = Blob(b"SomeBlobForTesting"), Blob(b"")
    saved["blob"], state["blob"] = old, new
    save(library, folder, saved, options, no_dist=True)
    load(library, folder, state, no_dist=True)
    assert state.pop("blob") is new
    assert saved.pop("blob").state == new.state
    require_same(state, saved)


def chunks(dim: int, *ranks: int) -> ChunkShardingSpec:
    return ChunkShardingSpec(dim=dim, placements=[f"rank:{rank}/cpu" for rank in ranks])


def listed(*shards: tuple[list[int], list[int], int]) -> EnumerableShardingSpec:
    return EnumerableShardingSpec(
        [ShardMetadata(at, sizes, f"rank:{rank}/cpu") for at, sizes, rank in shards]
    )


def shards(dim: int, rows: int) -> Any:
    """Return a `ShardedTensor` of random numbers, a shard of each process."""
    return sharded_tensor.rand(chunks(dim, *range(dist.get_world_size())), rows, 20)


def gathered(tensor: Any) -> Any:
    """Return a `ShardedTensor` as process 0 has it whole; any other tensor as it is."""
    if not isinstance(tensor, sharded_tensor.ShardedTensor):
        return tensor
    found = torch.zeros(tensor.size()) if dist.get_rank() == 0 else None
    tensor.gather(dst=0, out=found)
    return found


SPECS: dict[str, list[Any]] = {
    "matrix": [
        chunks(0, 0, 1),
        chunks(0, 0, 1, 1, 0),
        listed(*(([at, 0], [n, 20], r) for at, n, r in
                 ((0, 2, 0), (2, 1, 1), (3, 3, 0), (6, 3, 1), (9, 1, 0)))),
        listed(([0, 0], [8, 20], 1), ([8, 0], [2, 20], 0)),
        chunks(1, 0, 1),
    ],
    "vector": [
        chunks(0, 0, 1),
        chunks(0, 0, 1, 1, 0),
        listed(([0], [8], 1), ([8], [24], 0)),
        listed(([0], [10], 0), ([10], [22], 1)),
    ],
}  # fmt: skip


def other_shards(library: str, folder: str, writer: dict[str, Any]) -> None:
    """Save a `ShardedTensor` in every division, over one another, and load it in every other."""
    for saved in SPECS["matrix"]:
        own = sharded_tensor.rand(saved, 10, 20)
        save(library, folder, {"w": own}, writer)
        for loaded in SPECS["matrix"]:
            state = load(library, folder, {"w": sharded_tensor.zeros(loaded, 10, 20)})
            old, new = gathered(own), gathered(state["w"])
            assert old is None or torch.equal(old, new), (saved, loaded)


def switched(library: str, folder: str) -> None:
    """Load a `ShardedTensor` into a tensor, and a tensor into a `ShardedTensor`."""
    for saved in SPECS["vector"]:
        replicated = torch.rand(32)
        dist.broadcast(replicated, src=0)
        own = {"sharded": sharded_tensor.rand(saved, 32), "replicated": replicated}
        save(library, folder, own)
        for loaded in SPECS["vector"]:
            state = {
                "sharded": torch.zeros(32),
                "replicated": sharded_tensor.zeros(loaded, 32),
            }
            load(library, folder, state)
            for name, tensor in own.items():
                old, new = gathered(tensor), gathered(state[name])
                assert dist.get_rank() or torch.equal(old, new), (name, saved, loaded)


# --- Models that are trained on -------------------------------------------------------------------


class Model(nn.Module):  # type: ignore[misc]
    """Four layers; the same numbers in every process."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net1 = nn.Linear(8, 16)
        self.net2 = nn.Linear(16, 32)
        self.net3 = nn.Linear(32, 64)
        self.net4 = nn.Linear(64, 8)

    def forward(self, x: Any) -> Any:
        for layer in (self.net1, self.net2, self.net3, self.net4):
            x = torch.relu(layer(x))
        return x


class TrainState:
    """Counters of a run; its losses are a pickle in memory, as torchtitan keeps them."""

    def __init__(self) -> None:
        self.step, self.losses = 0, list[float]()

    def state_dict(self) -> dict[str, Any]:
        data = io.BytesIO()
        torch.save(self.losses, data)
        return {"step": torch.tensor(self.step, dtype=torch.int32), "losses": data}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.step = state["step"].item()
        state["losses"].seek(0)
        self.losses = torch.load(state["losses"])


def made(kind: str) -> tuple[Any, Any]:
    """Return a model as processes share it, and its optimizer."""
    model: Any = Model()
    world = dist.get_world_size()
    if kind == "fsdp":
        fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    elif kind == "hsdp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh)
    elif kind == "fsdp and tp":
        mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("dp", "tp"))
        parallelize_module(
            model, mesh["tp"], {"net1": ColwiseParallel(), "net2": RowwiseParallel()}
        )
        fully_shard(model, mesh=mesh["dp"])
    elif kind == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def trained(model: Any, optimizer: Any, steps: int) -> TrainState:
    """Train some steps, on the same data in every process."""
    torch.manual_seed(0)
    run = TrainState()
    for _ in range(steps):
        loss = model(torch.rand(8, 8)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        run.step += 1
        run.losses.append(float(whole(loss.detach())))
    return run


def state_of(model: Any, optimizer: Any) -> dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def end_to_end(library: str, folder: str, kind: str, how: str) -> None:
    """Save a run, load it into a new one, and train both on: with the same losses."""
    model, optimizer = made(kind)
    run = trained(model, optimizer, 2)
    state = {**state_of(model, optimizer), "run": run}
    if how == "sync":
        save(library, folder, state)
    else:
        writer = writer_of(library, folder, {})
        saving = dcp.async_save(
            state, storage_writer=writer, async_checkpointer_type=AsyncCheckpointerType(how)
        )
        getattr(saving, "upload_completion", saving).result(120)
    other, its = made(kind)
    found = {**state_of(other, its), "run": TrainState()}
    load(library, folder, found)
    again = found.pop("run")
    assert (again.step, again.losses) == (2, run.losses)
    require_same(found, {name: state[name] for name in found})
    set_state_dict(other, its, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    assert trained(model, optimizer, 1).losses == trained(other, its, 1).losses


def some_keys(library: str, folder: str) -> None:
    """Load a part of a state: by a state that has less, and by the start of names."""
    model, optimizer = made("fsdp")
    trained(model, optimizer, 2)
    state = state_of(model, optimizer)
    save(library, folder, state)
    found = {"model": state_of(*made("fsdp"))["model"]}
    require_same(load(library, folder, found), {"model": state["model"]})
    for keys in ("model", "optimizer.state"):
        found = _load_state_dict_from_keys(keys, storage_reader=reader_of(library, folder, {}))
        right = state
        for key in keys.split("."):
            found, right = found[key], right[key]
        require_same(found, right)


def in_place(library: str, folder: str) -> None:
    """Load into the dicts that were passed, and set the state of the optimizer from them."""
    model, optimizer = made("none")
    trained(model, optimizer, 1)
    save(library, folder, state_of(model, optimizer))
    other, its = made("none")
    its = torch.optim.Adam(other.parameters(), lr=0.2)
    state = state_of(other, its)
    parts = dict(state)
    load(library, folder, state)
    assert all(state[name] is part for name, part in parts.items())
    set_state_dict(other, its, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert its.param_groups[0]["lr"] == 0.1
    require_same(state_of(other, its), state_of(model, optimizer))


class Noting(dict[str, Any]):
    """A state that notes whether a value was set."""

    is_set = False

    def __setitem__(self, name: str, value: Any) -> None:
        self.is_set = True
        super().__setitem__(name, value)


def stateful(library: str, folder: str) -> None:
    """Load stateful objects in place, and set other values."""
    own = Blob(b"1")
    own.state = {}
    for value, is_set in ((own, False), ({"w": torch.rand(3), "list": [1, 2]}, True)):
        state = Noting(foo=value)
        save(library, f"{folder}/{is_set}", state)
        load(library, f"{folder}/{is_set}", state)
        assert state.is_set is is_set
        assert is_set or state["foo"] is own


class Meeting:
    """What talks to the other processes when it is loaded."""

    def state_dict(self) -> dict[str, object]:
        return {}

    def load_state_dict(self, state: dict[str, object]) -> None:
        del state
        dist.all_reduce(torch.ones(2))


class Exchanging(Meeting):
    """The same, by another collective."""

    def load_state_dict(self, state: dict[str, object]) -> None:
        del state
        found = [torch.ones(2) for _ in range(dist.get_world_size())]
        dist.all_gather(found, torch.ones(2))


def other_order(library: str, folder: str) -> None:
    """Have keys in another order in one process; else the collectives would wait forever."""
    own = {"a": Meeting(), "b": Exchanging()}
    state = own if dist.get_rank() == 0 else dict(reversed(own.items()))
    save(library, folder, state)
    load(library, folder, state)


# --- Other formats, lists, ids and failures -------------------------------------------------------


def formats(library: str, folder: str) -> None:
    """Turn a checkpoint into a file of `torch.save`, and one of these into a checkpoint."""
    model = Model()
    right = {"model": model.state_dict()}
    save(library, f"{folder}/a", {"model": model}, no_dist=True)
    state: dict[str, Any] = {}
    reader = reader_of(library, f"{folder}/a", {})
    _load_state_dict(state, reader, planner=_EmptyStateDictLoadPlanner(), no_dist=True)
    torch.save(state, f"{folder}/model.pt")
    found = torch.load(f"{folder}/model.pt")
    require_same(found, right)
    save(library, f"{folder}/b", found, no_dist=True)
    other = Model()
    with torch.no_grad():
        other.net1.weight.zero_()
    load(library, f"{folder}/b", {"model": other}, no_dist=True)
    require_same({"model": other.state_dict()}, right)


def online(library: str, folder: str) -> None:
    """Load a file of `torch.save` in every process, and save the model sharded."""
    right = Model().state_dict()
    path = f"{folder}/model.pt"
    if dist.get_rank() == 0:
        torch.save({"model": right}, path)
    dist.barrier()
    model = Model()
    with torch.no_grad():
        model.net1.weight.zero_()
    dcp.load(
        {"model": model},
        planner=format_utils.DynamicMetaLoadPlanner(),
        storage_reader=format_utils.BroadcastingTorchSaveReader(),
        checkpoint_id=path,
    )
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    save(library, f"{folder}/x", {"model": model})
    other = Model()
    with torch.no_grad():
        other.net1.weight.zero_()
    load(library, f"{folder}/x", {"model": other})
    require_same(other.state_dict(), right)


def ids(library: str, folder: str) -> None:
    """Find the ids of a save and of a load where torch's own reader has them."""
    writer = writer_of(library, folder, {})
    first = writer.save_id
    returned = dcp.save({"w": torch.zeros(4)}, storage_writer=writer)
    reader = reader_of(library, folder, {})
    metadata = reader.read_metadata()
    assert str(metadata.storage_meta.checkpoint_id) == folder
    assert metadata.storage_meta.load_id == reader.load_id
    assert metadata.version is not None
    saved = [metadata.storage_meta.save_id, first]
    if dist.get_rank() == 0:  # the coordinator's id counts
        assert saved[0] == saved[1] == returned.storage_meta.save_id
        assert returned.version == metadata.version
    old, load_id = writer.save_id, reader.load_id
    writer.reset()
    reader.reset()
    assert writer.save_id != old
    assert reader.load_id != load_id
    for made in (writer, reader):
        assert made.validate_checkpoint_id(folder)
        assert not made.validate_checkpoint_id("abc://abc.abc")


def failing(thing: Any, step: str, ranks: list[int]) -> Any:
    """Return a writer or reader that fails at a step in some processes."""

    class Failing(type(thing)):  # type: ignore[misc]
        pass

    def fail(self: Any, *args: Any, **kwargs: Any) -> Any:
        if dist.get_rank() in ranks:
            raise ValueError(f"{step} fails in {dist.get_rank()}")
        return getattr(super(Failing, self), step)(*args, **kwargs)

    setattr(Failing, step, fail)
    thing.__class__ = Failing
    return thing


def failures(library: str, folder: str) -> None:
    """Fail at each step in some processes: all get the error, and the old checkpoint stays."""
    state = {"sharded": shards(0, 20), "replicated": torch.ones(10), "list": [1, 2]}
    save(library, folder, state)
    last = dist.get_world_size() - 1
    for first in (0, 1):  # the coordinator
        options = {"coordinator_rank": first}
        for step, rank in {
            "set_up_storage_writer": first,
            "prepare_local_plan": last,
            "prepare_global_plan": first,
            "write_data": last,
            "finish": first,
        }.items():
            writer = failing(writer_of(library, f"{folder}-new", {}), step, [rank])
            found = failure_of(functools.partial(_save_state_dict, state, writer, **options))
            assert {rank: type(error) for rank, error in found.items()} == {rank: ValueError}
            dist.barrier()
            assert not any(os.path.exists(f"{folder}-new/{root}") for root in ROOTS)
        for step, rank in {
            "set_up_storage_reader": first,
            "prepare_local_plan": last,
            "prepare_global_plan": first,
            "read_data": last,
        }.items():
            reader = failing(reader_of(library, folder, {}), step, [rank])
            found = failure_of(functools.partial(_load_state_dict, state, reader, **options))
            assert {rank: type(error) for rank, error in found.items()} == {rank: ValueError}
    load(library, folder, state)
