"""Processes that are killed while a checkpoint is saved over another, at every call of the system.

    python -m tests.distributed.kills

prints what is loaded afterwards, beside torch's own writers, which are killed before and behind
each step of theirs.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from torch.distributed import checkpoint as dcp

from tests.distributed import tasks
from tests.distributed.processes import Processes
from ztensor.distributed import read_root

# What changes something on a disk, or flushes it, and is looked up in `os` when it is called.
_CALLS = (
    "copy_file_range", "fdatasync", "fsync", "ftruncate", "link", "mkdir", "open",
    "posix_fallocate", "pwrite", "pwritev", "rename", "replace",
    "rmdir", "sendfile", "unlink", "write", "writev",
)  # fmt: skip
STEPS = ("before write_data", "behind write_data", "before finish", "behind finish")
WORLD = 4


class Killed(NamedTuple):
    """What is left of a save in which one process was killed.

    Attributes:
        steps: the steps that the elements are of which each process loads; an error's class where
            it fails.
        litter: files of the folder that the save behind it left and its root does not name.
    """

    steps: list[Any]
    litter: int

    @property
    def outcome(self) -> str:
        """Return `old`, `new`, `mixture` or `error`."""
        if not all(isinstance(one, list) for one in self.steps):
            return "error"
        seen = {step for one in self.steps for step in one}
        return {frozenset([1]): "old", frozenset([2]): "new"}.get(frozenset(seen), "mixture")


# --- In the processes ---------------------------------------------------------------------------


def save_and_die(
    folder: str, rank: int, call: int, step: str = "", library: str = "ztensor", world_step: int = 2
) -> int:
    """Save over a checkpoint; one process is killed.

    Args:
        folder: where the checkpoint is.
        rank: the process that is killed.
        call: at which of its calls of the system, from 1; 0 for none.
        step: at which of `STEPS` instead.
        library: whose writer.
        world_step: which numbers are saved.

    Returns:
        How many calls of the system there were in this process.
    """
    dies = tasks.rank() == rank
    count = [0]

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            count[0] += 1
            if dies and count[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return counted

    def stepping(writer: Any) -> Any:
        for name in ("write_data", "finish"):
            setattr(writer, name, _dying(getattr(writer, name), name, step))
        return writer

    state = tasks.state_of("0", world_step, plain=False)
    writer = tasks.writer_of(library, folder, {})
    if dies and step:
        writer = stepping(writer)
    patches = [
        mock.patch.object(os, one, counting(getattr(os, one))) for one in _CALLS if hasattr(os, one)
    ]
    for patch in patches:
        patch.start()
    try:
        dcp.save(state, storage_writer=writer)
    finally:
        for patch in patches:
            patch.stop()
    return count[0]


def _dying(method: Callable[..., Any], name: str, step: str) -> Callable[..., Any]:
    def dying(*args: Any, **options: Any) -> Any:
        if step == f"before {name}":
            os.kill(os.getpid(), signal.SIGKILL)
        result = method(*args, **options)
        if step == f"behind {name}":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return dying


# --- Beside them --------------------------------------------------------------------------------


def calls_of_each(processes: Processes, folder: Path) -> list[int]:
    """Return how many calls each process makes in a save over a checkpoint."""
    processes.right(
        WORLD, "tests.distributed.tasks.save", folder=folder, placement="0", values=False
    )
    found: list[int] = processes.right(
        WORLD, "tests.distributed.kills.save_and_die", folder=folder, rank=-1, call=0
    )
    return found


def killed(
    processes: Processes,
    folder: Path,
    rank: int,
    call: int = 0,
    step: str = "",
    library: str = "ztensor",
    worlds: Iterable[int] = (2,),
) -> Killed:
    """Save step 1, save step 2 over it with one process killed, load, and save step 3."""
    saving: dict[str, Any] = {"folder": folder, "library": library}
    processes.right(WORLD, "tests.distributed.tasks.save", placement="0", values=False, **saving)
    processes.run(
        WORLD, "tests.distributed.kills.save_and_die", rank=rank, call=call, step=step, **saving
    )
    steps: list[Any] = []
    for world in worlds:
        ended = processes.run(world, "tests.distributed.tasks.steps_seen", placement="1", **saving)
        steps += [one.errors[0][0] if one.errors else one.result for one in ended]
    processes.run(
        WORLD, "tests.distributed.tasks.save", placement="0", step=3, values=False, **saving
    )
    litter = -1
    if library == "ztensor":
        named = {"checkpoint.zt", *(file.name for file in read_root(folder).files)}
        litter = len({path.name for path in folder.iterdir()} - named)
    return Killed(steps, litter)


def main() -> None:
    from tests.distributed.processes import Processes

    with tempfile.TemporaryDirectory() as place, Processes() as processes:
        counts = calls_of_each(processes, Path(place) / "counted")
        print("| library | killed | times | old | new | mixture | error | litter |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for rank, count in enumerate(counts):
            found = [
                killed(processes, Path(place) / f"{rank}-{call}", rank, call, worlds=(1, 2))
                for call in range(1, count + 1)
            ]
            _print("ztensor", f"process {rank}, at each of {count} calls", found)
        for library in ("torch", "hf"):
            for rank in (0, WORLD - 1):
                steps = STEPS if rank == 0 else STEPS[:2]
                found = [
                    killed(
                        processes, Path(place) / f"{library}-{rank}-{step}", rank, 0, step, library
                    )
                    for step in steps
                ]
                _print(library, f"process {rank}, {len(steps)} steps", found)


def _print(library: str, what: str, found: list[Killed]) -> None:
    counts = Counter(one.outcome for one in found)
    numbers = " | ".join(str(counts[word]) for word in ("old", "new", "mixture", "error"))
    litter = "-" if library != "ztensor" else str(sum(one.litter for one in found))
    print(f"| {library} | {what} | {len(found)} | {numbers} | {litter} |", flush=True)


if __name__ == "__main__":
    main()
