"""SECURITY.md names defences and tests; each of them is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
ROWS = re.findall(r"^\| (?!threat|---)(.+?) \| (.+?) \| (.+?) \|$", PAGE, re.MULTILINE)


def named(cell: str) -> list[str]:
    return re.findall(r"`([\w./]+(?:\.py|/))`", cell)


def test_what_the_table_names_is_there() -> None:
    assert len(ROWS) > 10
    for threat, defence, tests in ROWS:
        roots = [ROOT / "src" / "ztensor", ROOT]
        for name in named(defence):
            assert name.startswith(".github") or any((root / name).exists() for root in roots), name
        assert named(tests), threat
        for name in named(tests):
            assert (ROOT / name).exists(), name


def test_the_readme_and_the_page_of_safety_lead_there() -> None:
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text("utf-8")
    assert "SECURITY.md" in (ROOT / "docs" / "concepts" / "safety.md").read_text("utf-8")
