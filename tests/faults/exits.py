"""Programs that end during a save: is the new state there, or does the program report its loss?

    python -m tests.faults.exits --kind manager --place FOLDER

is one of them. Each saves an old state, begins to save a new one, and ends: the new state must be
there afterwards, or the old one must be and the program must exit with 120 and an error on stderr.
"""

from __future__ import annotations

import argparse
import atexit
import concurrent.futures
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
import ztensor.numpy
from ztensor import CheckpointManager
from ztensor.distributed import PartWriter, commit

_ROOT = Path(__file__).resolve().parents[2]
_SECONDS = 120
LOST = 120  # what Python exits with where an error comes at its very end


def state(number: int) -> dict[str, Any]:
    """Return a state that is worth several threads."""
    return {f"w{index}": np.full(1 << 18, number, np.float32) for index in range(6)}


# --- The programs -----------------------------------------------------------------------------


def manager(place: str, **options: Any) -> None:
    """Save two steps, the second without waiting for it."""
    kept = CheckpointManager(place, **options)
    kept.save(1, state(1))
    kept.wait()
    kept.save(2, state(2))


def after_exception(place: str, **options: Any) -> None:
    """Fail after the save began."""
    manager(place, **options)
    raise ZeroDivisionError


def after_interrupt(place: str, **options: Any) -> None:
    """Get Ctrl-C after the save began."""
    manager(place, **options)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)


def interrupted_at_exit(place: str, **options: Any) -> None:
    """Get Ctrl-C while Python waits for the save."""

    def interrupt() -> None:
        threading.main_thread().join()
        os.kill(os.getpid(), signal.SIGINT)

    manager(place, compression=True, **options)
    threading.Thread(target=interrupt, daemon=True).start()


def at_exit(place: str, **options: Any) -> None:
    """Save while Python ends."""
    atexit.register(manager, place, **options)


def failing(place: str, **options: Any) -> None:
    """Begin a save that cannot succeed: a folder has the name of the step."""
    kept = CheckpointManager(place, **options)
    kept.save(1, state(1))
    kept.wait()
    (Path(place) / "step-00000002.zt").mkdir()
    (Path(place) / "step-00000002.zt" / "file").touch()
    kept.save(2, state(2))


def _write(place: str, number: int, **options: Any) -> None:
    path = Path(place) / "step-00000002.zt"
    ztensor.numpy.save_file(state(number), path, durable=True, **options)


def _write_parts(place: str, number: int) -> None:
    folder = Path(place) / "step-00000002"
    folder.mkdir(exist_ok=True)
    with PartWriter(folder) as part:
        for name, array in state(number).items():
            part.add(name, array)
        commit(folder, [part.finish()])


def in_thread(place: str, write: Callable[[str, int], None] = _write) -> None:
    """Save in a thread that the program does not wait for."""
    write(place, 1)
    threading.Thread(target=write, args=(place, 2)).start()


def in_daemon(place: str) -> None:
    """Save in a thread that Python does not wait for."""
    _write(place, 1)
    begun = threading.Event()
    options = {"progress": lambda *_: begun.set()}
    threading.Thread(target=_write, args=(place, 2), kwargs=options, daemon=True).start()
    begun.wait()
    time.sleep(float(np.random.default_rng().uniform(0, 0.005)))


def in_executor(place: str) -> None:
    """Save in a thread of a pool that is not shut down."""
    _write(place, 1)
    concurrent.futures.ThreadPoolExecutor(1).submit(_write, place, 2)


def in_torch(place: str) -> None:
    """Save by torch, asynchronously, without waiting for it."""
    import torch.distributed.checkpoint as dcp
    from torch import from_numpy

    from ztensor.torch import StorageWriter

    def tensors(number: int) -> dict[str, Any]:
        return {name: from_numpy(array) for name, array in state(number).items()}

    folder = Path(place) / "step-00000002"
    dcp.save(tensors(1), storage_writer=StorageWriter(folder), no_dist=True)
    dcp.async_save(tensors(2), storage_writer=StorageWriter(folder), no_dist=True)


@dataclasses.dataclass(frozen=True)
class Kind:
    """One kind of program.

    Attributes:
        run: is called with the folder or URL.
        status: the exit status of the program if the new state is there.
        may_lose: whether the old state may be there, with an error and the exit status for that.
        options: of `run`.
    """

    run: Callable[..., None]
    status: int = 0
    may_lose: bool = False
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


KINDS = {
    "manager": Kind(manager),
    "increments": Kind(manager, options={"increments": True}),
    "store": Kind(manager),
    "exception": Kind(after_exception, 1),
    "KeyboardInterrupt": Kind(after_interrupt, -signal.SIGINT),
    "KeyboardInterrupt at exit": Kind(interrupted_at_exit),
    "atexit": Kind(at_exit),
    "failing save": Kind(failing, LOST, may_lose=True),
    "thread": Kind(in_thread),
    "parts in thread": Kind(in_thread, options={"write": _write_parts}),
    "executor": Kind(in_executor),
    "daemon thread": Kind(in_daemon, may_lose=True),
    "torch async_save": Kind(in_torch),
}

# --- The verdict ------------------------------------------------------------------------------


def found(place: str, storage: dict[str, str] | None) -> int | None:
    """Return the number of the state in the newest step; None if it is neither."""
    names = ("step-00000002.zt", "step-00000002", "step-00000001.zt", "step-00000001")
    for name in names:
        path = f"{place}/{name}"
        if storage is None and not (
            Path(path).is_file() or (Path(path) / "checkpoint.zt").exists()
        ):
            continue
        try:
            opened = ztensor.open(path, storage=storage, verify=True)
        except FileNotFoundError:
            continue
        with opened, contextlib.suppress(ztensor.ZTensorError):
            arrays = {one: np.asarray(opened.read_numpy(one)) for one in opened}
            for number in (1, 2):
                if all(np.array_equal(arrays[one], value) for one, value in state(number).items()):
                    return number
        return None
    return None


def run(name: str, place: str, storage: dict[str, str] | None = None) -> str:
    """Run one program; return "new", "old, as the program says", or an error."""
    kind = KINDS[name]
    command = [sys.executable, "-m", "tests.faults.exits", "--kind", name, "--place", place]
    if storage is not None:
        command += ["--storage", json.dumps(storage)]
    ended = subprocess.run(
        command, cwd=_ROOT, capture_output=True, text=True, timeout=_SECONDS, check=False
    )
    number, status = found(place, storage), ended.returncode
    says = status == LOST and "ztensor.errors.Source" in ended.stderr
    if number == 2 and (status == kind.status or (kind.may_lose and says)):
        return "new"
    if number == 1 and kind.may_lose and says:
        return "old, as the program says"
    return f"lost: state {number}, status {status}\n{ended.stderr}"


def main() -> None:
    """Be one of the programs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for option in ("--kind", "--place"):
        parser.add_argument(option, required=True)
    parser.add_argument("--storage", type=json.loads)
    options = parser.parse_args()
    kind = KINDS[options.kind]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells may have it ignored
    extra = {} if options.storage is None else {"storage": options.storage}
    kind.run(options.place, **kind.options, **extra)


if __name__ == "__main__":
    main()
