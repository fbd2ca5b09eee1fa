"""Arrays that are spread over devices and processes: saved by each, loaded under any sharding."""

from __future__ import annotations

import os
import pickle
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.distributed import PartWriter, commit, open_divided, read_root
from ztensor.distributed.committing import record_from_bytes, record_to_bytes
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    SourceError,
    UsageError,
)

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from ztensor.jax import leaf_names, load_file, save_sharded  # noqa: E402

ROWS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
# The start of every process of these tests.
BEGIN = """
import os, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from ztensor.distributed import read_root
from ztensor.jax import load_file, load_sharded, save_sharded
import ztensor, ztensor.jax
from tests.counting import CountedFile
folder, rows = sys.argv[1], np.arange(64 * 32, dtype=np.float32).reshape(64, 32)

def spread(array, sharding):
    array = np.asarray(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])

def require_equal(found, expected):
    for shard in found.addressable_shards:
        np.testing.assert_array_equal(np.asarray(shard.data), np.asarray(expected)[shard.index])
"""


def started(code: str, devices: int, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + textwrap.dedent(code), *map(str, arguments)],
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ended(processes: list[subprocess.Popen[str]]) -> None:
    try:
        output = [process.communicate(timeout=90)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(output)


# --- Several devices of one process ------------------------------------------------------------

EIGHT_DEVICES = """
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
over = lambda *axes: NamedSharding(mesh, P(*axes))
half = rows.astype(jnp.bfloat16)
tree = {
    "both": spread(rows, over("a", "b")),
    "copies": spread(rows, over()),
    "half": spread(half, over("b")),
    "nested": {"list": [spread(rows, over(None, "a")), spread(np.float32(3), over())]},
}
save_sharded(tree, folder)
root = read_root(folder)
assert root.writer == "jax"
# 8 boxes, 1 of what all devices have, 2 of rows on four devices each, 4 of columns, 1 number
assert len(root.table) == 8 + 1 + 2 + 4 + 1, len(root.table)
size = sum(file.size for file in root.files)
assert size < 4 * rows.nbytes + 16384, size
expected = {"both": rows, "copies": rows, "half": half, "nested.list.0": rows}
for axes in ((), ("a", "b"), ("b", "a"), (None, "a"), (("a", "b"),), ("b",)):
    found = load_file(folder, sharding=lambda name, one: over(*axes) if one.shape else over())
    for name, value in expected.items():
        assert found[name].sharding == over(*axes), (name, axes, found[name].sharding)
        assert found[name].dtype == value.dtype, (name, found[name].dtype)
        require_equal(found[name], value)
    assert found["nested.list.1"] == 3 and found["nested.list.1"].shape == ()
def placed(name, like):  # partly replicated, over both axes, or over one of a mesh of one axis
    place = {"both": over("b"), "copies": over(("a", "b")), "half": line, "list": over()}
    return jax.ShapeDtypeStruct(like.shape, like.dtype, sharding=place[name])

line = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P(None, "x"))
shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, tree))
like = {name: placed(name, one) for name, one in shapes.items() if name != "nested"}
like["nested"] = {"list": [placed("list", one) for one in shapes["nested"]["list"]]}
for wanted in (tree, like):  # a live tree, and an abstract one
    found = load_sharded(folder, like=wanted)
    assert jax.tree.structure(found) == jax.tree.structure(tree)
    for one, own, right in zip(*map(jax.tree.leaves, (found, wanted, tree))):
        assert (one.sharding, one.dtype, one.shape) == (own.sharding, own.dtype, own.shape)
        require_equal(one, right)

# What is spread over the devices of one process is read once, however it is cut.
long = np.arange(1 << 18, dtype=np.float32).reshape(64, 64, 64)
for axes in ((), ("a", "b"), (None, "a"), (None, None, ("a", "b")), ("b", None, "a")):
    file = CountedFile(ztensor.jax.save({"w": long}))
    like = {"w": jax.ShapeDtypeStruct(long.shape, long.dtype, sharding=over(*axes))}
    require_equal(load_sharded(file, like=like)["w"], long)
    assert long.nbytes <= file.nbytes < 1.2 * long.nbytes, (axes, file.nbytes)
save_sharded({"odd": rows[:63]}, folder)  # rows that four devices cannot share alike
try:
    load_file(folder, sharding=over("a"))
except ztensor.errors.ArgumentValueError as error:
    assert "'odd'" in str(error)
else:
    raise AssertionError("uneven shards")
found = load_sharded(folder, like={"odd": spread(rows[:63], over(None, "b"))})["odd"]
require_equal(found, rows[:63])
"""


@pytest.mark.slow
def test_shards_of_eight_devices_come_back_under_any_sharding(tmp_path: Path) -> None:
    ended([started(EIGHT_DEVICES, 8, tmp_path / "a")])


# --- Two processes -----------------------------------------------------------------------------

TWO_PROCESSES = """
rank, port = int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
over = lambda *axes: NamedSharding(mesh, P(*axes))
half = rows.astype(jnp.bfloat16)
tree = {
    "both": spread(rows, over("a", "b")),
    "columns": spread(rows, over(None, "a")),
    "copies": spread(rows, over()),
    "half": spread(half, over("b")),
    "own": jnp.float32(7),  # an array of each process
    "numpy": np.arange(3, dtype=np.int32),
    "step": 100,
}
save_sharded(tree, folder)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2).T, ("a", "b"))  # the axes swapped
place = lambda name, one: over(("b", "a")) if name == "copies" else over("b", "a")
names = ("both", "columns", "copies", "half")
found = load_file(folder, sharding=lambda name, one: place(name, one) if name in names else None)
for name in names:
    require_equal(found[name], half if name == "half" else rows)
    assert not found[name].is_fully_addressable

found = load_sharded(folder, like=tree)
for name in names:
    assert found[name].sharding == tree[name].sharding
    require_equal(found[name], half if name == "half" else rows)
assert (found["own"], found["step"], found["own"].committed) == (7, 100, False)

# If one process cannot save, no process does.
before = sorted(os.listdir(folder))
try:
    save_sharded({"both": tree["both"], "x": object() if rank else 1}, folder)
except (ztensor.SourceError, ztensor.NotRepresentableError) as error:
    assert isinstance(error, ztensor.NotRepresentableError) == bool(rank), error
    assert rank or "process 1 failed" in str(error), error
else:
    raise AssertionError("half a checkpoint")
require_equal(load_file(folder, sharding={"both": over("a")})["both"], rows)
"""


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.slow
def test_two_processes_save_and_load_each_its_own(tmp_path: Path) -> None:
    folder, port = tmp_path / "a", free_port()
    ended([started(TWO_PROCESSES, 2, folder, rank, port) for rank in range(2)])
    # One process with one device reads the whole.
    found = load_file(folder)
    for name in ("both", "columns", "copies"):
        np.testing.assert_array_equal(found[name], ROWS)
    assert (found["own"], found["half"].dtype) == (7, jnp.bfloat16)
    root = read_root(folder)
    assert root.values == {"step": 100}
    assert len(root.files) == 2
    # Each of 2,048 numbers once: three times in 4 bytes, once in 2.
    assert sum(file.size for file in root.files) < 14 * ROWS.size + 16384
    sizes = sorted(file.size for file in root.files)
    assert sizes[0] > 3 * ROWS.size  # the work is shared
    with ztensor.open(folder) as reader:
        assert not reader.verify().problems


BACKGROUND_OF_TWO = """
rank, port = int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("a", "b"))
next_of = jax.jit(lambda array: array + 1, donate_argnums=0)
total = jax.jit(lambda array: array.sum())
tree = {"both": spread(rows, NamedSharding(mesh, P("a", "b"))), "step": 0}
for step in range(5):
    saving = save_sharded(tree, folder, background=True)
    old, tree = tree["both"], {"both": next_of(tree["both"]), "step": step + 1}
    assert old.is_deleted()
    for _ in range(10):  # the training's collectives, while the thread exchanges its own messages
        assert total(tree["both"]) == rows.sum() + (step + 1) * rows.size
saving.wait()
found = load_sharded(folder, like=tree)
assert found["step"] == 4
require_equal(found["both"], rows + 4)
for wrong in (0, 1):  # if one process fails in its thread, both raise
    leaf = np.zeros(3, jnp.float8_e4m3b11fnuz if wrong == rank else np.float32)
    name = f"x{rank}" if wrong == rank else "x"
    saving = save_sharded({**tree, name: leaf}, folder, background=True)
    try:
        saving.wait()
    except (ztensor.SourceError, ztensor.NotRepresentableError) as error:
        assert isinstance(error, ztensor.NotRepresentableError) == (wrong == rank), error
    else:
        raise AssertionError("half a checkpoint")
assert load_sharded(folder, like=tree)["step"] == 4
save_sharded(tree, folder, background=True)  # the end of the program waits
"""


@pytest.mark.slow
def test_two_processes_save_in_the_background_while_they_train(tmp_path: Path) -> None:
    port = free_port()
    ended([started(BACKGROUND_OF_TWO, 2, tmp_path, rank, port) for rank in range(2)])
    np.testing.assert_array_equal(load_file(tmp_path)["both"], ROWS + 5)
    assert read_root(tmp_path).values == {"step": 5}
    assert len(os.listdir(tmp_path)) == 3


@pytest.mark.slow
@pytest.mark.parametrize("source", ["model.safetensors", "parts/checkpoint.zt"])
def test_each_process_reads_its_share_of_the_bytes(tmp_path: Path, source: str) -> None:
    from tests.distributed import jax_shares

    jax_shares.saved(tmp_path)
    shares = jax_shares.measured(tmp_path, source, 2)
    assert len(shares) == 2
    for share in shares:
        assert share.sent < 0.55 * jax_shares.NBYTES
        assert share.requests <= 14


RECORDS_OF_TWO = """
rank, port = int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
from jax.experimental import multihost_utils
gather, sizes = multihost_utils.process_allgather, []

def counted(value):
    sizes.append(np.asarray(value).nbytes)
    return gather(value)

multihost_utils.process_allgather = counted
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("a",)), P("a"))
array = spread(np.arange(8, dtype=np.float32), sharding)
tree = {f"{'x' * 1000}.{n}": array for n in range(3000)}
save_sharded(tree, folder)
assert max(sizes) <= 4096, sizes  # a record is 3 MB
assert len(read_root(folder).table) == 3000 * len(jax.devices())
"""


@pytest.mark.slow
def test_only_the_process_that_commits_gets_the_records_of_others(tmp_path: Path) -> None:
    port = free_port()
    ended([started(RECORDS_OF_TWO, 1, tmp_path, rank, port) for rank in range(2)])
    with ztensor.open(tmp_path) as reader:
        np.testing.assert_array_equal(reader["x" * 1000 + ".7"], np.arange(8, dtype=np.float32))


# --- The protocol ------------------------------------------------------------------------------


def gathering(*others: bytes | None) -> Callable[[bytes], Sequence[bytes]]:
    """Return an exchange in which another process gives these answers, None for the same."""
    left = iter(others)
    return lambda own: [own, next(left) or own]


def test_no_process_goes_on_if_another_failed(tmp_path: Path) -> None:
    save_sharded({"w": ROWS}, tmp_path)
    with pytest.raises(SourceError, match=r"process 1 failed.*disk is full"):
        save_sharded({"w": ROWS + 1}, tmp_path, exchange=gathering(None, b"\0disk is full"))
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS)
    save_sharded({"w": ROWS + 2}, tmp_path)
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS + 2)
    assert len(os.listdir(tmp_path)) == 2  # the files of the dead save are gone

    def unreachable(_: bytes) -> Sequence[bytes]:
        raise RuntimeError("connection refused")

    with pytest.raises(SourceError, match="cannot reach one another"):
        save_sharded({"w": ROWS}, tmp_path, exchange=unreachable)


