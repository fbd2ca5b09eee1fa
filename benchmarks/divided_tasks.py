"""What the processes of `benchmarks/divided.py` do: save and load a model in shards, timed."""

from __future__ import annotations

import contextlib
import gc
import math
import shutil
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.memory import prewarm
from torch import distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import ztensor.torch
from ztensor.distributed.chunks.table import ChunkTable, Kind, TableFile
from ztensor.distributed.root import encode_values, read_root, write_root
from ztensor.io.source.sink import FileSink

warnings.simplefilter("ignore")  # what torch says of its own
_LAYERS = 12


def state_of(megabytes: int, fill: float | None = None) -> dict[str, Any]:
    """Return a model of 12 layers and an embedding that divides unevenly, in shards.

    Args:
        megabytes: of all processes together.
        fill: what all elements are; None for numbers.
    """
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    width = max(8, int(math.sqrt(0.8 * megabytes * 1e6 / 4 / _LAYERS / 9)))
    rows = int(0.2 * megabytes * 1e6 / 4 / width) | 1
    shapes: dict[str, tuple[tuple[int, ...], Any]] = {"embedding": ((rows, width), Shard(0))}
    for number in range(_LAYERS):
        shapes[f"layers.{number}.attention"] = (width, width), Shard(0)
        shapes[f"layers.{number}.up"] = (4 * width, width), Shard(0)
        shapes[f"layers.{number}.down"] = (width, 4 * width), Shard(1)
        shapes[f"layers.{number}.norm"] = (width,), Replicate()
    made = torch.Generator().manual_seed(0)
    state = {}
    for name, (shape, placement) in shapes.items():
        tensor = torch.rand(shape, generator=made) if fill is None else torch.full(shape, fill)
        state[name] = distribute_tensor(tensor, mesh, [placement], src_data_rank=None)
        # Of its own memory, as in training: a shard that is a view would save its whole tensor.
        state[name]._local_tensor = state[name]._local_tensor.clone()
        del tensor
    gc.collect()
    return state


def local_bytes(state: dict[str, Any]) -> int:
    """Return the bytes of tensors that this process holds."""
    return sum(value.to_local().nbytes for value in state.values())


def _timed(act: Callable[[], object], nbytes: int) -> float:
    """Return how long a call of every process took that needs memory for so many bytes each.

    0 where memory is measured, of which touching it beforehand would be the peak.
    """
    if nbytes:
        prewarm(nbytes)
    dist.barrier()
    start = time.perf_counter()
    act()
    dist.barrier()
    return time.perf_counter() - start


def _emptied(folder: Path) -> None:
    if dist.get_rank() == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


def save(folder: str, megabytes: int, rounds: int) -> dict[str, Any]:
    """Save by each library, and say how long it took and what memory it took."""
    torch.set_num_threads(1)
    place, state = Path(folder), state_of(megabytes)
    writers: dict[str, Callable[[Path], Any]] = {
        "ours": lambda path: ztensor.torch.StorageWriter(path, durable=False),
        "FileSystemWriter(sync_files=False)": lambda path: dcp.FileSystemWriter(
            path, sync_files=False
        ),
        "ours, durable": lambda path: ztensor.torch.StorageWriter(path, durable=True),
        "FileSystemWriter": dcp.FileSystemWriter,
        "HuggingFaceStorageWriter": lambda path: HuggingFaceStorageWriter(
            str(path), save_distributed=True
        ),
    }
    times: list[dict[str, float]] = []
    memory: dict[str, int] = {}
    for number in range(rounds + 1):
        found: dict[str, float] = {}
        for name, writer in writers.items():
            _emptied(place / name)
            with _peak(memory, name if number == 0 else ""):
                found[name] = _timed(
                    lambda name=name, writer=writer: dcp.save(  # type: ignore[misc]
                        state, storage_writer=writer(place / name)
                    ),
                    local_bytes(state) if number else 0,
                )
        found["ours, since"] = _changed(place, state)
        times.append(found)
    return {
        "times": times,
        "memory": memory,
        "state": local_bytes(state),
        "nbytes": {
            "full": _nbytes(place / "full"),
            "since": _written(place / "since", place / "full"),
        },
    }


def _changed(place: Path, state: dict[str, Any]) -> float:
    """Save a state of which 6 % changed since a full one."""
    for name in ("full", "since"):
        _emptied(place / name)
    dcp.save(state, storage_writer=ztensor.torch.StorageWriter(place / "full", checksum="xxh3-128"))
    changed, nbytes, most = [], 0, 0.06 * local_bytes(state)
    for name in sorted(state, reverse=True):
        local = state[name].to_local()
        if "attention" in name and nbytes + local.nbytes <= most:
            nbytes += local.nbytes
            changed.append((local, local.clone()))
            local.add_(1)
    writer = ztensor.torch.StorageWriter(place / "since", since=place / "full", durable=True)
    took = _timed(lambda: dcp.save(state, storage_writer=writer), local_bytes(state))
    for local, before in changed:
        local.copy_(before)
    return took


