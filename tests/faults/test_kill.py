"""Real processes, killed by SIGKILL at random moments; `run.py` does the same far more often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KILLS = Path(__file__).with_name("kills.py")
SEED = 4


OPERATIONS = ["save", "save, named", "append", "replace", "remove", "append, 2.x", "replace, 2.x"]

# One process for all of them.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are made in forked children"),
]


def kill_in_a_process(
    operations: list[str], tries: int, seed: int, folder: Path
) -> dict[str, dict[str, int]]:
    """Run `kills.py`, since forking belongs into a process of its own."""
    done = subprocess.run(
        [sys.executable, str(KILLS), str(tries), str(seed), str(folder), *operations],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    counts: dict[str, dict[str, int]] = json.loads(done.stdout.splitlines()[-1])
    return counts


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    return kill_in_a_process(OPERATIONS, 12, SEED, tmp_path_factory.mktemp("killed"))


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
