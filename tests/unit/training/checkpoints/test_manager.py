"""Steps of a run in a folder: saved, kept by rules, resumed from, whatever happens to them."""

from __future__ import annotations

import errno
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.tracing import traced
from tests.unit.training.tree.alike import assert_alike
from ztensor import CheckpointManager
from ztensor.distributed import PartWriter, commit
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    DigestMismatchError,
    FormatError,
    NotRepresentableError,
    ObjectNotFoundError,
    SourceError,
    UsageError,
)


def state(step: int) -> dict[str, Any]:
    weight = np.full((64, 64), step, np.float32)
    return {"step": step, "model": {"w": weight, "tied": weight}, "betas": (0.9, 0.99)}


def filled(folder: Path, *steps: int, **options: Any) -> CheckpointManager:
    manager = CheckpointManager(folder, **{"keep": None, "durable": False, **options})
    for step in steps:
        manager.save(step, state(step))
    manager.wait()
    return manager


def damage(path: Path, where: str = "data") -> None:
    """Flip a byte of a tensor, or cut the file."""
    data = bytearray(path.read_bytes())
    if where == "cut":
        del data[len(data) // 2 :]
    else:
        data[100] ^= 1
    path.write_bytes(data)


def file_of(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.zt"


@pytest.mark.parametrize("background", [True, False])
def test_a_step_comes_back(tmp_path: Path, background: bool) -> None:
    folder = tmp_path / "runs" / "a"
    with CheckpointManager(folder, background=background) as manager:
        assert manager.restore() is None
        assert manager.latest() is None
        assert manager.save(7, state(7), {"loss": np.float32(0.5)})
    restored = CheckpointManager(folder).restore()
    assert restored is not None
    # The state itself is not shown: it may be large.
    assert repr(restored) == "Restored(step=7, metrics={'loss': 0.5}, skipped=())"
    assert_alike(restored.tree, state(7))
    assert [path.name for path in folder.iterdir()] == ["step-00000007.zt"]
    assert_alike(ztensor.load_tree(file_of(folder, 7)), state(7))


def test_a_state_may_change_as_soon_as_save_returns(tmp_path: Path) -> None:
    sparse = ztensor.Tensor.coo(np.ones(1, np.float32), np.array([[0], [1]]), (2, 2))
    tree: dict[str, Any] = {"large": np.zeros(3_000_000), "sparse": sparse, "list": [1]}
    with CheckpointManager(tmp_path, durable=False) as manager:
        for step in (1, 2):  # the second copy is in the memory of the first
            for array in (tree["large"], sparse.components["values"]):
                array[:] = step
            manager.save(step, tree)
            for array in (tree["large"], sparse.components["values"]):
                array[:] = -1
            tree["list"].append(2)
            manager.wait()
            found = ztensor.load_tree(file_of(tmp_path, step))
            assert (found["large"] == step).all()
            assert found["sparse"].components["values"] == [step]
            assert found["list"] == [1]
            tree["list"].pop()


def test_the_copy_of_a_state_takes_the_memory_of_the_one_before(tmp_path: Path) -> None:
    tree = {"large": np.zeros(3_000_000)}  # 24 MB
    with CheckpointManager(tmp_path, durable=False) as manager:
        manager.save(1, tree)
        manager.wait()
        with traced() as memory:
            manager.save(2, tree)
            _, peak = memory()
        manager.wait()
    assert peak < 12 << 20


def test_rules_keep_their_union(tmp_path: Path) -> None:
    losses = {100: 9.0, 200: 1.0, 300: float("nan"), 400: 2.0, 500: 5.0, 600: 6.0, 700: 7.0}
    with CheckpointManager(
        tmp_path, keep=2, keep_best=("loss", 2, "min"), keep_every=300, durable=False
    ) as manager:
        for step, loss in losses.items():
            manager.save(step, state(step), {"loss": loss})
        manager.wait()
        assert manager.steps() == [200, 300, 400, 600, 700]
        assert (manager.best(), manager.best("loss", "max"), manager.latest()) == (200, 700, 700)
        with pytest.raises(ArgumentValueError):
            manager.best("accuracy")


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    for step, when in [(1, 2_000_000_000), (2, 1_000_000)]:
        os.utime(file_of(tmp_path, step), (when, when))
    assert filled(tmp_path, 3, keep=2).steps() == [2, 3]


def test_every_limits_the_steps_that_are_saved(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, every=10, durable=False) as manager:
        saved = [manager.save(step, state(step)) for step in range(8, 13)]
        assert saved == [False, False, True, False, False]
        assert manager.save(13, state(13), force=True)
        manager.wait()
        assert manager.steps() == [10, 13]


def test_a_path_has_the_name_of_its_step(tmp_path: Path) -> None:
    with filled(tmp_path, 10, 20) as manager:
        names = [Path(manager.path(step)).name for step in (5, 10, 20, 30)]
    assert names == [f"step-000000{step:02}.zt" for step in (5, 10, 20, 30)]


def test_files_that_are_not_steps_stay(tmp_path: Path) -> None:
    others = ["model.zt", "step-1.zt", "step-000000001.zt", "step-00000002.zt.bak", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / "step-00000003.zt").mkdir()
    (tmp_path / "step-00000004").mkdir()
    (tmp_path / "step-00000004" / "notes.txt").write_text("mine")
    (tmp_path / "step-00000005").mkdir()  # empty, as a killed save leaves it
    with filled(tmp_path, 10, 20, keep=1) as manager:
        assert manager.steps() == [20]
        assert manager.prune() == []
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {*others, "step-00000003.zt", "step-00000004", "step-00000020.zt"}


@pytest.mark.parametrize("kind", ["a tree", "tensors with the attribute of a step"])
def test_another_file_with_the_name_of_a_step_is_none(tmp_path: Path, kind: str) -> None:
    with filled(tmp_path, 10) as manager:
        path = tmp_path / "step-00000020.zt"
        if kind == "a tree":
            ztensor.save_tree({"w": np.ones(2)}, path)
        else:
            ztensor.numpy.save_file({"w": np.ones(2)}, path)
            ztensor.edit.set_attributes(path, {"checkpoint": {"step": 20}})
        assert manager.steps() == [10]
        restored = manager.restore()
        assert restored is not None
        assert restored.step == 10
        with pytest.raises(ztensor.FormatError):
            manager.restore(20)


# --- Damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["data", "cut"])
def test_damaged_steps_are_skipped_and_reported(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 1, 2, 3)
    damage(file_of(tmp_path, 3), where)
    damage(file_of(tmp_path, 2), "data")
    manager = CheckpointManager(tmp_path, keep=1, durable=False)
    with caplog.at_level(logging.WARNING, "ztensor"):
        restored = manager.restore()
    assert restored is not None
    assert restored.step == 1
    assert_alike(restored.tree, state(1))
    assert [step for step, _ in restored.skipped] == [3, 2]
    assert all(isinstance(error, FormatError) for _, error in restored.skipped)
    assert "step 3 cannot be read" in caplog.text
    # The run goes on from step 1: the damaged steps block no save, and are replaced in time.
    for step, expected in ((2, [1, 2]), (3, [1, 3])):
        manager.save(step, state(step))
        manager.wait()
        assert manager.steps() == expected
    assert CheckpointManager(tmp_path).restore().step == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("number", "is_skipped"),
    [(errno.EIO, True), (errno.ETIMEDOUT, False), (errno.EACCES, False)],
    ids=["a bad disk", "the network", "no permission"],
)
def test_only_a_step_that_is_lost_is_skipped(tmp_path: Path, number: int, is_skipped: bool) -> None:
    filled(tmp_path, 1, 2)
    opened = os.open

    def failing(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("2.zt"):
            raise OSError(number, "as the system says")
        return opened(path, *args, **options)

    with mock.patch("os.open", failing):
        if is_skipped:
            assert CheckpointManager(tmp_path).restore().step == 1  # type: ignore[union-attr]
        else:
            with pytest.raises(SourceError):
                CheckpointManager(tmp_path).restore()


def test_verify_reads_every_byte_and_damaged_steps_count_for_no_rule(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2, 3, 4)
    damage(file_of(tmp_path, 2), "cut")
    damage(file_of(tmp_path, 4), "data")  # it opens: only reading it shows the damage
    manager = CheckpointManager(tmp_path, keep=1)
    assert manager.prune(dry_run=True) == manager.prune() == [1]
    assert manager.steps() == [3]  # before it removes anything, it reads the newest
    manager = CheckpointManager(tmp_path, keep=1)
    assert manager.steps() == [3, 4]
    assert [one.is_damaged for one in manager.verify()] == [True, False, True]
    assert [one.step for one in manager.verify(3)] == [3]
    assert manager.steps() == [3]  # the result of `verify` is remembered
    assert manager.prune(damaged=True) == [2, 4]
    for act in (manager.verify, manager.delete):
        with pytest.raises(ObjectNotFoundError):
            act(4)
    manager.delete(3)
    assert manager.steps() == []


def test_a_step_that_was_asked_for_is_not_replaced_by_another(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    damage(file_of(tmp_path, 2))
    with pytest.raises(DigestMismatchError):
        manager.restore(2)
    with pytest.raises(ObjectNotFoundError):
        manager.restore(5)
    assert manager.restore(1) is not None


def test_a_run_with_only_damaged_steps_does_not_begin_anew(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    damage(file_of(tmp_path, 1))
    damage(file_of(tmp_path, 2), "cut")
    with pytest.raises(FormatError, match="no step is intact; 2 steps tried"):
        manager.restore()
    assert manager.prune(damaged=True) == []


# --- Failures -------------------------------------------------------------------------------


def threads_of(step: int) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.endswith(f"step {step}")]


def fail(manager: CheckpointManager, step: int) -> None:
    """Save a step in the background where no file may be as long as it is."""
    resource = pytest.importorskip("resource", reason="this system limits no files")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        manager.save(step, state(step))
        for thread in threads_of(step):
            thread.join()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


SURFACES: dict[str, Callable[[CheckpointManager], object]] = {
    "save": lambda manager: manager.save(4, state(4)),
    "not saved": lambda manager: manager.save(5, state(5)),
    "wait": lambda manager: manager.wait(),
    "close": lambda manager: manager.close(),
    "exit": lambda manager: manager.__exit__(None, None, None),
}


@pytest.mark.parametrize("act", SURFACES)
def test_a_failed_save_is_raised_once_and_costs_nothing(
    tmp_path: Path, act: str, caplog: pytest.LogCaptureFixture
) -> None:
    manager = filled(tmp_path, 2, keep=1, every=2)
    with caplog.at_level("ERROR"):
        fail(manager, 6)
        with pytest.raises(SourceError) as caught:
            SURFACES[act](manager)
    assert caught.value.errno == errno.EFBIG
    assert "step 6 was not saved" in caplog.text
    if act not in ("close", "exit"):
        with pytest.raises(NotRepresentableError, match=r"tree\['f'\]"):
            manager.save(8, {"f": len})  # refused before anything is done
        manager.wait()
        assert manager.steps() == [2]
        manager.save(10, state(10))
    manager.close()
    assert CheckpointManager(tmp_path).steps() == [2 if act in ("close", "exit") else 10]


def test_a_failed_save_does_not_hide_the_error_under_way(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    fail(manager, 1)
    with pytest.raises(ZeroDivisionError) as raised, manager:
        _ = 1 / 0
    assert "the last save failed" in "".join(raised.value.__notes__)


def test_an_old_step_that_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, keep=1)
    with mock.patch("os.unlink", side_effect=PermissionError(errno.EPERM, "no")):
        manager.save(2, state(2))
        with pytest.raises(SourceError, match="cannot remove"):
            manager.wait()
    assert manager.steps() == [1, 2]
    manager.save(3, state(3))
    manager.wait()
    assert manager.steps() == [3]


def test_a_step_that_a_bad_disk_cuts_removes_no_other(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, keep=1)
    replace = os.replace

    def cutting(source: Any, target: Any, **options: Any) -> None:
        replace(source, target, **options)
        damage(file_of(tmp_path, 2), "cut")

    with mock.patch("os.replace", cutting):
        manager.save(2, state(2))
        with pytest.raises(FormatError):
            manager.wait()
    assert manager.steps() == [1]


# --- Several runs ---------------------------------------------------------------------------


def test_a_run_behind_another_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 100, 200, 300)
    manager = CheckpointManager(tmp_path, keep=1, durable=False)
    assert manager.restore(100) is not None
    with pytest.raises(UsageError, match="step 150 is older than step 300"):
        manager.save(150, state(150))
    assert manager.steps() == [100, 200, 300]
    manager = CheckpointManager(tmp_path, keep=2, durable=False, overwrite_newer=True)
    manager.save(150, state(150))
    manager.wait()
    assert manager.steps() == [100, 150]


def test_a_pinned_step_stays(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2, 3)
    manager.pin(1)
    manager.pin(2)
    manager.pin(2, pinned=False)
    assert [one.is_pinned for one in manager.checkpoints()] == [True, False, False]
    kept = CheckpointManager(tmp_path, keep=1)
    assert kept.prune() == [2]
    assert_alike(ztensor.load_tree(file_of(tmp_path, 1)), state(1))
    manager = CheckpointManager(tmp_path, overwrite_newer=True)
    with pytest.raises(UsageError, match="pinned"):
        manager.save(0, state(0))


# --- Processes and signals ------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no signals")
def test_a_signal_saves_at_the_next_step(tmp_path: Path) -> None:
    before: list[int] = []
    old = signal.signal(signal.SIGUSR1, lambda number, frame: before.append(number))
    try:
        with CheckpointManager(tmp_path, every=100, on_signal="SIGUSR1") as manager:
            assert not manager.save(1, state(1))
            os.kill(os.getpid(), signal.SIGUSR1)
            assert (manager.interrupted, before) == (True, [signal.SIGUSR1])
            assert manager.steps() == []  # the handler itself touches nothing
            assert manager.should_save(2)
            assert manager.save(2, state(2))
            assert not threads_of(2)  # on disk when save returns
            assert manager.steps() == [2]
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(before) == 2
    finally:
        signal.signal(signal.SIGUSR1, old)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_child_does_not_save_and_ends_by_the_signal(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, on_signal="SIGUSR1") as manager:
        child = os.fork()
        if child == 0:
            try:
                manager.save(1, {})
            except UsageError:
                manager.close()
                os.kill(os.getpid(), signal.SIGUSR1)
            os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGUSR1
        assert not manager.interrupted


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"keep": 0}, ArgumentValueError),
        ({"keep": 1.5}, ArgumentTypeError),
        ({"keep": True}, ArgumentTypeError),
        ({"keep_best": "loss"}, ArgumentTypeError),
        ({"keep_best": ("loss", 0, "min")}, ArgumentValueError),
        ({"keep_best": ("loss", 1, "least")}, ArgumentValueError),
        ({"keep_every": -1}, ArgumentValueError),
        ({"every": 0}, ArgumentValueError),
        ({"on_signal": "SIGNOTHING"}, ArgumentValueError),
        ({"on_signal": "signal"}, ArgumentValueError),
        ({"storage": {}}, ArgumentValueError),
    ],
    ids=str,
)
def test_wrong_options_are_refused(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        CheckpointManager(tmp_path, **options)


@pytest.mark.parametrize(
    ("step", "metrics", "kind"),
    [
        *((step, {}, ArgumentValueError) for step in (-1, 10**18, 10**19)),
        *((step, {}, ArgumentTypeError) for step in (1.0, "1", True, None)),
        *((1, one, ArgumentTypeError) for one in ({1: 2.0}, {"loss": "much"}, {"loss": None})),
    ],
)
def test_wrong_steps_and_metrics_are_refused(
    tmp_path: Path, step: Any, metrics: Any, kind: type[Exception]
) -> None:
    with CheckpointManager(tmp_path, background=False) as manager:
        with pytest.raises(kind):
            manager.save(step, {}, metrics)
        assert manager.save(np.int64(3), {})  # type: ignore[arg-type]
    with pytest.raises(ClosedError):
        manager.save(4, {})


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = CheckpointManager(tmp_path / "file", background=False)
    with pytest.raises(SourceError):
        manager.steps()
    with pytest.raises(SourceError):
        manager.save(1, {})


def divided(folder: Path, step: int, **values: Any) -> Path:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    with PartWriter(path, process=0) as part:
        part.add("w", np.full((4, 3), step), shape=(4, 3), offsets=(0, 0))
        records = [part.finish()]
    commit(path, records, values=values)
    return path


def test_divided_steps_are_listed_checked_and_removed(tmp_path: Path) -> None:
    paths = [divided(tmp_path, step, lr=0.1) for step in (1, 2, 3)]
    divided(tmp_path, 4, checkpoint={"step": 4, "metrics": {"loss": 0.5}})
    divided(tmp_path, 5, checkpoint={"step": 6})
    (tmp_path / "step-00000009").mkdir()  # a save that is under way, or was killed
    manager = CheckpointManager(tmp_path, keep=2)
    assert manager.steps() == [1, 2, 3, 4]
    assert [one.problem is not None for one in manager.checkpoints()] == [False] * 4 + [True]
    assert manager.best("loss", "min") == manager.latest() == 4
    assert all(one.is_checked for one in manager.verify()[:4])
    part = next(path for path in paths[1].iterdir() if path.name != "checkpoint.zt")
    flip(part, 100)
    assert [one.step for one in manager.verify() if one.is_damaged] == [2]
    with pytest.raises(UsageError, match="divided"):
        manager.pin(4)
    assert manager.prune() == [1]
    assert manager.prune(damaged=True) == [2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"step-0000000{step}" for step in (3, 4, 5, 9)
    ]
