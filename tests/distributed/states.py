"""States to save and load: the same numbers on every process, in many placements.

An element of a tensor says which tensor, which place and which step it is of, so that a mixture of
two steps, a shifted box or a tensor that was left alone are seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed as dist
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard as Piece
from torch.distributed._shard.sharded_tensor import ShardedTensor, init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

# Uneven over 2, 3 and 4 processes, shorter than 4, of one dimension and of three.
SHAPES: dict[str, tuple[int, ...]] = {
    "layers.0.weight": (10, 7),
    "layers.0.bias": (9,),
    "short": (3, 5),
    "cube": (5, 6, 4),
    "none": (0, 4),
}
# Placements on a mesh by name; names of two letters are for two dimensions.
PLACEMENTS: dict[str, tuple[Any, ...]] = {
    "0": (Shard(0),),
    "1": (Shard(1),),
    "r": (Replicate(),),
    "01": (Shard(0), Shard(1)),
    "10": (Shard(1), Shard(0)),
    "0r": (Shard(0), Replicate()),
    "r1": (Replicate(), Shard(1)),
    "00": (Shard(0), Shard(0)),
}
# Owner, offsets and sizes of the boxes of an (8, 6) tensor; some processes own none.
BOXES: dict[str, list[tuple[int, tuple[int, int], tuple[int, int]]]] = {
    "rows": [(rank, (2 * rank, 0), (2, 6)) for rank in range(4)],
    "columns": [(rank % 4, (0, rank), (8, 1)) for rank in range(6)],
    "tiles": [(n % 4, (4 * (n // 3), 2 * (n % 3)), (4, 2)) for n in range(6)],
    "uneven": [(0, (0, 0), (5, 4)), (1, (0, 4), (5, 2)), (3, (5, 0), (3, 6))],
    "one": [(2, (0, 0), (8, 6))],
}


def whole(name: str, shape: tuple[int, ...], step: int) -> torch.Tensor:
    """Return a tensor of a step, the same wherever it is made."""
    count = torch.Size(shape).numel()
    start = 1000 * (sum(map(ord, name)) % 97) + 1_000_000 * step
    return torch.arange(start, start + count, dtype=torch.float32).reshape(shape)


def mesh_of(world: int, placements: tuple[Any, ...]) -> Any:
    """Return a mesh of all processes with as many dimensions as a placement."""
    if len(placements) == 1:
        return init_device_mesh("cpu", (world,))
    rows = 2 if world % 2 == 0 else 1
    return init_device_mesh("cpu", (rows, world // rows))


def laid_out(tensor: torch.Tensor, placements: tuple[Any, ...], mesh: Any) -> torch.Tensor:
    """Return this process' part of a tensor, as a `DTensor`."""
    fitting = [
        one if not isinstance(one, Shard) or one.dim < tensor.dim() else Replicate()
        for one in placements
    ]
    return distribute_tensor(tensor, mesh, fitting, src_data_rank=None)


def tensors(placement: str, step: int) -> dict[str, Any]:
    """Return the tensors of a step in one placement, and a plain one."""
    placements = PLACEMENTS[placement]
    mesh = mesh_of(dist.get_world_size(), placements)
    state: dict[str, Any] = {
        name: laid_out(whole(name, shape, step), placements, mesh) for name, shape in SHAPES.items()
    }
    state["plain"] = whole("plain", (6,), step)
    return state


def shards(layout: str, step: int) -> ShardedTensor:
    """Return a `ShardedTensor` of (8, 6), of which a process has none, one or several boxes."""
    tensor, rank = whole("sharded", (8, 6), step), dist.get_rank()
    world = dist.get_world_size()
    own = []
    for owner, offsets, sizes in BOXES[layout]:
        if owner % world == rank:
            box = tensor[tuple(slice(at, at + n) for at, n in zip(offsets, sizes, strict=True))]
            place = ShardMetadata(list(offsets), list(sizes), f"rank:{rank}/cpu")
            own.append(Piece(box.clone(), place))
    return init_from_local_shards(own, 8, 6)


def values(step: int) -> dict[str, Any]:
    """Return the plain values of a training state."""
    return {
        "step": step,
        "name": f"run {step}",
        "rate": 0.1 * step,
        "betas": (0.9, 0.999),
        "scheduler": {"last": step, "milestones": [1, 2, 3], "best": None, "done": True},
        "large": 1 << 100,
    }


def emptied(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state of the same form with wrong numbers."""
    result: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            result[name] = emptied(value)
        elif isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                shard.tensor.fill_(-1)
            result[name] = value
        elif isinstance(value, torch.Tensor):
            local = value.to_local() if isinstance(value, DTensor) else value
            with torch.no_grad():
                local.fill_(-1)
            result[name] = value
        else:
            result[name] = None
    return result


def differences(found: dict[str, Any], expected: dict[str, Any], at: str = "") -> list[str]:
    """Return the names of wrong values on this process."""
    wrong = [f"{at}{name}: not there" for name in expected.keys() - found.keys()]
    for name, value in found.items():
        right = expected.get(name)
        if isinstance(right, dict):
            wrong += differences(value, right, f"{at}{name}.")
        elif not _is_same(value, right):
            wrong.append(f"{at}{name}")
    return wrong


def _is_same(value: Any, right: Any) -> bool:
    if type(value) is not type(right):
        return False
    if isinstance(right, ShardedTensor):
        pairs = zip(value.local_shards(), right.local_shards(), strict=True)
        return all(torch.equal(one.tensor, two.tensor) for one, two in pairs)
    if isinstance(right, DTensor):
        return bool(torch.equal(value.to_local(), right.to_local()))
    if isinstance(right, torch.Tensor):
        return bool(value.dtype == right.dtype and torch.equal(value, right))
    return bool(value == right)


def step_of(state: dict[str, Any]) -> set[int]:
    """Return the steps that the elements of this process' tensors are of."""
    steps: set[int] = set()
    for value in state.values():
        if isinstance(value, dict):
            steps |= step_of(value)
        elif isinstance(value, ShardedTensor):
            for shard in value.local_shards():
                steps |= set((shard.tensor // 1_000_000).flatten().long().tolist())
        elif isinstance(value, torch.Tensor):
            local = value.to_local() if isinstance(value, DTensor) else value
            steps |= set((local // 1_000_000).flatten().long().tolist())
    return steps
