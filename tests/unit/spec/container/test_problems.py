"""Manifests of any version that break rules: how many are told, what it costs, which caps hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.refusals import refused
from tests.unit.spec.container.readings import nested
from ztensor.errors import MOST_PROBLEMS, LimitError, ManifestError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.container import SCHEMAS
from ztensor.spec.container.framing import Container, Frame
from ztensor.spec.digest import xxh3
from ztensor.spec.model.manifest import Manifest
from ztensor.spec.wire import cbor

END = 4096
V0, V1_0, V1, V2 = Container.V0_1, Container.V1_0, Container.V1, Container.V2


def parse(container: Container, data: Any, limits: Limits = DEFAULT_LIMITS) -> Manifest:
    data = data if isinstance(data, bytes) else cbor.encode(data)
    frame = Frame(container, END, len(data), END + len(data) + 40, xxh3(data))
    return SCHEMAS[container](data, frame, Budget(limits, frame.file_size))


def refusal(container: Container, data: Any, limits: Limits = DEFAULT_LIMITS) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        parse(container, data, limits)
    return caught.value


def entry(**changes: Any) -> dict[str, Any]:
    fields = {"name": "w", "offset": 64, "size": 8, "dtype": "float32", "shape": [2]}
    return {**fields, "encoding": "raw", **changes}


def root(objects: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"version": "1.2.0", "objects": objects, **fields}


def tensors(made: dict[str, Any]) -> dict[str, Any]:
    """Return what releases 1.0.0 and 1.0.1 wrote around their tensors."""
    return {"version": "1.0", "generator": "zt", "attributes": {}, "tensors": made}


def of(components: Any, word: str = "components") -> dict[str, Any]:
    """Return an object of no elements, of 1.0, 1.2 and 2.x at once."""
    fields = {"dtype": "float32", "shape": [0], "format": "dense", "layout": "dense"}
    return {**fields, word: components}


WRONG = {"dtype": "f32", "offset": 65, "length": 8}
WRONG_2 = {"dtype": "f99", "blob": [END, 0]}
SHARD = {"size": 1, "digest": "xxh3:" + "0" * 16}
MANY: dict[str, tuple[Container, Any]] = {
    "0.1": (V0, lambda names: [entry(name=name, offset=65) for name in names]),
    "1.0": (V1_0, lambda names: tensors(dict.fromkeys(names, of({"data": WRONG})))),
    "1.0, components": (V1_0, lambda names: tensors({"w": of(dict.fromkeys(names, WRONG))})),
    "1.2": (V1, lambda names: root(dict.fromkeys(names, of({"data": WRONG})))),
    "1.2, components": (V1, lambda names: root({"w": of(dict.fromkeys(names, WRONG))})),
    "2": (V2, lambda names: {"objects": dict.fromkeys(names, of({"data": WRONG_2}, "parts"))}),
    "2, parts": (V2, lambda names: {"objects": {"w": of(dict.fromkeys(names, WRONG_2), "parts")}}),
    "2, shards": (V2, lambda names: {"objects": {}, "shards": dict.fromkeys(names, SHARD)}),
}


@pytest.mark.parametrize("count", [MOST_PROBLEMS - 1, MOST_PROBLEMS, MOST_PROBLEMS + 9])
@pytest.mark.parametrize("case", MANY)
def test_so_many_problems_are_told_and_no_more(case: str, count: int) -> None:
    container, make = MANY[case]
    error = refusal(container, make([f"{at:04}" for at in range(count)]))
    expected = min(count, MOST_PROBLEMS)
    assert len(error.problems) == expected
    assert ("not looked for" in str(error)) is (expected == MOST_PROBLEMS)


def test_what_is_wrong_with_many_objects_is_told_where_all_at_once_would_cost_too_much() -> None:
    objects = {f"{at:03}": {"shape": [70_000] * 200, "format": 1} for at in range(200)}
    error = refusal(V1, root(objects), Limits(cost_floor=1 << 20, cost_factor=0))
    assert error.problems[0].path == ("objects", "000", "format")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff", "an item"),
        (b"\x81\xff", "an item"),
        (b"\x19", "an item"),
        (b"\xbf\x61a", "an item"),
        (b"\x1c", "an item"),
    ],
    ids=lambda value: value.hex() if isinstance(value, bytes) else None,
)
def test_what_is_no_cbor_is_said_as_the_whole_shows_it(data: bytes, expected: str) -> None:
    head = b"\xa2\x67version\x651.2.0\x67objects\xa1\x61w"
    assert refusal(V1, head + data).expected == expected


DEEP: dict[str, tuple[Container, Any, int]] = {
    "0.1": (V0, [entry(k=nested(2))], 4),
    "0.1, deeper": (V0, [entry(k=nested(20))], 22),
    "attributes": (V1, root({}, attributes={"a": nested(20)}), 22),
    "object": (V1, root({"w": of({}) | {"attributes": {"x": nested(20)}}}), 24),
    "root": (V1, root({"w": of({})}, more=nested(20)), 21),
}


@pytest.mark.parametrize("case", DEEP)
def test_the_cap_on_nesting_is_the_one_of_the_whole(case: str) -> None:
    container, data, levels = DEEP[case]
    assert parse(container, data, Limits(depth=levels))
    for most in {levels - 1, levels // 2}:
        with refused(LimitError, Reason.LIMIT_DEPTH, match=r"Limits\.depth") as caught:
            parse(container, data, Limits(depth=most))
        assert caught.value.expected == f"at most {most} levels"


def test_the_cap_on_nesting_holds_for_names() -> None:
    data = cbor.encode(root({"w": 1})).replace(b"\x61w", cbor.encode(nested(20)))
    with pytest.raises(LimitError) as caught:
        parse(V1, data, Limits(depth=12))
    assert caught.value.expected == "at most 12 levels"
