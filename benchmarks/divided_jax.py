"""Arrays over two processes, saved and loaded with the axes swapped, beside Orbax.

    python -m benchmarks.divided_jax [--mb N] [--rounds N]

Two processes of two devices each, connected by gloo on loopback. Within a round each library does
everything once; a time is from when both processes begin until both have ended, a ratio the median
of those within a round. Needs JAX and orbax-checkpoint, which is no dependency of the tests:
`pip install orbax-checkpoint`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_GOAL = 0.6
_COUNT = 8


def _child(rank: int, port: int, folder: str, megabytes: int, rounds: int) -> None:
    """Do the work of one process; the first prints the table."""
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    from ztensor.jax import load_file, save_sharded

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
    devices = np.array(jax.devices()).reshape(2, 2)
    mesh, swapped = Mesh(devices, ("a", "b")), Mesh(devices.T, ("a", "b"))
    rows = max(2, megabytes * 10**6 // _COUNT // 4 // 4096 // 2 * 2)

    def spread(number: int) -> Any:
        array = np.random.default_rng(number).standard_normal((rows, 4096), dtype=np.float32)
        place = NamedSharding(mesh, PartitionSpec("a", "b") if number % 2 else PartitionSpec("a"))
        return jax.make_array_from_callback(array.shape, place, lambda index: array[index])

    tree = {f"w{number}": spread(number) for number in range(_COUNT)}
    wanted = dict.fromkeys(tree, NamedSharding(swapped, PartitionSpec("a", "b")))
    abstract = {
        name: jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=wanted[name])
        for name, one in tree.items()
    }
    how = ocp.checkpoint_utils.construct_restore_args(abstract)
    times: list[dict[str, float]] = []

    def timed(name: str, act: Callable[[], Any]) -> Any:
        multihost_utils.sync_global_devices(f"begin {name}")
        start = time.perf_counter()
        found = act()
        jax.block_until_ready(found)
        multihost_utils.sync_global_devices(f"end {name}")
        times[-1][name] = time.perf_counter() - start
        return found

    for number in range(rounds + 1):
        times.append({})
        own = f"{folder}/{number}-ours"
        timed("ours, save", lambda: save_sharded(tree, own, durable=False))  # noqa: B023
        found = timed("ours, load", lambda: load_file(own, sharding=wanted))  # noqa: B023
        for word, is_packed in (("Orbax", True), ("Orbax, not compressed", False)):
            place = f"{folder}/{number}-{is_packed}"
            with ocp.PyTreeCheckpointer(use_compression=is_packed) as orbax:
                timed(f"{word}, save", lambda: orbax.save(place, tree))  # noqa: B023
                again = timed(
                    f"{word}, load",
                    lambda: orbax.restore(place, item=abstract, restore_args=how),  # noqa: B023
                )
            for name, one in found.items():
                for ours, theirs in zip(
                    one.addressable_shards, again[name].addressable_shards, strict=True
                ):
                    np.testing.assert_array_equal(np.asarray(ours.data), np.asarray(theirs.data))
        multihost_utils.sync_global_devices("compared")
        if rank == 0:
            for name in os.listdir(folder):
                shutil.rmtree(os.path.join(folder, name))
    if rank == 0:
        _show(times[1:] or times)


def _show(rounds: list[dict[str, float]]) -> None:
    print("| what | ours | beside | theirs | ratio | goal | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for what in ("save", "load"):
        for word in ("Orbax, not compressed", "Orbax"):
            ratio = statistics.median(
                one[f"ours, {what}"] / one[f"{word}, {what}"] for one in rounds
            )
            ours = min(one[f"ours, {what}"] for one in rounds)
            theirs = min(one[f"{word}, {what}"] for one in rounds)
            outcome = "met" if ratio <= _GOAL else "missed"
            print(
                f"| {what}, 2 processes of JAX | {ours:.3f} s | {word} | {theirs:.3f} s "
                f"| {ratio:.2f} | {_GOAL} | {outcome} |"
            )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=256, help="megabytes of arrays")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--child", nargs=3, metavar=("RANK", "PORT", "FOLDER"))
    given = parser.parse_args()
    if given.child is not None:
        rank, port, folder = given.child
        _child(int(rank), int(port), folder, given.mb, given.rounds)
        return
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    command = [sys.executable, "-m", "benchmarks.divided_jax", "--mb", str(given.mb)]
    command += ["--rounds", str(given.rounds)]
    with tempfile.TemporaryDirectory() as folder:
        others = [
            subprocess.Popen(
                [*command, "--child", str(rank), str(port), folder],
                env=environment,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(2)
        ]
        for other in others:
            other.wait()


if __name__ == "__main__":
    main()
