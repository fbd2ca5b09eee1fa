"""A flipped bit near the end of a step costs that step and not the run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.flipping import flip
from ztensor import CheckpointManager
from ztensor.errors import UnsupportedVersionError

KINDS: dict[str, dict[str, Any]] = {
    "1.2": {"version": "1.2.0"},
    "2.1": {"version": "2.1"},
    "divided": {"increments": True},
}


def state(number: int) -> dict[str, Any]:
    return {"w": np.arange(20, dtype=np.float32) + number, "step": number}


def saved(folder: Path, kind: str) -> Path:
    """Save two steps, and return the file that makes the second one a step."""
    with CheckpointManager(folder, background=False, durable=False, **KINDS[kind]) as manager:
        manager.save(1, state(1))
        manager.save(2, state(2))
    name = "step-00000002/checkpoint.zt" if kind == "divided" else "step-00000002.zt"
    return folder / name


def outcomes(folder: Path, file: Path, length: int) -> dict[int, int]:
    """Flip each of the last bits of a file; return how often which step was restored."""
    good, steps = file.read_bytes(), {1: 0, 2: 0}
    for bit in range(8 * max(0, len(good) - length), 8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        restored = CheckpointManager(folder).restore()
        assert restored is not None
        step = int(restored.step)
        assert np.array_equal(restored.tree["w"], state(step)["w"])
        assert restored.tree["step"] == step
        assert [one for one, _ in restored.skipped] == [2] * (step == 1)
        steps[step] += 1
    return steps


@pytest.mark.parametrize("kind", KINDS)
def test_restore_takes_the_step_before_if_any_bit_of_the_last_is_flipped(
    kind: str, tmp_path: Path
) -> None:
    logging.disable(logging.WARNING)
    try:
        found = outcomes(tmp_path, saved(tmp_path, kind), 40)
    finally:
        logging.disable(logging.NOTSET)
    # Four bytes of the footer of 2.x mean nothing.
    assert found == ({1: 288, 2: 32} if kind == "2.1" else {1: 320, 2: 0})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["1.2", "divided"])
def test_restore_takes_the_step_before_if_any_bit_of_its_manifest_is_flipped(
    kind: str, tmp_path: Path
) -> None:
    logging.disable(logging.WARNING)
    try:
        found = outcomes(tmp_path, saved(tmp_path, kind), 150)
    finally:
        logging.disable(logging.NOTSET)
    assert found == {1: 1200, 2: 0}


def test_a_manifest_longer_than_its_file_is_damage_not_a_limit(tmp_path: Path) -> None:
    file = saved(tmp_path, "2.1")
    flip(file, -28)  # 4 GiB more
    found = {one.step: one for one in CheckpointManager(tmp_path).checkpoints()}
    assert found[2].is_damaged
    assert not found[1].is_damaged


def test_a_run_whose_steps_all_need_a_newer_release_raises(tmp_path: Path) -> None:
    saved(tmp_path, "2.1")
    for file in tmp_path.glob("*.zt"):
        data = bytearray(file.read_bytes())
        data[-16] = 3
        file.write_bytes(data)
    manager = CheckpointManager(tmp_path)
    with pytest.raises(UnsupportedVersionError):
        manager.restore()
    assert [one.is_damaged for one in manager.checkpoints()] == [False, False]
    assert manager.prune(damaged=True) == []
