from __future__ import annotations

from typing import Any

import pytest

from tests.naming import shown
from ztensor.errors import Problem, Reason
from ztensor.spec.wire.cbor import UINT64_MAX, UNDEFINED, Pairs, Tag
from ztensor.spec.wire.record import (
    ANYTHING,
    ATTRIBUTES,
    MAP,
    SHAPE,
    TEXT,
    UINT,
    Kind,
    Record,
    kind_of,
    read_fields,
)

MISSING, TYPE, VALUE = Reason.FIELD_MISSING, Reason.FIELD_TYPE, Reason.FIELD_VALUE
ABSENT = object()
KINDS = {"text": TEXT, "uint": UINT, "shape": SHAPE, "map": MAP}


def read(kind: Kind, value: Any = ABSENT, **how: bool) -> tuple[Any, list[Problem]]:
    """Return the one field of a schema, and problems."""
    problems: list[Problem] = []
    record = Record("a map of this test", "the section", {"field": kind}, **how)
    fields = {} if value is ABSENT else {"field": value}
    values = read_fields(fields, record, ("root",), problems)
    assert (not values) == bool(problems)
    return values[0] if values else None, problems


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (TEXT, "", ""),
        (TEXT.optional(), "f32", "f32"),
        (UINT, 0, 0),
        (UINT, UINT64_MAX, UINT64_MAX),
        (UINT.optional(), 7, 7),
        (MAP, {"a": None}, {"a": None}),
        (SHAPE, [], ()),
        (SHAPE, [0, UINT64_MAX], (0, UINT64_MAX)),
        (ATTRIBUTES, {"a": [1]}, {"a": [1]}),
        (ATTRIBUTES, Pairs(((1, "x"), ("a", 2))), {"a": 2}),
        (ANYTHING, UNDEFINED, UNDEFINED),
        (ANYTHING, None, None),
    ],
    ids=shown,
)
def test_a_field_of_its_kind_is_given(kind: Kind, value: object, expected: object) -> None:
    assert read(kind, value) == (expected, [])


@pytest.mark.parametrize("kind", [TEXT.optional(), UINT.optional(), ATTRIBUTES], ids=shown)
def test_optional_fields_may_be_absent_and_null_where_a_version_has_nulls(kind: Kind) -> None:
    assert read(kind) == read(kind, None) == (None, [])
    assert read(kind, has_nulls=False) == (None, [])
    assert [problem.reason for problem in read(kind, None, has_nulls=False)[1]] == [TYPE]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(("value", "reason"), [(ABSENT, MISSING), (None, TYPE)], ids=["no", "null"])
def test_required_fields_may_be_neither(kind: Kind, value: object, reason: Reason) -> None:
    (problem,) = read(kind, value)[1]
    assert problem.reason is reason
    assert problem.path == ("root", "field")
    assert problem.section == "the section"
    assert kind.word in problem.message


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (TEXT, b"f32", TYPE),
        (TEXT.optional(), ["f32"], TYPE),
        (UINT, True, TYPE),
        (UINT, 1.0, TYPE),
        (UINT, "1", TYPE),
        (UINT, Tag(2, b"\x01"), TYPE),
        (UINT, -1, VALUE),
        (UINT, UINT64_MAX + 1, VALUE),
        (UINT.optional(), False, TYPE),
        (UINT.optional(), -1, VALUE),
        (MAP, [], TYPE),
        (MAP, Pairs(((1, 2),)), TYPE),
        (ATTRIBUTES, [1], TYPE),
        (SHAPE, 3, TYPE),
        (SHAPE, "ab", TYPE),
        (SHAPE, [True], TYPE),
        (SHAPE, [1, None], TYPE),
        (SHAPE, [-1], VALUE),
        (SHAPE, [1, UINT64_MAX + 1, "a"], VALUE),
    ],
    ids=shown,
)
def test_what_is_wrong_becomes_one_problem(kind: Kind, value: object, reason: Reason) -> None:
    (problem,) = read(kind, value)[1]
    assert problem.reason is reason
    assert "expected" in problem.message
    assert "found" in problem.message


def test_other_fields_are_kept() -> None:
    record = Record("a map", "", {"known": TEXT.optional()})
    assert read_fields({"known": "a"}, record, (), []) == ["a", None]
    assert read_fields({"x": None, "known": "a"}, record, (), []) == ["a", {"x": None}]
    assert read_fields({"x": 1}, record, (), []) == [None, {"x": 1}]


def test_every_field_that_is_wrong_is_a_problem() -> None:
    problems: list[Problem] = []
    record = Record("a map", "", {"a": TEXT, "b": UINT, "c": UINT})
    assert read_fields({"b": "1", "c": 1}, record, (), problems) == []
    assert [(problem.path, problem.reason) for problem in problems] == [
        (("a",), MISSING), (("b",), TYPE)
    ]  # fmt: skip


@pytest.mark.parametrize("value", [[], "map", None, 3, Pairs(((1, 2),)), Tag(55799, {})], ids=shown)
def test_a_record_is_a_map_with_text_keys(value: object) -> None:
    problems: list[Problem] = []
    assert read_fields(value, Record("a map of this test", "", {}), ("x",), problems) == []
    (problem,) = problems
    assert problem.reason is TYPE
    assert problem.path == ("x",)
    assert problem.message.startswith("expected a map of this test, found ")


def test_other_keys_are_ignored_where_a_version_ignores_them() -> None:
    record = Record("a map", "", {"a": UINT}, drops_keys=True)
    assert read_fields(Pairs(((1, 2), ("a", 3), ("b", 4))), record, (), []) == [3, {"b": 4}]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "boolean True"),
        (1, "integer 1"),
        (1.5, "float 1.5"),
        ("a", "text 'a'"),
        (b"a", "byte string b'a'"),
        ([1], "an array"),
        ({}, "a map"),
        (Pairs(((1, 2),)), "a map with keys that are not text"),
        (Tag(1, 2), "tag"),
        (UNDEFINED, "simple"),
    ],
    ids=shown,
)
def test_values_are_called_by_their_kind(value: object, expected: str) -> None:
    assert kind_of(value) == expected
