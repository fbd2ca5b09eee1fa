"""Processes that die in a save, and files that are damaged: old, new or an error, everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.distributed.processes import Processes
from tests.extent import IS_FULL
from ztensor.distributed import read_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]

TASKS = "tests.distributed.tasks"
WORLD = 4


def after_a_kill(processes: Processes, folder: Path, rank: int, call: int) -> int:
    """Save step 1, and step 2 over it with one process killed; return the step that is loaded.

    A save of step 3 then leaves no file of the one that died.
    """
    saving = {"folder": folder, "placement": "0", "values": False}
    processes.right(WORLD, f"{TASKS}.save", **saving)
    processes.run(WORLD, f"{TASKS}.save_and_die", folder=folder, rank=rank, call=call)
    ended = processes.right(2, f"{TASKS}.steps_seen", folder=folder, placement="1")
    assert ended in ([[1]] * 2, [[2]] * 2)
    processes.right(WORLD, f"{TASKS}.save", step=3, **saving)
    named = {"checkpoint.zt", *(file.name for file in read_root(folder).files)}
    assert {path.name for path in folder.iterdir()} == named
    step: int = ended[0][0]
    return step


def test_a_process_that_dies_leaves_the_old_checkpoint_or_the_new_one(
    processes: Processes, tmp_path: Path
) -> None:
    """At some of the system calls that change something on a disk; at each in the full form."""
    counted = tmp_path / "counted"
    processes.right(WORLD, f"{TASKS}.save", folder=counted, placement="0", values=False)
    counts = processes.right(WORLD, f"{TASKS}.save_and_die", folder=counted, rank=-1, call=0)
    kills = [(2, counts[2] // 2), (0, counts[0])]
    if IS_FULL:
        kills = [(rank, call) for rank in range(WORLD) for call in range(1, counts[rank] + 1)]
    seen = {
        after_a_kill(processes, tmp_path / f"{rank}-{call}", rank, call) for rank, call in kills
    }
    assert seen == {1, 2}


@pytest.mark.parametrize("how", ["flipped", "cut", "missing"])
def test_damage_is_one_error_on_every_process(
    how: str, processes: Processes, tmp_path: Path
) -> None:
    processes.right(3, f"{TASKS}.save", folder=tmp_path, placement="0", values=False)
    table = read_root(tmp_path).table
    places = {  # the middle of a chunk of each file, and of the root what must not be believed
        table.files[number].name: table.at[row] + table.length[row] // 2
        for row, number in enumerate(table.file.tolist())
    }
    for path in sorted(tmp_path.iterdir()):
        data = path.read_bytes()
        at = places.get(path.name, len(data) // 2)
        path.unlink()
        if how == "flipped":
            path.write_bytes(bytes([*data[:at], data[at] ^ 1, *data[at + 1 :]]))
        elif how == "cut":
            path.write_bytes(data[: len(data) // 2])
        for one in processes.run(2, f"{TASKS}.load", folder=tmp_path, placement="r", values=False):
            assert one.status == 1
            for name, reason, text in one.errors:
                assert reason, f"{name} has no reason code: {text}"
                assert path.name in text
                if how == "flipped" and path.name in places:
                    assert "object 'model." in text
                    assert "chunk at [" in text
        path.write_bytes(data)
    found = processes.right(2, f"{TASKS}.load", folder=tmp_path, placement="r", values=False)
    assert found == [[], []]
