"""`save_sharded` in the background: copies, waiting, errors, and the checkpoint that counts."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.distributed import read_root
from ztensor.errors import ArgumentTypeError, NotRepresentableError, SourceError, UsageError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from ztensor.jax import load_file, load_sharded, save_sharded  # noqa: E402

ROWS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
# The exchanges of a save in the background: names, copies, written parts, the root.
NAMED, COPIED, WRITTEN, COMMITTED = range(4)
UNKNOWN = np.zeros(3, jnp.float8_e4m3b11fnuz)  # zTensor has no such type


def exchange(at: int, act: Callable[[], object]) -> Callable[[bytes], Sequence[bytes]]:
    """Return the exchange of a single process that acts at one of its calls."""
    calls = []

    def share(own: bytes) -> Sequence[bytes]:
        calls.append(own)
        if len(calls) == at + 1:
            act()
        return [own]

    return share


def test_arrays_are_copied_before_it_returns(tmp_path: Path) -> None:
    tree = {
        "large": jnp.arange(100_000.0),
        "small": jnp.float32(3),
        "numpy": ROWS.copy(),
        "tensor": ztensor.Tensor(ROWS.copy()),
        "list": [1, 2],
    }
    values = {"nested": [1, 2]}

    def change() -> None:
        donated = jax.jit(lambda array: array * 2, donate_argnums=0)(tree["large"])
        assert tree["large"].is_deleted()
        np.asarray(donated)
        tree["small"].delete()
        tree["numpy"][:] = 0
        tree["tensor"].numpy()[:] = 0

    how: Any = {"background": True, "exchange": exchange(COPIED, change)}
    saving = save_sharded(tree, tmp_path, values=values, **how)
    values["nested"].append(3)
    saving.wait()
    assert not saving.is_running
    found = load_file(tmp_path)
    np.testing.assert_array_equal(found["large"], np.arange(100_000.0))
    assert found["small"] == 3
    np.testing.assert_array_equal(found["numpy"], ROWS)
    np.testing.assert_array_equal(found["tensor"], ROWS)
    assert read_root(tmp_path).values == {"list.0": 1, "list.1": 2, "nested": [1, 2]}


def test_it_writes_in_a_thread_and_a_second_save_waits(tmp_path: Path) -> None:
    gate, threads = threading.Event(), []

    def share(own: bytes) -> Sequence[bytes]:
        threads.append(threading.current_thread())
        if len(threads) == WRITTEN + 1:
            assert gate.wait(30)
        return [own]

    saved = save_sharded({"w": ROWS}, tmp_path)
    assert not saved.is_running  # without `background`
    saved.wait()
    first = save_sharded({"w": ROWS + 1}, tmp_path, background=True, exchange=share)
    assert first.is_running
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS)  # the old checkpoint
    threading.Timer(0.1, gate.set).start()
    second = save_sharded({"w": ROWS + 2}, tmp_path, background=True)
    assert not first.is_running
    second.wait()
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS + 2)
    main = threading.main_thread()
    assert [thread is main for thread in threads] == [True, True, False, False]


def disk_full() -> None:
    raise RuntimeError("disk is full")


@pytest.mark.parametrize("at", [WRITTEN, COMMITTED])
def test_a_failure_is_raised_once_by_wait_or_by_the_next_save(tmp_path: Path, at: int) -> None:
    share = exchange(at, disk_full)
    with pytest.raises(SourceError):
        save_sharded({"w": ROWS}, tmp_path, background=True, exchange=share).wait()
    failed = save_sharded({"w": ROWS}, tmp_path, background=True, exchange=exchange(at, disk_full))
    with pytest.raises(SourceError):
        save_sharded({"w": ROWS}, tmp_path)
    failed.wait()
    save_sharded({"w": ROWS + 1}, tmp_path)
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS + 1)
    assert len(os.listdir(tmp_path)) == 2


AT_ONCE: dict[str, tuple[Any, type[Exception]]] = {
    "an object": (object(), NotRepresentableError),
    "a key": (jax.random.key(0), NotRepresentableError),
    "a deleted array": (jnp.ones(3), ArgumentTypeError),
}


@pytest.mark.parametrize("case", AT_ONCE)
def test_leaves_that_cannot_be_kept_are_reported_at_once(tmp_path: Path, case: str) -> None:
    leaf, error = AT_ONCE[case]
    if case == "a deleted array":
        leaf.delete()
    with pytest.raises(error, match="leaf"):
        save_sharded({"w": ROWS, "leaf": leaf}, tmp_path, background=True)
    assert os.listdir(tmp_path) == []


def test_errors_of_the_thread_leave_the_old_checkpoint(tmp_path: Path) -> None:
    save_sharded({"w": ROWS}, tmp_path)
    for tree, overwrite, error in (
        ({"w": ROWS, "leaf": UNKNOWN}, True, NotRepresentableError),
        ({"w": ROWS + 1}, False, UsageError),
    ):
        saving = save_sharded(tree, tmp_path, background=True, overwrite=overwrite)
        with pytest.raises(error):
            saving.wait()
    np.testing.assert_array_equal(load_file(tmp_path)["w"], ROWS)


# --- Steps of a run ----------------------------------------------------------------------------


def saved(tree: Any, folder: Path, values: Any, **how: Any) -> object:
    return save_sharded(tree, folder, values=values, background=True, **how)


def test_a_manager_keeps_and_removes_steps_that_are_saved_in_the_background(tmp_path: Path) -> None:
    with ztensor.CheckpointManager(tmp_path, keep=2) as manager:
        for step in range(4):
            array = jnp.full(50_000, float(step))
            gate = threading.Event()

            share = exchange(WRITTEN, functools.partial(gate.wait, 30))
            write = functools.partial(saved, {"w": array, "step": 0}, exchange=share)
            assert manager.save_divided(step, write, {"loss": step})
            array.delete()
            assert step == 0 or manager.latest() == step - 1  # `step` is not written yet
            gate.set()
        manager.wait()
        assert [one.step for one in manager.checkpoints()] == [2, 3]
        into = {"w": jax.device_put(jnp.zeros(50_000), jax.devices()[0]), "step": 0}
        restored = manager.restore(into=into)
        assert restored is not None
        assert restored.tree["w"].sharding == into["w"].sharding
        np.testing.assert_array_equal(restored.tree["w"], np.full(50_000, 3.0))

        manager.save_divided(4, functools.partial(saved, {"w": ROWS, "leaf": UNKNOWN}))
        with pytest.raises(NotRepresentableError):
            manager.wait()
        assert manager.latest() == 3
    with ztensor.CheckpointManager(tmp_path, background=False) as manager:
        manager.save_divided(5, functools.partial(saved, into))
        assert manager.latest() == 5


def test_a_manager_saves_trees_of_jax_in_the_background(tmp_path: Path) -> None:
    tree = {"large": jnp.arange(100_000.0), "small": jnp.float32(3), "key": jax.random.key(1)}
    with ztensor.CheckpointManager(tmp_path) as manager:
        manager.save(1, tree)
        jax.jit(lambda array: array * 2, donate_argnums=0)(tree["large"])
        tree["small"].delete()
        restored = manager.restore()
    assert restored is not None
    np.testing.assert_array_equal(restored.tree["large"], np.arange(100_000.0))
    assert restored.tree["small"] == 3


# --- The end of a process ----------------------------------------------------------------------

SAVE = """
import os, signal, sys
import numpy as np
from ztensor.jax import save_sharded
folder, end = sys.argv[1:]
tree = {f"w{n}": np.full(500_000, 2, np.float32) for n in range(20)}

