"""SIGTERM while a step is saved: the run ends behind a whole step, or as a kill ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ztensor import CheckpointManager

pytestmark = pytest.mark.slow

LOOP = """
import sys
import numpy as np
from ztensor import CheckpointManager

signal = sys.argv[2] or None
with CheckpointManager(sys.argv[1], keep=2, durable=False, on_signal=signal) as manager:
    for step in range(100_000):
        tree = {"step": step, "w": np.full(200_000, step)}
        manager.save(step, tree)
        tree["w"] += 1  # the run goes on while the step is written
        if manager.interrupted:
            print(step)
            break
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no signals")
@pytest.mark.parametrize("name", ["SIGTERM", ""])
@pytest.mark.parametrize("delay", [0.0, 0.013, 0.031])
def test_a_run_that_is_ended_while_it_saves_leaves_whole_steps(
    tmp_path: Path, name: str, delay: float
) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tmp_path / "run"), name], stdout=subprocess.PIPE, text=True
    )
    try:
        end = time.monotonic() + 60
        while not list((tmp_path / "run").glob("*.zt")) and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(delay)
        run.send_signal(signal.SIGTERM)
        output, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    manager = CheckpointManager(tmp_path / "run")
    restored = manager.restore()
    assert restored is not None
    assert restored.skipped == ()
    assert all(one.is_checked for one in manager.verify())
    assert restored.tree["step"] == restored.step
    assert (restored.tree["w"] == restored.step).all()
    if name:
        assert run.returncode == 0
        assert restored.step == int(output)
    else:
        assert run.returncode == -signal.SIGTERM
