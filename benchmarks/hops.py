"""How many calls of ours, in how many files, the three ways through the library take.

`python -m benchmarks.hops` traces them in this process and prints each beside its budget; `-v` also
names the functions. All are called once before, so that no import counts. Within `spec`, which
parses and emits without I/O, only the call that enters it counts. Returns 1 over a budget.
"""

from __future__ import annotations

import collections
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import ztensor
from ztensor.numpy import save_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

HOME = str(Path(ztensor.__file__).parent)
SPEC = str(Path(HOME, "spec"))
# (calls, files) that a reader of the code has to follow.
BUDGETS = {"open": (15, 8), "r[name], the first time": (15, 5), "save_file of two": (120, 15)}


def hops(way: Callable[[], Any]) -> collections.Counter[tuple[str, str]]:
    """Return how often each function of ours is called, by file and name."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()

    def look(frame: FrameType, event: str, _: object) -> None:
        file, caller = frame.f_code.co_filename, frame.f_back
        is_ours = event == "call" and file.startswith(HOME)
        if is_ours and not (caller and caller.f_code.co_filename.startswith(SPEC)):
            seen[file[len(HOME) + 1 :], frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        way()
    finally:
        sys.setprofile(before)
    return seen


def main(arguments: list[str]) -> int:
    """Print calls and files beside their budgets."""
    is_over = False
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder, "model.zt"), Path(folder, "out.zt")
        save_file({f"layers.{i}.weight": np.zeros((8, 8), np.float32) for i in range(147)}, path)
        two = {"a": np.zeros(4), "b": np.zeros(5)}
        with ztensor.open(path) as warm:
            warm["layers.3.weight"].sum()
        save_file(two, out)
        with ztensor.open(path) as reader:
            ways: dict[str, Callable[[], Any]] = {
                "open": lambda: ztensor.open(path),
                "r[name], the first time": lambda: reader["layers.3.weight"],
                "save_file of two": lambda: save_file(two, out),
            }
            print(f"{'':24} calls  budget  files  budget")
            for name, way in ways.items():
                seen = hops(way)
                calls, files = seen.total(), len({file for file, _ in seen})
                most_calls, most_files = BUDGETS[name]
                is_over |= calls > most_calls or files > most_files
                print(f"{name:24} {calls:5}  {most_calls:6}  {files:5}  {most_files:6}")
                if "-v" in arguments:
                    for (file, function), count in seen.items():
                        print(f"    {count:4}  {file}: {function}")
    return int(is_over)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
