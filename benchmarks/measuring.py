"""One measurement, in a process that was forked for it; runs in every peer's environment.

Around the timed call: bring memory and page cache into the state the operation asks for, collect
garbage, note the resident memory; afterwards compare what came back with the source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.memory import evict, fetch, prewarm
from benchmarks.operations import OPERATIONS, Operation
from benchmarks.workloads import MIB, Array, Source, read_source

REPEAT_SECONDS = 0.2
_MASK = (1 << 64) - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What to do; travels to the server as JSON.

    Attributes:
        operation: a name of `OPERATIONS`, or `prepare`, which stores and checks the file.
        source: folder of the source files.
        path: the peer's file.
        target: where a save goes.
        stored_by: the peer's function that writes the file; empty where another has written it.
        nbytes: bytes of all tensors.
        total: their words added up.
        one: the tensor that is read alone, and `one_total`, its words added up.
        one_total: see `one`.
    """

    operation: str
    source: str
    path: str
    target: str
    stored_by: str
    nbytes: int
    total: int
    one: str
    one_total: int


class Lacks(Exception):
    """The peer cannot do this; the message says why."""


class WrongBytes(Exception):
    """What came back is not what was stored."""


def perform(peer: Any, request: Request) -> dict[str, Any]:
    """Do what is asked and return the figures."""
    if request.operation == "prepare":
        return _prepare(peer, request)
    operation = OPERATIONS[request.operation]
    call = peer_function(peer, operation.call)
    if operation.kind in {"start", "first"}:
        return _start(call, operation, request)
    if operation.kind == "process":
        return _process(call, request)[1]
    if operation.kind == "read":
        return _read(peer, operation, call, request)
    return _write(peer, operation, call, request)


def peer_function(peer: Any, name: str) -> Any:
    """Return a peer's function.

    Raises:
        Lacks: it has none.
    """
    found = getattr(peer, name, None)
    if name.endswith("_of_new"):  # no library keeps what it read before
        found = found or getattr(peer, name.removesuffix("_of_new"))
    if found is None:
        raise Lacks(getattr(peer, "LACKS", {}).get(name, "has no such function"))
    return found


# --- The kinds --------------------------------------------------------------------------------


def _prepare(peer: Any, request: Request) -> dict[str, Any]:
    """Store the file that is read later, and compare every byte that comes back."""
    source = read_source(Path(request.source))
    if request.stored_by:
        _store(peer, source, request)
    expected = source.tensors()
    if sorted(peer.keys(request.path)) != sorted(expected):
        raise WrongBytes("the names that were read are not those that were written")
    for load in (peer.mapped, peer.owned):
        _compare(peer, load(request.path), expected)
    return {"nbytes": os.path.getsize(request.path)}


def _store(peer: Any, source: Source, request: Request) -> None:
    save = getattr(peer, request.stored_by, None)
    if save is None and request.stored_by == "save_crc32c":
        save = peer.save  # without digests where there are none
    if save is None:
        save = peer_function(peer, request.stored_by)  # which says what is lacking
    save(_native(peer, source), request.path)
    with open(request.path, "rb") as file:  # a descriptor is what fsync wants
        os.fsync(file.fileno())


def _read(
    peer: Any, operation: Operation, call: Callable[..., Any], request: Request
) -> dict[str, Any]:
    convert = getattr(peer, "to_numpy", _unchanged)
    arguments: list[Any] = [request.path]
    names: list[str] = []
    if operation.call in {"one", "again"}:
        arguments.append(request.one)
    if operation.call == "slices":
        ranges = one_percent(read_source(Path(request.source)))
        arguments.append(ranges)
    if operation.is_cold:
        evict(request.path)
    prewarm(request.nbytes)
    if not operation.is_cold:
        fetch(request.path)

    def timed() -> tuple[Any, int]:
        result = call(*arguments)
        if not operation.is_touching:
            return result, 0
        values = result.values() if isinstance(result, dict) else [result]
        return result, word_sum(map(convert, values))

    (result, total), figures = measure(timed)
    if operation.is_repeated:
        figures |= _again(timed, figures)
    if operation.call == "verify":
        if result is not True:
            raise WrongBytes("verifying found a sound file damaged")
    elif operation.call == "one":
        _require_sum(total, request.one_total)
    elif operation.call == "slices":
        expected = read_source(Path(request.source)).tensors()
        parts = {name: expected[name][start:stop] for name, (start, stop) in ranges.items()}
        _compare(peer, result, parts)
    elif operation.is_touching:
        _require_sum(total, request.total)
    else:
        names = list(result)
        if len(names) != len(set(names)) or not names:
            raise WrongBytes("the names are not those that were written")
    return figures


def _again(call: Callable[[], Any], first: dict[str, Any]) -> dict[str, Any]:
    """Return the medians of more calls, as many as fit the time; nothing where none do."""
    wall, cpu, until = [], [], time.perf_counter() + REPEAT_SECONDS
    while time.perf_counter() + first["wall"] < until:
        begun, used = time.perf_counter(), time.process_time()
        result = call()
        wall.append(time.perf_counter() - begun)
        cpu.append(time.process_time() - used)
        del result
    if not wall:
        return {}
    return {"wall": statistics.median(wall), "cpu": statistics.median(cpu)}


