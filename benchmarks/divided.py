"""Checkpoints of several processes, beside torch's own writers: the group `divided`.

    python -m benchmarks.divided [--mb N] [--rounds N] [--only WORD]

Four processes on loopback hold a model in shards; `benchmarks/divided_tasks.py` is what they do.
Within a round each library does everything once, one behind the other, in the same processes; a
time is from when all processes begin until the last has ended, a ratio the median of those within
a round. Needs torch and safetensors.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.memory import prewarm

from tests.distributed.processes import Processes

_SECONDS = 540.0
_TASKS = "benchmarks.divided_tasks"


class Ratio(NamedTuple):
    """A line of the table.

    Attributes:
        what: what is done.
        ours: which of the times is ours.
        theirs: which it is held against.
        goal: the most that ours may take, times theirs.
    """

    what: str
    ours: str
    theirs: str
    goal: float


SAVES = [
    Ratio("save, not flushed", "ours", "FileSystemWriter(sync_files=False)", 0.5),
    Ratio("save, flushed", "ours, durable", "FileSystemWriter", 0.8),
    Ratio("save, not flushed", "ours", "HuggingFaceStorageWriter", 0.5),
    Ratio("save of 6 % changed", "ours, since", "ours, durable", 0.35),
]
LOADS = [
    Ratio("load, checked", "ours", "FileSystemReader", 0.75),
    Ratio("load, checked", "ours", "HuggingFaceStorageReader", 1.2),
    Ratio("load, verify=False", "ours, unchecked", "HuggingFaceStorageReader", 1.0),
]
ASYNC = [Ratio("async_save, done", "ours", "FileSystemWriter", 0.6)]


def shown(ratios: list[Ratio], rounds: list[dict[str, float]], detail: str) -> None:
    """Print the lines of some ratios; the first round is left out where there are others."""
    kept = rounds[1:] or rounds
    for ratio in ratios:
        found = statistics.median(one[ratio.ours] / one[ratio.theirs] for one in kept)
        ours, theirs = (min(one[name] for one in kept) for name in (ratio.ours, ratio.theirs))
        outcome = "met" if found <= ratio.goal else "missed"
        print(
            f"| {ratio.what}, {detail} | {ours:.3f} s | {ratio.theirs} | {theirs:.3f} s "
            f"| {found:.2f} | {ratio.goal} | {outcome} |",
            flush=True,
        )


def slowest(answers: list[list[dict[str, float]]]) -> list[dict[str, float]]:
    """Return for each round how long the slowest process took, by library."""
    return [
        {name: max(answer[name] for answer in answers) for name in answers[0]}
        for answers in zip(*answers, strict=True)
    ]


def line(what: str, ours: str, beside: str, theirs: str, found: float, goal: float) -> None:
    """Print a line that is no time."""
    outcome = "met" if found <= goal else "missed"
    print(
        f"| {what} | {ours} | {beside} | {theirs} | {found:.3g} | {goal} | {outcome} |", flush=True
    )


def measure_processes(processes: Processes, folder: Path, megabytes: int, rounds: int) -> None:
    """Measure saves, loads, asynchronous saves, and what memory they take."""
    given = {"folder": str(folder), "megabytes": megabytes, "rounds": rounds, "seconds": _SECONDS}
    saved = processes.right(4, f"{_TASKS}.save", **given)
    shown(SAVES, slowest([one["times"] for one in saved]), "4 processes")
    changed, full = (saved[0]["nbytes"][name] for name in ("since", "full"))
    line("bytes of 6 % changed", f"{changed:,}", "ours, full", f"{full:,}", changed / full, 0.07)
    for name, goal in (("ours", 32.0), ("HuggingFaceStorageWriter", None)):
        most = max(one["memory"][name] for one in saved) / 1e6
        state = max(one["state"] for one in saved) / 1e6
        outcome = "" if goal is None else f" (goal {goal:.0f})"
        print(f"memory of a save, {name}: {most:.1f} MB over a state of {state:.0f} MB{outcome}")
    for world in (2, 3):
        loaded = processes.right(world, f"{_TASKS}.load", **given)
        shown(LOADS, slowest(loaded), f"{world} processes")
    waited = processes.right(4, f"{_TASKS}.save_async", **given)
    shown(ASYNC, slowest(waited), "a thread of 4 processes")


def seconds(act: Callable[[], object], nbytes: int = 0) -> float:
    """Return how long a call took that needs memory for so many bytes."""
    prewarm(nbytes)
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def measure_one_file(folder: Path, rounds: int) -> None:
    """Measure how long it takes to make one file of a checkpoint."""
    from torch.distributed.checkpoint._consolidate_hf_safetensors import (
        consolidate_safetensors_files,
    )
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    import ztensor

    with ztensor.open(folder / "ours") as reader:
        names, nbytes = list(reader), reader.nbytes
    (folder / "of-hf").mkdir()
    times: list[dict[str, float]] = []
    calls: dict[str, Callable[[], object]] = {
        "ours": lambda: ztensor.convert(folder / "ours", folder / "one.safetensors"),
        "consolidate_safetensors_files": lambda: consolidate_safetensors_files(
            str(folder / "HuggingFaceStorageWriter"), str(folder / "of-hf"), dict.fromkeys(names, 1)
        ),
        "dcp_to_torch_save": lambda: dcp_to_torch_save(
            folder / "FileSystemWriter", folder / "one.pt"
        ),
    }
    for _ in range(rounds + 1):
        for path in (folder / "one.safetensors", folder / "one.pt", *(folder / "of-hf").iterdir()):
            path.unlink(missing_ok=True)
        times.append({name: seconds(call, nbytes) for name, call in calls.items()})
    goals = {"consolidate_safetensors_files": 1.0, "dcp_to_torch_save": 0.25}
    wanted = [Ratio("into one file", "ours", name, goal) for name, goal in goals.items()]
    shown(wanted, times, "checked")


def measure_table(tensors: int, chunks: int) -> None:
    """Measure the table of many chunks beside torch's pickle of the same."""
    import torch
    from benchmarks.divided_tasks import read_table, table_of, write_table
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        Metadata,
        MetadataIndex,
        TensorProperties,
        TensorStorageMetadata,
    )

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        table = table_of(tensors, chunks)
        ours = [seconds(lambda: write_table(table, folder)), seconds(lambda: read_table(folder))]
        entries: dict[str, Any] = {}
        storage = {}
        for number in range(tensors):
            boxes = []
            for chunk in range(chunks):
                offsets = torch.Size((chunk * 4, 0))
                boxes.append(ChunkStorageMetadata(offsets, torch.Size((4, 16))))
                index = MetadataIndex(f"layers.{number}.weight", offsets)
                storage[index] = (f"__{chunk}_0.distcp", number * 256, 256)
            entries[f"layers.{number}.weight"] = TensorStorageMetadata(
                TensorProperties(), torch.Size((chunks * 4, 16)), boxes
            )
        held = Metadata(entries, storage_data=storage)
        path = folder / ".metadata"
        theirs = [
            seconds(lambda: path.write_bytes(pickle.dumps(held))),
            seconds(lambda: pickle.loads(path.read_bytes())),  # noqa: S301  # just written
        ]
        nbytes = (folder / "checkpoint.zt").stat().st_size, path.stat().st_size
    what = f"table of {tensors * chunks:,} chunks"
    line(
        f"{what}, bytes",
        f"{nbytes[0]:,}",
        ".metadata",
        f"{nbytes[1]:,}",
        nbytes[0] / nbytes[1],
        0.01,
    )
    for word, one, other, goal in zip(("write", "read"), ours, theirs, (0.02, 0.05), strict=True):
        line(f"{what}, {word}", f"{one:.3f} s", ".metadata", f"{other:.3f} s", one / other, goal)


def main() -> None:
    """Measure."""
    warnings.simplefilter("ignore")  # what torch says of its own
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=500, help="megabytes of tensors")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--chunks", type=int, default=256, help="of each of 2,000 tensors, in the table"
    )
    given = parser.parse_args()
    print("| what | ours | beside | theirs | ratio | goal | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place, Processes() as processes:
        measure_processes(processes, Path(place), given.mb, given.rounds)
        measure_one_file(Path(place), given.rounds)
    measure_table(2000, given.chunks)


if __name__ == "__main__":
    main()
