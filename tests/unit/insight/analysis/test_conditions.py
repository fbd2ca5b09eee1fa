from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from ztensor.insight.analysis.conditions import Met, require_conditions
from ztensor.insight.analysis.document import Insight
from ztensor.insight.analysis.findings import RULES
from ztensor.numpy import save_file

W = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Insight:
    folder: Path = tmp_path_factory.mktemp("conditions")
    bad = W.copy()
    bad[1, 1] = np.nan
    save_file({"good": W, "bad": bad, "zero": W[0] * 0}, folder / "a.zt")
    return ztensor.examine(folder / "a.zt")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Insight:
    folder: Path = tmp_path_factory.mktemp("conditions")
    save_file({"a": W, "b": W, "c": W}, folder / "a.zt")
    save_file({"a": W * 2, "b": W}, folder / "b.zt")
    return ztensor.examine(folder / "a.zt", folder / "b.zt")


def met_conditions(text: str, insight: Insight) -> list[Met]:
    tests = require_conditions(text, has_other=len(insight.models) > 1)
    return [met for test in tests for met in test(insight)]


@pytest.mark.parametrize(
    ("text", "expected"),
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
    ],
)
def test_conditions(one: Insight, text: str, expected: set[str]) -> None:
    met = met_conditions(text, one)
    assert {found.tensor for found in met} == expected
    assert all(found.text and found.condition in text for found in met)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("relative>0.5", {"a"}),
        ("relative<=0", {"b"}),
        ("snr_db<1", {"a"}),
        ("moved", set()),
    ],
)
def test_conditions_of_two(two: Insight, text: str, expected: set[str]) -> None:
    assert {found.tensor for found in met_conditions(text, two)} == expected


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "nan,", "nan,nonsense", "rms", "rms>", "rms>x", "rms>nan", "x>1", "rms=1",
     "info", "relative>1", "moved"],
)  # fmt: skip
def test_what_is_unknown_is_refused_before_anything_is_told(one: Insight, text: str) -> None:
    with pytest.raises(ztensor.errors.ArgumentValueError):
        met_conditions(text, one)


def test_every_rule_may_be_asked_for(two: Insight) -> None:
    for rule in RULES:
        met_conditions(rule, two)
