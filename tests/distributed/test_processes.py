"""Checkpoints of four processes, loaded by one, two and three: all placements, all ways to save."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import ztensor
from tests.distributed.processes import Processes
from tests.extent import IS_FULL
from ztensor.distributed import open_divided, read_root, repair

TASKS = "tests.distributed.tasks"
PLACEMENTS = ["0", "1", "r", "01", "10", "0r", "r1", "00"]
BOXES = ["rows", "columns", "tiles", "uneven", "one"]

# One server of forks for all, and fork is what these tests are made of.
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]


@pytest.mark.parametrize(
    ("kinds", "some"),
    [(PLACEMENTS, {1: ["0"], 2: ["1", "01"], 3: ["r"]}), (BOXES, {2: ["tiles"], 3: ["uneven"]})],
    ids=["DTensor", "ShardedTensor"],
)
def test_every_placement_is_loaded_in_others(
    kinds: list[str], some: dict[int, list[str]], processes: Processes, tmp_path: Path
) -> None:
    """Each number of processes loads some of the kinds; all of them in the full form."""
    processes.right(4, f"{TASKS}.save_each", folder=tmp_path, placements=kinds)
    loading = {"folder": tmp_path, "saved": kinds}
    for world, loaded in (dict.fromkeys((1, 2, 3), kinds) if IS_FULL else some).items():
        found = processes.right(world, f"{TASKS}.load_each", placements=loaded, **loading)
        assert found == [[]] * world


@pytest.mark.slow
def test_a_checkpoint_is_one_file_of_whole_tensors(processes: Processes, tmp_path: Path) -> None:
    processes.right(4, f"{TASKS}.save", folder=tmp_path, placement="01")
    with ztensor.open(tmp_path) as reader:
        assert reader.verify().ok
        assert reader.get_slice("model.cube").get_shape() == [5, 6, 4]
        whole = reader["model.layers.0.weight"]
    assert (whole.reshape(-1) - whole[0, 0]).tolist() == list(range(70))


@pytest.mark.slow
def test_boxes_that_are_tied_are_stored_once_each(processes: Processes, tmp_path: Path) -> None:
    assert processes.right(4, f"{TASKS}.tied", folder=tmp_path) == [0] * 4
    with open_divided(tmp_path) as checkpoint:
        table = checkpoint.root.table
    assert len(table) == 12
    assert len(set(zip(table.file.tolist(), table.at.tolist(), strict=True))) == 6


@pytest.mark.slow
def test_a_cached_plan_never_brings_back_an_older_save(
    processes: Processes, tmp_path: Path
) -> None:
    assert processes.right(4, f"{TASKS}.save_cached", folder=tmp_path, placement="0") == [1] * 4
    for step in range(3):
        found = processes.right(
            2, f"{TASKS}.load", folder=tmp_path / str(step), placement="1", step=step
        )
        assert found == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_asynchronous_saves_end(kind: str, processes: Processes, tmp_path: Path) -> None:
    world = 2 if kind == "thread" else 1  # each process starts one beside it, which takes long
    processes.right(world, f"{TASKS}.save_async", folder=tmp_path, placement="0", kind=kind)
    found = processes.right(3, f"{TASKS}.load", folder=tmp_path, placement="0", step=2)
    assert found == [[]] * 3


@pytest.mark.slow
def test_processes_that_do_not_talk_save_apart(processes: Processes, tmp_path: Path) -> None:
    saving: dict[str, Any] = {"folder": tmp_path, "placements": ["01"], "use_collectives": False}
    processes.right(4, f"{TASKS}.save_each", **saving)
    home = tmp_path / "01"
    assert sorted(path.name for path in home.iterdir()) == ["00000", "00001", "00002", "00003"]
    loading: dict[str, Any] = {"folder": tmp_path, "saved": ["01"], "placements": ["0", "r1"]}
    for world in (4, 2, 3):
        assert processes.right(world, f"{TASKS}.load_each", **loading) == [[]] * world
    # They cannot replace a checkpoint together, so none does; and a missing part is noticed.
    again = processes.run(4, f"{TASKS}.save_each", **saving)
    assert {one.errors[0][0] for one in again} == {"UsageError"}
    (home / "00003" / "checkpoint.zt").unlink()
    for one in processes.run(2, f"{TASKS}.load_each", **loading):
        assert one.errors[0][0] == "FormatError"
        assert "model.layers.0.weight" in one.errors[0][2]


@pytest.mark.slow
def test_folders_of_different_steps_are_not_joined(processes: Processes, tmp_path: Path) -> None:
    """Process 1 fails at the first step and saves the second; the others have the first."""
    home = tmp_path / "mixed"
    processes.right(4, f"{TASKS}.save_apart_and_fail", folder=home, placement="01", fails={"1": 1})
    for rank in range(4):
        assert (home / f"{rank:05d}" / "checkpoint.zt").exists()
    for one in processes.run(2, f"{TASKS}.load", folder=home, placement="0"):
        assert one.errors[0][:2] == ["FormatError", "shard_index"]
    shutil.rmtree(home)
    processes.right(4, f"{TASKS}.save_apart_and_fail", folder=home, placement="01", fails={})
    assert processes.right(3, f"{TASKS}.load", folder=home, placement="0") == [[]] * 3


@pytest.mark.slow
def test_a_root_that_is_lost_behind_a_save_of_processes_is_made_anew(
    processes: Processes, tmp_path: Path
) -> None:
    """Also of processes that had nothing to write: every process leaves a part."""
    processes.right(3, f"{TASKS}.save", folder=tmp_path, placement="0", values=False)
    (tmp_path / "checkpoint.zt").unlink()
    assert repair(tmp_path).written is not None
    with ztensor.open(tmp_path) as reader:
        assert reader.verify().ok
    (tmp_path / "checkpoint.zt").unlink()
    next(tmp_path.glob("00002-*.zt")).unlink()
    with pytest.raises(ztensor.UsageError):
        repair(tmp_path)


@pytest.mark.slow
def test_a_refused_value_is_an_error_on_every_process(processes: Processes, tmp_path: Path) -> None:
    for one in processes.run(2, f"{TASKS}.save_lambda", folder=tmp_path):
        assert one.status == 1
        assert [error[0] for error in one.errors] == ["NotRepresentableError"]
        assert "schedule.factor" in one.errors[0][2]
    assert not (tmp_path / "checkpoint.zt").exists()
    processes.right(2, f"{TASKS}.save", folder=tmp_path, placement="0")
    named = {file.name for file in read_root(tmp_path).files}
    assert {path.name for path in tmp_path.iterdir()} == {*named, "checkpoint.zt"}
