"""Removing steps leaves links, and files and folders of the user, alone."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.planting import MODEL, Area
from ztensor import CheckpointManager
from ztensor.errors import FormatError, SourceError, UsageError


class Run(Area):
    """A run in a folder, or in a store in memory."""

    def manager(self, **options: Any) -> CheckpointManager:
        options = {"background": False, "durable": False, "keep": None} | options
        return CheckpointManager(self.where(), **options)


@pytest.fixture(params=["disk", "store"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    return Run(tmp_path / "run" if request.param == "disk" else None)


def state(step: int) -> dict[str, Any]:
    return {"w": np.full(500, step, np.float32)}


def saved(run: Run, *steps: int, **options: Any) -> CheckpointManager:
    manager = run.manager(**options)
    for step in steps:
        manager.save(step, state(step), {"loss": float(step)})
    return manager


def rotate(run: Run, increments: bool) -> None:
    run.manager(keep=1, increments=increments).save(9, state(9))


def delete(run: Run, increments: bool) -> None:
    run.manager(increments=increments).delete(1)


def prune(run: Run, increments: bool) -> None:
    assert run.manager(keep=1, increments=increments).prune() == [1]


VERBS: list[Callable[[Run, bool], None]] = [rotate, delete, prune]
# Files of the user in the folder of a step.
FOREIGN = {
    "NOTES.txt": b"mine",
    "config.json": b"{}",
    "empty": b"",
    "other.zt": MODEL,
    "00000-0123abcd.zt": MODEL,  # the name of a file of a process
    "00001-0123abcd.zt": b"text of a user, in such a file",
    "sub/deep.txt": b"mine",
    "sub/checkpoint.zt": MODEL,
}


@pytest.mark.parametrize("verb", VERBS)
def test_files_of_users_in_the_folder_of_a_step_stay(
    run: Run, verb: Callable[[Run, bool], None]
) -> None:
    saved(run, 1, 2, increments=True)
    for name, body in FOREIGN.items():
        run.put(f"step-00000001/{name}", body)
    verb(run, True)
    left = {name: body for name, body in run.tree().items() if name.startswith("step-00000001/")}
    assert left == {f"step-00000001/{name}": body for name, body in FOREIGN.items()}
    manager = run.manager(increments=True)
    assert 1 not in [one.step for one in manager.checkpoints()]  # the folder stops being a step
    assert manager.restore().step in (2, 9)  # type: ignore[union-attr]
    assert manager.latest() in (2, 9)
    manager.save(10, state(10))
    assert manager.prune(damaged=True) == []
    assert {name: body for name, body in run.tree().items() if name in left} == left


def test_a_removed_step_leaves_no_empty_folder(run: Run) -> None:
    manager = saved(run, 1, 2, 3, increments=True)
    manager.delete(1)
    run.manager(keep=1).prune()
    assert {name.partition("/")[0] for name in run.tree()} == {"step-00000003"}
    if run.folder is not None:
        assert [path.name for path in run.folder.iterdir()] == ["step-00000003"]


def test_empty_objects_of_a_removed_step_stay_and_are_no_step() -> None:
    """Consoles of stores mark folders by empty objects; no save of ours makes one."""
    run = Run(None)
    manager = saved(run, 1, 2, increments=True)
    for name in ("", "00000-0123abcd.zt", "marks/"):
        run.put(f"step-00000001/{name}", b"")
    manager.delete(1)
    left = {name for name, body in run.tree().items() if not body}
    assert "step-00000001/00000-0123abcd.zt" in left
    assert [
        name for name, body in run.tree().items() if body and name.startswith("step-00000001")
    ] == []
    assert [one.step for one in run.manager().checkpoints()] == [2]


# --- Intact files that only have the name of a step -----------------------------------------


def planted(run: Run) -> dict[str, bytes]:
    """Save steps 5 and 6, and plant files and folders under the names of others."""
    saved(run, 5, 6)
    step = run.tree()["step-00000005.zt"]
    files = {
        "step-00000001.zt": MODEL,
        "step-00000002.zt": b"text of a user, no tensors",
        "step-00000003.zt": step,  # says that it is step 5
        "step-00000004/checkpoint.zt": MODEL,
        "step-00000007/checkpoint.zt": b"text of a user, no tensors",
        "step-00000008.zt": MODEL,
    }
    for name, body in files.items():
        run.put(name, body)
    return files


def test_a_file_with_only_the_name_of_a_step_stays(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    files = planted(run)
    manager = run.manager(keep=1, overwrite_newer=True)
    found = {one.step: one for one in manager.checkpoints()}
    assert [step for step, one in found.items() if one.problem is None] == [5, 6]
    assert not any(one.is_damaged for one in found.values())
    with caplog.at_level(logging.WARNING, "ztensor"):
        restored = manager.restore()
    assert restored is not None
    assert (restored.step, restored.skipped) == (6, ())
    assert "damaged" not in caplog.text
    assert manager.prune(damaged=True, dry_run=True) == [5]
    assert manager.prune(damaged=True) == [5]
    assert not any(one.is_damaged for one in manager.verify())
    manager.save(6, state(6))  # removes newer steps
    for step in (1, 2, 3, 4, 7, 8):
        with pytest.raises(UsageError):
            manager.delete(step)
        with pytest.raises(FormatError):
            manager.restore(step)
    tree = run.tree()
    assert {name: tree[name] for name in files} == files
    assert set(tree) == {*files, "step-00000006.zt"}


def test_a_step_is_not_saved_over_a_file_that_is_none(run: Run) -> None:
    files = planted(run)
    manager = run.manager(overwrite_newer=True)
    for step in (7, 8):
        with pytest.raises(UsageError):
            manager.save(step, state(step))
        with pytest.raises(UsageError):
            run.manager(increments=True, overwrite_newer=True).save(step, state(step))
    tree = run.tree()
    assert {name: tree[name] for name in files} == files


def test_a_run_without_steps_is_new_unless_a_step_was_renamed(run: Run) -> None:
    run.put("step-00000001.zt", MODEL)
    assert run.manager().restore() is None
    saved(run, 5)
    body = run.tree()["step-00000005.zt"]
    other = Run(None if run.folder is None else run.folder / "other")
    other.put("step-00000002.zt", body)
    with pytest.raises(FormatError):
        other.manager().restore()


@pytest.mark.parametrize("harm", ["cut", "empty", "head", "tail", "middle"])
@pytest.mark.parametrize("increments", [False, True])
def test_damaged_steps_still_go_when_asked(run: Run, harm: str, increments: bool) -> None:
    if harm == "empty" and run.folder is None:
        pytest.skip("empty objects mark folders")
    saved(run, 1, 2, increments=increments)
    name = "step-00000001/checkpoint.zt" if increments else "step-00000001.zt"
    body = bytearray(run.tree()[name])
    if harm in ("cut", "empty"):
        del body[-50 if harm == "cut" else 0 :]
    else:
        at = {"head": 3, "tail": len(body) - 3, "middle": len(body) - 60}[harm]
        body[at : at + 4 if harm == "middle" else at + 1] = b"\xff" * (4 if harm == "middle" else 1)
    run.put(name, bytes(body))
    manager = run.manager()
    assert [one.step for one in manager.checkpoints() if one.is_damaged] == [1]
    assert manager.prune(damaged=True) == [1]
    assert {name.partition("/")[0] for name in run.tree() if "00000001" in name} == set()


# --- Links ----------------------------------------------------------------------------------


def led(tmp_path: Path, increments: bool) -> tuple[Run, dict[str, bytes], Run]:
    """Save steps 1 to 3, of which the first is elsewhere, and its name a link to that."""
    run, elsewhere = Run(tmp_path / "run"), Run(tmp_path / "elsewhere")
    assert run.folder is not None
    saved(run, 1, 2, 3, increments=increments)
    name = "step-00000001" if increments else "step-00000001.zt"
    elsewhere.put("NOTES.txt", b"mine")
    shutil.move(run.folder / name, tmp_path / "elsewhere" / name)
    (run.folder / name).symlink_to(tmp_path / "elsewhere" / name)
    return run, elsewhere.tree(), elsewhere


@pytest.mark.skipif(os.name == "nt", reason="makes links")
@pytest.mark.parametrize("increments", [False, True])
def test_a_step_behind_a_link_is_read_and_never_removed(tmp_path: Path, increments: bool) -> None:
    run, before, elsewhere = led(tmp_path, increments)
    manager = run.manager(keep=1, increments=increments)
    assert manager.restore(1) is not None
    rotating = run.manager(keep=1, increments=increments)
    rotating.save(4, state(4))
    assert rotating.prune(damaged=True) == []
    assert rotating.steps() == [1, 4]
    with pytest.raises(UsageError):
        rotating.delete(1)
    with pytest.raises(UsageError):  # nor written through it
        run.manager(increments=increments, overwrite_newer=True).save(1, state(7))
    assert elsewhere.tree() == before


@pytest.mark.skipif(os.name == "nt", reason="makes links")
def test_nothing_is_cleared_or_written_behind_a_link(tmp_path: Path) -> None:
    run, elsewhere = Run(tmp_path / "run"), Run(tmp_path / "elsewhere")
    assert run.folder is not None
    saved(elsewhere, 1, increments=True)
    (tmp_path / "elsewhere" / "step-00000001" / "checkpoint.zt").unlink()  # as a dead save's
    before = elsewhere.tree()
    saved(run, 2)
    (run.folder / "step-00000001").symlink_to(tmp_path / "elsewhere" / "step-00000001")
    (run.folder / "step-00000005").symlink_to(tmp_path / "elsewhere")
    (run.folder / "step-00000006.zt").symlink_to(tmp_path / "elsewhere" / "new.zt")
    manager = run.manager(increments=True)
    for step in (5, 6):
        with pytest.raises((UsageError, SourceError)):
            manager.save(step, state(step))
    with pytest.raises((UsageError, SourceError)):
        manager.save_divided(5, lambda folder, values: None)
    manager.save(9, state(9))
    manager.prune(damaged=True)
    assert elsewhere.tree() == before
    assert (run.folder / "step-00000001").is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="makes links")
@pytest.mark.parametrize("verb", VERBS)
def test_links_in_the_folder_of_a_step_stay_and_lead_nowhere(
    tmp_path: Path, verb: Callable[[Run, bool], None]
) -> None:
    run, elsewhere = Run(tmp_path / "run"), Run(tmp_path / "elsewhere")
    assert run.folder is not None
    saved(run, 1, 2, increments=True)
    step = run.folder / "step-00000001"
    part = next(path for path in step.iterdir() if path.name != "checkpoint.zt")
    elsewhere.put(part.name, part.read_bytes())  # a good file of a process
    before = elsewhere.tree()
    (step / "00003-0123abcd.zt").symlink_to(tmp_path / "elsewhere" / part.name)
    (step / "00004-0123abcd.zt").symlink_to(tmp_path / "elsewhere")
    (step / "deep").symlink_to(tmp_path / "elsewhere")
    verb(run, True)
    assert elsewhere.tree() == before
    assert sorted(path.name for path in step.iterdir()) == [
        "00003-0123abcd.zt",
        "00004-0123abcd.zt",
        "deep",
    ]


@pytest.mark.skipif(os.name == "nt", reason="makes links")
def test_a_run_that_is_itself_a_link_goes_on(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    saved(Run(tmp_path / "run"), 1, 2, 3, keep=1, increments=True)
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["step-00000003"]
