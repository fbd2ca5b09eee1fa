"""Steps and divided checkpoints, killed, cut off and failed at every point.

`run.py` does the same more densely.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.faults.folders import (
    DELTAS,
    DIVIDED,
    SPLITS,
    STEPS,
    FolderChange,
    cut_power_of_run,
    fail_run,
    kill_run,
    state,
)
from tests.faults.judge import Outcome
from tests.faults.test_full_disk import small_disk  # noqa: F401  # a fixture
from tests.faults.two_managers import MEETINGS, meet
from ztensor import CheckpointManager, SourceError

CHANGES: dict[str, FolderChange] = {
    **STEPS,
    **{f"checkpoint: {name}": change for name, change in DIVIDED.items()},
    **{f"split: {name}": change for name, change in SPLITS.items()},
    **{f"delta: {name}": change for name, change in DELTAS.items()},
}
# `run.py` tries all; these take long, and are alike.
_LONG = {"increment, clock back", "increment, damaged", "increment, prune"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "nameless"),
    [
        *((name, True) for name in CHANGES if name not in _LONG),
        ("checkpoint: increment", False),
        ("split: first", False),
        ("delta: zt", False),
    ],
)
def test_a_kill_leaves_the_old_state_or_the_new_one(
    name: str, nameless: bool, tmp_path: Path
) -> None:
    stride = 97 if "split" in name else 997
    tally = kill_run(CHANGES[name], tmp_path, stride=stride, nameless=nameless)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1
    assert tally.states > 1


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(pytest.param(name, 60, marks=pytest.mark.slow) for name in ("save", "prune")),
        *(pytest.param(name, 16, marks=pytest.mark.slow) for name in ("increment", "divided")),
        ("checkpoint: save", 60),
        ("checkpoint: increment", 60),
        ("split: first", 300),
        ("split: over another", 300),
        ("delta: zt", 100),
        ("delta: safetensors", 100),
    ],
)
def test_a_power_cut_leaves_the_old_state_or_the_new_one(
    name: str, count: int, tmp_path: Path
) -> None:
    tally = cut_power_of_run(CHANGES[name], tmp_path, count=count, seed=3)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count"), [("save", 60), ("checkpoint: save", 30), ("split: first", 60)]
)
def test_without_flushes_the_same_power_cuts_lose_states(
    name: str, count: int, tmp_path: Path
) -> None:
    """The model finds what it looks for."""
    tally = cut_power_of_run(
        CHANGES[name], tmp_path, count=count, seed=3, unflushed=lambda number: True
    )
    assert tally.bad > 0


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *(
            pytest.param(name, fault, marks=pytest.mark.slow)
            for name, fault in [
                ("save", "write: disk full"),
                ("save", "rename: I/O error"),
                ("save", "unlink: I/O error"),
                ("save", "rename: interrupted"),
                ("increment, first", "link: no space"),
                ("divided, first", "rename: I/O error"),
            ]
        ),
        ("checkpoint: save", "rename: I/O error"),
        ("checkpoint: save", "unlink: I/O error"),
        ("checkpoint: save", "rename: interrupted"),
        *(
            ("split: first", fault)
            for fault in (
                "write: no space",
                "flush: I/O error",
                "rename: I/O error",
                "link: no space",
                "open: too many",
            )
        ),
        *(
            ("delta: zt", fault)
            for fault in (
                "write: disk full",
                "flush: I/O error",
                "rename: I/O error",
                "link: no space",
                "open: too many",
                "rename: interrupted",
            )
        ),
    ],
)
def test_a_call_that_fails_costs_no_state(name: str, fault: str, tmp_path: Path) -> None:
    tally = fail_run(CHANGES[name], tmp_path, faults=(fault,))
    assert tally.bad == 0, tally
    assert tally.states >= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", MEETINGS)
def test_two_managers_fail_neither_nor_lose_a_step(name: str, tmp_path: Path) -> None:
    tally = meet(MEETINGS[name], tmp_path, stride=1 if ":" not in name else 7)
    assert not tally.errors
    assert tally.bad == 0, tally
    assert tally.states > 1  # some are of few calls, and of those each seventh is tried


@pytest.mark.slow
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
