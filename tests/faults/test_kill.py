"""Real processes, killed by SIGKILL at random moments; `run.py` does the same far more often."""

from __future__ import annotations

import os

import pytest

from tests.faults.kills import kill_in_a_process

OPERATIONS = ["save", "save, named", "append", "replace", "remove", "append, 2.x", "replace, 2.x"]
OPERATIONS += ["apply", "apply, anew", "apply, 2.x", "edit, safetensors"]

# One process for all of them.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are made in forked children"),
]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    return kill_in_a_process(OPERATIONS, 12, 4, tmp_path_factory.mktemp("killed"))


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_killed_process_leaves_the_old_state_or_the_new_one(
    operation: str, killed: dict[str, dict[str, int]]
) -> None:
    counts = killed[operation]
    print(operation, counts)  # shown by pytest -s, and where it fails
    assert counts["old"] + counts["new"] + counts["torn, recovered"] == 12
    assert counts["lost"] == counts["silently wrong"] == counts["litter"] == 0
    if operation.endswith("2.x"):
        assert counts["torn, recovered"] == 0
    if operation != "remove":  # over too soon to be met each time
        assert counts["killed inside"] >= 1
