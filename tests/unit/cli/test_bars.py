"""Histograms as lines of text."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.cli.bars import ASCII_BLOCKS, ASCII_RAMP, text_axis, text_bars


@pytest.mark.parametrize(
    ("counts", "height", "options", "lines"),
    [
        ([0, 1, 4, 8], 1, {}, [" ▁▄█"]),
        ([0, 1, 4, 8], 2, {}, ["   █", " ▂██"]),
        ([0, 1, 10**6], 1, {}, [" ▁█"]),
        ([0, 1, 10**6], 1, {"log_counts": True}, [" ▁█"]),
        ([0, 10**3, 10**6], 1, {"log_counts": True}, [" ▄█"]),
        ([0, 1, 3], 1, {"blocks": ASCII_BLOCKS}, [" .#"]),
        ([0, 1, 9], 1, {"blocks": ASCII_RAMP}, [" .@"]),
    ],
)
def test_bars_of_text(
    counts: list[int], height: int, options: dict[str, Any], lines: list[str]
) -> None:
    assert text_bars(counts, height, **options) == lines


@pytest.mark.parametrize(
    ("low", "high", "width", "line"),
    [
        (-1, 1, 11, "-1   0    1"),
        (-0.001, 1, 11, "-0.001    1"),
        (5, 5, 11, "5"),
        (1, 2, 11, "1         2"),
        (1, 2, 1, "1 2"),
    ],
)
def test_the_axis_of_text(low: float, high: float, width: int, line: str) -> None:
    assert text_axis(low, high, width) == line
