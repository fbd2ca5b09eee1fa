"""Resident process of one peer: imports it once and forks a child per measurement.

    python -m benchmarks.server PEER      in the peer's environment; one JSON line in, one out

A child starts with the imports paid and an otherwise clean heap, and takes all its memory with it.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import platform
import select
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, TextIO

from benchmarks.measuring import Lacks, Request, WrongBytes, perform, warm_up

TIMEOUT_SECONDS = 600.0


def versions() -> dict[str, str]:
    """Return the version of everything installed here, and of Python."""
    found = {
        distribution.metadata["Name"]: distribution.version
        for distribution in importlib.metadata.distributions()
    }
    return {"python": platform.python_version(), **dict(sorted(found.items()))}


def threads() -> int:
    """Return how many threads this process has."""
    return len(list(Path("/proc/self/task").iterdir()))


def answer(peer: Any, request: Request) -> dict[str, Any]:
    """Fork, let the child do it, and return what it found."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(peer, request, writing)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], TIMEOUT_SECONDS)
        if not ready:
            os.kill(child, signal.SIGKILL)
        with os.fdopen(reading, "rb", closefd=False) as pipe:
            line = pipe.read()
    finally:
        os.close(reading)
        _, status = os.waitpid(child, 0)
    if line:
        reply: dict[str, Any] = json.loads(line)
        return reply
    if not ready:
        return {"error": f"took longer than {TIMEOUT_SECONDS:.0f} s"}
    return {"error": f"the process died with status {os.waitstatus_to_exitcode(status)}"}


def _child(peer: Any, request: Request, writing: int) -> None:
    """Measure, write one line and end without cleaning up: the system is faster at that."""
    reply: dict[str, Any]
    try:
        reply = perform(peer, request)
    except Lacks as error:
        reply = {"lacks": str(error)}
    except WrongBytes as error:
        reply = {"error": str(error)}
    except BaseException as error:  # noqa: BLE001  # a peer may raise anything; a fork must not return
        traceback.print_exc()
        reply = {"error": f"{type(error).__name__}: {error}"[:300]}
    with contextlib.suppress(BaseException):
        os.write(writing, json.dumps(reply).encode())
    os._exit(0)


def serve(name: str, requests: TextIO, replies: TextIO) -> None:
    """Import the peer, say what is installed, then answer until the input ends."""
    peer = importlib.import_module(f"benchmarks.peers.{name}")
    before = threads()  # NumPy's BLAS has some, and makes new ones after a fork
    with tempfile.TemporaryDirectory() as folder:
        warm_up(peer, Path(folder))
    # A thread does not survive a fork; a library that thinks it has some would wait for them.
    left = threads() - before
    print(json.dumps({"versions": versions(), "threads_left": left}), file=replies, flush=True)
    for line in requests:
        reply = answer(peer, Request(**json.loads(line)))
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    # Whatever a library prints goes to the error stream; the replies have their own descriptor.
    own = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    serve(sys.argv[1], sys.stdin, own)
