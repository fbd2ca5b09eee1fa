"""A command that reads a file, called within bounds: time, output, and memory where Linux caps it.

No shell has a part in it. The process gets nothing on its standard input, its standard error is
thrown away, and it is killed, with what it started, where a bound is met.
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
    """Return what a command says of a file.

    Args:
        command: the program and its first arguments; the path comes behind them.
        path: the file.
        seconds: after this long it is killed.
        memory: bytes of address space it may have, on Linux; None for all there is.

    Raises:
        SourceError: there is no such program, or it cannot be started.
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
    assert stream is not None  # noqa: S101  # no input: it is asked for above
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