def _write(
    peer: Any, operation: Operation, call: Callable[..., Any], request: Request
) -> dict[str, Any]:
    is_append = operation.kind == "append"
    if is_append:
        shutil.copyfile(request.path, request.target)
        added = np.arange(MIB // 4, dtype=np.float32)
        tensors = {"zz.appended": getattr(peer, "from_numpy", _unchanged)(added)}
    else:
        tensors = _native(peer, read_source(Path(request.source)))
    prewarm(request.nbytes)
    try:
        _, figures = measure(lambda: call(tensors, request.target))
        figures["nbytes"] = os.path.getsize(request.target)
        if is_append and "zz.appended" not in set(peer.keys(request.target)):
            raise WrongBytes("what was appended is not there")
    finally:
        Path(request.target).unlink(missing_ok=True)
    if figures["nbytes"] == 0:
        raise WrongBytes("an empty file was written")
    return figures


_FIRST = """
import time
import {module}
wall, cpu = time.perf_counter(), time.process_time()
{statement}
print(time.perf_counter() - wall, time.process_time() - cpu)
"""


def _start(program: tuple[str, str], operation: Operation, request: Request) -> dict[str, Any]:
    """Open in a new interpreter, where nothing was imported but what Python itself needs."""
    module, statement = program
    text = _FIRST.format(module=module, statement=statement)
    output, figures = _process(("-c", text), request)
    if operation.kind == "first":
        figures["wall"], figures["cpu"] = map(float, output.split())
    return figures


def _process(arguments: tuple[str, ...], request: Request) -> tuple[bytes, dict[str, Any]]:
    """Return what a new interpreter prints, and what it took from its start to its end.

    Args:
        arguments: of the interpreter; `PATH` and `NAME` stand for the file and the tensor that is
            read alone, and for their `repr` in a program.
        request: has both.
    """
    import resource  # Unix only, like the fork this runs in

    fetch(request.path)
    command = [sys.executable]
    is_program = arguments[0] == "-c"
    for argument in arguments:
        for word, value in (("PATH", request.path), ("NAME", request.one)):
            argument = argument.replace(word, repr(value) if is_program else value)  # noqa: PLW2901
        command.append(argument)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return output, {"wall": wall, "cpu": cpu, "peak": after.ru_maxrss * 1024}


def warm_up(peer: Any, folder: Path) -> None:
    """Use every function once, on next to nothing, so that imports put off until then are paid."""
    path = str(folder / "file")
    convert = getattr(peer, "from_numpy", _unchanged)
    tensors = {"w": convert(np.zeros((4, 4), np.float32))}
    more = {"zz": convert(np.zeros((4, 4), np.float32))}
    uses: list[tuple[str, tuple[Any, ...]]] = [
        *((save, (tensors, path)) for save in ("save_zstd", "save_sha256", "save_crc32c", "save")),
        *((load, (path,)) for load in ("keys", "mapped", "owned", "verify")),
        ("one", (path, "w")),
        ("slices", (path, {"w": (1, 2)})),
        ("append", (more, path)),
    ]
    for name, arguments in uses:
        call = getattr(peer, name, None)
        if call is not None:
            with contextlib.suppress(Exception):  # who cannot will say so when it is measured
                call(*arguments)


# --- Tensors ----------------------------------------------------------------------------------


def _unchanged(value: Any) -> Any:
    return value


def _native(peer: Any, source: Source) -> dict[str, Any]:
    """Return the tensors in memory of their own, as the peer wants them."""
    convert = getattr(peer, "from_numpy", _unchanged)
    tensors = source.tensors(getattr(peer, "BFLOAT16", None))
    return {name: convert(array.copy()) for name, array in tensors.items()}


def word_sum(arrays: Iterable[Any]) -> int:
    """Return the sum of all bytes, eight at a time, modulo 2**64."""
    total = 0
    for array in arrays:
        words = array.reshape(-1)
        words = words.view(np.uint64 if words.nbytes % 8 == 0 else np.uint8)
        total += int(np.add.reduce(words, dtype=np.uint64))
    return total & _MASK


def one_percent(source: Source) -> dict[str, tuple[int, int]]:
    """Return a range of rows, a hundredth of each tensor, from its middle."""
    return {
        name: (shape[0] // 2, shape[0] // 2 + max(1, shape[0] // 100))
        for name, shape in zip(source.names, source.shapes, strict=True)
    }


def _require_sum(total: int, expected: int) -> None:
    if total != expected:
        raise WrongBytes("the bytes that were read do not add up to those that were written")


def _compare(peer: Any, result: Mapping[str, Any], expected: Mapping[str, Array]) -> None:
    convert = getattr(peer, "to_numpy", _unchanged)
    if sorted(result) != sorted(expected):
        raise WrongBytes("the names that were read are not those that were written")
    for name, array in expected.items():
        found = np.ascontiguousarray(convert(result[name])).reshape(-1).view(np.uint8)
        if not np.array_equal(found, np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
            raise WrongBytes(f"{name} was read with other bytes than were written")


# --- The machine ------------------------------------------------------------------------------


def measure(call: Callable[[], Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a call gives, its seconds (wall and CPU), and the growth of resident memory."""
    gc.collect()
    before = _resident(reset=True)
    cpu = time.process_time()
    start = time.perf_counter()
    result = call()
    wall = time.perf_counter() - start
    cpu = time.process_time() - cpu
    return result, {"wall": wall, "cpu": cpu, "peak": max(0, _resident_peak() - before)}


def _resident(*, reset: bool = False) -> int:
    if reset:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # peak := now
    return _status("VmRSS")


def _resident_peak() -> int:
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")
