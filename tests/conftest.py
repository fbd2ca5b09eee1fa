"""Hypothesis profiles, and the table of claims at the end of a run.

The profile `default` keeps the suite short; HYPOTHESIS_PROFILE=long searches.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.honest.table import Outcomes

# No deadline: a shared machine is slow now and then, and pytest's timeout notices a hang.
# A blob is printed, so that a failure on another machine can be repeated here.
COMMON = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("default", COMMON, max_examples=60)
settings.register_profile("long", COMMON, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

OUTCOMES = Outcomes()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse names of tests that are others in another process: workers must agree on them."""
    if strange := [item.nodeid for item in items if " at 0x" in item.nodeid]:
        raise pytest.UsageError(
            f"`ids=shown` of tests/naming.py names it without address: {strange}"
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what each test came to."""
    if report.when == "call" or report.outcome != "passed":
        OUTCOMES.add(report.nodeid, report.outcome)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what came of the claims, where the tests of all ran."""
    if lines := OUTCOMES.lines():
        terminalreporter.section("what is said, and held")
        terminalreporter.write("\n".join(lines) + "\n")
