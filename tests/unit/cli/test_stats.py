from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file


def test_a_line_for_each_and_one_for_all(run: Run, model: Path) -> None:
    ended = run("stats", model)
    assert ended.code == 0
    rows = {line.split()[0]: line.split()[1:] for line in ended.lines}
    assert rows["name"] == ["type", "count", "min", "max", "mean", "std", "zeros", "NaN", "inf"]
    assert rows["scalar"] == ["int64", "1", "7", "7", "7.0", "0.0", "0", "0", "0"]
    assert rows["bias"][:4] == ["float64", "4", "-3.0", "1.0"]
    assert rows["bias"][-2:] == ["1", "1"]
    assert rows["sparse"][1] == "12"
    assert rows["int4"][0] == "dequantized"
    assert rows["empty"] == ["float16", "0", "-", "-", "-", "-", "0", "0", "0"]
    assert ended.lines[-1].startswith("total")


def test_on_a_terminal(run_on_terminal: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file({"w": np.linspace(-1, 1, 10_000, dtype=np.float32)}, path)
    out = run_on_terminal("stats", path, width=40).out
    assert "10,000" in out
    assert "1 object, type float32, zeros 0, NaN 0, inf 0" in out


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["h.*"], {"h.2.w", "h.10.w", "h.10.fp8"}),
        (["--include", "h.10.*", "--exclude", "*fp8"], {"h.10.w"}),
        (["scalar", "flags"], {"scalar", "flags"}),
        (["nope*"], None),
        (["nope*", "--check"], None),
    ],
)
def test_patterns_choose(
    run: Run, model: Path, arguments: list[str], names: set[str] | None
) -> None:
    ended = run("stats", model, *arguments, "--json")
    assert ended.code == (0 if names else 2)
    assert names is None or {one["name"] for one in ended.json["objects"]} == names


@pytest.mark.parametrize("text", ["x", "0.5,", "2", "nan"])
def test_wrong_quantiles(run: Run, model: Path, text: str) -> None:
    assert run("stats", model, "--quantiles", text).code == 2


@pytest.mark.parametrize("quiet", [True, False])
def test_check_names_what_is_not_finite(run: Run, model: Path, quiet: bool) -> None:
    ended = run("stats", model, "--check", *["--quiet"] * quiet)
    assert ended.code == 1
    assert "not finite 'bias': 1 NaN, 1 infinite\n" in (ended.err if quiet else ended.out)
    assert run("stats", model, "h.*", "--check").code == 0
    assert run("stats", model).code == 0


def test_json(run: Run, model: Path) -> None:
    found = run("stats", model, "--json").json
    bias = next(one for one in found["objects"] if one["name"] == "bias")
    assert (bias["nans"], bias["infs"], bias["min"], bias["max"]) == (1, 1, -3, 1)
    assert bias["quantiles"][3] == [0.5, -1]
    assert sum(bias["histogram"]["counts"]) == 2
    assert found["total"]["count"] == sum(one["count"] for one in found["objects"])
