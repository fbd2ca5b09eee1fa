"""What a conversion takes beside a plain copy of the same file: time and memory.

Each measurement is a process of its own, which converts one file and is gone. The rounds of a table
are interleaved, in any order, with two copies of the source on the same disk: `shutil.copyfile`,
which is the one that counts, and a loop of reads and writes of 1 MiB. The ratios are medians of
those within a round, so that a slow minute of the machine hits both. Nothing is flushed while the
time is taken, neither conversions nor copies. Sources were just written and lie in the system's
cache.

Memory is what the process has more at its fullest than before the first call, libraries that are
imported on the way included: `anonymous` is what it holds itself, `total` also has the pages of
mapped files, which the system takes back when it needs them. Time is without those imports: an
empty file is converted first.

    python benchmarks/convert.py [--full] [--rounds N] [--folder FOLDER] [--only WORD ...]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ztensor

MIB = 1 << 20
COPY, LOOP = "shutil.copyfile", "reads and writes"
Array = np.ndarray[Any, np.dtype[Any]]
Make = Callable[[Path, Path], object]


class Case(NamedTuple):
    """A source, and what it is converted to.

    Attributes:
        name: of the source.
        file: its file name.
        make: writes it; called with the same tensors as a `.zt` file, and the path.
        targets: label, file name and options of each conversion.
        is_single: whether it holds one tensor of all the bytes, so that a step that decodes a
            tensor as a whole shows.
    """

    name: str
    file: str
    make: Make
    targets: tuple[tuple[str, str, dict[str, Any]], ...] = (("zt, crc32c", "out.zt", {}),)
    is_single: bool = False


# --- Sources ----------------------------------------------------------------------------------


def llama(*, is_full: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes of Llama-3.2-1B with its output matrix; or of one small layer."""
    hidden, narrow, wide = 2048, 512, 8192
    vocabulary, layers = (128256, 16) if is_full else (16384, 1)
    yield "lm_head.weight", (vocabulary, hidden)
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for index in range(layers):
        for part, shape in (
            ("input_layernorm", (hidden,)),
            ("mlp.down_proj", (hidden, wide)),
            ("mlp.gate_proj", (wide, hidden)),
            ("mlp.up_proj", (wide, hidden)),
            ("post_attention_layernorm", (hidden,)),
            ("self_attn.k_proj", (narrow, hidden)),
            ("self_attn.o_proj", (hidden, hidden)),
            ("self_attn.q_proj", (hidden, hidden)),
            ("self_attn.v_proj", (narrow, hidden)),
        ):
            yield f"model.layers.{index}.{part}.weight", shape
    yield "model.norm.weight", (hidden,)


