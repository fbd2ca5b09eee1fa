"""Every reason of an error has a page, which the first page leads to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ztensor import Reason, delta, errors

PAGES = Path(__file__).parents[2] / "docs" / "errors"
REASONS = [*Reason, *delta.DeltaReason]


def test_each_reason_has_a_page() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"index"} == {
        each.value for each in REASONS
    }


def test_the_first_page_lists_every_reason_once() -> None:
    listed = re.findall(r"\[`(\w+)`\]\((\w+)\.md\)", (PAGES / "index.md").read_text("utf-8"))
    assert sorted(name for name, _ in listed) == sorted(each.value for each in REASONS)
    assert all(name == page for name, page in listed)


@pytest.mark.parametrize("reason", REASONS, ids=str)
def test_a_page_names_the_classes_the_meaning_and_the_cure(
    reason: Reason | delta.DeltaReason,
) -> None:
    text = (PAGES / f"{reason.value}.md").read_text("utf-8")
    assert text.startswith(f"# {reason.value}\n")
    raised = re.search(r"^Raised as (.+)\.$", text, re.MULTILINE)
    assert raised is not None
    for name in re.findall(r"`(\w+)`", raised[1]):
        family = getattr(errors, name, None) or getattr(delta, name)
        assert issubclass(family, errors.ZTensorError)
    assert "\n**Cure.** " in text
