"""Counts files, not tests: one line at the end says how many of the corpus are as expected."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_FILE = re.compile(r"(?:test_readable|test_rejected)\[(?P<path>[^\]]+?\.zt)(?:-mapped|-read)?\]")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    outcomes: dict[str, set[str]] = {}
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            match = _FILE.search(getattr(report, "nodeid", ""))
            if match:
                outcomes.setdefault(match["path"], set()).add(outcome)
    if outcomes:
        good = sum(found == {"passed"} for found in outcomes.values())
        terminalreporter.write_line(f"corpus: {good} of {len(outcomes)} files as expected")
