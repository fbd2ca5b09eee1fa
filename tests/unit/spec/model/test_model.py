"""Types, objects that are built on first access, and problems of manifests as users see them."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pytest

from tests.refusals import refused
from ztensor import LogicalType, register_logical_type
from ztensor.errors import (
    MOST_PROBLEMS,
    ArgumentValueError,
    FormatError,
    ManifestError,
    Problem,
    Reason,
    SourceError,
)
from ztensor.ext import LOGICAL_TYPES, LaterObjects, TensorObject
from ztensor.spec.container.walk import require_none


@pytest.mark.usefixtures("registry")
def test_a_type_can_be_registered_once() -> None:
    mine = LogicalType("my_int16", "i16", "int16")
    register_logical_type(mine)
    assert LOGICAL_TYPES["my_int16"] is mine
    with pytest.raises(ArgumentValueError):
        register_logical_type(mine)


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    "logical",
    [
        LogicalType("complex64", "f32", "complex64"),
        LogicalType("f32", "f32", "float32"),
        LogicalType("mine", "float32", "float32"),
        LogicalType("mine", "f128", "float32"),
    ],
    ids=["taken", "a storage type's name", "long name of the storage type", "no storage type"],
)
def test_an_invalid_logical_type_is_not_registered(logical: LogicalType) -> None:
    before = dict(LOGICAL_TYPES)
    with refused(ArgumentValueError, Reason.ARGUMENT):
        register_logical_type(logical)
    assert before == LOGICAL_TYPES


def test_a_broken_object_is_built_once_and_raises_each_time() -> None:
    asked = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        raise FormatError("it is broken", reason=Reason.TRUNCATED, expected="more", found="less")

    objects = LaterObjects(["a", "b"], make)
    texts = []
    for _ in range(3):
        with pytest.raises(FormatError) as caught:
            objects["a"]
        texts.append((str(caught.value), caught.value.reason, caught.value.object_name))
    assert asked == ["a"]
    assert set(texts) == {(texts[0][0], Reason.TRUNCATED, "a")}


def test_a_failing_read_is_tried_again() -> None:
    asked = []

    def make(name: str) -> TensorObject:
        asked.append(name)
        if len(asked) == 1:
            raise SourceError("the server is away")
        return TensorObject((0,), "dense", {})

    objects = LaterObjects(["a"], make)
    with pytest.raises(SourceError):
        objects["a"]
    assert objects["a"].shape == (0,)
    assert asked == ["a", "a"]


def error_of(problems: Sequence[Problem]) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        require_none(problems)
    return caught.value


BARE = Problem(Reason.FIELD_TYPE, "expected text, found null", ("dtype",))


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(Reason.FIELD_TYPE, "wrong"), "wrong"),
        (Problem(Reason.FIELD_TYPE, "wrong", (), "s 1"), "wrong (s 1)"),
        (BARE.under("objects", "w"), "['objects']['w']['dtype']: expected text, found null"),
        (Problem(Reason.FIELD_TYPE, "wrong", (0, "a\n\x1b"), "s"), r"[0]['a\n\x1b']: wrong (s)"),
        (Problem(Reason.FIELD_TYPE, "wrong", ("x" * 99,)), "['" + "x" * 60 + "...']: wrong"),
    ],
    ids=["alone", "section", "path", "escaped", "long"],
)
def test_it_prints_on_one_line(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_one_error_carries_all_problems_at_the_place_of_the_first() -> None:
    problems = [
        BARE.about("w", "data"),
        Problem(Reason.OUT_OF_BOUNDS, "too far"),
        Problem(Reason.FIELD_VALUE, "too large"),
    ]
    error = error_of(problems)
    assert error.problems == tuple(problems)
    assert (error.reason, error.object_name, error.component) == (BARE.reason, "w", "data")
    assert str(problems[0]) in str(error)
    assert "2 more" in str(error)
    assert "more" not in str(error_of(problems[:1]))


@pytest.mark.parametrize("count", [MOST_PROBLEMS - 1, MOST_PROBLEMS])
def test_a_full_list_says_that_there_may_be_more(count: int) -> None:
    text = str(error_of([BARE] * count))
    assert f"{count - 1} more problems" in text
    assert ("not looked for" in text) is (count == MOST_PROBLEMS)


def test_problems_can_be_sent_and_compared() -> None:
    assert pickle.loads(pickle.dumps(BARE)) == BARE
    assert len({BARE, BARE.under(), BARE.under(1)}) == 2
