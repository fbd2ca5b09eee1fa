"""Where the microseconds of `load_file` and `save_file` go, on 50,000 tensors of 256 bytes.

    python benchmarks/profile_load.py

A profiler that looks at every call doubles the time of code like this. So the functions that make
up the stages are wrapped, a dozen calls in all, and each is charged with its time less that of
those within it. The figures are the medians of several runs, in one process that has imported
everything.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ztensor import opening
from ztensor.container.v1 import emit, regular, schema
from ztensor.numpy import load_file, save_file
from ztensor.reading import loading
from ztensor.source import sink
from ztensor.source.local import FileSource
from ztensor.writing import saving

COUNT = 50_000
LOADING: Sequence[tuple[Any, str, str]] = (
    (opening, "source_of", "open the file"),
    (opening, "read_manifest", "read the manifest's bytes, find the frame, the rest"),
    (schema, "parse_commit", "check the manifest's digest"),
    (regular, "find_all", "find where objects begin"),
    (regular, "_read_block", "read their fields, and check all rules, side by side"),
    (regular._Reading, "_read_plain", "put the blocks together"),
    (regular, "_texts", "cut out the names"),
    (regular._Reading, "_read_names", "check that names and objects meet"),
    (regular._Reading, "objects", "check that no name comes twice"),
    (FileSource, "view", "map the file"),
    (loading, "_rows_of", "which objects are plain, and their element types"),
    (loading, "_lay", "make the arrays"),
    (loading, "_in_order", "make the dict"),
)
SAVING: Sequence[tuple[Any, str, str]] = (
    (saving, "_in_order", "sort the names"),
    (saving._Batch, "take_run", "look at the arrays, twins included, and compute digests"),
    (saving._Batch, "flush", "places in the file, buffers for the system"),
    (sink.FileSink, "write_all", "write the arrays"),
    (emit.Emitter12, "_emit_objects", "make the manifest"),
    (emit, "with_commit", "its digest, joining it"),
    (sink.FileSink, "write", "write the manifest"),
    (sink.FileSink, "commit", "rename; the old file's memory is freed"),
)


class Stages:
    """Charges stages with their own time.

    Args:
        stages: owner, name of a function there, and what it does.
    """

    def __init__(self, stages: Sequence[tuple[Any, str, str]]) -> None:
        self.own: dict[str, float] = {}
        self._within = [0.0]
        for owner, name, title in stages:
            setattr(owner, name, self._charged(getattr(owner, name), title))

    def _charged(self, function: Callable[..., Any], title: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            self._within.append(0.0)
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                spent = time.perf_counter() - start
                self.own[title] = self.own.get(title, 0.0) + spent - self._within.pop()
                self._within[-1] += spent

        return call

    def run(self, work: Callable[[], Any], rounds: int) -> tuple[float, dict[str, float]]:
        """Return the median time of the whole, and of each stage."""
        wholes: list[float] = []
        parts: list[dict[str, float]] = []
        for _ in range(rounds + 2):  # the first ones warm up
            self.own = {}
            start = time.perf_counter()
            result = work()
            wholes.append(time.perf_counter() - start)
            parts.append(self.own)
            del result
        medians = {
            title: statistics.median(part.get(title, 0.0) for part in parts[2:])
            for title in parts[-1]
        }
        return statistics.median(wholes[2:]), medians


def show(title: str, whole: float, parts: dict[str, float], order: Sequence[str]) -> None:
    """Print a table in Markdown."""
    print(f"| {title} | ms | us a tensor |\n| --- | ---: | ---: |")
    rest = whole - sum(parts.values())
    rows = [(one, parts[one]) for one in order if one in parts]
    for name, seconds in [*rows, ("everything else", rest), ("**all**", whole)]:
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds * 1e6 / COUNT:.2f} |")
    print()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dir", type=Path, help="where the file goes")
    options = parser.parse_args(arguments)
    bits = np.random.default_rng(0).integers(0, 256, (COUNT, 4, 64), np.uint8).view(np.float32)
    tensors = {f"layers.{i // 100}.blocks.{i % 100}.weight": row for i, row in enumerate(bits)}
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = os.path.join(folder, "many.zt")
        save = functools.partial(save_file, tensors, path, durable=False)
        for title, stages, work in (
            ("save_file, crc32c, over an old file", SAVING, save),
            ("load_file, mapped", LOADING, functools.partial(load_file, path)),
        ):
            whole, parts = Stages(stages).run(work, options.rounds)
            show(title, whole, parts, [one for *_, one in stages])
    return 0


if __name__ == "__main__":
    sys.exit(main())
