"""Processes that die in a save, and files that are damaged: old, new or an error, everywhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.distributed.processes import Processes
from ztensor.distributed import read_root

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the processes are forked"),
]

TASKS = "tests.distributed.tasks"


def test_a_process_that_dies_leaves_the_old_checkpoint_or_the_new_one(
    processes: Processes, tmp_path: Path
) -> None:
    # Some of its calls of the system; `python -m tests.distributed.kills` takes all of them.
    from tests.distributed.kills import calls_of_each, killed

    counts = calls_of_each(processes, tmp_path / "counted")
    seen = set()
    for rank, call in ((2, counts[2] // 2), (0, counts[0])):
        found = killed(processes, tmp_path / f"{rank}-{call}", rank, call)
        assert found.outcome in ("old", "new")
        assert not found.litter
        seen.add(found.outcome)
    assert seen == {"old", "new"}


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
                assert reason, f"{name} is no error of ours: {text}"
                assert path.name in text
                if how == "flipped" and path.name in places:
                    assert "object 'model." in text
                    assert "chunk at [" in text
        path.write_bytes(data)
    found = processes.right(2, f"{TASKS}.load", folder=tmp_path, placement="r", values=False)
    assert found == [[], []]
