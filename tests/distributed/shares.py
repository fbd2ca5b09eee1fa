"""Bytes and requests of `load_into` for one, two and four ranks, from disk and from a server.

python -m tests.distributed.shares
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from tests.distributed.processes import Processes
from tests.remote.range_server import RangeServer
from ztensor.torch import save_file

TASK = "tests.distributed.tasks.fill_layers"
LAYERS, ROWS, COLUMNS = 4, 4002, 1024
NORM_BYTES = LAYERS * COLUMNS * 2  # which each rank has


class Shares(NamedTuple):
    """What the ranks read.

    Attributes:
        world: how many ranks.
        read: bytes of elements that each rank read.
        filled: bytes of elements that each rank has.
        requests: of all ranks to the server; 0 from disk.
        sent: bytes that the server sent, in all.
    """

    world: int
    read: list[int]
    filled: list[int]
    requests: int
    sent: int


def saved(folder: Path) -> Path:
    """Write a model of layers that ranks divide, and norms that each has; return its path."""
    state = {}
    for layer in range(LAYERS):
        state[f"layers.{layer}.weight"] = torch.randn(ROWS, COLUMNS).bfloat16()
        state[f"layers.{layer}.norm"] = torch.randn(COLUMNS).bfloat16()
    save_file(state, folder / "model.safetensors")
    return folder / "model.safetensors"


def measured(
    path: Path, world: int, processes: Processes, *, is_remote: bool, divided: str
) -> Shares:
    """Fill on so many ranks, with layers in a placement."""
    with RangeServer(path.parent) as server:
        source = f"{server.url}/{path.name}" if is_remote else str(path)
        found = processes.right(world, TASK, source=source, copy=str(path), divided=divided)
        read, filled = ([each[n] for each in found] for n in (0, 1))
        return Shares(world, read, filled, len(server.record), server.record.sent)


def main() -> int:
    """Print a line for each number of ranks."""
    with tempfile.TemporaryDirectory() as folder, Processes() as processes:
        path = saved(Path(folder))
        print(f"a model of {path.stat().st_size:,} bytes")
        for is_remote, divided in itertools.product((False, True), ("0", "1")):
            for world in (1, 2, 4):
                shares = measured(path, world, processes, is_remote=is_remote, divided=divided)
                where = f"{'server' if is_remote else 'disk'}, axis {divided}"
                ranks = ", ".join(f"{nbytes:,}" for nbytes in shares.read)
                print(f"{where}, {world} ranks: read {ranks} bytes", end="")
                print(f"; {shares.requests} requests, {shares.sent:,} sent" * is_remote)
    return 0


if __name__ == "__main__":
    sys.exit(main())
