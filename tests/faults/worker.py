"""Other processes of the tests: `python tests/faults/worker.py VERB PATH ...`.

Each verb prints one line of JSON. Where a test must know that a worker is ready, the worker prints
a line first, and goes on when a line comes back.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

import ztensor
from ztensor import edit
from ztensor.numpy import save_file

ELEMENTS = 40_000


def tensors(value: int) -> dict[str, Any]:
    """Return a file's content by which a mixture of two saves would show."""
    return {f"t{number}": np.full(ELEMENTS, value, np.int32) for number in range(4)}


def _say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def _error(error: ztensor.ZTensorError) -> dict[str, Any]:
    number = error.errno if isinstance(error, OSError) else None
    return {
        "kind": type(error).__name__,
        "reason": error.reason,
        "errno": number,
        "text": str(error),
    }


def append(path: str, prefix: str, count: str, timeout: str) -> None:
    """Append tensors one by one; print how many were added, and the errors of the others."""
    _ready()
    done, errors = 0, []
    for number in range(int(count)):
        try:
            with ztensor.Editor(path, timeout=float(timeout)) as writer:
                writer.write(f"{prefix}{number}", np.full(ELEMENTS, number, np.int32))
            done += 1
        except ztensor.ZTensorError as error:
            errors.append(_error(error))
    _say(done=done, errors=errors)


def hold(*paths: str) -> None:
    """Open one file after another for appending, and keep its lock until a line comes."""
    for path in paths:
        with ztensor.Editor(path) as writer:
            writer.write("held", np.arange(5))
            _ready()
    _say(done=len(paths), errors=[])


def save_for(path: str, first: str, seconds: str) -> None:
    """Save again and again; each time all tensors have one new value."""
    _ready()
    until, value = time.monotonic() + float(seconds), int(first)
    while time.monotonic() < until:
        save_file(tensors(value), path, durable=False)
        value += 10
    _say(done=(value - int(first)) // 10, errors=[])


def append_for(path: str, _: str, seconds: str) -> None:
    """Append again and again; tensor n is full of n. Now and then one is renamed and removed."""
    _ready()
    until, value = time.monotonic() + float(seconds), 100
    while time.monotonic() < until:
        with ztensor.Editor(path, durable=False) as writer:
            writer.write(str(value), np.full(ELEMENTS, value, np.int32))
        if value % 7 == 0:
            edit.rename_tensors(path, {str(value): "moved"}, durable=False)
            edit.remove_tensors(path, names="moved", durable=False)
        value += 1
    _say(done=value - 100, errors=[])


def read_for(path: str, mapped: str, seconds: str) -> None:
    """Open, mapped or read or both in turn, and compare: every file must be one whole state."""
    _ready()
    until, done, errors = time.monotonic() + float(seconds), 0, []
    while time.monotonic() < until:
        try:
            is_mapped = mapped == "mapped" if mapped != "both" else done % 2 == 0
            with ztensor.open(path, mmap=is_mapped) as reader:
                problem = _mixture(reader)
        except ztensor.ZTensorError as error:
            problem = _error(error)
        if problem is not None:
            errors.append(problem)
        done += 1
    _say(done=done, errors=errors[:5], bad=len(errors))


def _mixture(reader: ztensor.Reader) -> Any:
    values = {name: reader[name] for name in reader}
    of_save = {int(value[0]) for name, value in values.items() if name.startswith("t")}
    if len(of_save) > 1:
        return f"two saves in one: {of_save}"
    for name, value in values.items():
        expected = int(name) if name.isdigit() else int(value[0])
        if value.shape != (ELEMENTS,) or not (value == expected).all():
            return f"{name} is wrong"
    return None


def _ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


VERBS = {function.__name__: function for function in (append, hold, save_for, append_for, read_for)}

if __name__ == "__main__":
    VERBS[sys.argv[1]](*sys.argv[2:])
