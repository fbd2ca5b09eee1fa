"""What every layout asks of its components: whole elements, and the length that is declared."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.errors import MOST_PROBLEMS, Reason
from ztensor.spec.layout.base import check_components
from ztensor.spec.model.manifest import Component, TensorObject


def of(**parts: Component) -> TensorObject:
    return TensorObject((3,), "any", parts)


@pytest.mark.parametrize(
    ("dtype", "type", "length", "expected"),
    [
        ("f32", None, 12, None),
        ("f32", None, 13, "a multiple of 4 bytes for 'f32', found 13"),
        ("f32", "complex64", 16, None),
        ("f32", "complex64", 12, "a multiple of 8 bytes for 'complex64', found 12"),
        ("i16", "complex64", 6, None),  # that the storage is another is said by others
        ("i16", "complex64", 7, "a multiple of 2 bytes for 'complex64', found 7"),
        ("u8", "f4_e2m1", 7, None),
        ("f32", "unheard of", 6, "a multiple of 4 bytes for 'unheard of', found 6"),
        ("unheard of", None, 13, None),
        ("unheard of", "complex64", 13, None),
    ],
)
def test_bytes_are_whole_elements(
    dtype: str, type: str | None, length: int, expected: str | None
) -> None:
    problems = check_components(of(data=Component(dtype, 64, length, type)), ("data",), "here")
    messages = [] if expected is None else [f"expected {expected}"]
    assert [problem.message for problem in problems] == messages
    assert {problem.reason for problem in problems} <= {Reason.SIZE_MISMATCH}


@pytest.mark.parametrize(
    ("encoding", "declared", "count"),
    [("raw", None, 0), ("raw", 12, 0), ("raw", 13, 1), ("zstd", 13, 1), ("zstd", 16, 0)],
)
def test_raw_bytes_are_as_long_as_declared(encoding: str, declared: int | None, count: int) -> None:
    component = Component("f32", 64, 12, encoding=encoding, decoded_length=declared)
    problems = check_components(of(data=component), ("data",), "here")
    assert len(problems) == count
    assert all(problem.component == "data" for problem in problems)


def test_missing_components_are_named_with_those_there_are() -> None:
    parts = {f"part {number}": Component("f32", 64, 12) for number in range(3)}
    (problem,) = check_components(of(**parts), ("part 1", "data"), "here")
    assert problem.reason is Reason.COMPONENT_MISSING
    assert problem.message == "expected a component 'data', found 'part 0', 'part 1', 'part 2'"
    (problem,) = check_components(of(), ("data",), "here")
    assert problem.message.endswith("found none")


def test_no_more_problems_are_told_than_somebody_reads() -> None:
    broken = {f"part {number}": Component("f32", 64, 13) for number in range(MOST_PROBLEMS + 9)}
    assert len(check_components(of(**broken), (), "here")) == MOST_PROBLEMS


@pytest.mark.parametrize(
    ("component", "per_entry", "expected"),
    [
        (Component("f32", 64, 12), 1, 3),
        (Component("f32", 64, 12), 3, 1),
        (Component("f32", 64, 12), 0, 0),
        (Component("f32", 64, 16, "complex64"), 1, 2),
        (Component("u8", 64, 3, "f4_e2m1"), 1, 6),
        (Component("unheard of", 64, 12), 1, None),
        (Component("f32", 64, 9, encoding="zstd"), 1, None),
        (Component("f32", 64, 9, encoding="zstd", decoded_length=8), 1, 2),
    ],
)
def test_entries_are_counted_as_far_as_is_told(
    component: Any, per_entry: int, expected: int | None
) -> None:
    assert component.known_count(per_entry) == expected
