"""Several processes at one file, and files that are changed under a reader."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from unittest import mock

import pytest

import ztensor
from tests.extent import amount
from tests.faults.judge import read_state
from tests.faults.operations import NEW, OPERATIONS, TARGET, dense, small_pieces
from tests.faults.worker import tensors
from tests.refusals import refused
from ztensor import edit
from ztensor.numpy import load_file, save_file

SECONDS = amount(4, full=10) / 10
VERSIONS = pytest.mark.parametrize("version", ["1.2.0", "2.1"])


class Worker:
    """A process that runs one verb of `worker.py`."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py")), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    def wait_until_ready(self) -> Self:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        out, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0
        answer: dict[str, Any] = json.loads(out.splitlines()[-1])
        return answer


def together(*workers: Worker) -> list[dict[str, Any]]:
    """Start all of them at once and wait for all."""
    for worker in workers:
        worker.wait_until_ready()
    for worker in workers:
        worker.go()
    return [worker.result() for worker in workers]


# --- Two writers ----------------------------------------------------------------------------


@pytest.mark.slow
@VERSIONS
@pytest.mark.parametrize("timeout", [30, 0])
def test_two_appenders_get_in_or_get_one_clear_error(
    version: str, timeout: int, tmp_path: Path
) -> None:
    path = tmp_path / TARGET
    save_file(tensors(0), path, version=version)
    results = together(*(Worker("append", path, prefix, 20, timeout) for prefix in "ab"))
    done = sum(result["done"] for result in results)
    assert done == 40 if timeout else done >= 20, results
    for result in results:
        assert result["done"] + len(result["errors"]) == 20
        assert {error["reason"] for error in result["errors"]} <= {"source_locked"}
    with ztensor.open(path) as reader:
        assert len(reader) == 4 + done
        assert reader.verify().ok
        for name in set(reader) - set(tensors(0)):
            assert (reader[name] == int(name[1:])).all()


CHANGES: dict[str, Any] = {
    "remove": lambda path, **options: edit.remove_tensors(path, names="t0", **options),
    "rename": lambda path, **options: edit.rename_tensors(path, {"t0": "x"}, **options),
    "set": lambda path, **options: edit.set_attributes(path, {"a": "b"}, **options),
    "replace": lambda path, **options: edit.replace_tensor(path, "t0", NEW, **options),
    "atomic": lambda path, **options: edit.replace_tensor(path, "t0", NEW, atomic=True, **options),
    "compact": edit.compact,
    "repair": lambda path, **options: edit.repair(path, in_place=True, **options),
}


@pytest.mark.slow
@VERSIONS
def test_who_meets_a_writer_is_told_at_once_or_waits(version: str, tmp_path: Path) -> None:
    """One process holds a file for each change, and lets them go one by one."""
    paths = {name: tmp_path / f"{name}.zt" for name in CHANGES}
    for path in paths.values():
        save_file(tensors(0), path, version=version)
    holder = Worker("hold", *paths.values())
    for name, change in CHANGES.items():
        path = paths[name]
        before = path.read_bytes()
        holder.wait_until_ready()
        with refused(ztensor.SourceError, ztensor.Reason.SOURCE_LOCKED):
            change(path)
        assert path.read_bytes() == before
        holder.go()
        change(path, timeout=30)
        with ztensor.open(path) as reader:
            assert "held" in reader  # the holder's commit was kept
    assert holder.result()["done"] == len(CHANGES)


@pytest.mark.slow
def test_of_two_savers_one_wins_whole(tmp_path: Path) -> None:
    path = tmp_path / TARGET
    results = together(*(Worker("save_for", path, first, SECONDS) for first in (1, 2)))
    assert all(result["done"] for result in results), results
    loaded = load_file(path)
    assert len({int(value[0]) for value in loaded.values()}) == 1
    assert all((value == value[0]).all() for value in loaded.values())
    assert [entry.name for entry in tmp_path.iterdir()] == [TARGET]


@VERSIONS
def test_a_save_in_the_middle_of_an_edit_is_not_lost(version: str, tmp_path: Path) -> None:
    """A plain save takes no lock; an edit at the same time must not put the old file back."""
    path = tmp_path / TARGET
    for atomic in (False, True):
        save_file(tensors(0), path, version=version)
        writer = ztensor.Editor(path, atomic=atomic)
        writer.write("lost", NEW)
        save_file(tensors(5), path)
        with refused(ztensor.SourceError, ztensor.Reason.SOURCE_CHANGED):
            writer.finish()
        assert read_state(path)["objects"] == {n: dense(a) for n, a in tensors(5).items()}
        assert [entry.name for entry in tmp_path.iterdir()] == [TARGET]


def test_a_save_in_the_middle_of_a_compaction_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / TARGET
    save_file(tensors(0), path)

    def save_meanwhile(done: int, total: int) -> None:
        if done == total:
            save_file(tensors(6), path)

    with refused(ztensor.SourceError, ztensor.Reason.SOURCE_CHANGED):
        edit.compact(path, progress=save_meanwhile)
    assert (load_file(path)["t0"] == 6).all()