def test_the_first_that_has_an_array_writes_it(tmp_path: Path) -> None:
    """Process 1 has the same NumPy array as process 0, and writes nothing of it."""
    said: list[bytes] = []

    def share(own: bytes) -> Sequence[bytes]:
        said.append(own)
        return [own, own]

    save_sharded({"w": ROWS}, tmp_path, process_index=1, exchange=share)
    assert len(record_from_bytes(said[1][1:]).table) == 0


def test_trees_with_different_arrays_of_all_processes_are_refused(tmp_path: Path) -> None:
    save_sharded({"w": ROWS}, tmp_path)
    other: list[bytes] = []
    tree = {"w": jnp.asarray(ROWS), "extra": jnp.ones(3)}

    def seen(own: bytes) -> Sequence[bytes]:
        other.append(own)
        return [own]

    save_sharded(tree, tmp_path / "other", exchange=seen)
    with pytest.raises(UsageError, match="process 1"):
        save_sharded({"w": jnp.asarray(ROWS)}, tmp_path, exchange=gathering(other[0]))
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS)


def test_overwrite_false_keeps_a_checkpoint(tmp_path: Path) -> None:
    save_sharded({"w": ROWS}, tmp_path / "new")
    with pytest.raises(UsageError):
        save_sharded({"w": ROWS + 1}, tmp_path / "new", overwrite=False)
    np.testing.assert_array_equal(load_file(tmp_path / "new")["w"], ROWS)


