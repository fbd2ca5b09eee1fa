from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.cli.conftest import Run
from ztensor.numpy import save_file


def test_a_page_that_is_there_stays(run: Run, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert run("report", model, "-o", page).code == 2
    assert page.read_text() == "mine"
    assert run("report", model, "-o", page, "--dry-run", "--force").code == 0
    assert page.read_text() == "mine"
    assert run("report", model, "-o", page, "--force").code == 0
    assert page.read_text() != "mine"
    assert run("report", model, "-o", tmp_path / "page.png").code == 2


W = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    bad = W.copy()
    bad[1, 1] = np.nan
    save_file({"good": W, "bad": bad, "zero": W[0] * 0}, tmp_path / "a.zt")
    save_file({"good": W * 2, "bad": bad, "zero": W[0] * 0}, tmp_path / "b.zt")
    return tmp_path / "a.zt", tmp_path / "b.zt"


@pytest.mark.parametrize(
    ("conditions", "met"),
    [
        ("nan", {"bad"}),
        ("inf", set()),
        ("all-zero", set()),  # excused: a bias
        ("error", {"bad"}),
        ("warn,layer", {"bad"}),
        ("rms>0.1", {"good", "bad"}),
        ("rms < 0.1", {"zero"}),
        ("zeros>=64, nans>0", {"zero", "bad"}),
        ("crest>1e3", set()),
        *((text, None) for text in ("", "nonsense", "nan,", "nan,nonsense", "info", "moved")),
        *((text, None) for text in ("rms", "rms>", "rms>x", "rms>nan", "x>1", "rms=1")),
        ("relative>1", None),
        # Of two models.
        ("two: relative>0.4", {"good"}),
        ("two: relative<=0", {"zero", "bad"}),
        ("two: snr_db<1", {"good"}),
        ("two: moved", set()),
    ],
)
def test_fail_on(
    run: Run, files: tuple[Path, Path], tmp_path: Path, conditions: str, met: set[str] | None
) -> None:
    """An unknown condition is refused before anything is written."""
    page, text = tmp_path / "page.html", conditions.removeprefix("two: ")
    models = files if conditions.startswith("two") else files[:1]
    ended = run("report", *models, "--fail-on", text, "-o", page, "--json")
    if met is None:
        assert ended.code == 2
        assert not page.exists()
        return
    assert page.exists()
    assert ended.code == (1 if met else 0)
    assert {found["tensor"] for found in ended.json["met"]} == met


def test_json_and_quiet(run: Run, model: Path) -> None:
    found = run("report", model, "--json", "--fail-on", "inf").json
    assert found["schema"] == "ztensor-insight/1"
    assert found["met"][0]["tensor"] == "bias"
    assert found["output"] is None
    ended = run("report", model, "--fail-on", "nan", "--quiet")
    assert (ended.code, ended.out) == (1, "")
    assert "met nan: 'bias'" in ended.err


def test_of_two_models_it_is_said_which(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {name: rng.normal(0, 1, (64, 64)).astype(np.float32) for name in "abcd"}
    tensors["a"][0, 0] = tensors["b"][0, 0] = tensors["c"][0, 0] = np.nan
    other = {name: array.copy() for name, array in tensors.items()}
    other["b"][1, 1] = other["c"][0, 0] = 1
    other["d"][0, 0] = np.nan
    save_file(tensors, tmp_path / "a.zt")
    save_file(other, tmp_path / "b.zt")
    ended = run("report", tmp_path / "a.zt", tmp_path / "b.zt", "--fail-on", "nan")
    text = "1 of 4,096 values are NaN [nan, in"
    assert sorted(ended.lines[:4]) == [
        f"error 'a': {text} both]",
        f"error 'b': {text} both]",
        f"error 'c': {text} the first]",
        f"error 'd': {text} the second]",
    ]
    assert ended.lines[4] == "4 tensors and 4 tensors: 4 error, 0 warn, 0 info"
    assert ended.out.count("met nan") == 4
    files = tmp_path / "a.zt", tmp_path / "b.zt"
    assert run("report", *files, "--fail-on", "relative>0.001", "--include", "a").code == 0
    assert run("report", *files, "--include", "nope*").code == 2


def test_a_sample_is_reported(run: Run, tmp_path: Path) -> None:
    save_file({"large": np.ones((2048, 512), np.float32)}, tmp_path / "m.zt")
    ended = run("report", tmp_path / "m.zt", "--sample", "0.1", "-o", tmp_path / "m.html")
    assert ended.code == 0
    assert "a sample of 0.1 of large tensors; not looked at: damaged, nan" in ended.out
    assert run("report", tmp_path / "m.zt", "--sample", "0.1", "--fail-on", "nan").code == 2
    assert run("report", tmp_path / "m.zt", "--sample", "7").code == 2