# --- Readers beside writers -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("writer", ["save_for", "append_for"])
@VERSIONS
def test_readers_meet_whole_states_only(writer: str, version: str, tmp_path: Path) -> None:
    path = tmp_path / TARGET
    save_file(tensors(0), path, version=version)
    written, read = together(
        Worker(writer, path, 10, SECONDS), Worker("read_for", path, "both", SECONDS)
    )
    assert written["done"]
    assert read["done"] > 1
    assert read["bad"] == 0, read


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_a_reader_that_was_there_keeps_what_it_opened(
    operation: Any, mmap: bool, tmp_path: Path
) -> None:
    operation.prepare(tmp_path)
    with ztensor.open(tmp_path / TARGET, mmap=mmap) as reader:
        before = {name: reader.read(name).components for name in reader}
        bytes_before = {
            (name, role): array.tobytes()
            for name, parts in before.items()
            for role, array in parts.items()
        }
        operation.run(tmp_path)
        for (name, role), data in bytes_before.items():
            assert before[name][role].tobytes() == data  # arrays it handed out
            assert reader.read(name, copy=True).components[role].tobytes() == data  # and new ones


@pytest.mark.parametrize("end", ["finish", "abort"])
@pytest.mark.parametrize("is_long", [False, True])
@VERSIONS
def test_a_reader_that_came_in_the_middle_of_an_append_is_not_alarmed(
    version: str, is_long: bool, end: str, tmp_path: Path
) -> None:
    """It sees the old state, though blobs are written into the length it found.

    A long append to a file of 2.x makes more room than it needs, and gives it back.
    """
    path = tmp_path / TARGET
    save_file(tensors(3), path, version=version)
    seen: list[ztensor.Reader] = []

    def open_meanwhile(call: Any) -> Any:
        def replaced(descriptor: int, data: Any, offset: int) -> int:
            if not seen and offset > path.stat().st_size:  # behind the first guard
                call(descriptor, data, offset)
                seen.append(ztensor.open(path))
                assert len(seen[0]) == 4
                return int(memoryview(data).nbytes)
            if seen:
                assert (seen[0]["t1"] == 3).all()
            return int(call(descriptor, data, offset))

        return replaced

    with (
        small_pieces(5000) if is_long else contextlib.nullcontext(),
        mock.patch.object(os, "pwrite", open_meanwhile(os.pwrite)),
    ):
        writer = ztensor.Editor(path)
        for number in range(3):
            writer.write(f"new {number}", NEW)
        getattr(writer, end)()
    if seen:
        assert (seen[0]["t2"] == 3).all()
        assert len(seen[0]) == 4
        seen[0].close()
    assert seen or (end == "abort" and not is_long)


CHANGING = ("pwrite", "ftruncate")


class Stepped:
    """A change to a file, made by a thread that stops before each call that writes or cuts."""

    def __init__(self, change: Callable[[], object]) -> None:
        self._arrived = threading.Semaphore(0)
        self._go = threading.Semaphore(0)
        self.is_over = False
        self._thread = threading.Thread(target=self._run, args=(change,))

    def _run(self, change: Callable[[], object]) -> None:
        try:
            change()
        finally:
            self.is_over = True
            self._arrived.release()

    def stopping(self, call: Any) -> Any:
        def replaced(*arguments: Any) -> Any:
            if threading.current_thread() is self._thread:
                self._arrived.release()
                self._go.acquire()
            return call(*arguments)

        return replaced

    def start(self) -> None:
        self._thread.start()
        self._arrived.acquire()

    def advance(self, steps: int) -> None:
        for _ in range(steps):
            if self.is_over:
                return
            self._go.release()
            self._arrived.acquire()


def _append(path: Path, end: str) -> None:
    writer = ztensor.Editor(path)
    for number in range(3):
        writer.write(f"new {number}", NEW)
    getattr(writer, end)()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "preadv"), reason="reads are met at that call")
@pytest.mark.parametrize("end", ["finish", "abort"])
@pytest.mark.parametrize("is_long", [False, True])
@VERSIONS
def test_whatever_a_writer_does_between_two_calls_of_open(
    version: str, is_long: bool, end: str, tmp_path: Path
) -> None:
    """The file may grow, be cut, or be committed between `fstat` and any of the reads."""
    path, preadv = tmp_path / TARGET, os.preadv
    begun, is_last = 0, False
    while not is_last:
        for read in range(6):
            for steps in (1, 1000):
                save_file(tensors(3), path, version=version, durable=False)
                change = Stepped(lambda: _append(path, end))
                left = read

                def meet(*arguments: Any, change: Stepped = change, steps: int = steps) -> int:
                    nonlocal left
                    if left == 0:
                        change.advance(steps)
                    left -= 1
                    return preadv(*arguments)

                stopping = {name: change.stopping(getattr(os, name)) for name in CHANGING}
                pieces = small_pieces(5000) if is_long else contextlib.nullcontext()
                with pieces, mock.patch.multiple(os, **stopping):
                    change.start()
                    change.advance(begun)
                    is_last = change.is_over
                    try:
                        with (
                            mock.patch.object(os, "preadv", meet),
                            ztensor.open(path) as reader,
                        ):
                            assert len(reader) in ((4, 7) if end == "finish" else (4,))
                            # A change to 1.x that is given up within the length that a reader
                            # found looks to that reader like one in place.
                            if version == "2.1" or end == "finish":
                                for more in (0, 1, 1000):
                                    change.advance(more)
                                    assert (reader["t1"] == 3).all()
                    finally:
                        change.advance(1000)
        begun += 1


def test_editing_the_file_the_arrays_are_mapped_from(tmp_path: Path) -> None:
    path = tmp_path / TARGET
    save_file(tensors(4), path)
    mapped = load_file(path)
    edit.replace_tensor(path, "t0", mapped["t1"][::2])
    with ztensor.Editor(path) as writer:
        writer.write("again", mapped["t0"])
    edit.compact(path)
    assert (mapped["t0"] == 4).all()
    assert (load_file(path)["again"] == 4).all()
