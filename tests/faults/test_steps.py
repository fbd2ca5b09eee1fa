"""A run's steps, killed, cut off and failed at every point; `run.py` does the same more densely."""

from __future__ import annotations

import errno
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.faults.judge import Outcome
from tests.faults.steps import CHANGES, cut_power_of_run, fail_run, kill_run, state
from tests.faults.test_full_disk import small_disk  # noqa: F401  # a fixture
from ztensor import CheckpointManager, SourceError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", CHANGES)
def test_a_kill_leaves_the_old_steps_or_the_kept_ones(name: str, tmp_path: Path) -> None:
    tally = kill_run(CHANGES[name], tmp_path, stride=997)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1
    assert tally.states > len(CHANGES[name].after)


@pytest.mark.parametrize("name", ["save", "prune"])
def test_a_power_cut_leaves_the_old_steps_or_the_kept_ones(name: str, tmp_path: Path) -> None:
    tally = cut_power_of_run(CHANGES[name], tmp_path, count=60, seed=3)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1


def test_without_flushes_the_same_power_cuts_lose_steps(tmp_path: Path) -> None:
    """The model finds what it looks for."""
    tally = cut_power_of_run(
        CHANGES["save"], tmp_path, count=60, seed=3, unflushed=lambda number: True
    )
    assert tally.bad > 0


@pytest.mark.parametrize(
    "fault", ["write: disk full", "rename: I/O error", "unlink: I/O error", "rename: interrupted"]
)
def test_a_call_that_fails_costs_no_step(fault: str, tmp_path: Path) -> None:
    tally = fail_run(CHANGES["save"], tmp_path, faults=(fault,))
    assert tally.bad == 0, tally
    assert tally.states >= 1


@pytest.mark.parametrize("background", [True, False])
def test_a_full_disk_keeps_the_steps(small_disk: Path, background: bool) -> None:  # noqa: F811
    manager = CheckpointManager(small_disk / "run", keep=1, background=background)
    manager.save(1, state(1))
    manager.wait()
    free = shutil.disk_usage(small_disk).free

    def save(step: int, tree: object) -> None:
        manager.save(step, tree)
        manager.wait()

    with pytest.raises(SourceError) as raised:
        save(2, {"w": np.zeros(3 << 20, np.uint8)})
    assert raised.value.errno == errno.ENOSPC
    assert manager.steps() == [1]
    assert shutil.disk_usage(small_disk).free == free
    save(3, state(3))
    assert manager.steps() == [3]