def test_unchanged_arrays_are_not_written_again(tmp_path: Path) -> None:
    frozen = jnp.arange(50_000.0)
    save_sharded({"frozen": frozen, "w": ROWS}, tmp_path / "0", checksum="xxh3-128")
    for step in (1, 2):
        tree = {"frozen": frozen, "w": ROWS + step}
        save_sharded(tree, tmp_path / str(step), since=tmp_path / str(step - 1))
    with open_divided(tmp_path / "2") as checkpoint:
        table = checkpoint.root.table
        kept, written = (table.files[table.chunk(row).file].name for row in (0, 1))
        assert table.names[0] == "frozen"
        assert kept != written
        assert os.path.samefile(tmp_path / "0" / kept, tmp_path / "2" / kept)
    shutil.rmtree(tmp_path / "0")
    shutil.rmtree(tmp_path / "1")
    found = load_file(tmp_path / "2")
    np.testing.assert_array_equal(found["frozen"], frozen)
    np.testing.assert_array_equal(found["w"], ROWS + 2)


@pytest.mark.slow
def test_leaves_have_names_and_make_the_tree_again(tmp_path: Path) -> None:
    tree = {"layers": [{"w": jnp.ones(3), "b": jnp.zeros(2)}, {"w": jnp.arange(3.0)}], "n": (1,)}
    names: Any = leaf_names(tree)
    assert names["layers"][1] == {"w": "layers.1.w"}
    save_sharded(tree, tmp_path)
    found = {**read_root(tmp_path).values, **load_file(tmp_path)}
    again = jax.tree.map(found.__getitem__, names)
    assert jax.tree.structure(again) == jax.tree.structure(tree)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), again, tree))
    with pytest.raises(ArgumentValueError, match="one name"):
        save_sharded({"a": {"b": 1}, "a.b": 2}, tmp_path)


