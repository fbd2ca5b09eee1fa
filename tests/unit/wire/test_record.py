from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.naming import shown
from ztensor.errors import Reason
from ztensor.wire.cbor import UNDEFINED, Pairs, Tag
from ztensor.wire.record import UINT64_MAX, Record, kind_of

if TYPE_CHECKING:
    from ztensor.model.problem import Problem

MISSING = Reason.FIELD_MISSING
TYPE = Reason.FIELD_TYPE
VALUE = Reason.FIELD_VALUE
ABSENT = object()


def take(method: str, value: Any = ABSENT) -> tuple[Any, list[Problem]]:
    problems: list[Problem] = []
    fields: dict[str, object] = {"other": 1} if value is ABSENT else {"field": value}
    record = Record(fields, problems, ("root",), "the section")
    return getattr(record, method)("field"), problems


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("text", ""),
        ("text", "f32"),
        ("optional_text", "f32"),
        ("uint", 0),
        ("uint", UINT64_MAX),
        ("optional_uint", 7),
        ("mapping", {}),
        ("mapping", {"a": None}),
        ("attributes", {"a": [1]}),
    ],
)
def test_a_field_of_its_kind_is_given_as_it_is(method: str, value: object) -> None:
    found, problems = take(method, value)
    assert found == value
    assert problems == []


@pytest.mark.parametrize("method", ["optional_text", "optional_uint", "attributes"])
@pytest.mark.parametrize("value", [ABSENT, None], ids=["absent", "null"])
def test_optional_fields_may_be_absent_or_null(method: str, value: object) -> None:
    assert take(method, value) == (None, [])


@pytest.mark.parametrize("method", ["text", "uint", "shape", "mapping"])
@pytest.mark.parametrize(("value", "reason"), [(ABSENT, MISSING), (None, TYPE)], ids=["no", "null"])
def test_required_fields_may_be_neither(method: str, value: object, reason: Reason) -> None:
    found, problems = take(method, value)
    assert found is None
    assert [(p.reason, p.path, p.section) for p in problems] == [
        (reason, ("root", "field"), "the section")
    ]


@pytest.mark.parametrize(
    ("method", "value", "reason"),
    [
        ("text", b"f32", TYPE),
        ("text", 1, TYPE),
        ("optional_text", [], TYPE),
        ("optional_text", UNDEFINED, TYPE),
        ("uint", True, TYPE),  # Python counts it among the integers, CBOR does not
        ("uint", 1.0, TYPE),
        ("uint", "1", TYPE),
        ("uint", Tag(2, b"\x01"), TYPE),
        ("uint", -1, VALUE),
        ("uint", UINT64_MAX + 1, VALUE),
        ("optional_uint", False, TYPE),
        ("optional_uint", -1, VALUE),
        ("mapping", [], TYPE),
        ("mapping", Pairs([(1, 2)]), TYPE),
        ("attributes", [], TYPE),
        ("attributes", "a", TYPE),
        ("shape", {}, TYPE),
        ("shape", "ab", TYPE),
        ("shape", [1, True], TYPE),
        ("shape", [1.0], TYPE),
        ("shape", [None], TYPE),
        ("shape", [[1]], TYPE),
        ("shape", [1, -1], VALUE),
        ("shape", [UINT64_MAX + 1], VALUE),
    ],
)
def test_what_is_wrong_becomes_one_problem(method: str, value: object, reason: Reason) -> None:
    found, problems = take(method, value)
    assert found is None
    assert [(problem.reason, problem.path) for problem in problems] == [(reason, ("root", "field"))]
    assert str(problems[0]).isascii()


@pytest.mark.parametrize(
    ("value", "found"),
    [(-1, "-1"), (True, "boolean True"), (None, "null"), ([1], "an array"), ("1", "text '1'")],
    ids=shown,
)
def test_what_is_no_dimension_is_shown_with_its_place(value: object, found: str) -> None:
    _, (problem,) = take("shape", [3, value])
    assert problem.message == f"expected a uint64 at position 1, found {found}"


@pytest.mark.parametrize("method", ["optional_text", "optional_uint", "attributes"])
def test_null_is_not_absent_where_a_version_has_no_nulls(method: str) -> None:
    for fields, reasons in (({"other": 1}, []), ({"field": None}, [TYPE])):
        problems: list[Problem] = []
        record = Record(dict[str, object](fields), problems, (), "s", has_nulls=False)
        assert getattr(record, method)("field") is None
        assert [problem.reason for problem in problems] == reasons


@pytest.mark.parametrize("value", [[], [0], [2, 3], [UINT64_MAX] * 3], ids=str)
def test_shapes_become_tuples(value: list[int]) -> None:
    assert take("shape", value) == (tuple(value), [])


def test_attributes_keep_what_can_be_named() -> None:
    """An attribute nobody can name must not cost the tensors."""
    assert take("attributes", Pairs([("a", 1), (1, 2), (b"b", 3), ("c", None)])) == (
        {"a": 1, "c": None},
        [],
    )


@pytest.mark.parametrize("value", [ABSENT, None, 5, UNDEFINED], ids=shown)
def test_ignorable_fields_are_never_wrong(value: object) -> None:
    assert take("ignorable", value) == (None if value is ABSENT else value, [])


def test_the_rest_is_what_nobody_took() -> None:
    problems: list[Problem] = []
    record = Record({"a": 1, "b": "t", "later": [1], "z": None}, problems, (), "s")
    record.uint("a")
    record.text("b")
    record.optional_text("absent")
    assert record.rest() == {"later": [1], "z": None}
    record.ignorable("later")
    record.ignorable("z")
    assert record.rest() is None
    assert Record({}, problems, (), "s").rest() is None
    assert problems == []


@pytest.mark.parametrize("value", [[], "map", None, 3, Pairs([(1, 2)]), Tag(55799, {})], ids=str)
def test_a_record_is_over_a_map_with_text_keys(value: object) -> None:
    problems: list[Problem] = []
    assert Record.of(value, problems, ("x",), "s", "a map") is None
    assert [(problem.reason, problem.path) for problem in problems] == [(TYPE, ("x",))]
    assert Record.of({}, problems, (), "s", "a map") is not None


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (True, "boolean True"),
        (3, "integer 3"),
        (0.5, "float 0.5"),
        ("é", r"text '\xe9'"),
        (b"a", "byte string b'a'"),
        ([1], "an array"),
        ({}, "a map"),
        (Tag(1, 2), "tag"),
        (UNDEFINED, "undefined"),
    ],
)
def test_kinds_have_the_words_of_cbor(value: object, kind: str) -> None:
    assert kind_of(value) == kind