def exchange(own):
    exchange.calls += 1
    if str(exchange.calls) == end:
        os.kill(os.getpid(), signal.SIGKILL)
    return [own]

exchange.calls = 0
save_sharded(tree, folder, background=True, exchange=exchange, durable=True)
print("begun", flush=True)
"""


def program(folder: Path, end: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SAVE, str(folder), str(end)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow  # five programs that import JAX
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no such signal")
def test_a_program_ends_with_the_old_checkpoint_or_the_new_one(tmp_path: Path) -> None:
    for end, steps in (
        ("exit", {2}),  # the end of the program waits
        (WRITTEN + 1, {1}),
        (COMMITTED + 1, {2}),
        ("begun", {1, 2}),  # while it writes
        ("part", {1, 2}),
    ):
        folder = tmp_path / str(end)
        save_sharded({"w0": np.full(500_000, 1, np.float32)}, folder)
        before = set(os.listdir(folder))
        process = program(folder, end)
        assert process.stdout is not None
        if end == "begun":
            assert process.stdout.readline() == "begun\n"
            process.kill()
        if end == "part":
            while set(os.listdir(folder)) == before:
                assert process.poll() is None
            process.kill()
        process.communicate(timeout=60)
        assert (process.returncode == 0) is (end == "exit")
        found = load_file(folder)
        step = int(found["w0"][0])
        assert step in steps
        assert {int(array[-1]) for array in found.values()} == {step}
        assert len(found) == (20 if step == 2 else 1)
        with ztensor.open(folder) as reader:
            assert reader.verify().ok
        save_sharded({"w0": np.full(500_000, 3, np.float32)}, folder)  # and the leftovers go
        assert len(os.listdir(folder)) == 2
        like = {"w0": np.zeros(500_000, np.float32)}
        assert load_sharded(folder, like=like)["w0"][7] == 3
