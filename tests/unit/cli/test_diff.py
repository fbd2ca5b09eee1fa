from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    one, two = tmp_path / "a.zt", tmp_path / "b.zt"
    same = np.arange(6.0).reshape(2, 3)
    save_file({"same": same, "moved": same, "gone": same, "shape": same}, one, {"k": 1})
    moved = same.copy()
    moved[1, 2] = 5.5
    save_file({"same": same, "moved": moved, "shape": same.T.copy(), "new": same}, two, {"k": "x"})
    return one, two


def test_only_what_differs_is_listed(run: Run, pair: tuple[Path, Path]) -> None:
    ended = run("diff", *pair)
    assert ended.code == 1
    rows = {line.split("  ")[0]: line for line in ended.lines}
    assert rows["moved"].split() == [
        "moved", "values", "0.5", "0.0909", "0.998868", "16.67%", "[1,2]",
    ]  # fmt: skip
    assert "only in a" in rows["gone"]
    assert "only in b" in rows["new"]
    assert "shape [2, 3] -> [3, 2]" in rows["shape"]
    assert "same" not in rows
    assert "attribute 'k': 1 -> \"x\"" in ended.out
    assert any(line.split()[:2] == ["same", "equal"] for line in run("diff", *pair, "--all").lines)
    assert ended.lines[-1] == (
        "5 objects: 1 equal (1 by digest, unread), 2 different, 1 only in a, 1 only in b"
    )


@pytest.mark.parametrize(
    ("changed", "shown"), [(1, "<0.01%"), (2, "0.01%"), (29_999, ">99.99%"), (30_000, "100.00%")]
)
def test_a_few_changed_are_not_none(run: Run, tmp_path: Path, changed: int, shown: str) -> None:
    one, two = tmp_path / "a.zt", tmp_path / "b.zt"
    save_file({"w": np.zeros(30_000)}, one)
    save_file({"w": (np.arange(30_000) < changed) * 1.0}, two)
    assert shown in run("diff", one, two).lines[1].split()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--include", "same"], 0),
        (["--include", "moved"], 1),
        (["--include", "moved", "--atol", "0.5"], 0),
        (["--include", "moved", "--rtol", "0.1"], 0),
        (["--include", "moved", "--rtol", "0.01"], 1),
        (["--include", "new"], 1),
        (["--exclude", "[gmn]*", "--exclude", "shape"], 0),
        (["--include", "nope"], 2),
        (["--atol", "-1"], 2),
        (["--rename", "x"], 2),
        (["--rename", "(=x"], 2),
    ],
    ids=str,
)
def test_exit_codes(run: Run, pair: tuple[Path, Path], options: list[str], code: int) -> None:
    assert run("diff", *pair, *options).code == code
    assert run("diff", *pair, *options, "--quiet").out == ""


def test_objects_that_cannot_be_compared(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "a.zt", tmp_path / "b.zt"
    for path, value in ((one, 1.0), (two, 2.0)):
        with ztensor.Writer(path) as writer:
            parts = {"x": np.full(2, value)}
            writer.write("w", ztensor.Tensor(parts, shape=(2,), format="strange"))
    ended = run("diff", one, two)
    assert ended.code == 1
    assert "'w': values were not compared: the layout 'strange' is unknown" in ended.out


def test_a_narrow_terminal(run_on_terminal: Run, pair: tuple[Path, Path]) -> None:
    out = run_on_terminal("diff", *pair, "--include", "moved", width=40).out
    assert "cosine 0.998868, changed 16.67%, first at [1,2]" in out


def test_equal_files_renamed_objects_types_and_layouts(run: Run, tmp_path: Path) -> None:
    one, two = tmp_path / "a.zt", tmp_path / "b.zt"
    save_file({"model.w": ztensor.Tensor.csr([1.0], [1], [0, 1], (1, 2))}, one)
    save_file({"w": np.array([[0, 1]], np.float32)}, two)
    rename = ("--rename", r"^model\.=")
    out = run("diff", one, two, *rename).out
    assert "model.w -> w" in out
    assert "type float64 -> float32, layout sparse_csr -> dense" in out
    assert run("diff", one, two, *rename, "--values-only").code == 0
    ended = run("diff", one, one)
    assert (ended.code, ended.out) == (0, "1 object: 1 equal (1 by digest, unread)\n")
    assert run("diff", one, one, "--no-digests").out == "1 object: 1 equal\n"


def test_json(run: Run, pair: tuple[Path, Path]) -> None:
    found = run("diff", *pair, "--json").json
    assert found["ok"] is False
    assert found["attributes"] == {"k": {"a": 1, "b": "x"}}
    objects = {one["name"]: one for one in found["objects"]}
    assert objects["moved"]["values"]["first"] == [1, 2]
    assert objects["same"]["compared"] == "digest"
    assert objects["gone"]["b"] is None
    assert objects["shape"]["differences"] == ["shape"]
