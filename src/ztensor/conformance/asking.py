"""Call a command that reads a file, with limits of time, output and (on Linux) memory.

No shell is involved. Standard input is empty, and standard error is discarded. A process that
exceeds a limit is killed with its children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import IO, TYPE_CHECKING

from ztensor.conformance.answer import Answer, Ended, parse_answer
from ztensor.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT_BYTES = 64 << 20


def ask(command: Sequence[str], path: str, *, seconds: float, memory: int | None = None) -> Answer:
    """Return the answer of a command about a file.

    Args:
        command: the program and its first arguments; the path follows them.
        path: the file.
        seconds: the process is killed after this time.
        memory: limit of its address space in bytes, on Linux; no limit by default.

    Raises:
        SourceError: the program cannot be started.
    """
    try:
        process = subprocess.Popen(  # noqa: S603  # the caller's own program, and no shell
            [*command, path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise SourceError.from_os(error, "cannot start the reader", command[0]) from error
    _cap_memory(process.pid, memory)
    output = bytearray()
    stream = process.stdout
    assert stream is not None  # noqa: S101  # a pipe, see above
    taker = threading.Thread(target=_take, args=(stream, output), daemon=True)
    taker.start()
    taker.join(seconds)
    is_late = taker.is_alive()
    if is_late or len(output) > OUTPUT_BYTES:
        _kill(process)
    try:
        code = process.wait(1 if is_late else seconds)
    except subprocess.TimeoutExpired:  # it closed its output and went on
        is_late = True
        _kill(process)
        code = process.wait()
    taker.join(1)
    with contextlib.suppress(OSError):
        stream.close()
    if is_late:
        return Answer(Ended.TIMED_OUT, f"not done after {seconds:g} seconds")
    if len(output) > OUTPUT_BYTES:
        return Answer(Ended.CRASHED, f"it printed more than {OUTPUT_BYTES >> 20} MiB")
    return parse_answer(code, bytes(output))


def _take(stream: IO[bytes], output: bytearray) -> None:
    with contextlib.suppress(OSError, ValueError):
        while len(output) <= OUTPUT_BYTES:
            piece = os.read(stream.fileno(), 1 << 16)
            if not piece:
                return
            output += piece


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _cap_memory(pid: int, memory: int | None) -> None:
    if memory is None:
        return
    with contextlib.suppress(ImportError, AttributeError, OSError):  # other systems; gone already
        import resource

        resource.prlimit(pid, resource.RLIMIT_AS, (memory, memory))
