"""The short form of `make budget`: short files of every worst shape there is, under a low floor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.shapes import SHAPES, load

BUDGET = Path(__file__).with_name("budget.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is opened in a process of its own")
@pytest.mark.parametrize("kind", load())
def test_no_format_costs_more_than_its_budget(kind: str) -> None:
    """Attack: files of each format that take far more memory or time than their length."""
    assert SHAPES[kind], "a format without a shape is not measured"
    done = subprocess.run(
        [sys.executable, str(BUDGET), "--quick", kind],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
