"""Steps of a run in a folder: saved, kept by rules, resumed from, whatever happens to them."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
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
    SourcePermissionError,
    UnsupportedError,
    UsageError,
)
from ztensor.training.checkpoints import manager as module
from ztensor.training.checkpoints import place
from ztensor.training.states import save_encoded


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
    found = CheckpointManager(folder).restore()
    assert found is not None
    assert (found.step, dict(found.metrics), found.skipped) == (7, {"loss": 0.5}, ())
    assert_alike(found.tree, state(7))
    assert [path.name for path in folder.iterdir()] == ["step-00000007.zt"]
    assert_alike(ztensor.load_tree(file_of(folder, 7)), state(7))


def test_a_state_may_change_as_soon_as_save_returns(tmp_path: Path) -> None:
    sparse = ztensor.Tensor.coo(np.ones(1, np.float32), np.array([[0], [1]]), (2, 2))
    tree: dict[str, Any] = {
        "large": np.zeros(300_000),
        "small": np.zeros(3),
        "sparse": sparse,
        "list": [1],
    }
    started, go = threading.Event(), threading.Event()

    def wait_and_save(*args: Any, **options: Any) -> None:
        started.set()
        go.wait(20)
        save_encoded(*args, **options)

    with (
        mock.patch.object(module, "save_encoded", wait_and_save),
        CheckpointManager(tmp_path) as manager,
    ):
        for step in (1, 2):  # the second copy is in the memory of the first
            expected = {**tree, "large": np.full(300_000, step)}
            tree["large"][:] = step
            go.clear()
            manager.save(step, tree)
            assert started.wait(20)
            tree["large"][:] = -1
            tree["small"][:] = -1
            sparse.components["values"][:] = -1
            tree["list"].append(2)
            go.set()
            manager.wait()
            found = ztensor.load_tree(file_of(tmp_path, step))
            assert np.array_equal(found["large"], expected["large"])
            tree["small"][:] = 0
            sparse.components["values"][:] = 1
            tree["list"].pop()
            assert_alike(found["small"], tree["small"])
            assert_alike(found["list"], [1])
            assert found["sparse"].components["values"] == [1]


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


def test_every_says_which_steps_are_saved(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, every=10, durable=False) as manager:
        saved = [manager.save(step, state(step)) for step in range(8, 13)]
        assert saved == [False, False, True, False, False]
        assert manager.save(13, state(13), force=True)
        manager.wait()
        assert manager.steps() == [10, 13]


def test_what_is_not_a_step_stays(tmp_path: Path) -> None:
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


# --- Damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["data", "cut"])
def test_damaged_steps_are_skipped_and_said(
    tmp_path: Path, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    filled(tmp_path, 1, 2, 3)
    damage(file_of(tmp_path, 3), where)
    damage(file_of(tmp_path, 2), "data")
    manager = CheckpointManager(tmp_path, keep=1, durable=False)
    with caplog.at_level(logging.WARNING, "ztensor"):
        found = manager.restore()
    assert found is not None
    assert found.step == 1
    assert_alike(found.tree, state(1))
    assert [step for step, _ in found.skipped] == [3, 2]
    assert all(isinstance(error, FormatError) for _, error in found.skipped)
    assert "step 3 cannot be read" in caplog.text
    # The run goes on from there: what is damaged is in nobody's way, and is replaced in time.
    manager.save(2, state(2))
    manager.wait()
    assert manager.steps() == [1, 2]
    manager.save(3, state(3))
    manager.wait()
    assert manager.steps() == [1, 3]  # 1 was restored from
    assert CheckpointManager(tmp_path).restore().step == 3  # type: ignore[union-attr]


def test_a_step_that_was_asked_for_is_not_replaced_by_another(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    damage(file_of(tmp_path, 2))
    with pytest.raises(DigestMismatchError):
        manager.restore(2)
    with pytest.raises(ObjectNotFoundError):
        manager.restore(5)
    assert manager.restore(1) is not None


def test_where_all_is_damaged_a_run_does_not_begin_anew(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    damage(file_of(tmp_path, 1))
    damage(file_of(tmp_path, 2), "cut")
    with pytest.raises(FormatError, match="no step is whole; 2 steps tried"):
        manager.restore()
    assert manager.prune(damaged=True) == []


def test_a_step_under_the_name_of_another_is_none(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1)
    shutil.copy(file_of(tmp_path, 1), file_of(tmp_path, 9))
    ztensor.save_tree(state(8), file_of(tmp_path, 8))
    ztensor.numpy.save_file({"w": np.zeros(2)}, file_of(tmp_path, 7))
    file_of(tmp_path, 6).touch()
    assert manager.steps() == [1]
    assert [one.step for one in manager.checkpoints() if one.is_damaged] == [6]
    assert [one.step for one in manager.checkpoints() if one.problem] == [6, 7, 8, 9]
    assert manager.latest() == 1
    found = manager.restore()
    assert found is not None
    assert [step for step, _ in found.skipped] == [6]


def test_what_may_well_be_right_is_not_skipped(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    for error, is_skipped in [
        (SourceError("the disk", errno=errno.EIO), True),
        (SourceError("the network", errno=errno.ETIMEDOUT), False),
        (SourcePermissionError("not for you", errno=errno.EACCES), False),
        (UnsupportedError("a newer release"), False),
    ]:
        manager = CheckpointManager(tmp_path)
        reads = iter([error])
        read = manager._restored

        def fail(*args: Any, reads: Iterator[Exception] = reads, read: Any = read) -> Any:
            for one in reads:
                raise one
            return read(*args)

        with mock.patch.object(manager, "_restored", fail):
            if is_skipped:
                assert manager.restore().step == 1  # type: ignore[union-attr]
            else:
                with pytest.raises((SourceError, UnsupportedError)):
                    manager.restore()


def test_a_damaged_step_counts_for_no_rule_and_goes_when_asked(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2, 3, 4)
    damage(file_of(tmp_path, 2), "cut")
    damage(file_of(tmp_path, 4), "data")  # it opens: only reading it shows the damage
    manager = CheckpointManager(tmp_path, keep=1)
    assert manager.prune(dry_run=True) == [1]
    assert manager.prune() == [1]
    assert [path.name for path in sorted(tmp_path.iterdir())] == [
        f"step-0000000{step}.zt" for step in (2, 3, 4)
    ]
    assert manager.prune(damaged=True) == [2, 4]
    assert manager.steps() == [3]


def test_verify_reads_every_byte(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    damage(file_of(tmp_path, 1))
    assert manager.steps() == [1, 2]
    one, two = manager.verify()
    assert one.is_damaged
    assert two.problem is None
    assert [found.step for found in manager.verify(2)] == [2]
    assert manager.steps() == [2]  # what was found stays known
    with pytest.raises(ObjectNotFoundError):
        manager.verify(3)


# --- Failures -------------------------------------------------------------------------------


def test_a_failed_save_is_raised_once_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = CheckpointManager(tmp_path, keep=1, durable=False)
    manager.save(1, state(1))
    manager.wait()
    full = SourceError("no space", errno=errno.ENOSPC)
    with mock.patch.object(module, "save_encoded", side_effect=full), caplog.at_level("ERROR"):
        manager.save(2, state(2))
        with pytest.raises(SourceError) as raised:
            manager.wait()
    assert raised.value.errno == errno.ENOSPC
    assert "step 2 was not saved" in caplog.text
    manager.wait()
    assert manager.steps() == [1]
    manager.save(3, state(3))
    manager.close()
    assert CheckpointManager(tmp_path).steps() == [3]


def threads_of(step: int) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.endswith(f"step {step}")]


@pytest.mark.parametrize("act", ["save", "wait", "close", "exit", "not saved"])
def test_where_a_failure_surfaces(tmp_path: Path, act: str) -> None:
    manager = CheckpointManager(tmp_path, every=2)
    with mock.patch.object(
        module, "save_encoded", side_effect=SourceError("full", errno=errno.ENOSPC)
    ):
        manager.save(2, state(2))
        for thread in threads_of(2):
            thread.join()
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: manager.save(4, state(4)),
        "not saved": lambda: manager.save(3, state(3)),
        "wait": manager.wait,
        "close": manager.close,
        "exit": lambda: manager.__exit__(None, None, None),
    }
    with pytest.raises(SourceError):
        calls[act]()
    manager.close()


def test_a_failed_save_does_not_hide_the_error_under_way(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)
    with mock.patch.object(
        module, "save_encoded", side_effect=SourceError("full", errno=errno.ENOSPC)
    ):
        manager.save(1, state(1))
        with pytest.raises(ZeroDivisionError) as raised, manager:
            _ = 1 / 0
    assert "the last save failed" in "".join(raised.value.__notes__)


def test_what_cannot_be_kept_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, keep=1)
    with pytest.raises(NotRepresentableError, match=r"tree\['f'\]"):
        manager.save(2, {"f": len})
    manager.wait()
    assert manager.steps() == [1]


def test_an_old_step_that_cannot_be_removed_is_said(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, keep=1)
    with mock.patch("os.unlink", side_effect=PermissionError(errno.EPERM, "no")):
        manager.save(2, state(2))
        with pytest.raises(SourceError, match="cannot remove"):
            manager.wait()
    assert manager.steps() == [1, 2]
    manager.save(3, state(3))
    manager.wait()
    assert manager.steps() == [3]


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


@pytest.mark.slow
def test_two_managers_in_one_folder(tmp_path: Path) -> None:
    """One removes what another lists and reads: nobody fails, and a step is always there."""
    filled(tmp_path, 0)
    stop = threading.Event()
    failures: list[BaseException] = []
    seen: list[int] = []

    def read() -> None:
        manager = CheckpointManager(tmp_path)
        try:
            while not stop.is_set():
                found = manager.restore()
                assert found is not None
                assert not found.skipped
                assert_alike(found.tree, state(found.step))
                assert manager.latest() is not None
                seen.append(found.step)
        except BaseException as error:  # noqa: BLE001  # raised in the test below
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    managers = [CheckpointManager(tmp_path, keep=1, durable=False) for _ in range(2)]
    for step in range(1, 41):
        managers[step % 2].save(step, state(step))
        managers[step % 2].wait()
        if failures:
            break
    stop.set()
    reader.join()
    assert not failures
    assert seen == sorted(seen)
    assert managers[0].steps() == [40]


def test_a_listing_between_a_save_and_a_removal_is_made_again(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    entries = manager._place.entries()
    file_of(tmp_path, 2).unlink()
    manager = filled(tmp_path, 3)
    with mock.patch.object(manager._place, "entries", side_effect=[entries, entries[1:] * 0]):
        assert manager.latest() is None  # the second listing counts: there is nothing
    listings = [entries, manager._place.entries()]
    with mock.patch.object(manager._place, "entries", side_effect=listings):
        assert manager.latest() == 3
    with mock.patch.object(manager._place, "entries", side_effect=listings):
        assert manager.restore().step == 3  # type: ignore[union-attr]
    listings = [[], manager._place.entries()]
    with mock.patch.object(place.Folder, "_scanned", side_effect=listings):
        assert manager.latest() == 3


def test_a_step_that_does_not_open_removes_no_other(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, keep=1)

    def save_torn(encoded: Any, path: Any, *args: Any, **options: Any) -> None:
        save_encoded(encoded, path, *args, **options)
        damage(file_of(tmp_path, 2), "cut")

    with mock.patch.object(module, "save_encoded", save_torn):
        manager.save(2, state(2))
        with pytest.raises(FormatError):
            manager.wait()
    assert manager.steps() == [1]


def test_delete_removes_what_no_rule_does(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2)
    manager.delete(2)
    assert manager.steps() == [1]
    with pytest.raises(ObjectNotFoundError):
        manager.delete(2)


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path) -> None:
    manager = filled(tmp_path, 1, 2, keep=2)
    for step, when in [(1, 2_000_000_000), (2, 1_000_000)]:
        os.utime(file_of(tmp_path, step), (when, when))
    manager = CheckpointManager(tmp_path, keep=2, durable=False)
    manager.save(3, state(3))
    manager.wait()
    assert (manager.steps(), manager.latest()) == ([2, 3], 3)


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
            assert threads_of(2) == []  # on disk when save returns
            assert manager.steps() == [2]
        os.kill(os.getpid(), signal.SIGUSR1)
        assert len(before) == 2
        assert signal.getsignal(signal.SIGUSR1) is not None
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


def test_wrong_arguments(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], type[Exception]]] = [
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
    ]
    for options, kind in wrong:
        with pytest.raises(kind):
            CheckpointManager(tmp_path, **options)
    manager = CheckpointManager(tmp_path, background=False)
    for step in (-1, 10**18):
        with pytest.raises(ArgumentValueError):
            manager.save(step, {})
    steps: list[Any] = [1.0, "1", True, None]
    for step in steps:
        with pytest.raises(ArgumentTypeError):
            manager.save(step, {})
    metrics: list[Any] = [{1: 2.0}, {"loss": "much"}, {"loss": None}]
    for one in metrics:
        with pytest.raises(ArgumentTypeError):
            manager.save(1, {}, one)
    assert manager.save(np.int64(3), {})  # type: ignore[arg-type]
    manager.close()
    with pytest.raises(ClosedError):
        manager.save(4, {})


def test_a_folder_that_cannot_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = CheckpointManager(tmp_path / "file", background=False)
    with pytest.raises(SourceError):
        manager.steps()
    with pytest.raises(SourceError):
        manager.save(1, {})


def test_steps_in_a_store(tmp_path: Path) -> None:
    store = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    with CheckpointManager("memory://runs/a", keep=2, storage=store) as manager:
        assert manager.restore() is None
        for step in (1, 2, 3):
            manager.save(step, state(step), {"loss": step})
        manager.wait()
        assert manager.steps() == [2, 3]
        found = manager.restore()
        assert found is not None
        assert (found.step, dict(found.metrics)) == (3, {"loss": 3.0})
        assert_alike(found.tree, state(3))
        path = store.get("runs/a/step-00000003.zt")
        data = bytearray(path.bytes())
        data[100] ^= 1
        store.put("runs/a/step-00000003.zt", bytes(data))
        found = manager.restore()
        assert found is not None
        assert (found.step, [step for step, _ in found.skipped]) == (2, [3])
        with pytest.raises(UsageError):
            manager.pin(2)
        manager.delete(2)
        assert [one.step for one in manager.checkpoints()] == [3]


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


def test_divided_steps_in_a_store() -> None:
    store = pytest.importorskip("obstore.store", reason="obstore is not installed").MemoryStore()
    for step in (1, 2):
        url = ztensor.Remote(f"memory://run/step-{step:08d}", store)
        with PartWriter(url, process=0) as part:
            part.add("w", np.full((4, 3), step), shape=(4, 3), offsets=(0, 0))
            commit(url, [part.finish()])
    manager = CheckpointManager("memory://run", keep=1, storage=store)
    assert manager.steps() == [1, 2]
    assert manager.prune() == [1]
    assert [one.step for one in manager.verify() if one.is_checked] == [2]


def test_what_was_restored_is_shown_without_the_state(tmp_path: Path) -> None:
    with CheckpointManager(tmp_path) as manager:
        manager.save(3, {"w": np.full(1000, 0.125)}, {"loss": 0.5})
        assert repr(manager.restore()) == "Restored(step=3, metrics={'loss': 0.5}, skipped=())"
