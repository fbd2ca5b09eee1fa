from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file


def test_many_objects_have_a_line_each(run: Run, model: Path) -> None:
    ended = run("plot", model)
    assert ended.code == 0
    rows = {line.split()[0]: line for line in ended.lines}
    assert set(rows) >= {"name", "bias", "scalar", "empty", "sparse"}
    assert "nothing to draw" in rows["empty"]
    assert rows["bias"].endswith("1, 1 NaN, 1 inf")
    assert len(run("plot", model, "h.2.w", "--height", 3).lines) == 6
    assert len(run("plot", model, "h.*", "--height", 3).lines) == 3 * 6 + 2


@pytest.mark.parametrize(("count", "letters"), [(1, " .:#"), (9, " .:-=+*#%@")])
def test_a_terminal_without_blocks(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, count: int, letters: str
) -> None:
    path = tmp_path / "m.zt"
    values = np.random.default_rng(0).normal(size=5000)
    save_file({f"w{number}": values for number in range(count)}, path)
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    monkeypatch.setattr("sys.stdout", plain)
    run("plot", path)
    buffer = plain.buffer
    assert isinstance(buffer, io.BytesIO)
    shown = buffer.getvalue().decode("ascii")
    assert "\\u" not in shown
    assert letters[-1] in shown


def test_a_picture(run: Run, model: Path, tmp_path: Path) -> None:
    target = tmp_path / "m.svg"
    ended = run("plot", model, "-o", target)
    assert (ended.code, ended.out) == (0, f"{target}: 9 histograms drawn\n")
    assert target.read_text("utf-8").startswith("<?xml ")
    refused = run("plot", model, "-o", target)
    assert refused.code == 2
    assert "--force replaces it" in refused.err
    assert run("plot", model, "h.*", "-o", target, "--force", "--log").code == 0


def test_a_picture_of_an_unknown_kind(run: Run, model: Path, tmp_path: Path) -> None:
    ended = run("plot", model, "-o", tmp_path / "m.pdf")
    assert ended.code == 2
    assert ".svg or .png" in ended.err


def test_json(run: Run, model: Path) -> None:
    found = run("plot", model, "h.2.w", "--json").json
    (one,) = found["objects"]
    assert (one["name"], one["scale"], sum(one["counts"])) == ("h.2.w", "linear", 2048)
    assert len(one["edges"]) == len(one["counts"]) + 1
    assert run("plot", model, "empty", "--json").json["objects"][0]["counts"] is None
