"""`ztensor delta`: each action, as text and as JSON, with its exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flipping import flip
from tests.unit.cli.conftest import ExitCode, Run
from tests.unit.delta.chains import publish, same, walk
from ztensor.numpy import load_file, save_file

STATES = walk(4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of three links; their states are beside it, as 0.zt to 3.zt."""
    for number, state in enumerate(STATES):
        save_file(state, tmp_path / f"{number}.zt")
    (tmp_path / "run").mkdir()
    publish(tmp_path / "run", STATES)
    return tmp_path


def test_make_and_apply_give_the_second_file(run: Run, folder: Path) -> None:
    made = run("delta", "make", folder / "0.zt", folder / "1.zt", "-o", folder / "d.zt", "--json")
    assert (made.code, made.err) == (0, "")
    assert (made.json["tensors"], made.json["file"]) == (3, str(folder / "d.zt"))
    apply = ["delta", "apply", folder / "d.zt", folder / "0.zt", "--force", "-o", folder / "new.zt"]
    for verify in ("touched", "full"):
        ended = run(*apply, "--verify", verify)
        assert (ended.code, ended.err) == (0, "")
        is_computed = verify == "full"  # of the whole state
        assert (made.json["result"].partition(":")[2][:12] in ended.out) is is_computed
    assert same(load_file(folder / "new.zt"), STATES[1])


@pytest.mark.parametrize(
    "options",
    [(), ("--small",), ("--values", "new"), ("--ids", "xxh3-128", "--label", "7"),
     ("--exclude", "bf16", "--threads", "1", "--no-durable")],
    ids=" ".join,
)  # fmt: skip
def test_options_of_make(run: Run, folder: Path, options: tuple[str, ...]) -> None:
    out = folder / "d.zt"
    made = run("delta", "make", folder / "0.zt", folder / "1.zt", "-o", out, "--json", *options)
    assert made.code == 0
    shown = run("delta", "show", out, "--json").json
    assert shown["base"] == made.json["base"]
    assert len(shown["tensors"]) == 3 - ("--exclude" in options)
    assert shown["label"] == ("7" if "--label" in options else None)
    assert run("delta", "verify", out, "--base", folder / "0.zt", "-q").code == 0


def test_show_lists_the_tensors(run: Run, folder: Path) -> None:
    path = folder / "run" / "50.zt"
    ended = run("delta", "show", path)
    assert ended.code == 0
    assert "bf16" in ended.out
    shown = run("delta", "show", path, "--json").json
    assert shown["dialect"] == "zt"
    assert {each["name"]: each["changed"] for each in shown["tensors"]} == {
        name: np.count_nonzero(STATES[0][name] != STATES[1][name])
        for name in ("f32", "bf16", "codes")
    }


def test_info_says_what_a_delta_changes(run: Run, folder: Path) -> None:
    path = folder / "run" / "50.zt"
    ended = run("info", path)
    assert f"ztensor delta show {path}" in ended.out
    assert "$bytes" not in ended.out
    table = run("info", path, "--json").json["attributes"]["pyztensor.delta"]
    assert {"tensors", "changes"} <= table.keys()


def test_log_lists_the_chain(run: Run, folder: Path) -> None:
    ended = run("delta", "log", folder / "run")
    assert (ended.code, ended.err) == (0, "")
    assert [line.split()[0] for line in ended.lines[1:4]] == ["50.zt", "49.zt", "48.zt"]
    found = run("delta", "log", folder / "run", "--json").json
    assert found["ok"]
    assert [link["label"] for link in found["links"]] == ["step 1", "step 2", "step 3"]
    (folder / "run" / "49.zt").unlink()
    ended = run("delta", "log", folder / "run")
    assert ended.code == ExitCode.FAILED
    assert "gap" in ended.out
    found = run("delta", "log", folder / "run", "--json")
    assert (found.code, found.json["ok"], len(found.json["starts"])) == (1, False, 2)
    (folder / "run" / "x.zt").write_bytes(b"torn")
    assert "DAMAGED" in run("delta", "log", folder / "run").out
    found = run("delta", "log", folder / "run", "--json").json
    assert [error["reason"] for error in found["damaged"].values()] == ["not_ztensor"]


@pytest.mark.parametrize("base", [False, True])
def test_fold(run: Run, folder: Path, base: bool) -> None:
    options = ("--base", folder / "0.zt", "--small") if base else ()
    out = folder / "f.zt"
    if not base:
        ended = run("delta", "fold", folder / "run", "-o", out, "--small", "--json")
        assert (ended.code, ended.json["error"]["reason"]) == (1, "delta_needs_base")
        assert not out.exists()
    ended = run("delta", "fold", folder / "run", "-o", out, *options, "--json")
    assert ended.code == 0
    assert ended.json["tensors"] == 3
    verified = run("delta", "verify", out, "--base", folder / "0.zt", "--new", folder / "3.zt")
    assert verified.code == 0
    again = run("delta", "fold", folder / "run", "-o", out)
    assert again.code == ExitCode.USAGE
    assert "--force" in again.err
    assert run("delta", "fold", folder / "run", "-o", out, "--force", "-q").code == 0


