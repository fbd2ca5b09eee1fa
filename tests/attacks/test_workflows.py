"""A tag of an action is moved to other code, which then runs with the rights of our workflow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*")

pytestmark = pytest.mark.skipif(
    not WORKFLOWS.is_dir(), reason="the workflows are in a checkout, not in the sdist"
)


def uses() -> list[str]:
    lines = [
        line.strip().removeprefix("- ").strip()
        for path in sorted(WORKFLOWS.glob("*.y*ml"))
        for line in path.read_text("utf-8").splitlines()
    ]
    return [line.removeprefix("uses:").strip() for line in lines if line.startswith("uses:")]


def test_every_action_is_pinned_to_a_commit() -> None:
    """An action's tag is moved: each is named by its commit, with the tag as a comment."""
    assert uses()
    assert [text for text in uses() if not PINNED.fullmatch(text)] == []


def test_one_tag_is_one_commit() -> None:
    """A commit of someone's fork beside a trusted tag: a comment stands for one commit only."""
    commits: dict[str, set[str]] = {}
    for text in uses():
        place, tag = text.split(" # ")
        action, commit = place.split("@")
        commits.setdefault(f"{action} {tag}", set()).add(commit)
    assert {tag: found for tag, found in commits.items() if len(found) > 1} == {}


def test_workflows_may_only_read() -> None:
    """A step that was taken over writes to the repository: no workflow asks for more than read."""
    for path in sorted(WORKFLOWS.glob("*.y*ml")):
        text = path.read_text("utf-8")
        assert re.search(r"^permissions:\n  contents: read$", text, re.MULTILINE)
        assert not re.search(r":\s*write(-all)?\s*$", text, re.MULTILINE)
