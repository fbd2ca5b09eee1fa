"""Lengths of components in every layout: whole elements, and the declared or derived length."""

from __future__ import annotations

from typing import Any

import pytest

from ztensor.errors import MOST_PROBLEMS, Reason
from ztensor.ext import Component, TensorObject
from ztensor.spec import layout
from ztensor.spec.layout.base import check_components


def of(**parts: Component) -> TensorObject:
    return TensorObject((3,), "any", parts)


@pytest.mark.parametrize(
    ("dtype", "type", "length", "expected"),
    [
        ("f32", None, 12, None),
        ("f32", None, 13, "a multiple of 4 bytes for 'f32', found 13"),
        ("f32", "complex64", 16, None),
        ("f32", "complex64", 12, "a multiple of 8 bytes for 'complex64', found 12"),
        ("i16", "complex64", 6, None),  # the wrong storage is another problem
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


def test_missing_components_are_named_with_the_others() -> None:
    parts = {f"part {number}": Component("f32", 64, 12) for number in range(3)}
    (problem,) = check_components(of(**parts), ("part 1", "data"), "here")
    assert problem.reason is Reason.COMPONENT_MISSING
    assert problem.message == "expected a component 'data', found 'part 0', 'part 1', 'part 2'"
    (problem,) = check_components(of(), ("data",), "here")
    assert problem.message.endswith("found none")
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
def test_the_number_of_entries_that_the_manifest_gives(
    component: Any, per_entry: int, expected: int | None
) -> None:
    assert component.known_count(per_entry) == expected


def zipped(dtype: str, decoded_length: int | None = None) -> Component:
    return Component(dtype, 64, 9, encoding="zstd", decoded_length=decoded_length)


SPARSE = {"indices": zipped("u64"), "indptr": zipped("u64"), "values": zipped("f32")}


@pytest.mark.wing
@pytest.mark.parametrize(
    ("name", "parts", "expected"),
    [
        ("dense", {"data": zipped("f32")}, {"data": 60}),
        ("dense", {"data": zipped("f32", 8)}, {"data": 8}),
        ("dense", {"data": Component("f32", 64, 60)}, {"data": 60}),
        ("later", {"data": zipped("f32")}, {"data": None}),
        ("later", {"data": zipped("f32", 8)}, {"data": 8}),
        ("sparse_csr", SPARSE, {"indices": None, "indptr": 32, "values": None}),
    ],
)
def test_the_decoded_length_of_each_role(
    name: str, parts: dict[str, Component], expected: dict[str, int | None]
) -> None:
    tensor_object = TensorObject((3, 5), name, parts)
    assert {role: layout.known_length(tensor_object, role) for role in expected} == expected


def test_roles_that_give_lengths_are_read_first() -> None:
    parts = {"more": zipped("u8"), **SPARSE}
    order = layout.roles_in_order(TensorObject((3, 5), "sparse_csr", parts))
    assert order == ["indptr", "indices", "values", "more"]
    assert layout.roles_in_order(TensorObject((3, 5), "later", parts)) == list(parts)
