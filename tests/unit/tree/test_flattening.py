"""Values of trees by their paths."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.tree.flattening import Container, flat
from ztensor.tree.record import Record

TREE: dict[Any, Any] = {
    "a": {"b": 1, 2: [None, (True,)]},
    "empty": {},
    "none": [],
    "record": Record("some.Class", {"x": 1.5}),
    "long": list(range(17)),
}


def test_paths_are_keys_joined_by_dots() -> None:
    found = flat({**TREE, "long": 0})
    assert found == {
        "a.b": 1, "a.2.0": None, "a.2.1.0": True, "empty": {}, "none": [], "record.x": 1.5,
        "long": 0,
    }  # fmt: skip
    assert flat({"long": [1] * 17})["long.16"] == 1


def test_containers_are_told_before_what_is_in_them() -> None:
    found = flat(TREE, containers=True)
    assert found["a.2"] == Container("list")
    assert found["a.2.1"] == Container("tuple")
    assert found["record"] == Container("some.Class")
    assert found["long"] == list(range(17))
    assert found["empty"] == {}
    assert list(found)[:3] == ["value", "a", "a.b"]


def test_paths_that_are_written_alike_are_told_apart() -> None:
    assert flat({"a.b": 1, "a": {"b": 2}, 1: 3, "1": 4}) == {
        "a.b": 1, "a.b#2": 2, "1": 3, "1#2": 4,
    }  # fmt: skip


@pytest.mark.parametrize("containers", [True, False])
def test_depth_costs_nothing(containers: bool) -> None:
    tree: Any = 1
    for _ in range(20_000):
        tree = [tree]
    found = flat(tree, containers=containers)
    assert list(found.values())[-1] == 1
