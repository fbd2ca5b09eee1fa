"""Decode shapes: all listed types, parts of a tree, and malformed shapes."""

from __future__ import annotations

import argparse
import collections
import datetime
import enum
import io
import pathlib
import random
import sys
import types
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from tests.unit.training.tree.alike import assert_alike
from ztensor.errors import ManifestError, UsageError, ZTensorError
from ztensor.ext import cbor
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.training import Record
from ztensor.training.tree import decode, encode
from ztensor.training.tree.columns import Node


class Point(NamedTuple):
    x: Any
    y: Any


class Nothing(NamedTuple):
    pass


class Colour(enum.IntEnum):
    RED = 1


def back(encoded: Any, **options: Any) -> Any:
    budget = Budget(DEFAULT_LIMITS, len(encoded.shape))
    return decode(encoded.shape, budget, lambda leaf: encoded.leaves[leaf.name], **options)


def shape_of(columns: dict[str, bytes]) -> bytes:
    return cbor.encode(columns)


# --- Types ----------------------------------------------------------------------------------


def written(data: bytes) -> io.BytesIO:
    """Return a buffer as `torch.save` leaves it."""
    buffer = io.BytesIO()
    buffer.write(data)
    return buffer


SCALARS: list[Any] = [
    None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, -(2**200),
    0.0, -0.0, 1.5, float("inf"), float("nan"), 1 + 2j, complex("-0-infj"),
    "", "a.b", "\0", "\U0001f600", b"", b"\xff", bytearray(b"x"),
    io.BytesIO(), io.BytesIO(b"\0\xff"), written(b"its position is at its end"),
    range(3), range(10, 0, -3), slice(None), slice(1, None, 2),
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.datetime(2026, 10, 25, 2, 30, fold=1), datetime.date(1, 1, 1),
    datetime.time(1, 2, fold=1), datetime.timedelta(-1, 2, 3),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
    argparse.Namespace(lr=0.1, layers=[1, 2], inner=argparse.Namespace(**{"self-": 1})),
    types.SimpleNamespace(a={"b": (1,)}),
    pathlib.Path("a/b"), pathlib.PurePosixPath("/x"), pathlib.PureWindowsPath("C:\\x"),
    np.float64(1), np.float32("nan"), np.int8(-3), np.bool_(1), np.complex64(1j),
    ml_dtypes.bfloat16(2), ml_dtypes.float8_e4m3fn(1), np.dtype("int16"),
    np.dtype(ml_dtypes.bfloat16),
    [], {}, (), set(), frozenset(), {1, "a", None, (1, 2)}, frozenset({frozenset({1})}),
    collections.OrderedDict(b=1, a=2), collections.Counter({3: 4, 5: 1}),
    collections.defaultdict(list, a=[1]), collections.defaultdict(None), [1, 2, 3, 4],
    (1, 2, 3, 4, 5), [1.0] * 4, (0.5,) * 7, [1, 2, 3, 2**70], [True, 1, 1, 1], tuple(range(625)),
    {1: "a", "1": "b", 2.5: 0, None: 1, (1, ("x",)): 2, b"k": 3}, {True: 1}, {1: 1}, {1.0: 1},
    {np.int64(5): 1}, {pathlib.Path("a"): 1}, {2**80: 1}, np.zeros((2, 0)), np.array(5),
    np.arange(3, dtype=">i4"), np.asfortranarray(np.arange(6.0).reshape(2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: f"{type(value).__name__}")
def test_every_listed_type_comes_back(value: Any) -> None:
    found = back(encode({"a": [value]}))["a"][0]
    if isinstance(value, np.ndarray):
        np.testing.assert_array_equal(found, value)
    else:
        assert_alike(found, value)


def test_integers_of_more_digits_than_python_writes() -> None:
    huge = 10**5000
    assert back(encode({huge: [huge, np.zeros(1)]}))[huge][0] == huge


def keys() -> st.SearchStrategy[Any]:
    plain = st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary()
    )
    return st.one_of(plain, st.tuples(plain, st.tuples(plain)))


def trees() -> st.SearchStrategy[Any]:
    arrays = st.builds(
        lambda kind, shape: np.arange(int(np.prod(shape))).astype(kind).reshape(shape),
        st.sampled_from(["f4", "i8", "u1", "f2", "c8", "?"]),
        st.lists(st.integers(0, 3), max_size=3),
    )
    leaves = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.complex_numbers(),
        st.text(),
        st.binary(),
        st.datetimes(),
        st.timedeltas(),
        arrays,
        st.floats(width=32).map(np.float32),
        st.sampled_from(SCALARS),
    )

    def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.lists(inner, max_size=6),
            st.lists(inner, max_size=6).map(tuple),
            st.dictionaries(keys(), inner, max_size=6),
            st.dictionaries(st.text(), inner, max_size=6).map(collections.OrderedDict),
            st.dictionaries(st.integers(), inner, max_size=6).map(
                lambda value: collections.defaultdict(dict, value)
            ),
            st.sets(keys(), max_size=6),
            st.frozensets(st.one_of(st.text(), st.integers()), max_size=6),
            st.lists(st.integers(-9, 9), min_size=4, max_size=9),
            st.tuples(inner, inner).map(lambda pair: Point(*pair)),
        )

    return st.recursive(leaves, containers, max_leaves=25)