@pytest.mark.parametrize(
    "leaf",
    [object(), jax.random.key(0), jnp.zeros(3, jnp.float8_e4m3b11fnuz)],
    ids=["object", "key", "type"],
)
def test_unsupported_leaves_are_refused_before_anything_is_visible(
    tmp_path: Path, leaf: Any
) -> None:
    with pytest.raises(NotRepresentableError, match="leaf"):
        save_sharded({"w": ROWS, "leaf": leaf}, tmp_path)
    assert os.listdir(tmp_path) == []


def test_sparse_matrices_and_tensors_are_kept_whole(tmp_path: Path) -> None:
    from jax.experimental import sparse

    indices = np.array([[0, 1], [2, 3]], np.int32)
    matrix = sparse.BCOO((np.ones(2, np.float32), indices), shape=(4, 4))
    quantized = ztensor.Tensor.quantize(np.ones((128, 8), np.float32))
    save_sharded({"sparse": matrix, "quantized": quantized}, tmp_path)
    found = load_file(tmp_path)
    np.testing.assert_array_equal(found["sparse"].indices, indices)
    assert found["quantized"].format == "quantized_group"


# --- Records as bytes --------------------------------------------------------------------------


def test_a_record_travels_as_bytes(tmp_path: Path) -> None:
    for checksum in (True, None, "sha256"):
        with PartWriter(tmp_path, process=3, checksum=checksum) as writer:
            writer.add("w", ROWS[:10], shape=(20, 32), offsets=(0, 0))
            writer.add("w", ROWS[10:20], shape=(20, 32), offsets=(10, 0))
            writer.add("s", np.array(3, np.int8))
            record = writer.finish()
            again = record_from_bytes(record_to_bytes(record))
            assert again.process == 3
            assert record_to_bytes(again) == record_to_bytes(record)
            assert pickle.loads(pickle.dumps(again)).process == 3
            commit(tmp_path, [again])
        with ztensor.open(tmp_path) as reader:
            np.testing.assert_array_equal(reader["w"], ROWS[:20])


def test_other_bytes_are_no_record(tmp_path: Path) -> None:
    with PartWriter(tmp_path) as writer:
        writer.add("w", ROWS)
        good = record_to_bytes(writer.finish())
    for wrong in (b"", b"\x80", b"\xa0", good[:-1], good + b"\0", b"\x81" * 1000):
        with pytest.raises(FormatError):
            record_from_bytes(wrong)
    for place in range(len(good)):
        data = bytearray(good)
        data[place] ^= 0x21
        try:
            record = record_from_bytes(bytes(data))
        except FormatError:
            continue
        assert record.process >= -1 or record.table is not None
