"""Tasks of processes: save a state, load it, and report differences."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import distributed as dist
from torch.distributed import checkpoint as dcp

import ztensor.torch
from tests.distributed import states

warnings.simplefilter("ignore")  # what torch says of gloo and of its own old names


def writer_of(library: str, folder: str, options: dict[str, Any]) -> Any:
    """Return a writer of a library: "ztensor" or "torch"."""
    if library == "ztensor":
        return ztensor.torch.StorageWriter(folder, **options)
    return dcp.FileSystemWriter(folder, **options)


def reader_of(library: str, folder: str, options: dict[str, Any]) -> Any:
    if library == "ztensor":
        return ztensor.torch.StorageReader(folder, **options)
    return dcp.FileSystemReader(folder)


def state_of(placement: str, step: int, *, plain: bool) -> dict[str, Any]:
    """Return a state in a placement, or with a `ShardedTensor` in a layout of boxes."""
    if placement in states.BOXES:
        state: dict[str, Any] = {"sharded": states.shards(placement, step)}
    else:
        state = {"model": states.tensors(placement, step)}
    return {**state, **states.values(step)} if plain else state


def save(
    folder: str,
    placement: str,
    step: int = 1,
    writer: dict[str, Any] | None = None,
    *,
    values: bool = True,
    **options: Any,
) -> None:
    """Save a state.

    Args:
        folder: where to.
        placement: a name of `states.PLACEMENTS` or `states.BOXES`.
        step: which numbers.
        writer: its options.
        values: whether plain values are part of the state.
        options: of `dcp.save`.
    """
    state = state_of(placement, step, plain=values)
    dcp.save(state, storage_writer=writer_of("ztensor", folder, writer or {}), **options)


def load(
    folder: str,
    placement: str,
    step: int = 1,
    reader: dict[str, Any] | None = None,
    *,
    values: bool = True,
    **options: Any,
) -> list[str]:
    """Load a state into wrong numbers; return the names of values that differ from it then.

    Args:
        folder: where from.
        placement: how the loading processes hold it.
        step: which numbers there should be.
        reader: its options.
        values: whether plain values are part of the state.
        options: of `dcp.load`.
    """
    state = states.emptied(state_of(placement, step, plain=values))
    dcp.load(state, storage_reader=reader_of("ztensor", folder, reader or {}), **options)
    return states.differences(state, state_of(placement, step, plain=values))


def save_each(folder: str, placements: list[str], **options: Any) -> None:
    """Save a state in several placements, each into a folder of its name."""
    for name in placements:
        save(f"{folder}/{name}", name, values=_has_values(name), **options)


def load_each(folder: str, saved: list[str], placements: list[str]) -> list[str]:
    """Load several checkpoints in several placements; return the differences."""
    return [
        f"{name} as {other}: {wrong}"
        for name in saved
        for other in placements
        for wrong in load(f"{folder}/{name}", other, values=_has_values(name))
    ]


def _has_values(placement: str) -> bool:
    # Where a process holds no box of a `ShardedTensor`, torch's planner forgets about keys of
    # nested values.
    return placement in states.PLACEMENTS


def save_apart_and_fail(folder: str, placement: str, fails: dict[str, int]) -> list[str]:
    """Save two steps into one folder without collectives; return the errors of each process.

    Args:
        folder: where to.
        placement: as for `save`.
        fails: the step whose save fails, by the number of the process as text.
    """
    raised = []
    for step in (1, 2):
        options = {"max_shard_size": "none"} if fails.get(str(dist.get_rank())) == step else {}
        try:
            save(folder, placement, step, writer=options, use_collectives=False)
        except Exception as error:  # noqa: BLE001  # whatever it is, training goes on
            raised.append(f"{step}: {type(error).__name__}")
            dist.barrier()  # where those wait that saved
    return raised


def save_async(folder: str, placement: str, kind: str, steps: int = 2) -> None:
    """Save several times one after another, in a thread or a process beside this one."""
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    for step in range(1, steps + 1):
        dcp.async_save(
            state_of(placement, step, plain=True),
            storage_writer=writer_of("ztensor", folder, {}),
            async_checkpointer_type=AsyncCheckpointerType(kind),
        ).result(60)


def save_cached(folder: str, placement: str) -> int:
    """Save three steps with a plan that is made once; return how many plans torch has kept."""
    for step in range(3):
        planner = dcp.DefaultSavePlanner(enable_plan_caching=True)
        state = state_of(placement, step, plain=True)
        dcp.save(
            state, storage_writer=writer_of("ztensor", f"{folder}/{step}", {}), planner=planner
        )
    return len(dcp.SavePlanner._cached_final_save_plan)


def tied(folder: str) -> int:
    """Save and load a `ShardedTensor` under two names; return the number of differences."""
    one = states.shards("tiles", 1)
    dcp.save({"in": one, "out": one}, storage_writer=writer_of("ztensor", folder, {}))
    state = states.emptied({"in": states.shards("tiles", 1), "out": states.shards("rows", 1)})
    dcp.load(state, storage_reader=reader_of("ztensor", folder, {}))
    right = {"in": one, "out": states.shards("rows", 1)}
    return len(states.differences(state, right))


def steps_seen(folder: str, placement: str) -> list[int]:
    """Load, and return the steps from which the elements on this process come."""
    state = states.emptied(state_of(placement, 1, plain=False))
    dcp.load(state, storage_reader=reader_of("ztensor", folder, {}))
    return sorted(states.step_of(state))


# What changes something on a disk, or flushes it, and is looked up in `os` when it is called.
_CALLS = (
    "copy_file_range", "fdatasync", "fsync", "ftruncate", "link", "mkdir", "open",
    "posix_fallocate", "pwrite", "pwritev", "rename", "replace",
    "rmdir", "sendfile", "unlink", "write", "writev",
)  # fmt: skip


def save_and_die(folder: str, rank: int, call: int) -> int:
    """Save step 2 over a checkpoint; one process is killed at one of its system calls, from 1.

    Returns:
        How many of `_CALLS` there were in this process.
    """
    count = 0

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if dist.get_rank() == rank and count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return counted

    state = state_of("0", 2, plain=False)
    real = {name: getattr(os, name) for name in _CALLS if hasattr(os, name)}
    with contextlib.ExitStack() as patches:
        for name, one in real.items():
            patches.enter_context(mock.patch.object(os, name, counting(one)))
        dcp.save(state, storage_writer=writer_of("ztensor", folder, {}))
    return count


def rank() -> int:
    number: int = dist.get_rank()
    return number


def save_lambda(folder: str) -> None:
    """Save what no file can hold, beside tensors."""
    state = {**state_of("0", 1, plain=True), "schedule": {"factor": rank}}
    dcp.save(state, storage_writer=writer_of("ztensor", folder, {}))


def fill(source: str, placements: list[str], *, in_group: bool) -> dict[str, Any]:
    """Fill states from a file of whole tensors; return the differences, and the bytes read."""
    group = dist.group.WORLD if in_group else None
    wrong, nbytes, read = [], [], []
    for placement in placements:
        expected = state_of(placement, 1, plain=False)
        flat = expected.get("model", expected)
        state = states.emptied(state_of(placement, 1, plain=False))
        filled = state.get("model", state)
        report = ztensor.torch.load_into(source, filled, group=group)
        wrong += [f"{placement} {name}" for name in states.differences(filled, flat)]
        nbytes.append(report.nbytes)
        read.append(report.nbytes_read)
    return {"wrong": wrong, "nbytes": nbytes, "read": read}


def fill_from(first: str, others: str) -> str:
    """Fill in a group from one file in the first process, and another elsewhere."""
    source = first if dist.get_rank() == 0 else others
    state = {"plain": states.whole("plain", (6,), 2)}
    try:
        ztensor.torch.load_into(source, state, group=dist.group.WORLD)
    except ztensor.ZTensorError as error:
        return type(error).__name__
    return "none"


def fill_types(source: str, copy: str) -> list[str]:
    """Fill tensors of every type, whole and by columns, in a group; return those that differ."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    mesh, state = states.mesh_of(dist.get_world_size(), (Replicate(),)), {}
    right = ztensor.torch.load_file(copy)
    own = {
        name: value if name.startswith("whole") else value.chunk(mesh.size(), 1)[mesh.get_rank()]
        for name, value in right.items()
    }
    for name, value in own.items():
        empty = torch.zeros_like(value)
        is_whole = name.startswith("whole")
        state[name] = empty if is_whole else DTensor.from_local(empty, mesh, (Shard(1),))
    ztensor.torch.load_into(source, state, group=dist.group.WORLD)
    found = {
        name: value.to_local() if isinstance(value, DTensor) else value
        for name, value in state.items()
    }

    def bits(value: torch.Tensor) -> torch.Tensor:
        return value.contiguous().view(torch.uint8)

    return [name for name in own if not torch.equal(bits(own[name]), bits(found[name]))]


def fill_layers(source: str, copy: str, divided: str) -> tuple[int, int]:
    """Fill divided layers and whole norms in a group; return the bytes read and filled, or raise.

    Args:
        source: the model.
        copy: the same on disk, to compare with.
        divided: the placement of the layers.
    """
    with ztensor.open(source) as reader:
        state = {}
        for name in reader:
            shape, is_norm = reader.metadata(name).shape, name.endswith("norm")
            placements = states.PLACEMENTS["r" if is_norm else divided]
            mesh = states.mesh_of(dist.get_world_size(), placements)
            empty = torch.zeros(shape, dtype=torch.bfloat16)
            state[name] = states.laid_out(empty, placements, mesh)
        report = ztensor.torch.load_into(reader, state, group=dist.group.WORLD)
    right = ztensor.torch.load_file(copy)
    for name, value in state.items():
        own = states.laid_out(right[name], value.placements, value.device_mesh)
        assert torch.equal(own.to_local(), value.to_local()), name
    return report.nbytes_read, report.nbytes
