"""Patterns over keys: a star stays within a part, two do not."""

from __future__ import annotations

import pytest

from ztensor.errors import ArgumentValueError
from ztensor.source.prefixes import expanded, expression


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("run/*.zt", ["run/a.zt", "run/.zt"], ["run/a/b.zt", "run/a.zts", "xrun/a.zt"]),
        ("run/**/*.zt", ["run/a.zt", "run/1/2/a.zt"], ["run.zt", "other/a.zt"]),
        ("**", ["a", "a/b"], []),
        ("a?c", ["abc"], ["a/c", "ac"]),
        ("[0-9]/[!ab].zt", ["1/c.zt"], ["x/c.zt", "1/a.zt", "1//.zt"]),
        ("a.b+c(", ["a.b+c("], ["aXb+c("]),
        ("[^x]", ["^", "x"], ["a"]),
    ],
)
def test_what_a_pattern_matches(pattern: str, matching: list[str], others: list[str]) -> None:
    made = expression(pattern)
    assert [key for key in matching if not made.fullmatch(key)] == []
    assert [key for key in others if made.fullmatch(key)] == []


def test_what_is_no_pattern() -> None:
    with pytest.raises(ArgumentValueError):
        expression("run/[z-a].zt")
    assert expression("a[[b&&c]").fullmatch("a&")


def test_other_paths_stay_as_they_are() -> None:
    paths = ["a*.zt", "https://host/a?b=*", "hf://o/r/[x].zt", "s3://bucket/plain.zt", "-"]
    assert expanded(paths) == paths
