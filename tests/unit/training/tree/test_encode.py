"""Encode trees: names of leaves, shared leaves, and refused values with their place."""

from __future__ import annotations

import collections
import dataclasses
import io
import types
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import NotRepresentableError
from ztensor.training.tree import encode


def test_leaves_are_named_by_their_keys() -> None:
    tree = {"model": {"w": np.zeros(2), "layers": [np.ones(1), np.ones(2)]}, 3: {4: np.zeros(3)}}
    assert list(encode(tree).leaves) == ["model.w", "model.layers.0", "model.layers.1", "3.4"]


def test_keys_that_are_written_alike_are_names_of_their_own() -> None:
    tree = {"a.b": np.zeros(1), "a": {"b": np.zeros(2)}, 1: np.zeros(3), "1": np.zeros(4)}
    assert list(encode(tree).leaves) == ["a.b", "a.b#2", "1", "1#2"]


def test_names_fit_every_version_however_long_the_keys_are() -> None:
    tree: Any = np.zeros(1)
    for _ in range(500):
        tree = {"layer": tree, "\0": np.zeros(1), "": np.zeros(2), "\U0001f600" * 300: np.zeros(3)}
    names = list(encode(tree).leaves)
    assert len(set(names)) == len(names) == 1501
    assert max(len(name.encode()) for name in names) < 220
    assert all(name and "\0" not in name for name in names)


def test_a_tree_that_is_one_array_has_a_name() -> None:
    assert list(encode(np.zeros(1)).leaves) == ["value"]


def test_the_same_memory_is_one_object() -> None:
    weight = np.arange(6.0).reshape(2, 3)
    tree = {"a": weight, "b": weight[:], "c": weight.T, "d": weight[:1], "e": weight.copy()}
    assert list(encode(tree).leaves) == ["a", "c", "d", "e"]


def test_arrays_without_elements_are_not_taken_for_one() -> None:
    assert len(encode([np.zeros(0), np.zeros((0, 3)), np.zeros(0, np.int8)]).leaves) == 3


def test_temporaries_are_not_taken_for_one_by_their_address() -> None:
    tree = [np.float32(i) * np.ones(3, np.float32) for i in range(200)]
    assert len(encode(tree).leaves) == 200


def test_the_same_tree_gives_the_same_bytes() -> None:
    def tree() -> dict[str, Any]:
        return {
            "set": {"b", "a", 3, (1, "x"), 2.5, None, frozenset({1, "y"})},
            "dict": {"z": 1, "a": 2, 7: [1.0] * 9},
            "array": np.arange(3),
        }

    assert encode(tree()).shape == encode(tree()).shape


def test_integers_of_64_bits_take_8_bytes() -> None:
    one = len(encode({"a": 1}).shape)
    for number in (-(1 << 63), (1 << 63) - 1):
        assert len(encode({"a": number}).shape) == one
    assert len(encode({"a": 1 << 63}).shape) > one
    assert len(encode({"a": [*range(1000)]}).shape) < one + 9 * 1000
    assert len(encode({"a": dict.fromkeys(range(1000))}).shape) < one + 10 * 1000


def test_the_order_of_a_set_does_not_matter() -> None:
    words = [f"word {number}" for number in range(50)]
    assert encode({*words, 1}).shape == encode({1, *words[::-1]}).shape


class Unlisted(dict[str, int]):
    pass


class Number(int):
    pass


class Stateful:
    def state_dict(self) -> dict[str, int]:
        return {}


class Buffer(io.BytesIO):
    pass


def closed() -> io.BytesIO:
    buffer = io.BytesIO(b"x")
    buffer.close()
    return buffer


def named() -> io.BytesIO:
    buffer = io.BytesIO(b"x")
    buffer.name = "x.png"
    return buffer


@pytest.mark.parametrize(
    ("value", "place", "says"),
    [
        (lambda: 0, "tree['a'][1]", "no file can hold a value of its type"),
        (object(), "tree['a'][1]", "no file can hold a value of its type"),
        (Unlisted(), "tree['a'][1]", "save dict(value)"),
        (Number(3), "tree['a'][1]", "save int(value)"),
        (np.random.default_rng(), "tree['a'][1]", "save its bit_generator.state"),
        (Stateful(), "tree['a'][1]", "save the result of its state_dict()"),
        (types.SimpleNamespace(a=print), "tree['a'][1]", "no file can hold"),
        (collections.UserDict(), "tree['a'][1]", "no file can hold"),
        (iter([]), "tree['a'][1]", "no file can hold"),
        (int, "tree['a'][1]", "no file can hold"),
        (np.array(["a"]), "tree['a'][1]", "no zTensor type holds"),
        (np.array([None]), "tree['a'][1]", "no zTensor type holds"),
        (np.datetime64("2020-01-01"), "tree['a'][1]", "no zTensor type holds"),
        (np.ma.masked_array([1]), "tree['a'][1]", "no file can hold"),
        (np.dtype("U3"), "tree['a'][1]", "no zTensor type holds"),
        (collections.defaultdict(lambda: 1), "tree['a'][1]", "a factory that is code"),
        (Buffer(b"x"), "tree['a'][1]", "save an io.BytesIO of its getvalue()"),
        (closed(), "tree['a'][1]", "BytesIO that is closed"),
        (named(), "tree['a'][1]", "attributes of its own"),
        (io.StringIO("x"), "tree['a'][1]", "no file can hold"),
        ({"x": {2: print}}, "tree['a'][1]['x'][2]", "no file can hold"),
        ({(1, object()): 1}, "tree['a'][1]", "no file can hold"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_unsupported_values_are_refused_by_place(value: object, place: str, says: str) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        encode({"a": [0, value]})
    assert str(caught.value).startswith(place)
    assert says in str(caught.value)


def test_of_a_long_place_the_ends_are_named() -> None:
    value: object = print
    for step in range(45, 0, -1):
        value = {step: value}
    with pytest.raises(NotRepresentableError) as caught:
        encode(value)
    first, last = ("".join(f"[{n}]" for n in range(start, start + 20)) for start in (1, 26))
    assert str(caught.value).startswith(f"tree{first}[...]{last}: ")


def test_a_field_is_named_as_in_code() -> None:
    @dataclasses.dataclass
    class State:
        inner: Any

    with pytest.raises(NotRepresentableError, match=r"^tree\['s'\]\.inner\[0\]: "):
        encode({"s": State([print])})


def test_a_value_that_contains_itself_is_refused() -> None:
    tree: dict[str, Any] = {"a": [1]}
    tree["a"].append(collections.OrderedDict(back=tree))
    with pytest.raises(NotRepresentableError, match=r"\['back'\]: it contains itself"):
        encode(tree)


def test_a_value_may_be_in_a_tree_twice() -> None:
    shared = [1, 2]
    encode({"a": shared, "b": [shared, shared]})


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(NotRepresentableError, match="lone surrogate"):
        encode({"a": "\ud800"})


def test_tensors_of_all_layouts_are_leaves() -> None:
    tree = [
        ztensor.Tensor(np.zeros(2)),
        ztensor.Tensor.csr([1.0], [0], [0, 1], shape=(1, 2)),
        np.zeros(3, ml_dtypes.bfloat16),
    ]
    assert [type(leaf) for leaf in encode(tree).leaves.values()] == [
        ztensor.Tensor,
        ztensor.Tensor,
        np.ndarray,
    ]
