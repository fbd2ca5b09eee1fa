"""The table of attacks names tests that are there, and every file of attacks is in it."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
NAMED = re.findall(r"`([a-z0-9_/]+\.py)(?:::(\w+))?`", (HERE / "README.md").read_text("utf-8"))


def test_each_named_test_exists() -> None:
    assert len(NAMED) > 31
    for file, test in NAMED:
        text = (HERE / file).read_text("utf-8")
        assert not test or f"def {test}(" in text, f"{file} has no {test}"


def test_every_file_of_attacks_is_named() -> None:
    files = {path.name for path in HERE.glob("test_*.py")} - {"test_table.py"}
    assert files <= {file for file, _ in NAMED}