def test_verify(run: Run, folder: Path) -> None:
    ended = run("delta", "verify", folder / "run")
    assert ended.code == 0
    assert "not checked" in ended.out
    states = ("--base", folder / "0.zt", "--new", folder / "3.zt")
    found = run("delta", "verify", folder / "run", *states, "--json").json
    assert (found["ok"], found["states_checked"], found["deltas"]) == (True, True, 3)
    flip(folder / "run" / "49.zt", 200)
    ended = run("delta", "verify", folder / "run")
    assert ended.code == ExitCode.FAILED
    assert "WRONG" in ended.out
    found = run("delta", "verify", folder / "run", "--json").json
    assert [problem["reason"] for problem in found["problems"]] == ["digest_mismatch"]


def test_apply_in_place_to_a_state(run: Run, folder: Path) -> None:
    before = (folder / "0.zt").read_bytes()
    arguments = ("delta", "apply", folder / "run", folder / "0.zt", "--in-place")
    planned = run(*arguments, "--to", "step 2", "--dry-run", "--json")
    assert (planned.code, planned.json["dry_run"]) == (0, True)
    assert (folder / "0.zt").read_bytes() == before
    ended = run(*arguments, "--to", "step 2", "--verify", "full", "--json")
    assert (ended.code, len(ended.json["deltas"])) == (0, 2)
    assert same(load_file(folder / "0.zt"), STATES[2])
    again = run(*arguments, "--to", "step 2", "--json")
    assert (again.code, again.json["error"]["reason"]) == (ExitCode.FAILED, "delta_applied")
    assert run(*arguments, "--to", "step 2", "--skip-applied", "-q").code == 0
    path = folder / "run" / "50.zt"
    ended = run("delta", "apply", path, folder / "3.zt", "-o", folder / "new.zt", "--json")
    assert (ended.code, ended.json["error"]["reason"]) == (ExitCode.FAILED, "delta_base")
    assert not (folder / "new.zt").exists()


@pytest.mark.parametrize("dialect", ["slime", "arc"])
def test_deltas_of_other_programs(run: Run, tmp_path: Path, dialect: str) -> None:
    states = [{"w": np.arange(9, dtype=np.float32)}, {"w": np.arange(9, dtype=np.float32)[::-1]}]
    for number, state in enumerate(states):
        save_file({"w": state["w"].copy()}, tmp_path / f"{number}.safetensors")
    old, new = (str(tmp_path / f"{number}.safetensors") for number in (0, 1))
    path = str(tmp_path / ("weight_v000007" if dialect == "slime" else "delta.safetensors"))
    version = ("--version", "7") if dialect == "slime" else ()
    assert run("delta", "make", old, new, "-o", path, "--dialect", dialect, *version).code == 0
    named = ("--dialect", dialect) if dialect == "arc" else ()
    shown = run("delta", "show", path, *named, "--json").json
    assert (shown["dialect"], shown["tensors"][0]["shape"]) == (dialect, None)
    assert run("delta", "show", path, *named).code == 0
    assert run("delta", "log", path, *named).code == 0
    assert run("delta", "verify", path, *named, "--base", old).code == 0
    applied = str(tmp_path / "new.safetensors")
    assert run("delta", "apply", path, old, "-o", applied, *named).code == 0
    assert np.array_equal(load_file(applied)["w"], states[1]["w"])
    folded = str(tmp_path / "fold.zt")
    assert run("delta", "fold", path, "-o", folded, "--base", old, *named).code == 0
    assert run("delta", "verify", folded, "--base", old, "--new", new).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("make", "0.zt", "-o", "d.zt"),
        ("make", "0.zt", "1.zt", "2.zt", "-o", "d.zt"),
        ("make", "0.zt", "1.zt"),
        ("make", "0.zt", "1.zt", "-o", "d.npz"),
        ("make", "0.zt", "1.zt", "-o", "d.zt", "--to", "x"),
        ("apply", "0.zt", "-o", "d.zt"),
        ("apply", "run", "0.zt"),
        ("apply", "run", "0.zt", "-o", "d.zt", "--in-place"),
        ("apply", "run", "0.zt", "-o", "1.zt"),
        ("fold", "run"),
        ("log", "run", "--base", "0.zt"),
        ("verify", "run", "-o", "d.zt"),
        ("show", "run", "--small"),
        ("other", "run"),
        ("log",),
    ],
    ids=" ".join,
)
def test_wrong_arguments(run: Run, folder: Path, words: tuple[str, ...]) -> None:
    before = sorted(folder.rglob("*"))
    names = [str(folder / word) if (folder / word).exists() or "." in word else word
             for word in words]  # fmt: skip
    ended = run("delta", *names)
    assert (ended.code, ended.out) == (ExitCode.USAGE, "")
    assert sorted(folder.rglob("*")) == before
