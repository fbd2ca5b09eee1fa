"""What may be a key, and how large a tree may be: the largest that is saved is loaded, too."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.training.tree.alike import assert_alike
from ztensor.errors import NotRepresentableError
from ztensor.limits import DEFAULT_LIMITS, Budget
from ztensor.training.tree import decode, encode


@dataclasses.dataclass(eq=False)
class ByIdentity:
    x: Any


@dataclasses.dataclass(frozen=True)
class ByValue:
    x: Any


Pair = collections.namedtuple("Pair", "a b")


def loads_if_it_saves(tree: Any) -> bool:
    """Return whether a tree can be saved; assert that it then comes back."""
    try:
        encoded = encode(tree)
    except NotRepresentableError:
        return False
    budget = Budget(DEFAULT_LIMITS, len(encoded.shape))
    found = decode(encoded.shape, budget, lambda leaf: encoded.leaves[leaf.name],
                   types=[ByIdentity, ByValue, Pair])  # fmt: skip
    if "ByIdentity" not in repr(tree):
        assert_alike(found, tree)
    return True


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda value: (value,),
    "frozenset": lambda value: frozenset([value]),
    "namedtuple": lambda value: Pair(value, 1),
    "dataclass": ByValue,
    "by identity": ByIdentity,
    "mixed": lambda value: (frozenset([Pair(value, 2)]),),
}
INNERMOST: dict[str, Any] = {
    "nothing": (), "number": 1, "text": "x", "complex": 1j, "range": range(3),
    "no set": frozenset(),
    "scalar": np.float32(2), "large": 1 << 90, "numbers": (1, 2, 3, 4, 5),
}  # fmt: skip
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "key": lambda value: {value: 1},
    "one of several keys": lambda value: {value: 1, 2: {value: 3}},
    "element": lambda value: {value},
    "element of a frozenset": lambda value: [frozenset([value, 1])],
    "of an OrderedDict": lambda value: collections.OrderedDict({value: 1}),
}


@pytest.mark.parametrize("depth", [31, 32, 33, 34])
@pytest.mark.parametrize("holder", HOLDERS)
def test_tuples_are_as_deep_in_keys_that_are_saved_as_in_loaded_ones(
    holder: str, depth: int
) -> None:
    value: Any = ()
    for _ in range(depth - 1):
        value = (value,)
    deepest = 32 if holder.startswith("element") else 33  # the tuple of a set counts
    assert loads_if_it_saves(HOLDERS[holder](value)) is (depth <= deepest)


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["key", "element", "element of a frozenset"])
@pytest.mark.parametrize("innermost", INNERMOST)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_deepest_key_that_is_saved_is_loaded(wrapper: str, innermost: str, holder: str) -> None:
    outcomes = []
    for depth in range(40):
        value = INNERMOST[innermost]
        for _ in range(depth):
            value = WRAPPERS[wrapper](value)
        outcomes.append(loads_if_it_saves(HOLDERS[holder](value)))
    saved = outcomes.index(False)  # the first that is too deep
    assert saved > 7
    assert not any(outcomes[saved:])


@pytest.mark.parametrize(
    "held", [[1], [1, 2, 3, 4, 5], [1.0] * 9, {1}, {}, {"a": 1}, bytearray(b"x"), [[]]], ids=repr
)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_key_that_could_not_be_loaded_is_not_saved(holder: str, held: Any) -> None:
    for value in (ByIdentity(held), (ByIdentity(Pair(1, held)),)):
        assert not loads_if_it_saves(HOLDERS[holder](value))


def test_keys_that_would_be_one_are_refused_when_they_are_saved() -> None:
    assert loads_if_it_saves({ByIdentity(1): 1, ByIdentity(2): 2})
    assert not loads_if_it_saves({ByIdentity(1): 1, ByIdentity(1): 2})
    assert not loads_if_it_saves({(ByIdentity(1), 2), (ByIdentity(1), 2)})
    assert loads_if_it_saves([{ByIdentity(1): 1}, {ByIdentity(1): 2}])


MERSENNE = (1 << 61) - 1  # the modulus of Python's hashes of numbers


@pytest.mark.parametrize("make", [dict.fromkeys, set, frozenset], ids=["dict", "set", "frozenset"])
@pytest.mark.parametrize("of", ["integers", "tuples"])
def test_as_many_keys_of_one_hash_are_saved_as_are_loaded(of: str, make: Any) -> None:
    keys: list[Any] = [(1 << 64) * MERSENNE * number for number in range(1, 80)]
    if of == "tuples":  # -1 and -2 have one hash
        keys = list(itertools.product((-1, -2), repeat=7))
    assert len({hash(key) for key in keys}) == 1
    assert loads_if_it_saves(make(keys[:64]))
    assert not loads_if_it_saves(make(keys[:65]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: [None] * 6_000_000,
        lambda: [[] for _ in range(1_500_000)],
        lambda: ["a"] * 3_000_000,
        lambda: {f"{number}": True for number in range(300_000)},
    ],
    ids=["nothing", "lists", "texts", "keys"],
)
def test_values_that_are_alike_are_loaded_however_many_there_are(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    tree = make()
    ztensor.save_tree(tree, tmp_path / "a.zt")
    assert ztensor.load_tree(tmp_path / "a.zt") == tree
