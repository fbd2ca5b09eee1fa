"""Divided checkpoints, killed, cut off and failed at every point; `run.py` does it more densely."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.divided import DIVIDED
from tests.faults.judge import Outcome
from tests.faults.steps import cut_power_of_run, fail_run, kill_run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "nameless"), [*((name, True) for name in DIVIDED), ("increment", False)]
)
def test_a_kill_leaves_the_old_checkpoint_or_the_new_one(
    name: str, nameless: bool, tmp_path: Path
) -> None:
    tally = kill_run(DIVIDED[name], tmp_path, stride=997, nameless=nameless)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1
    assert tally.states > 1


@pytest.mark.parametrize("name", ["save", "increment"])
def test_a_power_cut_leaves_the_old_checkpoint_or_the_new_one(name: str, tmp_path: Path) -> None:
    tally = cut_power_of_run(DIVIDED[name], tmp_path, count=60, seed=3)
    assert tally.bad == 0, tally
    assert tally.outcomes[Outcome.NEW] >= 1


@pytest.mark.slow
def test_without_flushes_the_same_power_cuts_lose_checkpoints(tmp_path: Path) -> None:
    """The model finds what it looks for."""
    tally = cut_power_of_run(
        DIVIDED["save"], tmp_path, count=30, seed=3, unflushed=lambda number: True
    )
    assert tally.bad > 0


@pytest.mark.parametrize("fault", ["rename: I/O error", "unlink: I/O error", "rename: interrupted"])
def test_a_call_that_fails_costs_no_checkpoint(fault: str, tmp_path: Path) -> None:
    tally = fail_run(DIVIDED["save"], tmp_path, faults=(fault,))
    assert tally.bad == 0, tally
    assert tally.states >= 1
