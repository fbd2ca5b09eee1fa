"""Our own hot paths under pytest-benchmark, in two minutes: `make suite SUITE=bench-paths`.

It compares one commit with another on one machine, and judges nothing. How we do beside other
libraries is what `benchmarks/run.py` measures.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.numpy import load_file, save_file

MIB = 1 << 20
MANY = 50_000
Tensors = dict[str, Any]
ROUNDS = {"rounds": 5, "iterations": 1, "warmup_rounds": 1}


def _many(count: int, nbytes: int) -> Tensors:
    rows = np.arange(count * nbytes // 4, dtype=np.float32).reshape(count, nbytes // 4)
    return {f"model.blocks.{index:05}.weight": rows[index] for index in range(count)}


def _few() -> Tensors:
    rng = np.random.default_rng(1)
    return {f"w{index}": rng.standard_normal((16, MIB // 4), np.float32) for index in range(4)}


def _pruned() -> Tensors:
    rng = np.random.default_rng(2)
    values = rng.standard_normal((4, 2 * MIB), np.float32)
    values[rng.random(values.shape, np.float32) < 0.8] = 0
    return {f"w{index}": row for index, row in enumerate(values)}


DATA: dict[str, Callable[[], Tensors]] = {
    "ten": lambda: _many(10, 1024),
    "few 64 MiB": _few,
    "small 10 KiB": lambda: _many(3200, 10240),
    "many 256 B": lambda: _many(MANY, 256),
}


@pytest.fixture(scope="module", params=DATA)
def tensors(request: pytest.FixtureRequest) -> Tensors:
    return DATA[request.param]()


@pytest.fixture(scope="module")
def path(tensors: Tensors, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hot") / "model.zt"
    save_file(tensors, path, durable=False)
    return path


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("zstd") / "model.zt"
    save_file(_pruned(), path, compression=3, durable=False)
    yield path
    path.unlink()


# --- Reading ----------------------------------------------------------------------------------


def test_open_and_list(benchmark: Any, path: Path, tensors: Tensors) -> None:
    names = benchmark.pedantic(lambda: ztensor.open(path).keys(), **ROUNDS)
    assert len(names) == len(tensors)


def test_load_mapped(benchmark: Any, path: Path, tensors: Tensors) -> None:
    loaded = benchmark.pedantic(load_file, (path,), **ROUNDS)
    assert loaded.keys() == tensors.keys()


@pytest.mark.parametrize("verify", [None, False], ids=["checked", "unchecked"])
def test_load_owned(benchmark: Any, path: Path, tensors: Tensors, verify: bool | None) -> None:
    loaded = benchmark.pedantic(load_file, (path,), {"copy": True, "verify": verify}, **ROUNDS)
    name = next(iter(tensors))
    assert np.array_equal(loaded[name], tensors[name])


def test_read_one(benchmark: Any, path: Path, tensors: Tensors) -> None:
    """What one look into an open reader costs."""
    name = next(iter(tensors))
    with ztensor.open(path) as reader:
        assert np.array_equal(benchmark(reader.__getitem__, name), tensors[name])


def test_metadata_of_one(benchmark: Any, path: Path, tensors: Tensors) -> None:
    name = next(iter(tensors))
    with ztensor.open(path) as reader:
        assert benchmark(reader.metadata, name).nbytes == tensors[name].nbytes


def test_verify(benchmark: Any, path: Path) -> None:
    with ztensor.open(path) as reader:
        assert benchmark.pedantic(reader.verify, **ROUNDS).ok


@pytest.mark.parametrize("mmap", [True, False], ids=["mapped", "read"])
def test_slice(benchmark: Any, tmp_path: Path, mmap: bool) -> None:
    """A sixty-fourth of a tensor of 64 MiB."""
    tensor = np.arange(16 * MIB, dtype=np.float32).reshape(1024, -1)
    save_file({"w": tensor}, tmp_path / "model.zt", durable=False)
    with ztensor.open(tmp_path / "model.zt", mmap=mmap) as reader:
        part = benchmark(lambda: reader.get_slice("w")[800:816])
    assert np.array_equal(part, tensor[800:816])


# --- Writing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("checksum", [None, "crc32c", "sha256"], ids=str)
def test_save(benchmark: Any, tensors: Tensors, tmp_path: Path, checksum: str | None) -> None:
    path = tmp_path / "model.zt"

    def save() -> None:
        save_file(tensors, path, checksum=checksum, durable=False)

    benchmark.pedantic(save, setup=lambda: path.unlink(missing_ok=True), **ROUNDS | {"rounds": 3})
    assert ztensor.open(path).keys() == sorted(tensors)


def test_append(benchmark: Any, tensors: Tensors, tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    added = np.zeros(MIB // 4, np.float32)

    def fresh() -> None:
        path.unlink(missing_ok=True)
        save_file(tensors, path, durable=False)

    def append() -> None:
        with ztensor.Editor(path, durable=False) as writer:
            writer.add("added", added)

    benchmark.pedantic(append, setup=fresh, **ROUNDS | {"rounds": 3})
    assert "added" in ztensor.open(path)


# --- Compression ------------------------------------------------------------------------------


def test_zstd_save(benchmark: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.zt"
    tensors = _pruned()

    def save() -> None:
        save_file(tensors, path, compression=3, durable=False)

    benchmark.pedantic(save, setup=lambda: path.unlink(missing_ok=True), **ROUNDS | {"rounds": 3})
    assert ztensor.open(path).keys() == sorted(tensors)


def test_zstd_load(benchmark: Any, compressed: Path) -> None:
    loaded = benchmark.pedantic(load_file, (compressed,), **ROUNDS)
    assert np.array_equal(loaded["w3"], _pruned()["w3"])


def test_zstd_slice(benchmark: Any, compressed: Path) -> None:
    with ztensor.open(compressed) as reader:
        part = benchmark.pedantic(lambda: reader.get_slice("w3")[MIB : MIB + 1000], **ROUNDS)
    assert np.array_equal(part, _pruned()["w3"][MIB : MIB + 1000])


# --- Starting ---------------------------------------------------------------------------------

PROGRAMS = {
    "import": "import ztensor",
    "import for NumPy": "import ztensor.numpy",
    "open a small file": "import sys, ztensor; ztensor.open(sys.argv[1]).keys()",
    "command's help": "import sys, ztensor.cli.main as c; sys.argv[1:] = ['--help']; c.main()",
    "ztensor ls": "import sys, ztensor.cli.main as c; sys.argv.insert(1, 'ls'); c.main()",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_new_interpreter(benchmark: Any, tmp_path: Path, program: str) -> None:
    path = tmp_path / "model.zt"
    save_file(_many(10, 1024), path, durable=False)
    command = [sys.executable, "-c", program, str(path)]

    def start() -> int:
        return subprocess.run(command, stdout=subprocess.DEVNULL, check=True).returncode

    assert benchmark.pedantic(start, **ROUNDS) == 0
