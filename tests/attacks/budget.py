"""Measure what listing or refusing the worst known files costs: `make suite SUITE=budget`.

python tests/attacks/budget.py                    every format, 1 kB to 16 MB
python tests/attacks/budget.py --quick            short files under a low floor, a minute
python tests/attacks/budget.py npz "zt 1.2"       some formats
python tests/attacks/budget.py --shape "deep"     shapes with a word in their name

Prints a table; exits with 1 where a file takes more than 64 MiB and 4 times its length, or more
than linear time. Each file is opened, and its objects listed, in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # started by path

import numpy as np

import ztensor
import ztensor.io.reading.recovery
import ztensor.numpy
import ztensor.spec.container.kinds  # loaded when first used, which would look like a file's cost
from tests.attacks.shapes import FORMATS, Made, load, write
from tests.extent import sample

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LENGTHS = (1 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1 * MIB, 4 * MIB, 16 * MIB)
FLOOR, FACTOR = 64 * MIB, 4
# The short form opens small files under a low floor, so that uncharged memory shows in them, too.
# Some MiB are of no file: buffers, and memory that Python keeps.
QUICK_LENGTHS = (128 * KIB,)
QUICK_FLOOR, NOT_CHARGED = 256 * KIB, 4 * MIB
# A file four times as long may take so many times as long, the rest is noise. A shorter time,
# in seconds, proves nothing.
MOST_GROWTH = 6
NO_NOISE = 1.0
MOST_SECONDS = 60  # for one file
MOST_MEMORY = 3 * GIB  # of a process, before it is stopped


class Cost(NamedTuple):
    """The cost of one file.

    Attributes:
        length: bytes of the file, or files.
        peak: most bytes of memory at a time, beyond those before.
        seconds: of the processor.
        outcome: the number of objects, or the reason of the refusal.
        is_ours: whether it was that, and no other error.
        allowed: bytes of memory it may take.
    """

    length: int
    peak: int
    seconds: float
    outcome: str
    is_ours: bool
    allowed: int


class Row(NamedTuple):
    """One shape of one format, at all lengths."""

    kind: str
    shape: str
    costs: list[Cost]

    @property
    def growth(self) -> float:
        """Return how much longer a file takes that is four times as long, at worst."""
        steps = zip(self.costs, self.costs[1:], strict=False)
        return max(
            (
                after.seconds / max(before.seconds, NO_NOISE / 8) * 4 * before.length / after.length
                for before, after in steps
                if after.seconds > NO_NOISE and after.length >= 2 * before.length
            ),
            default=0.0,
        )

    @property
    def faults(self) -> list[str]:
        faults = [f"{c.outcome}" for c in self.costs if not c.is_ours]
        if any(cost.peak > cost.allowed for cost in self.costs):
            faults.append("memory")
        if self.growth > MOST_GROWTH:
            faults.append("time")
        return faults


def use(path: Path, *, floor: int, recover: bool) -> str:
    """Open a file and list its objects; return the outcome as text."""
    outcome = ""
    for again in (False, True) if recover else (False,):
        try:
            limits = ztensor.Limits(cost_floor=floor)
            with ztensor.open(path, recover=again, limits=limits) as reader:
                outcome = f"{sum(reader.metadata(name) is not None for name in reader)} objects"
        except ztensor.ZTensorError as error:
            str(error)
            outcome = str(error.reason)
    return outcome


@functools.cache
def many_objects() -> bytes:
    """Return a valid file with enough objects for bulk parsing."""
    zeros = np.zeros((2, 3), np.float32)
    return ztensor.numpy.save({f"layer.{number}.weight": zeros for number in range(400)})


def _in_a_child(work: Callable[[], object]) -> tuple[object, int]:
    """Return the result of `work` in a child process (None if that died), and its status."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(reading)
            result = pickle.dumps(work())
            with open(writing, "wb") as pipe:
                pipe.write(result)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return (pickle.loads(data) if data else None), os.waitstatus_to_exitcode(status)


def _most_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else KIB
    )


def _open_measured(
    small: Path, many: Path, path: Path, floor: int, *, recover: bool
) -> tuple[int, float, str, bool]:
    # Not costs of the file: lazy imports, and pages of NumPy's code that columns use first.
    for one in (small, many):
        with contextlib.suppress(Exception):
            use(one, floor=floor, recover=recover)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS + 1))
    if sys.platform == "linux":
        there = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (there + MOST_MEMORY,) * 2)
    before, start = _most_memory(), time.process_time()
    is_ours = True
    try:
        outcome = use(path, floor=floor, recover=recover)
    except Exception as error:  # noqa: BLE001  # that is the finding
        outcome, is_ours = f"{type(error).__name__}: {error}"[:60], False
    return _most_memory() - before, time.process_time() - start, outcome, is_ours