def single(*, is_full: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield one square matrix of as many bytes."""
    yield "weight", (40_000, 40_000) if is_full else (11_600, 11_600)


def write_base(path: Path, shapes: Iterator[tuple[str, tuple[int, ...]]]) -> None:
    """Write float16 numbers as weights are spread, which deflate makes a little smaller."""
    rng = np.random.default_rng(0)
    numbers = (rng.standard_normal(16 * MIB + 4093, np.float32) * 0.02).astype(np.float16)
    with ztensor.Writer(path, durable=False) as writer:
        for name, shape in shapes:
            left = math.prod(shape)
            with writer.stream(name, shape, "float16") as sink:
                while left:
                    start = int(rng.integers(4093))
                    piece = numbers[start : start + min(left, 16 * MIB)]
                    sink.write(piece, flat=True)
                    left -= piece.size


def export(base: Path, path: Path) -> None:
    """Write what our own exporter writes."""
    ztensor.convert(base, path, durable=False)


def compressed(base: Path, path: Path) -> None:
    """Write zstd frames."""
    ztensor.convert(base, path, compression=1, durable=False)


def deflated(base: Path, path: Path) -> None:
    """Write what `numpy.savez_compressed` writes, at the quickest level."""
    with (
        ztensor.open(base) as reader,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name in reader:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, reader[name])


def torch_save(base: Path, path: Path) -> None:
    """Write what `torch.save` writes of contiguous tensors."""
    import torch

    import ztensor.torch

    torch.save(ztensor.torch.load_file(base), path)


def torch_save_transposed(base: Path, path: Path) -> None:
    """Write what `torch.save` writes of transposed views, whose elements have to be gathered."""
    import torch

    import ztensor.torch

    tensors = ztensor.torch.load_file(base)
    torch.save({name: tensor.t() for name, tensor in tensors.items()}, path)


def hdf5_in_chunks(base: Path, path: Path) -> None:
    """Write chunks of about 1 MiB, shuffled and deflated."""
    import h5py

    with ztensor.open(base) as reader, h5py.File(path, "w") as file:
        for name in reader:
            array = reader[name]
            chunks = tuple(min(length, 724) for length in array.shape)
            file.create_dataset(
                name, data=array, chunks=chunks, compression="gzip", compression_opts=1,
                shuffle=True,
            )  # fmt: skip


def onnx_external(base: Path, path: Path) -> None:
    """Write a model of initializers whose data lies in a file beside it."""
    import onnx

    tensors, beside = [], path.with_suffix(".data")
    with ztensor.open(base) as reader, beside.open("wb") as file:
        for name in reader:
            array = reader[name]
            tensor = onnx.TensorProto(
                name=name,
                data_type=onnx.TensorProto.FLOAT16,
                dims=array.shape,
                data_location=onnx.TensorProto.EXTERNAL,
            )
            pairs = {"location": beside.name, "offset": file.tell(), "length": array.nbytes}
            for key, value in pairs.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(array.data)
            tensors.append(tensor)
    graph = onnx.helper.make_graph([], "weights", [], [], tensors)
    onnx.save(onnx.helper.make_model(graph), path)


def fortran(base: Path, path: Path) -> None:
    """Write one array whose first dimension varies fastest."""
    with ztensor.open(base) as reader:
        array = reader["weight"]
    np.save(path, array.reshape(array.shape[::-1]).T)


def big_endian(base: Path, path: Path) -> None:
    """Write one big-endian array."""
    with ztensor.open(base) as reader:
        np.save(path, reader["weight"].byteswap().view(">f2"))


CASES = (
    Case(
        "safetensors", "source.safetensors", export,
        (
            ("zt, crc32c", "out.zt", {}),
            ("zt, no digests", "out.zt", {"checksum": None}),
            ("zt, zstd", "out.zt", {"compression": 3}),
        ),
    ),
    Case("npz, stored", "source.npz", export),
    Case("npz, deflated", "source.npz", deflated),
    Case("pt", "source.pt", torch_save),
    Case("pt, transposed", "source.pt", torch_save_transposed),
    Case("gguf", "source.gguf", export),
    Case("hdf5", "source.h5", export),
    Case("hdf5, deflated", "source.h5", hdf5_in_chunks),
    Case("onnx, external", "source.onnx", onnx_external),
    Case(
        "zt", "source.zt", shutil.copyfile,
        (
            ("safetensors", "out.safetensors", {}),
            ("npz", "out.npz", {}),
            ("gguf", "out.gguf", {}),
            ("hdf5", "out.h5", {}),
        ),
    ),
    Case(
        "zt, zstd", "source.zt", compressed,
        (("zt, raw", "out.zt", {"compression": False}), ("safetensors", "out.safetensors", {})),
    ),
    Case("one npy, Fortran", "source.npy", fortran, is_single=True),
    Case("one npy, big-endian", "source.npy", big_endian, is_single=True),
    Case("one npz, deflated", "source.npz", deflated, is_single=True),
    Case("one pt, transposed", "source.pt", torch_save_transposed, is_single=True),
    Case("one hdf5, deflated", "source.h5", hdf5_in_chunks, is_single=True),
    Case(
        "one zt, zstd", "source.zt", compressed,
        (("safetensors", "out.safetensors", {}), ("npz", "out.npz", {}), ("hdf5", "out.h5", {})),
        is_single=True,
    ),
)  # fmt: skip


# --- One measurement, in a process of its own -------------------------------------------------


class Memory:
    """Watches how much memory this process has; Linux only."""

    def __init__(self) -> None:
        self._before = self._now()
        self._most = self._before
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    @staticmethod
    def _now() -> tuple[int, int]:
        text = Path("/proc/self/status").read_text()
        anonymous, total = (
            int(text.partition(f"{key}:")[2].split(maxsplit=1)[0]) >> 10
            for key in ("RssAnon", "VmRSS")
        )
        return anonymous, total

    def _watch(self) -> None:
        while not self._is_done.wait(0.01):
            now = self._now()
            self._most = max(self._most[0], now[0]), max(self._most[1], now[1])

    def extra(self) -> tuple[int, int]:
        """Return the MiB more than at the beginning: anonymous ones, and all."""
        self._is_done.set()
        self._thread.join()
        return self._most[0] - self._before[0], self._most[1] - self._before[1]


def copy_in_loop(source: str, target: str) -> None:
    """Copy with reads and writes of 1 MiB."""
    with open(source, "rb", 0) as one, open(target, "wb", 0) as other:
        buffer = memoryview(bytearray(MIB))
        while count := one.readinto(buffer):
            other.write(buffer[:count])


def measure(work: str, source: str, target: str, options: dict[str, Any]) -> None:
    """Do it once and print what it took."""
    memory = Memory()
    empty = Path(f"{target}.empty")
    ztensor.Writer(empty, durable=False).finish()
    if work not in (COPY, LOOP):
        ztensor.convert(empty, target, durable=False, **options)
        os.unlink(target)
    empty.unlink()
    begin = time.perf_counter()
    if work == COPY:
        shutil.copyfile(source, target)
    elif work == LOOP:
        copy_in_loop(source, target)
    else:
        ztensor.convert(source, target, durable=False, **options)
    seconds = time.perf_counter() - begin
    print(json.dumps([seconds, *memory.extra()]))


def measured(work: str, source: Path, target: Path, options: dict[str, Any]) -> list[float]:
    """Return seconds, and MiB of anonymous and of all memory, of a process that does it once."""
    given = json.dumps([work, str(source), str(target), options])
    command = [sys.executable, __file__, "--measure", given]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    target.unlink()
    found: list[float] = json.loads(done.stdout)
    return found


# --- Tables -----------------------------------------------------------------------------------


def run(case: Case, base: Path, folder: Path, rounds: int) -> list[tuple[str, ...]]:
    """Return the lines of one source."""
    source = folder / case.file
    case.make(base, source)
    data = source.with_suffix(".data")  # where the bytes are, where they are not in the file
    copied = data if data.exists() else source
    os.sync()
    works: list[tuple[str, Path, str, dict[str, Any]]] = [
        (COPY, copied, "copy", {}),
        (LOOP, copied, "copy", {}),
        *((label, source, name, options) for label, name, options in case.targets),
    ]
    samples: dict[str, list[list[float]]] = {label: [] for label, *_ in works}
    for number in range(rounds + 1):
        for label, path, name, options in random.sample(works, len(works)):
            os.sync()  # the disk is at rest: what one left to write is not paid by the next
            sample = measured(label, path, folder / name, options)
            if number:  # the first round goes ahead unmeasured
                samples[label].append(sample)
    nbytes = copied.stat().st_size
    for path in (source, data):
        path.unlink(missing_ok=True)
    lines = []
    for label, kept in samples.items():
        seconds = statistics.median(one[0] for one in kept)
        speeds = []
        for copy in (COPY, LOOP):
            pairs = zip(samples[copy], kept, strict=True)
            speeds.append(f"{statistics.median(one[0] / own[0] for one, own in pairs):.2f}")
        anonymous, total = (f"{max(one[place] for one in kept):.0f}" for place in (1, 2))
        rate = f"{nbytes / seconds / 1e9:.2f}"
        lines.append((case.name, label, f"{seconds:.2f}", rate, *speeds, anonymous, total))
    return lines


COLUMNS = (
    "source", "to", "seconds", "GB/s", "of copyfile", "of the loop", "anonymous, MiB", "total, MiB",
)  # fmt: skip


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Print a table as Markdown has it."""
    widths = [max(len(row[place]) for row in (COLUMNS, *rows)) for place in range(len(COLUMNS))]
    for row in (COLUMNS, tuple("-" * width for width in widths), *rows):
        cells = (
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Run what was asked for and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="files of 3 GB instead of 256 MB")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--folder", help="where to work; three times the file must be free there")
    parser.add_argument("--only", nargs="*", default=[], help="sources whose names begin so")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(*json.loads(arguments.measure))
        return
    print(
        f"zTensor {ztensor.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"medians of {arguments.rounds} rounds; ratios are of speeds, more is better\n"
    )
    chosen = [
        case
        for case in CASES
        if not arguments.only or any(case.name.startswith(word) for word in arguments.only)
    ]
    rows = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        for plan, is_single in ((llama, False), (single, True)):
            cases = [case for case in chosen if case.is_single == is_single]
            base = folder / "base.zt"
            if cases:
                write_base(base, plan(is_full=arguments.full))
            for case in cases:
                rows += run(case, base, folder, arguments.rounds)
            base.unlink(missing_ok=True)
    print_table(rows)


if __name__ == "__main__":
    main()
