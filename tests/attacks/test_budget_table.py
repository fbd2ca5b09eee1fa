"""`make suite SUITE=budget` in short: small files of worst shapes of every format, a low floor.

Some shapes of each format, all of them in the full form; and several formats in a process, since
each imports every library.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.shapes import SHAPES, load
from tests.extent import IS_FULL

pytestmark = pytest.mark.slow

KINDS = list(load())
TOGETHER = 1 if IS_FULL else 6
BUDGET = Path(__file__).with_name("budget.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each file is opened in a process of its own")
@pytest.mark.parametrize(
    "kinds",
    [KINDS[first : first + TOGETHER] for first in range(0, len(KINDS), TOGETHER)],
    ids=", ".join,
)
def test_no_format_costs_more_than_its_budget(kinds: list[str]) -> None:
    """Attack: files of each format that take far more memory or time than their length."""
    assert all(SHAPES[kind] for kind in kinds), "a format without a shape is not measured"
    done = subprocess.run(
        [sys.executable, str(BUDGET), "--quick", *([] if IS_FULL else ["--most", "5"]), *kinds],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
