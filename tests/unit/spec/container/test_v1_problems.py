"""Manifests of 1.x that break many rules: how many are told, and what telling them costs."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.errors import MOST_PROBLEMS, LimitError, ManifestError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import v1
from ztensor.spec.container.framing import TAIL_BYTES, Container, Frame
from ztensor.testing.builder import item

END = 4096


def refusal(root: dict[str, Any] | bytes, limits: Limits = DEFAULT_LIMITS) -> ManifestError:
    data = root if isinstance(root, bytes) else item(root)
    frame = Frame(Container.V1, END, len(data), END + len(data) + TAIL_BYTES)
    with pytest.raises(ManifestError) as caught:
        v1.parse_manifest(data, frame, Budget(limits, 0))
    return caught.value


def root(objects: dict[str, Any]) -> dict[str, Any]:
    return {"version": "1.2.0", "objects": objects}


def wrong(count: int) -> dict[str, Any]:
    """Return components that each break one rule."""
    return {f"{at:04}": {"dtype": "f32", "offset": 64, "length": -1} for at in range(count)}


@pytest.mark.parametrize("count", [MOST_PROBLEMS - 1, MOST_PROBLEMS, MOST_PROBLEMS + 9])
def test_so_many_problems_are_told_and_no_more(count: int) -> None:
    expected = min(count, MOST_PROBLEMS)
    of_objects = {
        name: {"shape": [], "format": "dense", "components": {"data": data}}
        for name, data in wrong(count).items()
    }
    of_components = {"w": {"shape": [], "format": "dense", "components": wrong(count)}}
    for objects in (of_objects, of_components):
        error = refusal(root(objects))
        assert len(error.problems) == expected
        assert ("or others behind them" in str(error)) is (expected == MOST_PROBLEMS)


def test_what_is_wrong_with_many_objects_is_told_where_all_at_once_would_cost_too_much() -> None:
    objects = {f"{at:03}": {"shape": [70_000] * 200, "format": 1} for at in range(200)}
    limits = Limits(cost_floor=1 << 20, cost_factor=0)
    error = refusal(root(objects), limits)
    assert error.problems[0].path == ("objects", "000", "format")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (b"\xff", "an item"),
        (b"\x81\xff", "an item"),
        (b"\x19", "an item"),
        (b"\xbf\x61a", "an item"),
        (b"\x1c", "additional information 0 to 27 or 31"),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else None,
)
def test_what_is_no_cbor_is_said_as_the_whole_shows_it(entry: bytes, expected: str) -> None:
    head = b"\xa2" + item("version") + item("1.2.0") + item("objects") + b"\xa1" + item("w")
    assert refusal(head + entry).expected == expected


@pytest.mark.parametrize("place", ["name", "object", "root"])
def test_the_cap_on_nesting_is_the_one_of_the_whole(place: str) -> None:
    deep: object = 1
    for _ in range(20):
        deep = [deep]
    fields: dict[str, Any] = root({"w": {"attributes": {"x": deep}} if place == "object" else {}})
    if place == "root":
        fields["more"] = deep
    data = item(fields)
    if place == "name":
        data = data.replace(item("w"), item(deep))
    with pytest.raises(LimitError) as caught:
        refusal(data, Limits(depth=12))
    assert caught.value.reason is Reason.LIMIT_DEPTH
    assert caught.value.expected == "at most 12 levels"
