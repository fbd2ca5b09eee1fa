"""A recorder that is killed: python killed.py FOLDER runs one publish, killed at each system call.

Before each call that changes the disk the process kills itself; a line is printed for each run:
the calls before, and the exit status.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ztensor import delta

CALLS = ("open", "write", "link", "rename", "replace", "unlink", "fsync", "ftruncate", "mkdir")


def state(number: int) -> dict[str, Any]:
    """Return the state that a number stands for."""
    w = np.arange(20_000, dtype=np.float32)
    w[: number * 500] += 0.25
    return {"w": w, "step": np.array(number)}


def publish(folder: Path, number: int) -> None:
    """Publish a state in a folder; every second one is a full file, too."""
    delta.Recorder(state(0), folder, full_every=2, threads=1).publish(state(number), number)


def dying(point: int) -> None:
    """Make the process kill itself at a call."""
    left = point

    def call(real: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return real(*arguments, **options)

    for name in CALLS:
        setattr(os, name, functools.partial(call, getattr(os, name)))


def main(folder: Path) -> None:
    """Publish the second state, killed at each call, in folders of their own."""
    publish(folder / "before", 1)
    for point in range(1000):
        copy = folder / f"{point:03}"
        shutil.copytree(folder / "before", copy)
        child = os.fork()
        if child == 0:
            recorder = delta.Recorder({}, copy, full_every=2, threads=1)
            dying(point)
            recorder.publish(state(2), 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{point} {status}\n")
        sys.stdout.flush()
        if status == 0:
            break


if __name__ == "__main__":
    main(Path(sys.argv[1]))
