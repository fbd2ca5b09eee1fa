"""Real processes, killed at random moments.

    python tests/faults/kills.py TRIES SEED FOLDER OPERATION...

One process imports the library once and forks a child for each try. The child changes a file; at a
random moment it gets SIGKILL. The parent judges the file that is left, saves once more, and counts.
The last line printed is the counts of each operation as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

if __name__ == "__main__":  # started by path: find `tests.faults` as pytest does
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import ztensor
from tests.faults.judge import Judge, Outcome, read_state
from tests.faults.operations import TARGET
from ztensor import edit
from ztensor.delta import apply, make
from ztensor.numpy import save_file

MILLION = 1_000_000
_OLD: dict[str, Any] = {
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


def _edit(path: Path) -> None:
    with edit.open_editor(path) as editor:
        editor.replace("changed", _NEW)
        editor.rename({"small.1": "small.2", "small.2": "small.1"})
        editor.set_attributes({"note": "x" * 99})


def _apply(path: Path) -> None:
    apply(path.parent.parent / "delta.zt", path, in_place=True)


def _make_delta(operation: str, template: Path) -> None:
    """Write the delta that an operation applies: of a third of the file, or of more."""
    changed = dict(_OLD)
    for name in ("kept", "changed") if "anew" in operation else ("changed",):
        changed[name] = changed[name].copy()
        changed[name][:: 1 << 7] += 1
    make(template, changed, template.parent.parent / "delta.zt")


RUNS: dict[str, Callable[[Path], object]] = {
    "save": _save,
    "save, named": _save_named,
    "append": _append,
    "replace": _replace,
    "remove": lambda path: edit.remove_tensors(path, names="changed"),
    "compact": edit.compact,
    "apply": _apply,
    "apply, anew": _apply,
    "edit, safetensors": _edit,
}
_OF_2_X = {
    "append": _append,
    "replace": _replace,
    "apply": _apply,
    "remove": RUNS["remove"],
    "rename": lambda path: edit.rename_tensors(path, {"changed": "kept", "kept": "changed"}),
    "set": lambda path: edit.set_attributes(path, {"unit": "m"}, name="changed"),
}
RUNS |= {f"{name}, 2.x": run for name, run in _OF_2_X.items()}


def kill_in_a_process(
    operations: list[str], tries: int, seed: int, folder: Path
) -> dict[str, dict[str, int]]:
    """Run this file, since forking belongs into a process of its own; return its counts."""
    done = subprocess.run(
        [sys.executable, __file__, str(tries), str(seed), str(folder), *operations],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    counts: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return counts


def kill_often(operation: str, tries: int, seed: int, folder: Path) -> dict[str, int]:
    """Kill an operation `tries` times in an empty folder, and count the outcomes.

    The seed is of the moments; when a signal arrives also depends on the machine.
    """
    logging.disable(logging.WARNING)  # torn files are opened at their last state
    dice = random.Random(seed)
    path, template = folder / TARGET, folder / "template"
    version, alignment = ("2.1", 4096) if operation.endswith("2.x") else ("1.2.0", None)
    if operation.endswith("safetensors"):
        save_file(_OLD, template, format="safetensors")
    else:
        save_file(_OLD, template, version=version, alignment=alignment, deduplicate=False)
    if operation.startswith("apply"):
        _make_delta(operation, template)
    duration = max(_run(operation, template, path, None) for _ in range(3))
    judge = Judge(read_state(template), read_state(path))
    counts = dict.fromkeys([*Outcome, "killed inside", "litter left by kills", "litter"], 0)
    for _ in range(tries):
        moment = dice.uniform(0, 1.1 * duration)
        counts["killed inside"] += _run(operation, template, path, moment) < 0
        counts[judge.of(path.read_bytes() if path.exists() else None)] += 1
        counts["litter left by kills"] += _litter(folder)
        save_file({"small": np.arange(3)}, path, durable=False)
        counts["litter"] += _litter(folder)
    return counts


def _litter(folder: Path) -> int:
    return len({entry.name for entry in folder.iterdir()} - {TARGET, "template"})


def _run(operation: str, template: Path, path: Path, moment: float | None) -> float:
    """Return the seconds that a child took for it, or -1 if it was killed at `moment`."""
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


if __name__ == "__main__":
    how_often, with_seed, where, *names = sys.argv[1:]
    found = {}
    for name in names:
        home = Path(where, name)
        home.mkdir()
        found[name] = kill_often(name, int(how_often), int(with_seed), home)
    print(json.dumps(found))
