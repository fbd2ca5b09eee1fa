"""Bytes and requests of `ztensor.jax.load_sharded` for one, two and four processes, from servers.

python -m tests.distributed.jax_shares
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.remote.range_server import RangeServer
from ztensor.distributed import PartWriter, commit
from ztensor.numpy import save_file

ROOT = Path(__file__).resolve().parents[2]
LAYERS, ROWS, COLUMNS = 4, 2048, 1024
NBYTES = LAYERS * (ROWS + 1) * COLUMNS * 4
# Loads under a mesh of all devices, and compares with the file on disk.
LOAD = """
import sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import ztensor.numpy
from ztensor.jax import load_sharded
rank, world, port, axis = map(int, sys.argv[1:5])
source, copy = sys.argv[5:]
if world > 1:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", world, rank)
mesh = Mesh(np.array(jax.devices()), ("a",))
right, like = ztensor.numpy.load_file(copy), {}
over = NamedSharding(mesh, P(*[None] * axis, "a"))
for name, array in right.items():
    place = NamedSharding(mesh, P()) if array.ndim == 1 else over
    like[name] = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)
found = load_sharded(source, like=like)
for name, array in found.items():
    assert array.sharding == like[name].sharding
    for shard in array.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), right[name][shard.index])
"""


class Share(NamedTuple):
    """Requests of one process to its server.

    Attributes:
        requests: how many.
        sent: bytes of the answers.
    """

    requests: int
    sent: int


def saved(folder: Path) -> Path:
    """Write a model of 32 MiB, as a file and as a checkpoint of two parts; return the file."""
    random = np.random.default_rng(0)
    model = {}
    for layer in range(LAYERS):
        model[f"layers.{layer}.weight"] = random.random((ROWS, COLUMNS), np.float32)
        model[f"layers.{layer}.norm"] = random.random(COLUMNS, np.float32)
    save_file(model, folder / "model.safetensors")
    (folder / "parts").mkdir()
    records = []
    for process in range(2):
        half = slice(process * ROWS // 2, (process + 1) * ROWS // 2)
        with PartWriter(folder / "parts", process=process, save_id="1", processes=2) as part:
            for name, array in model.items():
                if array.ndim == 2:
                    part.add(name, array[half], shape=array.shape, offsets=(half.start, 0))
                elif process == 0:
                    part.add(name, array)
            records.append(part.finish())
        commit(folder / "parts", records) if process else None
    return folder / "model.safetensors"


def measured(folder: Path, source: str, world: int, axis: int = 0) -> list[Share]:
    """Load in so many processes, each from a server of its own; return their shares."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=1",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(RangeServer(folder)) for _ in range(world)]
        processes = []
        for rank, server in enumerate(servers):
            numbers = map(str, (rank, world, port, axis))
            paths = f"{server.url}/{source}", str(folder / "model.safetensors")
            command = [sys.executable, "-c", LOAD, *numbers, *paths]
            process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            processes.append(process)
            stack.callback(process.kill)
        errors = [process.communicate(timeout=120)[1] for process in processes]
        assert not any(process.returncode for process in processes), "\n".join(errors)
        return [Share(len(server.record), server.record.sent) for server in servers]


def main() -> int:
    """Print a line for each source, axis and number of processes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        saved(folder)
        print(f"a model of {NBYTES:,} bytes")
        for source in ("model.safetensors", "parts/checkpoint.zt"):
            for axis in (0, 1):
                for world in (1, 2, 4):
                    shares = measured(folder, source, world, axis)
                    each = ", ".join(f"{one.sent:,} ({one.requests} requests)" for one in shares)
                    print(f"{source}, axis {axis}, {world} processes: {each}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