def _nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _written(folder: Path, since: Path) -> int:
    """Return the bytes of the files of a folder that are no links of those of another."""
    old = {path.stat().st_ino for path in since.iterdir()}
    return sum(path.stat().st_size for path in folder.iterdir() if path.stat().st_ino not in old)


@contextlib.contextmanager
def _peak(found: dict[str, int], name: str) -> Any:
    """Note by how many bytes this process grew at most; "" for not at all."""
    if name:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak from now on
        before = _status("VmRSS")
    yield
    if name:
        found[name] = _status("VmHWM") - before


def _status(word: str) -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition(f"{word}:")[2].split()[0]) * 1024


def load(folder: str, megabytes: int, rounds: int) -> list[dict[str, float]]:
    """Load what `save` left by each library, and say how long it took."""
    torch.set_num_threads(1)
    place, state, right = Path(folder), state_of(megabytes, 0.0), state_of(megabytes)
    readers: dict[str, Callable[[], Any]] = {
        "ours": lambda: ztensor.torch.StorageReader(place / "ours"),
        "ours, unchecked": lambda: ztensor.torch.StorageReader(place / "ours", verify=False),
        "FileSystemReader": lambda: dcp.FileSystemReader(place / "FileSystemWriter"),
        "HuggingFaceStorageReader": lambda: HuggingFaceStorageReader(
            str(place / "HuggingFaceStorageWriter")
        ),
    }
    times = []
    for number in range(rounds + 1):
        found = {}
        for name, reader in readers.items():
            for value in state.values():
                value.to_local().fill_(-1)
            found[name] = _timed(
                lambda reader=reader: dcp.load(state, storage_reader=reader()),  # type: ignore[misc]
                local_bytes(state),
            )
            if number == 0 and not all(
                torch.equal(state[key].to_local(), right[key].to_local()) for key in state
            ):
                raise SystemExit(f"{name} loads something else")
        times.append(found)
    return times


def save_async(folder: str, megabytes: int, rounds: int) -> list[dict[str, float]]:
    """Save in a thread, and say how long it took until the checkpoint was there."""
    torch.set_num_threads(1)
    place, state = Path(folder), state_of(megabytes)
    writers: dict[str, Callable[[], Any]] = {
        "ours": lambda: ztensor.torch.StorageWriter(place / "async ours"),
        "FileSystemWriter": lambda: dcp.FileSystemWriter(place / "async torch"),
    }
    return [
        {
            name: _timed(
                lambda writer=writer: dcp.async_save(  # type: ignore[misc]
                    state, storage_writer=writer()
                ).result(),
                local_bytes(state),
            )
            for name, writer in writers.items()
        }
        for _ in range(rounds + 1)
    ]


# --- The table alone ----------------------------------------------------------------------------


def table_of(tensors: int, chunks: int) -> ChunkTable:
    """Return the table of as many tensors, each in as many chunks, with digests."""
    count = tensors * chunks
    rng = np.random.default_rng(0)
    chunk = np.tile(np.arange(chunks), tensors)
    tensor = np.repeat(np.arange(tensors), chunks)
    return ChunkTable(
        names=[f"layers.{number}.weight" for number in range(tensors)],
        kinds=[Kind("f32")],
        kind=np.zeros(tensors, np.int64),
        shapes=[(4 * chunks, 16)] * tensors,
        files=[TableFile(f"{one:05d}-00000000.zt", 256 * tensors + 4096) for one in range(chunks)],
        encodings=["raw"],
        tensor=tensor,
        file=chunk,
        number=None,
        encoding=None,
        offsets=np.stack((4 * chunk, 0 * chunk), axis=1).reshape(-1),
        sizes=np.tile(np.array([4, 16]), count),
        at=64 + 256 * tensor,
        length=np.full(count, 256),
        digest=rng.integers(0, 256, (count, 4), np.uint8),
        algorithm="crc32c",
    )


def write_table(table: ChunkTable, folder: Path) -> None:
    """Write the root of a checkpoint."""
    sink = FileSink(str(folder / "checkpoint.zt"), durable=False)
    write_root(sink, table, encode_values({}), "benchmark", durable=False)


def read_table(folder: Path) -> ChunkTable:
    """Read it again, every claim checked."""
    return read_root(folder).table
