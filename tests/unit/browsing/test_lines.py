"""Which lines a browser has: names, those that match, a tree."""

from __future__ import annotations

import pytest

from tests.unit.page.test_report import HOSTILE
from ztensor.browsing.lines import Line, Lines

NAMES = ["a", "a.b", "a.c.d", "layers.10.w", "layers.2.w", "x/y::z"]


def texts(lines: Lines) -> list[str]:
    return [lines[at].text for at in range(len(lines))]


def test_a_search_keeps_names_with_all_words() -> None:
    lines = Lines(NAMES)
    assert texts(lines) == NAMES
    lines.search("W Layers")
    assert texts(lines) == ["layers.10.w", "layers.2.w"]
    assert [lines[at].place for at in range(2)] == [3, 4]
    assert lines.at_of(4) == 1
    lines.search("nothing")
    assert len(lines) == lines.found == 0
    lines.search("  ")
    assert len(lines) == len(NAMES)


def test_a_tree_opens_branch_by_branch() -> None:
    lines = Lines(NAMES)
    lines.as_tree(is_tree=True)
    assert [(one.text, one.below, one.place) for one in map(lines.__getitem__, range(4))] == [
        ("a", 2, None), ("layers", 2, None), ("x", 1, None), ("a", 0, 0),
    ]  # fmt: skip
    lines.toggle(0)
    assert texts(lines) == ["a", "c", "b", "layers", "x", "a"]
    assert lines[2].place == 1
    lines.toggle(0, is_open=True)
    assert len(lines) == 6
    lines.toggle(0, is_open=False)
    assert len(lines) == 4
    lines.toggle(3)  # a tensor
    assert len(lines) == 4
    lines.search("10")  # the only branches are open
    assert texts(lines) == ["layers", "10", "w"]
    assert lines.at_of(3) == 2


@pytest.mark.parametrize("is_tree", [False, True])
def test_every_name_has_a_line_that_is_safe_to_print(*, is_tree: bool) -> None:
    lines = Lines(HOSTILE)
    lines.as_tree(is_tree=is_tree)
    for _ in range(10):
        for at in reversed(range(len(lines))):
            lines.toggle(at, is_open=True)
    found: list[Line] = [lines[at] for at in range(len(lines))]
    assert sorted(one.place for one in found if one.place is not None) == list(range(len(HOSTILE)))
    assert all(one.text.isprintable() and len(one.text) < 2000 for one in found)