def measure(kind: str, make: Callable[[int], Made], length: int, floor: int = FLOOR) -> Cost:
    """Return the cost of a shape at a length, measured in other processes."""
    recover = FORMATS[kind].recover
    with tempfile.TemporaryDirectory() as folder:
        beside = Path(folder, "small")
        beside.mkdir()
        small, _ = write(kind, make, KIB, beside)
        many = beside / "many.zt"
        many.write_bytes(many_objects())
        made, _ = _in_a_child(lambda: write(kind, make, length, Path(folder)))
        assert isinstance(made, tuple), f"{kind}: no file of {length} bytes was made"
        path, nbytes = made
        found, status = _in_a_child(
            lambda: _open_measured(small, many, path, floor, recover=recover)
        )
    allowed = floor + FACTOR * nbytes + (NOT_CHARGED if floor < FLOOR else 0)
    if not isinstance(found, tuple):
        word = signal.Signals(-status).name if status < 0 else f"exit {status}"
        return Cost(
            nbytes, 0, float(MOST_SECONDS), f"died of {word}", is_ours=False, allowed=allowed
        )
    peak, seconds, outcome, is_ours = found
    return Cost(nbytes, peak, seconds, outcome, is_ours, allowed)


def rows(
    lengths: tuple[int, ...], floor: int, kinds: list[str], word: str, most: int | None
) -> Iterator[Row]:
    """Yield a row for each shape; larger files of it are left out once one takes too much."""
    for kind, shapes in load().items():
        taken = list(shapes) if most is None else sample(shapes, most, lambda _, of=kind: of)  # type: ignore[misc]
        for name in taken:
            make = shapes[name]
            if (kinds and kind not in kinds) or word not in name:
                continue
            row = Row(kind, name, [])
            for length in lengths:
                row.costs.append(measure(kind, make, length, floor))
                if "time" in row.faults:  # a shared machine is slow now and then
                    row.costs[-1] = measure(kind, make, length, floor)
                if row.faults:
                    break
            yield row


def line(row: Row) -> str:
    worst = max(row.costs, key=lambda cost: cost.peak / cost.allowed)
    slowest = max(row.costs, key=lambda cost: cost.seconds)
    return (
        f"{row.kind:<12}{row.shape:<36.35}{row.costs[-1].length / 1e6:>9.3f}"
        f"{worst.peak / MIB:>9.1f}{worst.allowed / MIB:>9.1f}{worst.peak / worst.length:>9.1f}"
        f"{slowest.seconds:>8.2f}{slowest.seconds / slowest.length * 1e6:>8.2f}{row.growth:>7.1f}"
        f"  {row.costs[-1].outcome:<22} {'OVER: ' + ', '.join(row.faults) if row.faults else ''}"
    ).rstrip()


def main() -> int:
    """Print the table; return 1 where a row is over, 0 else."""
    parser = argparse.ArgumentParser(description="Measure the worst known files of every format.")
    parser.add_argument("kinds", nargs="*", help="formats; all by default")
    parser.add_argument("--quick", action="store_true", help="short files under a low floor")
    parser.add_argument("--most", type=int, help="so many shapes of a format, drawn by a seed")
    parser.add_argument("--shape", default="", help="a word in the names of shapes")
    given = parser.parse_args()
    unknown = set(given.kinds) - set(FORMATS)
    if unknown:
        parser.error(f"no such format: {', '.join(unknown)}; there are {', '.join(FORMATS)}")
    logging.disable()  # a torn file that is opened after all says so
    print(
        f"{'format':<12}{'shape':<36}{'MB':>9}{'peak MiB':>9}{'allowed':>9}{'x length':>9}"
        f"{'s':>8}{'s/MB':>8}{'x4 in':>7}  outcome"
    )
    lengths, floor = (QUICK_LENGTHS, QUICK_FLOOR) if given.quick else (LENGTHS, FLOOR)
    over = count = 0
    for row in rows(lengths, floor, given.kinds, given.shape, given.most):
        print(line(row), flush=True)
        count += 1
        over += bool(row.faults)
    print(f"{count} shapes, {over} over 64 MiB + 4 x length, not linear, or not refused by us")
    return 1 if over or not count else 0


if __name__ == "__main__":
    sys.exit(main())
