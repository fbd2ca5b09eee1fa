"""Processes that talk over gloo on loopback, forked from one that has imported torch before.

    python -m tests.distributed.processes

reads one line of JSON for each run, forks as many processes as it says, each of which calls one
function with the same arguments, and prints what came of each. A run has a time limit; it is kept
by the parent, and by an alarm in each process. All end when the input ends.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple, Self

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60.0


class Ended(NamedTuple):
    """How one process of a run ended.

    Attributes:
        status: its exit status; minus the signal's number where one killed it.
        result: the result of the function, through JSON.
        errors: its errors, each as class, reason code and text; several if an error has several
            ranks.
    """

    status: int
    result: Any
    errors: list[list[str]]


class Processes:
    """The process that forks; started when it is first used."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, world: int, function: str, *, seconds: float = SECONDS, **arguments: Any
    ) -> list[Ended]:
        """Call a function in several processes; return how each ended.

        Args:
            world: how many.
            function: its module and name, such as `"tests.distributed.tasks.save"`.
            seconds: when the processes are killed.
            arguments: its arguments, through JSON.
        """
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        run = {"world": world, "function": function, "seconds": seconds, "arguments": arguments}
        process.stdin.write(json.dumps(run, default=str) + "\n")
        process.stdin.flush()
        try:
            line = process.stdout.readline()
        except BaseException:  # a test ran out of time: the next one must not get this answer
            process.kill()
            self._process = None
            raise
        assert line, "the process that forks is gone"
        return [Ended(*one) for one in json.loads(line)]

    def right(self, world: int, function: str, **arguments: Any) -> list[Any]:
        """Run, and return the results of all processes; assert that all succeed."""
        ended = self.run(world, function, **arguments)
        assert all(one.status == 0 for one in ended), [(one.status, one.errors) for one in ended]
        return [one.result for one in ended]

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.distributed.processes"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait(SECONDS)
            self._process.stdout.close()


# --- In the process that forks ------------------------------------------------------------------


def _fork_all(run: dict[str, Any], folder: Path) -> list[Ended]:
    folder.mkdir()
    importlib.import_module(run["function"].rpartition(".")[0])  # once, and not in every fork
    world, deadline = run["world"], time.monotonic() + run["seconds"]
    pids = [_forked(rank, run, folder) for rank in range(world)]
    statuses: dict[int, int] = {}
    while len(statuses) < world:
        for rank, pid in enumerate(pids):
            if rank not in statuses:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    statuses[rank] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > deadline:
                    os.kill(pid, signal.SIGKILL)
        if any(code < 0 for code in statuses.values()):  # the others wait for it in vain
            deadline = min(deadline, time.monotonic() + 1)
        time.sleep(0.002)
    return [_ended(statuses[rank], folder / f"{rank}.json") for rank in range(world)]


def _ended(status: int, path: Path) -> Ended:
    if not path.exists():
        return Ended(status, None, [])
    result, errors = json.loads(path.read_text())
    return Ended(status, result, errors)


def _forked(rank: int, run: dict[str, Any], folder: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.alarm(int(run["seconds"]) + 10)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)  # its output is not the answer
        status = _call(rank, run, folder)
    except BaseException:  # noqa: BLE001  # nothing may leave the fork
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _call(rank: int, run: dict[str, Any], folder: Path) -> int:
    import torch
    from torch import distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    store = dist.FileStore(str(folder / "store"), run["world"])
    module, _, name = run["function"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=run["world"])
    try:
        answer: tuple[Any, list[list[str]]] = function(**run["arguments"]), []
        status = 0
    except BaseException as error:  # noqa: BLE001  # DCP's own is no Exception
        answer, status = (None, _told(error)), 1
    path = folder / f"{rank}.json"
    path.write_text(json.dumps(answer, default=str))
    if status == 0:
        dist.destroy_process_group()
    return status


def _told(error: BaseException) -> list[list[str]]:
    failures = getattr(error, "failures", None)
    found = [pair[0] for pair in failures.values()] if failures else [error]
    return [
        [type(one).__name__, str(getattr(one, "reason", "")), str(one)]
        if not os.environ.get("ZTENSOR_TRACES")
        else [type(one).__name__, "", "".join(traceback.format_exception(error))]
        for one in found
    ]


def main() -> None:
    """Answer runs until the input ends."""
    import tempfile

    for name in ("torch._dynamo", "tests.distributed.tasks"):  # before anything is forked
        importlib.import_module(name)  # the first is what every `DTensor` imports, for seconds

    with tempfile.TemporaryDirectory() as place:
        for number, line in zip(itertools.count(), sys.stdin, strict=False):
            ended = _fork_all(json.loads(line), Path(place) / str(number))
            print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # all is done, and torch takes its time to end