@pytest.mark.slow
@given(trees())
@settings(max_examples=examples(200))
def test_any_tree_comes_back(tree: Any) -> None:
    encoded = encode(tree)
    assert encode(tree).shape == encoded.shape
    found = back(encoded, types=[Point])
    assert_alike(found, tree)


# --- Classes --------------------------------------------------------------------------------


def test_classes_are_records_unless_they_are_handed_in() -> None:
    tree = {"p": Point(1, np.zeros(2)), "n": Nothing(), "c": Colour.RED}
    encoded = encode(tree)
    found = back(encoded)
    assert found["p"].x == 1
    assert found["p"]["x"] == 1
    assert found["n"] == Record(f"{__name__}.Nothing", {})
    assert found["c"]["name"] == "RED"
    assert_alike(back(encoded, types=[Point, Nothing, Colour]), tree)


def test_records_are_saved_again_unchanged() -> None:
    encoded = encode({"p": Point(1, 2), "c": Colour.RED})
    assert encode(back(encoded)).shape == encoded.shape


def test_no_class_is_imported_by_its_name() -> None:
    encoded = encode(Record("antigravity.Thing", {"x": 1}))
    before = set(sys.modules)
    assert back(encoded).class_name == "antigravity.Thing"
    assert "antigravity" not in set(sys.modules) - before


def test_a_class_with_other_fields_is_refused() -> None:
    record = Record(f"{__name__}.Point", {"x": 1, "z": 2})
    with pytest.raises(UsageError, match="has other fields"):
        back(encode(record), types=[Point])


# --- Parts ----------------------------------------------------------------------------------


def test_parts_of_a_tree_keep_their_structure() -> None:
    tree = {
        "model": {"w": np.zeros(2), "b": 1},
        "optimizer": {"state": {0: {"step": 5}}, "groups": [{"lr": 0.1}, {"lr": 0.2}]},
        "factory": collections.defaultdict(list, a=[1], b=[2]),
        "point": Point(1, 2),
        "set": {1, 2},
    }
    encoded = encode(tree)

    def part(*patterns: str) -> Any:
        return back(encoded, keep=lambda name: name in patterns)

    assert part("model.b") == {"model": {"b": 1}}
    assert list(part("model")["model"]) == ["w", "b"]
    assert part("optimizer.groups.1.lr") == {"optimizer": {"groups": [None, {"lr": 0.2}]}}
    assert part("optimizer.state.0.step") == {"optimizer": {"state": {0: {"step": 5}}}}
    found = part("factory.b", "set")
    assert_alike(found["factory"], collections.defaultdict(list, b=[2]))
    assert found["set"] == {1, 2}
    assert part("point.y") == {"point": Record(f"{__name__}.Point", {"x": None, "y": 2})}
    assert part("nothing") is None


# --- Hostile shapes -------------------------------------------------------------------------


def columns_of(tree: Any) -> dict[str, bytes]:
    value = cbor.decode(encode(tree).shape)
    assert isinstance(value, dict)
    return dict(value)


def u64(*values: int) -> bytes:
    return np.array(values, "<u8").tobytes()


