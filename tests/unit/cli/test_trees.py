"""Training states: the verbs show values by path, not their encoded bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import ExitCode, Run


def state(rate: float = 0.1) -> dict[str, Any]:
    return {
        "model": {"w": np.ones(3)},
        "optimizer": {"groups": [{"lr": rate, "betas": (0.9, 0.99)}], "state": {}},
        "random": tuple(range(40)),
        "nan": [float("nan"), np.float32("nan")],
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    ztensor.save_tree(state(), tmp_path / "state.zt", {"run": "a"})
    return tmp_path / "state.zt"


def changed(file: Path, tree: Any, **options: Any) -> Path:
    other = file.with_name("other.zt")
    ztensor.save_tree(tree, other, {"run": "a"}, **options)
    return other


def test_diff_names_the_values_that_differ(run: Run, file: Path) -> None:
    tree = state(0.01)
    tree["optimizer"]["groups"][0]["betas"] = [0.9, 0.99]
    tree["optimizer"]["state"] = {0: 1}
    tree["random"] = tuple(range(1, 41))
    tree["new"] = None
    tree["model"]["more"] = np.ones(2)
    other = changed(file, tree)
    found = ztensor.diff(file, other)
    assert not found.ok
    assert not found.attributes
    words = ("a tuple", "a list", "a dict", "MISSING")
    shown = {
        path: tuple(str(value) if str(value) in words else value for value in pair)
        for path, pair in found.values.items()
    }
    assert shown == {
        "optimizer.groups.0.lr": (0.1, 0.01),
        "optimizer.groups.0.betas": ("a tuple", "a list"),
        "optimizer.state": ({}, "a dict"),
        "random": (tuple(range(40)), tuple(range(1, 41))),
        "optimizer.state.0": ("MISSING", 1),
        "new": ("MISSING", None),
    }
    assert [one.name for one in found.differing] == ["model.more"]
    assert "6 values" in repr(found)
    ended = run("diff", file, other)
    assert ended.code == ExitCode.FAILED
    assert "optimizer.groups.0.lr: 0.1 -> 0.01" in ended.lines
    assert "optimizer.groups.0.betas: a tuple -> a list" in ended.lines
    assert "6 values differ" in ended.lines[-1]
    shown = run("diff", file, other, "--json").json["values"]
    assert shown["optimizer.groups.0.lr"] == {"a": 0.1, "b": 0.01}
    assert shown["new"] == {"b": None}


def test_equal_states_do_not_differ_however_they_are_stored(run: Run, file: Path) -> None:
    other = changed(file, state(), compression=True)
    assert run("diff", file, other).code == 0
    with ztensor.open(other) as reader:
        ztensor.numpy.save_file({"w": np.ones(3)}, file.with_name("plain.zt"))
        assert not ztensor.diff(reader, file.with_name("plain.zt")).ok  # only one is a state


def test_other_differences_of_trees(file: Path) -> None:
    """The order of keys, a value in the place of a tensor, a tree that cannot be read."""
    found = ztensor.diff(file, changed(file, dict(reversed(state().items()))))
    assert (dict(found.values), list(found.attributes)) == ({}, ["tree"])
    tree = state()
    tree["model"]["w"] = "none"
    found = ztensor.diff(file, changed(file, tree))
    assert list(found.values) == ["model.w"]
    assert found.values["model.w"][1] == "none"
    other = changed(file, state(0.01))
    ztensor.edit.set_attributes(other, {"tree": {"version": 1, "shape": b"\xff"}})
    found = ztensor.diff(file, other)
    assert (dict(found.values), list(found.attributes)) == ({}, ["tree"])


def test_info_shows_values_in_place_of_their_bytes(run: Run, file: Path) -> None:
    shown = run("info", file, "--json").json
    assert shown["attributes"] == {"run": "a"}
    assert shown["tree"]["optimizer.groups.0.lr"] == 0.1
    assert "model.w" not in shown["tree"]
    lines = run("info", file).lines
    assert "values of the tree" in lines
    assert "$bytes" not in "".join(lines)
    ztensor.edit.set_attributes(file, {"tree": {"version": 1, "shape": b"\xff"}})
    shown = run("info", file, "--json").json
    assert shown["tree"] is None
    assert shown["attributes"]["tree"]["shape"] == {"$bytes": "ff"}


def test_show_takes_the_path_of_a_value(run: Run, file: Path) -> None:
    ended = run("show", file, "optimizer.groups.0", "--json")
    assert ended.json == {
        "file": str(file),
        "name": "optimizer.groups.0",
        "tree": {
            "optimizer.groups.0.lr": 0.1,
            "optimizer.groups.0.betas.0": 0.9,
            "optimizer.groups.0.betas.1": 0.99,
        },
    }
    assert run("show", file, "optimizer.groups.0.lr").out.split() == [
        "optimizer.groups.0.lr",
        "0.1",
    ]
    assert "tensor 'model.w'" in run("show", file, "model").out
    assert run("show", file, "model.w").code == 0  # the object
    assert run("show", file, "optimizer.lr").code == ExitCode.USAGE
    ztensor.edit.set_attributes(file, {"tree": {"version": 1, "shape": b"\xff"}})
    assert run("show", file, "optimizer.groups.0").code == ExitCode.USAGE
