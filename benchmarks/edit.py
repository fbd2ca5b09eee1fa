"""What a change of a finished file costs, and what a save costs beside plain writing.

Each figure is the median of several rounds; the rounds of all lines of a table are interleaved, so
that a slow minute of the machine hits all of them, and the least is given beside it. Time spent in
`os.fsync` is measured apart: it is the disk's, the rest is ours.

    python benchmarks/edit.py [--rounds N] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ztensor
from ztensor.numpy import save_file

MIB = 1 << 20
OBJECTS = 100
Array = np.ndarray[Any, np.dtype[Any]]
Save = Callable[[dict[str, Any], Path], object]


class Sample(NamedTuple):
    """What was measured of one call.

    Attributes:
        own: milliseconds without the flushes.
        flushes: milliseconds in `os.fsync`.
        written: bytes written with `os.pwrite`, which is how a file is changed in place.
    """

    own: float
    flushes: float
    written: int


class Meter:
    """Counts what goes through `os.fsync` and `os.pwrite` while it is on."""

    def __init__(self) -> None:
        self.flush_seconds = 0.0
        self.written = 0
        self._fsync, self._pwrite = os.fsync, os.pwrite

    @contextmanager
    def on(self) -> Iterator[None]:
        """Measure what happens inside."""
        self.flush_seconds, self.written = 0.0, 0
        os.fsync = self._flush  # type: ignore[assignment]  # it takes no file objects
        os.pwrite = self._write
        try:
            yield
        finally:
            os.fsync, os.pwrite = self._fsync, self._pwrite

    def _flush(self, descriptor: Any) -> None:
        begin = time.perf_counter()
        self._fsync(descriptor)
        self.flush_seconds += time.perf_counter() - begin

    def _write(self, descriptor: int, data: Any, offset: int) -> int:
        count = self._pwrite(descriptor, data, offset)
        self.written += count
        return count


METER = Meter()


def timed(work: Callable[[], object]) -> Sample:
    """Call something and return what it took."""
    with METER.on():
        begin = time.perf_counter()
        work()
        seconds = time.perf_counter() - begin
    own = (seconds - METER.flush_seconds) * 1e3
    return Sample(own, METER.flush_seconds * 1e3, METER.written)


def interleaved(rounds: int, works: Sequence[Callable[[], Sample]]) -> list[list[Sample]]:
    """Return the samples of each work; one round goes ahead unmeasured."""
    for work in works:
        work()
    samples: list[list[Sample]] = [[] for _ in works]
    for _ in range(rounds):
        for kept, work in zip(samples, works, strict=True):
            kept.append(work())
    return samples


def own_text(samples: list[Sample]) -> str:
    """Return the median of our milliseconds, and the least."""
    own = [sample.own for sample in samples]
    return f"{statistics.median(own):.1f} ({min(own):.1f})"


def flush_text(samples: list[Sample]) -> str:
    """Return the median of the flushes' milliseconds."""
    return f"{statistics.median(sample.flushes for sample in samples):.1f}"


def make_file(path: Path, mebibytes: int, objects: int) -> None:
    """Write a file of so many MiB in so many objects, random bytes."""
    rng = np.random.default_rng(0)
    with ztensor.Writer(path, durable=False) as writer:
        for index in range(objects):
            count = mebibytes * MIB // objects // 4
            writer.write(f"layers.{index:05}.weight", rng.integers(0, 1 << 32, count, np.uint32))


def undone(path: Path, change: Callable[[], object]) -> Sample:
    """Return the figures of a change in place, and take the change back."""
    size = path.stat().st_size
    sample = timed(change)
    os.truncate(path, size)  # nothing below the old end was touched: this is the old file again
    return sample