def u32(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "nodes end too early"),
        ({"kinds": b"\xff"}, "kind of node is unknown"),
        ({"kinds": bytes([0, 0])}, "nodes follow its root"),
        ({"kinds": bytes([Node.LIST]), "counts": u64(1 << 60)}, "more entries than there are"),
        ({"kinds": bytes([Node.INT_LIST]), "counts": u64((1 << 64) - 1)}, "ends too early"),
        ({"kinds": bytes([Node.LIST])}, "ends too early"),
        ({"kinds": bytes([Node.INT])}, "ends too early"),
        ({"kinds": b"\0", "ints": bytes(8)}, "no node takes"),
        ({"kinds": b"\0", "ints": bytes(7)}, "not a multiple"),
        ({"kinds": b"\0", "other": b""}, "column is unknown"),
        ({"kinds": b"\0", "leaves": u32(0)}, "index of a text"),
        (
            {
                "kinds": bytes([Node.LEAF]),
                "counts": u64(0),
                "words": u32(0),
                "text": b"a",
                "text_lengths": u32(1),
            },
            "leaf is out of order",
        ),
        (
            {"kinds": b"\0", "text": b"aa", "text_lengths": u32(1, 1)},
            "in it twice",
        ),
        ({"kinds": b"\0", "text": b"\xff", "text_lengths": u32(1)}, "not UTF-8"),
        ({"kinds": b"\0", "text": b"a", "text_lengths": u32(2)}, "another length"),
        (
            {"kinds": bytes([Node.INT_DICT, 0, 0]), "counts": u64(2), "ints": bytes(16)},
            "key twice",
        ),
        (
            {"kinds": bytes([Node.DICT, Node.LIST, 0]), "counts": u64(1, 0)},
            "key cannot be hashed",
        ),
    ],
)
def test_malformed_shapes_are_refused(columns: dict[str, bytes], says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        decode(shape_of(columns), Budget(DEFAULT_LIMITS, 100), lambda leaf: leaf)


def test_keys_nested_deep_do_not_exhaust_the_stack() -> None:
    depth = 200_000
    columns = {
        "kinds": bytes([Node.DICT]) + bytes([Node.TUPLE]) * depth + b"\0\0",
        "counts": u64(*[1] * (depth + 1)),
    }
    with pytest.raises(ManifestError, match="nested too deep"):
        decode(shape_of(columns), Budget(DEFAULT_LIMITS, 1 << 24), lambda leaf: leaf)


def test_keys_of_one_hash_are_refused_in_linear_time() -> None:
    step = (1 << 61) - 1  # numbers that differ by it have one hash
    words = ["int", *(hex(step * number) for number in range(100))]
    columns = {
        "kinds": bytes([Node.DICT]) + bytes([Node.MADE, Node.TEXT, Node.NONE]) * 100,
        "counts": u64(100),
        "words": u32(*(place for number in range(100) for place in (0, number + 1))),
        "text": "".join(words).encode(),
        "text_lengths": u32(*map(len, words)),
    }
    with pytest.raises(ManifestError, match="chosen to have one hash"):
        decode(shape_of(columns), Budget(DEFAULT_LIMITS, 1 << 24), lambda leaf: leaf)


@pytest.mark.slow
def test_damaged_shapes_give_a_tree_or_one_error() -> None:
    tree = {
        "a.b": np.zeros(2), 1: Point({1, 2}, [Colour.RED]), "d": {1.5: (2**70, "x")},
        "c": collections.Counter({1: 2}), "t": datetime.datetime(2020, 1, 1), "s": np.float32(1),
        "r": list(range(9)), "f": collections.defaultdict(list, a=[1.0] * 5), "y": b"abc",
    }  # fmt: skip
    encoded, columns, draw = encode(tree), columns_of(tree), random.Random(5)
    outcomes = collections.Counter[bool]()
    for _ in range(3000):
        damaged = dict(columns)
        for name in draw.choices(list(columns), k=draw.choice([1, 1, 2])):
            data = bytearray(damaged[name])
            at = draw.randrange(len(data) or 1)
            if draw.random() < 0.7 and data:
                data[at] = draw.choice([0, 1, 2, 9, 16, 17, 18, 255])
            elif draw.random() < 0.5:
                del data[at : at + draw.choice([1, 4, 8])]
            else:
                data[at:at] = data[at : at + draw.choice([1, 4, 8])]
            damaged[name] = bytes(data)
        try:
            budget = Budget(DEFAULT_LIMITS, 1000)
            decode(shape_of(damaged), budget, lambda leaf: encoded.leaves.get(leaf.name))
            outcomes[True] += 1
        except ZTensorError:
            outcomes[False] += 1
    assert min(outcomes[True], outcomes[False]) > 100, outcomes
