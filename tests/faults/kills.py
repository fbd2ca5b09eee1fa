"""Real processes, killed at random moments.

    python tests/faults/kills.py TRIES SEED FOLDER OPERATION...

One process imports the library once and forks a child for each try. The child changes a file; at a
random moment it gets SIGKILL. The parent looks at what is left, saves once more, and counts. The
last line printed is the counts of each operation as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":  # started by path: find `tests.faults` as pytest does
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from collections.abc import Callable

import numpy as np

import ztensor
from tests.faults.judge import Outcome, read_state
from tests.faults.operations import TARGET, dense
from ztensor import edit
from ztensor.numpy import save_file

MILLION = 1_000_000
_OLD = {
    "kept": np.arange(MILLION, dtype=np.float32),
    "changed": np.full(MILLION // 2, 7, np.int32),
    **{f"small.{number}": np.full(5, number, np.uint16) for number in range(300)},
}
_NEW = np.arange(2 * MILLION, dtype=np.float32)[::-1]


def _save(path: Path) -> None:
    save_file({"kept": _NEW, "saved": np.arange(3)}, path)


def _append(path: Path) -> None:
    with ztensor.Editor(path) as writer:
        writer.write("added", _NEW)
        writer.write("added too", _NEW[:1000], compress=True)


def _replace(path: Path) -> None:
    edit.replace_tensor(path, "changed", _NEW)


def _save_named(path: Path) -> None:
    with mock.patch.object(os, "O_TMPFILE", 0, create=True):  # as on systems without it
        _save(path)


RUNS: dict[str, Callable[[Path], object]] = {
    "save": _save,
    "save, named": _save_named,
    "append": _append,
    "replace": _replace,
    "remove": lambda path: edit.remove_tensors(path, names="changed"),
    "compact": edit.compact,
}
_OF_2_X = {
    "append": _append,
    "replace": _replace,
    "remove": RUNS["remove"],
    "rename": lambda path: edit.rename_tensors(path, {"changed": "kept", "kept": "changed"}),
    "set": lambda path: edit.set_attributes(path, {"unit": "m"}, name="changed"),
}
RUNS |= {f"{name}, 2.x": run for name, run in _OF_2_X.items()}


def _states(operation: str) -> tuple[dict[str, Any], dict[str, Any]]:
    old = {name: dense(array) for name, array in _OLD.items()}
    new = dict(old)
    if operation.startswith("save"):
        new = {"kept": dense(_NEW), "saved": dense(np.arange(3))}
    elif operation.startswith("append"):
        new |= {"added": dense(_NEW), "added too": dense(_NEW[:1000])}
    elif operation.startswith("replace"):
        new["changed"] = dense(_NEW)
    elif operation.startswith("remove"):
        del new["changed"]
    elif operation.startswith("rename"):
        new |= {"kept": old["changed"], "changed": old["kept"]}
    elif operation.startswith("set"):
        new["changed"] = (*old["changed"][:2], {"unit": "m"})
    return old, new


def kill_often(operation: str, tries: int, seed: int, folder: Path) -> dict[str, int]:
    """Kill an operation `tries` times and count what is left.

    Args:
        operation: one of `RUNS`.
        tries: how often.
        seed: of the moments; when a signal arrives depends on the machine all the same.
        folder: an empty folder.
    """
    logging.disable(logging.WARNING)  # opening torn files at their last state is what happens here
    dice = random.Random(seed)
    path = folder / TARGET
    template = folder / "template"
    is_of_2 = operation.endswith("2.x")
    with ztensor.Writer(
        template, version="2.1" if is_of_2 else "1.2.0", alignment=4096 if is_of_2 else None
    ) as writer:
        for name, array in _OLD.items():
            writer.write(name, array)
    old, new = _states(operation)
    counts = dict.fromkeys([*Outcome, "killed inside", "litter left by kills", "litter"], 0)
    duration = max(_run(operation, template, path, None) for _ in range(3))
    for _ in range(tries):
        moment = dice.uniform(0, 1.1 * duration)
        counts["killed inside"] += _run(operation, template, path, moment) < 0
        counts[_outcome(path, old, new)] += 1
        counts["litter left by kills"] += len(_litter(folder))
        _next_save(path)
        counts["litter"] += len(_litter(folder))
    return counts


def _run(operation: str, template: Path, path: Path, moment: float | None) -> float:
    """Do it in a child; seconds it took, or -1 where it was killed at `moment`."""
    shutil.copyfile(template, path)
    started, has_started = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(has_started, b"!")
            RUNS[operation](path)
            status = 0
        finally:
            os._exit(status)
    os.read(started, 1)
    begin = time.monotonic()
    if moment is not None:
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    seconds = time.monotonic() - begin
    os.close(started)
    os.close(has_started)
    if os.WIFSIGNALED(status):
        return -1
    if os.WEXITSTATUS(status):
        raise SystemExit(f"{operation} failed by itself")
    return seconds


def _outcome(path: Path, old: dict[str, Any], new: dict[str, Any]) -> Outcome:
    try:
        state = read_state(path)["objects"]
    except ztensor.FormatError:
        try:
            state = read_state(path, recover=True)["objects"]
        except ztensor.ZTensorError:
            return Outcome.LOST
        return Outcome.RECOVERED if state in (old, new) else Outcome.WRONG
    except ztensor.SourceError:
        return Outcome.LOST
    if state == new:
        return Outcome.NEW
    return Outcome.OLD if state == old else Outcome.WRONG


def _litter(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir() if entry.name not in (TARGET, "template")]


def _next_save(path: Path) -> None:
    save_file({"small": np.arange(3)}, path, durable=False)


if __name__ == "__main__":
    how_often, with_seed, where, *names = sys.argv[1:]
    found = {}
    for name in names:
        home = Path(where, name)
        home.mkdir()
        found[name] = kill_often(name, int(how_often), int(with_seed), home)
    print(json.dumps(found))
