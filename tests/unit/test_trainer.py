"""The folder that the `Trainer` of transformers resumes from, run after run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import ztensor.trainer  # noqa: E402
from ztensor import CheckpointManager, UsageError  # noqa: E402
from ztensor.torch import load_file  # noqa: E402


def state(step: int, *, has_scheduler: bool = True) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((3,), float(step))},
        "optimizer": {"state": {}, "lr": 0.1 * step},
        "scheduler": {"last": step} if has_scheduler else None,
        "random": {"seed": step},
        "trainer_state": {"global_step": step},
    }


def test_a_script_starts_and_resumes_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "resumed"
    for run in range(4):
        with CheckpointManager(tmp_path / "run") as manager:
            found = ztensor.trainer.unpack(manager, folder)
            if run == 0:
                assert found is None
                assert not folder.exists()
            else:
                assert found == str(folder)
                assert json.loads((folder / "trainer_state.json").read_text()) == {
                    "global_step": run
                }
                assert load_file(folder / "model.safetensors")["w"].tolist() == [run] * 3
                assert torch.load(folder / "scheduler.pt") == {"last": run}
            manager.save(run + 1, state(run + 1))


def files(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.mark.parametrize("names", [["model.safetensors"], ["notes.txt"], ["unpacked.txt"]])
def test_a_folder_of_something_else_is_left_alone(names: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "resumed"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("mine")
    before = files(folder)
    with CheckpointManager(tmp_path / "run", background=False) as manager:
        manager.save(1, state(1))
        with pytest.raises(UsageError):
            ztensor.trainer.unpack(manager, folder)
    assert files(folder) == before


def test_no_file_of_an_older_step_is_taken_for_one_of_the_newer(tmp_path: Path) -> None:
    folder = tmp_path / "resumed"
    with CheckpointManager(tmp_path / "run", background=False) as manager:
        manager.save(1, state(1))
        ztensor.trainer.unpack(manager, folder)
        before = files(folder)
        manager.save(2, state(2, has_scheduler=False))
        with pytest.raises(UsageError):
            ztensor.trainer.unpack(manager, folder)
    assert files(folder) == before
