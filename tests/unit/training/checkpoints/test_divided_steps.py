"""Steps that are folders: written by several processes, or as increments; restored as a whole."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from ztensor import CheckpointManager
from ztensor.distributed import PartWriter, commit
from ztensor.errors import (
    ArgumentValueError,
    FormatError,
    NotRepresentableError,
    UsageError,
)
from ztensor.typing import Path as Where


def write_of(step: int, processes: int = 2) -> Any:
    """Return a function that writes rows of one tensor as several processes."""

    def write(folder: Where, values: Mapping[str, object]) -> None:
        os.makedirs(folder, exist_ok=True)
        records = []
        parts = [PartWriter(folder, process=process) for process in range(processes)]
        for process, part in enumerate(parts):
            rows = np.full((2, 3), step + process, np.float32)
            part.add("w", rows, shape=(2 * processes, 3), offsets=(2 * process, 0))
            records.append(part.finish())
        commit(folder, records, {**values, "lr": 0.1})

    return write


def spoil(path: Path) -> None:
    flip(path, 70)  # the first component begins at 64


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-50])


def part_of(folder: Path, step: int) -> Path:
    inside = sorted((folder / f"step-{step:08d}").glob("0*.zt"))
    return inside[0]


def test_a_divided_step_is_saved_kept_by_rules_and_restored(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep=2, keep_best=("loss", 1, "min"), every=10)
    for step in range(0, 50, 5):
        saved = manager.save_divided(step, write_of(step), {"loss": abs(step - 10)})
        assert saved == (step % 10 == 0)
    assert manager.steps() == [10, 30, 40]
    restored = manager.restore()
    assert restored is not None
    assert (restored.step, restored.metrics) == (40, {"loss": 30.0})
    assert set(restored.tree) == {"w", "lr"}
    assert restored.tree["w"].tolist() == [[40.0] * 3] * 2 + [[41.0] * 3] * 2
    part = manager.restore(10, only="lr")
    assert part is not None
    assert part.tree == {"lr": 0.1}
    with pytest.raises(ArgumentValueError, match="other keys"):
        manager.restore(into={"w": restored.tree["w"]})


def test_only_process_0_removes_and_only_once_the_root_is_there(tmp_path: Path) -> None:
    first, second = (CheckpointManager(tmp_path, keep=1) for _ in range(2))
    for step in (1, 2):
        first.save_divided(step, write_of(step))
    # The other process has nothing to do: the root is there when its `write` returns.
    assert second.save_divided(3, write_of(3), process=1)
    assert second.steps() == [2, 3]
    with pytest.raises(ZeroDivisionError):
        first.save_divided(4, lambda folder, values: 1 / 0)
    assert second.steps() == [2, 3]
    with pytest.raises(UsageError, match="no root"):
        first.save_divided(5, lambda folder, values: None)
    assert second.steps() == [2, 3]
    with pytest.raises(UsageError, match="older than step 3"):
        CheckpointManager(tmp_path).save_divided(2, write_of(2))


def test_restore_goes_back_over_every_kind_of_damage(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, keep=None)
    for step in range(1, 7):
        manager.save_divided(step, write_of(step))
    spoil(part_of(tmp_path, 3))
    part_of(tmp_path, 4).unlink()
    with part_of(tmp_path, 5).open("ab") as file:
        file.write(b"more")
    cut(tmp_path / "step-00000006" / "checkpoint.zt")
    # A listing sees missing files and wrong lengths, not the wrong byte of step 3.
    assert CheckpointManager(tmp_path).steps() == [1, 2, 3]
    restored = manager.restore()
    assert restored is not None
    assert restored.step == 2
    assert [step for step, _ in restored.skipped] == [6, 5, 4, 3]
    assert manager.latest() == 2
    assert [one.step for one in manager.verify() if one.is_damaged] == [3, 4, 5, 6]
    assert manager.steps() == [1, 2]
    with pytest.raises(FormatError, match="missing"):
        manager.restore(4)
    assert manager.prune(damaged=True) == [3, 4, 5, 6]


def test_a_step_is_not_there_twice(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, background=False)
    manager.save(1, {"w": np.ones(3)})
    with pytest.raises(UsageError, match="as a file"):
        manager.save_divided(1, write_of(1))
    with pytest.raises(UsageError, match="as a file"):
        CheckpointManager(tmp_path, increments=True, background=False).save(1, {})
    restored = manager.restore()
    assert restored is not None
    assert restored.tree["w"].tolist() == [1, 1, 1]


# --- What torch and JAX wrote ---------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_a_step_of_torch_is_nested_as_it_was(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    from ztensor.torch import StorageWriter

    state: Any = {
        "model": {"w": torch.arange(6.0), "half": torch.ones(2, dtype=torch.bfloat16)},
        "optimizer": {"state": {"w": {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.1}]},
        "mixed": [torch.ones(1), {"deep": [torch.zeros(2), 5]}],
        "none": None,
        "betas": (0.9, 0.99),
        "empty": {},
    }
    manager = CheckpointManager(tmp_path)

    def write(folder: Where, values: Mapping[str, object]) -> None:
        writer = StorageWriter(folder, values=values)
        dcp.save(state, storage_writer=writer, no_dist=True)

    manager.save_divided(7, write, {"loss": 0.5})
    restored = manager.restore()
    assert restored is not None
    assert restored.metrics == {"loss": 0.5}
    tree = restored.tree
    state.pop("empty")  # torch keeps no empty dict
    assert list(tree) == list(state)
    assert torch.equal(tree["model"]["half"], state["model"]["half"])
    assert tree["optimizer"]["groups"] == [{"lr": 0.1}]
    assert tree["mixed"][1]["deep"][1] == 5
    assert tree["betas"] == (0.9, 0.99)
    assert tree["none"] is None
    part = manager.restore(only=["mixed.1.*", "model.w"])
    assert part is not None
    assert part.tree["mixed"][0] is None
    assert set(part.tree) == {"mixed", "model"}
    fitted = manager.restore(into=tree)
    assert fitted is not None
    with pytest.raises(dcp.api.CheckpointException, match="of this name"):
        dcp.save({"a": 1}, storage_writer=StorageWriter(tmp_path, values={"a": 2}), no_dist=True)


@pytest.mark.slow
def test_a_step_of_jax_is_a_dict_or_a_live_tree(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    from ztensor.jax import save_sharded

    tree: Any = {"layer": {"w": jnp.arange(6.0).reshape(2, 3)}, "moments": [jnp.ones(3), 2]}
    manager = CheckpointManager(tmp_path)
    manager.save_divided(1, lambda folder, values: save_sharded(tree, folder, values=values))
    restored = manager.restore()
    assert restored is not None
    assert set(restored.tree) == {"layer.w", "moments.0", "moments.1"}
    fitted = manager.restore(into=tree)
    assert fitted is not None
    assert fitted.tree["moments"][1] == 2
    assert jnp.array_equal(fitted.tree["layer"]["w"], tree["layer"]["w"])
    wrong: Any
    for wrong in (
        {"layer": {"w": jnp.ones((2, 3))}},
        {**tree, "more": 1},
        {**tree, "layer": {"w": jnp.ones(7)}},
    ):
        with pytest.raises(ArgumentValueError):
            manager.restore(into=wrong)
    with pytest.raises(ArgumentValueError, match="has this name"):
        save_sharded({"a": 1}, tmp_path / "x", values={"a": 2})


def test_a_divided_step_in_one_file_is_that_step(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "run")

    def write(folder: Where, values: Mapping[str, object]) -> None:
        with PartWriter(folder) as part:
            part.add("w", np.ones(3))
            commit(folder, [part.finish()], {**values, "lr": 0.1})

    manager.save_divided(7, write, {"loss": 0.5})
    folder = manager.path(7)
    assert list(ztensor.load_tree(folder)) == ["w", "lr"]
    (tmp_path / "whole").mkdir()
    ztensor.convert(folder, tmp_path / "whole" / "step-00000007.zt", strict=True, check=True)
    found = CheckpointManager(tmp_path / "whole").restore()
    assert found is not None
    assert found.metrics == {"loss": 0.5}
    assert list(found.tree) == ["w", "lr"]


def test_a_value_with_the_name_of_the_step_stays_a_value(tmp_path: Path) -> None:
    for value in ({"step": 3}, {"version": 1, "step": 3, "more": np.ones(3)}, 5):
        with PartWriter(tmp_path) as part:
            commit(tmp_path, [part.finish()], {"checkpoint": value})
        assert list(ztensor.load_tree(tmp_path)) == ["checkpoint"]


# --- Increments -----------------------------------------------------------------------------


def test_an_increment_writes_changed_tensors(tmp_path: Path) -> None:
    frozen = np.arange(1 << 16, dtype=np.float64)
    with CheckpointManager(tmp_path, keep=2, increments=True) as manager:
        for step in range(5):
            tied = np.full(8, step)
            manager.save(step, {"frozen": frozen, "w": [tied, tied], "lr": 0.1, "e": np.ones(0)})
    assert manager.steps() == [3, 4]
    files = {path.stat().st_ino: path.stat().st_size for path in tmp_path.rglob("*.zt")}
    assert frozen.nbytes < sum(files.values()) < 1.2 * frozen.nbytes
    for step in (3, 4):
        restored = manager.restore(step)
        assert restored is not None
        assert np.array_equal(restored.tree["frozen"], frozen)
        assert restored.tree["w"][0] is restored.tree["w"][1]
        assert restored.tree["w"][0].tolist() == [step] * 8
    assert ztensor.load_tree(tmp_path / "step-00000004")["lr"] == 0.1
    assert all(one.is_checked for one in manager.verify())


@pytest.mark.parametrize("damage", ["root", "part"])
def test_an_increment_is_of_the_newest_step_that_is_right(tmp_path: Path, damage: str) -> None:
    manager = CheckpointManager(tmp_path, keep=None, increments=True, background=False)
    for step in (1, 2):
        manager.save(step, {"frozen": np.arange(1 << 14), "w": np.full(9, step)})
    if damage == "root":
        cut(tmp_path / "step-00000002" / "checkpoint.zt")
    else:
        part_of(tmp_path, 2).unlink()
    manager.save(3, {"frozen": np.arange(1 << 14), "w": np.full(9, 3)})
    restored = manager.restore()
    assert restored is not None
    assert restored.step == 3
    np.testing.assert_array_equal(restored.tree["frozen"], np.arange(1 << 14))
    if damage == "root":
        linked = {path.stat().st_ino for path in (tmp_path / "step-00000001").glob("0*")}
        assert linked & {path.stat().st_ino for path in (tmp_path / "step-00000003").glob("0*")}


def test_wrong_options_and_values_of_increments_are_refused(tmp_path: Path) -> None:
    for wrong in ({"checksum": "sha256"}, {"version": "2.1"}):
        with pytest.raises(ArgumentValueError, match="of their own"):
            CheckpointManager(tmp_path, increments=True, **wrong)  # type: ignore[arg-type]
    manager = CheckpointManager(tmp_path, increments=True)
    with pytest.raises(NotRepresentableError):
        manager.save(1, {"f": lambda: 0})
    assert manager.steps() == []


# --- Leftovers of dead saves ----------------------------------------------------------------


def test_files_of_killed_saves_are_removed_by_the_next_save(tmp_path: Path) -> None:
    dead = tmp_path / "step-00000002"
    dead.mkdir()
    with PartWriter(dead) as part:
        part.add("w", np.ones(9))
        part.finish()
    del part  # as the end of its process does
    empty = tmp_path / "step-00000003"
    empty.mkdir()
    other = tmp_path / "step-00000004"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    newer = tmp_path / "step-00000009"
    newer.mkdir()
    manager = CheckpointManager(tmp_path, background=False)
    manager.save(5, {"w": np.ones(2)})
    assert not dead.exists()
    assert not empty.exists()
    assert (other / "notes.txt").exists()
    assert newer.exists()  # of a save that may be under way
    manager.save(10, {"w": np.ones(2)})
    manager.prune()
    assert not newer.exists()


def test_a_step_that_another_manager_saves_is_not_left_over(tmp_path: Path) -> None:
    one, other = (CheckpointManager(tmp_path, background=False) for _ in range(2))

    def write(folder: Where, values: Mapping[str, object]) -> None:
        other.save(7, {"w": np.ones(2)})
        other.prune()
        write_of(3)(folder, values)
        other.save(8, {"w": np.ones(2)})
        other.prune()

    one.save_divided(3, write)
    assert one.steps() == [3, 7, 8]


def test_a_system_without_locks_removes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ztensor.training.checkpoints.folder_lock.fcntl", None)
    (tmp_path / "step-00000002").mkdir()
    manager = CheckpointManager(tmp_path)
    manager.save_divided(3, write_of(3))
    assert manager.prune() == []
    assert (tmp_path / "step-00000002").exists()
    assert manager.steps() == [3]


def test_a_save_that_fails_gives_its_space_back(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path)

    def write(folder: Where, values: Mapping[str, object]) -> None:
        with PartWriter(folder) as part:
            part.add("w", np.ones(1000))
            commit(folder, [part.finish()], {**values, "f": lambda: 0})

    with pytest.raises(NotRepresentableError):
        manager.save_divided(3, write)
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_its_steps_are_on_disk_when_a_save_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: set[int] = set()
    flush = os.fsync

    def fsync(number: int) -> None:
        flushed.add(os.fstat(number).st_ino)
        flush(number)

    monkeypatch.setattr(os, "fsync", fsync)
    run = tmp_path / "deep" / "run"
    CheckpointManager(run).save_divided(3, write_of(3))
    step = run / "step-00000003"
    for path in (tmp_path, tmp_path / "deep", run, step, *step.iterdir()):
        assert path.stat().st_ino in flushed, path
    flushed.clear()
    CheckpointManager(tmp_path / "other", durable=False).save_divided(3, write_of(3))
    assert not flushed
