"""`ztensor ckpt`: the steps of a run, listed, checked and removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flipping import flip
from tests.unit.cli.conftest import ExitCode, Run
from tests.unit.cli.test_wrong_inputs import require_plain
from ztensor import CheckpointManager


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a run of four steps: the third is pinned, the last damaged where no listing looks."""
    with CheckpointManager(tmp_path, keep=None, background=False, durable=False) as manager:
        for step, loss in [(10, 3.0), (20, 1.0), (30, 2.0), (40, 9.0)]:
            manager.save(step, {"w": np.full(1000, step)}, {"loss": loss})
        manager.pin(30)
    flip(tmp_path / "step-00000040.zt", 200)
    return tmp_path


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_ls_opens_each_step(run: Run, folder: Path) -> None:
    ended = run("ckpt", "ls", folder, "--json")
    assert (ended.code, ended.json["ok"]) == (0, True)
    found = ended.json["steps"]
    assert [one["step"] for one in found] == [10, 20, 30, 40]
    assert [one["pinned"] for one in found] == [False, False, True, False]
    assert found[1]["metrics"] == {"loss": 1.0}
    assert not any(one["checked"] for one in found)
    (folder / "step-00000010.zt").write_bytes(b"")
    ended = run("ckpt", "ls", folder)
    assert ended.code == ExitCode.FAILED
    assert "DAMAGED" in ended.out
    assert "loss 1" in ended.out
    assert "pinned" in ended.out


def test_verify_reads_every_byte(run: Run, folder: Path) -> None:
    ended = run("ckpt", "verify", folder, "--json")
    assert (ended.code, ended.json["ok"]) == (ExitCode.FAILED, False)
    assert [one["checked"] for one in ended.json["steps"]] == [True, True, True, False]
    assert ended.json["steps"][3]["error"]["reason"] == "digest_mismatch"
    ended = run("ckpt", "verify", folder, "--quiet")
    assert (ended.code, ended.out) == (ExitCode.FAILED, "")
    assert "step 40: DAMAGED" in ended.err


@pytest.mark.parametrize("inside", [[], ["model.zt"], ["step-1.zt", "readme.md"]])
@pytest.mark.parametrize("action", [["ls"], ["verify"], ["prune", "--keep", "1"]])
def test_a_folder_without_steps_is_an_error(
    run: Run, tmp_path: Path, action: list[str], inside: list[str]
) -> None:
    for name in inside:
        (tmp_path / name).write_bytes(b"")
    verb, *options = action
    ended = run("ckpt", verb, tmp_path, *options)
    assert (ended.code, ended.out) == (ExitCode.FAILED, "")
    assert "no step of a training run" in ended.err
    ended = run("ckpt", verb, tmp_path, *options, "--json")
    assert ended.json["error"]["reason"] == "source_not_found"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(inside)


def test_a_step_without_digests_is_unchecked(run: Run, tmp_path: Path) -> None:
    with CheckpointManager(tmp_path, checksum=None) as manager:
        manager.save(1, {"w": np.zeros(1000)})
    ended = run("ckpt", "verify", tmp_path)
    assert ended.code == 0
    assert "step 1: unchecked" in ended.out
    assert ended.lines[-1].endswith(": 1 step: 1 unchecked")


def test_prune_keeps_what_rules_say_and_the_newest_that_is_right(run: Run, folder: Path) -> None:
    before = steps(folder)
    planned = run("ckpt", "prune", folder, "--keep", "1", "--dry-run", "--json").json
    assert (planned["removed"], steps(folder)) == ([10, 20], before)
    ended = run("ckpt", "prune", folder, "--keep-best", "loss:1:min", "--json")
    assert ended.json["removed"] == [10]
    assert "step 20: removed" in run("ckpt", "prune", folder, "--keep", "1").out
    assert run("ckpt", "prune", folder, "--damaged", "--json").json["removed"] == [40]
    assert steps(folder) == ["step-00000030.zt"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("prune",), "needs a rule"),
        (("ls", "--keep", "1"), "for prune"),
        (("verify", "--dry-run"), "for prune"),
        (("prune", "--keep", "0"), "keep"),
        (("prune", "--keep-best", "loss"), "loss:2:min"),
        (("prune", "--keep-best", "loss:x:min"), "loss:2:min"),
        (("forget",), "choose from"),
    ],
)
def test_wrong_options(run: Run, folder: Path, arguments: tuple[str, ...], says: str) -> None:
    before = steps(folder)
    ended = run("ckpt", arguments[0], folder, *arguments[1:])
    assert ended.code == ExitCode.USAGE
    assert says in ended.err
    assert steps(folder) == before


@pytest.mark.parametrize("action", ["ls", "verify", "prune"])
@pytest.mark.parametrize(
    "given", ["no", "file.zt", "-", "/dev/null", "ftp://host/run", "hf://a/b/c"]
)
def test_arguments_that_are_not_folders_of_a_run(
    run: Run, here: Path, action: str, given: str
) -> None:
    (here / "file.zt").write_bytes(b"mine")
    more = ["--keep", "1"] if action == "prune" else []
    ended = run("ckpt", action, given, *more)
    assert ended.code in (ExitCode.FAILED, ExitCode.USAGE)
    assert given in ended.err
    require_plain(ended.err, given)
    assert (here / "file.zt").read_bytes() == b"mine"