def append(path: Path, array: Array, *, durable: bool) -> None:
    """Add one object."""
    with ztensor.Editor(path, durable=durable) as writer:
        writer.write("new", array)


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table as Markdown has it."""
    widths = [max(len(row[index]) for row in (columns, *rows)) for index in range(len(columns))]
    print(f"\n{title}\n")
    for row in (columns, tuple("-" * width for width in widths), *rows):
        first, *rest = (
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print(f"| {' | '.join((first, *rest))} |")


def bench_append(folder: Path, rounds: int) -> None:
    """Append 1 MiB to files of several sizes, and of several numbers of objects."""
    array = np.random.default_rng(1).random(MIB // 8)
    for title, cases in (
        (
            f"Append 1 MiB to a file of {OBJECTS} objects",
            [(f"{size} MiB", size, OBJECTS) for size in (4, 100, 400)],
        ),
        (
            "Append 1 MiB to a file of 100 MiB",
            [(f"{count:,} objects", 100, count) for count in (10, 100, 1000, 10_000)],
        ),
    ):
        paths = [folder / f"append-{index}.zt" for index in range(len(cases))]
        for path, (_, size, objects) in zip(paths, cases, strict=True):
            make_file(path, size, objects)
        works = [
            functools.partial(undone, path, functools.partial(append, path, array, durable=durable))
            for path in paths
            for durable in (False, True)
        ]
        os.sync()
        samples = interleaved(rounds, works)
        rows = [
            (label, own_text(quick), own_text(safe), flush_text(safe), f"{safe[0].written:,}")
            for (label, _, _), quick, safe in zip(cases, samples[::2], samples[1::2], strict=True)
        ]
        print_table(
            title,
            ("file", "durable=False, ms", "durable, ours, ms", "flushes, ms", "bytes written"),
            rows,
        )
        for path in paths:
            path.unlink()


def bench_names(folder: Path, rounds: int) -> None:
    """Remove, rename and set: changes that write a manifest and no data."""
    path = folder / "names.zt"
    make_file(path, 400, OBJECTS)
    os.sync()
    with ztensor.open(path) as reader:
        first = next(iter(reader))
        manifest = reader.nbytes - max(
            c.offset + c.length
            for m in reader.metadata(list(reader))
            for c in m.components.values()
        )
    changes: dict[str, Callable[[], object]] = {
        "remove one": lambda: ztensor.edit.remove_tensors(path, names=first),
        "rename one": lambda: ztensor.edit.rename_tensors(path, {first: "renamed"}),
        "set an attribute": lambda: ztensor.edit.set_attributes(path, {"step": 1}),
    }
    works = [functools.partial(undone, path, change) for change in changes.values()]
    samples = interleaved(rounds, works)
    print_table(
        f"Changes of names in a file of 400 MiB, {OBJECTS} objects; "
        f"manifest and footer before: {manifest:,} bytes",
        ("change", "ours, ms", "flushes, ms", "bytes written"),
        [
            (label, own_text(kept), flush_text(kept), f"{kept[0].written:,}")
            for label, kept in zip(changes, samples, strict=True)
        ],
    )
    path.unlink()


def write_plainly(tensors: dict[str, Array], path: Path) -> None:
    """Write the bytes of arrays one behind the other: what any save has to do at least."""
    with path.open("wb") as file:
        for array in tensors.values():
            array.tofile(file)


def fresh(path: Path, save: Callable[[Path], object]) -> Sample:
    """Return the figures of a save where there was no file, and remove it."""
    sample = timed(lambda: save(path))
    path.unlink()
    return sample


def bench_save(folder: Path, rounds: int) -> None:
    """Save without flushing, beside the same bytes through `numpy.tofile` and safetensors."""
    from safetensors.numpy import save_file as save_safetensors

    for label, count, elements in (
        ("200 MiB in 50 tensors of 4 MiB", 50, MIB),
        ("20 MiB in 2,000 tensors of 10 KiB", 2000, 2560),
    ):
        rng = np.random.default_rng(2)
        tensors = {
            f"layers.{index:05}.weight": rng.random(elements, np.float32) for index in range(count)
        }
        nbytes = sum(array.nbytes for array in tensors.values())

        saves: dict[str, Save] = {
            "numpy tofile, one file": write_plainly,
            "safetensors save_file": save_safetensors,
            "ours, crc32c": functools.partial(save_file, durable=False),
            "ours, no digest": functools.partial(save_file, checksum=None, durable=False),
        }
        works = [
            functools.partial(fresh, folder / "saved", functools.partial(save, tensors))
            for save in saves.values()
        ]
        samples = interleaved(rounds, works)
        rows = []
        for name, kept in zip(saves, samples, strict=True):
            seconds = statistics.median(sample.own for sample in kept) / 1e3
            # Between measurements of the same round: they met the same machine.
            ratios = [one.own / plain.own for one, plain in zip(kept, samples[0], strict=True)]
            rate, ratio = nbytes / seconds / 1e9, statistics.median(ratios)
            rows.append((name, own_text(kept), f"{rate:.2f}", f"{ratio:.2f}"))
        print_table(
            f"Save {label}, a new file, not flushed",
            ("writer", "ms", "GB/s", "times tofile"),
            rows,
        )


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11, help="measured rounds of each line")
    parser.add_argument("--folder", help="where to work; 1 GB must be free there")
    arguments = parser.parse_args()
    print(
        f"zTensor {ztensor.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
        f"medians of {arguments.rounds} rounds, in brackets the least"
    )
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        bench_append(folder, arguments.rounds)
        bench_names(folder, arguments.rounds)
        bench_save(folder, arguments.rounds)


if __name__ == "__main__":
    main()
