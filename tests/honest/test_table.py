"""The table of claims names tests that are there, all claims are in it, and it can fail."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.honest.table import CLAIMS, Outcomes, verdict

ROOT = Path(__file__).parents[2]
NUMBERS = range(1, 17)


def test_every_number_has_its_claim() -> None:
    assert [claim.number for claim in CLAIMS] == sorted(claim.number for claim in CLAIMS)
    assert {claim.number for claim in CLAIMS} == set(NUMBERS)
    assert all(claim.tests for claim in CLAIMS)


def test_what_is_named_is_there() -> None:
    for test in itertools.chain.from_iterable(claim.tests for claim in CLAIMS):
        file, _, function = test.partition("::")
        text = (ROOT / file).read_text("utf-8")
        assert not function or f"def {function}(" in text, f"{file} has no {function}"


def test_one_failing_test_breaks_its_claim() -> None:
    first = CLAIMS[0]
    outcomes = Outcomes()
    for test in first.tests:
        outcomes.add(f"{test}::test_one[a]", "passed")
    assert verdict(outcomes.of(first)) == "held"
    assert verdict(outcomes.of(CLAIMS[1])) == "not run"
    outcomes.add(f"{first.tests[0]}::test_one[b]", "failed")
    assert verdict(outcomes.of(first)) == "BROKEN"
    assert outcomes.lines() == []  # of a run that leaves claims out, nothing is said
    for claim in CLAIMS[1:]:
        outcomes.add(claim.tests[0], "passed")
    assert outcomes.lines()[-1] == f"{len(CLAIMS) - 1} of {len(CLAIMS)} claims held"
