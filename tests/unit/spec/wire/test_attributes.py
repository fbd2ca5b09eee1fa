"""Values of attributes come back unchanged, or as the documented other value."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.edit import Editor
from ztensor.ext import cbor
from ztensor.numpy import save_file

Pairs = cbor.Pairs
Tag = cbor.Tag
with_dicts = cbor.with_dicts

SAME: dict[str, Any] = {
    "labels": {0: "cat", 1: "dog", -1: "none"},
    "deep": {"a": [{1: {2: {3: None}}}, {"b": {True: False}}]},
    "mixed": {1: "int", b"1": "bytes", "1": "text", None: "null", 2.5: "float"},
    "plain": {"a": 1, "b": [1, 2.5, "c", b"d", True, None]},
    "empty": {},
}
# The rule of the page: what comes back as something else.
CHANGED: dict[str, tuple[Any, Any]] = {
    "tuple": ((1, (2, 3)), [1, [2, 3]]),
    "bytearray": (bytearray(b"ab"), b"ab"),
    "number of NumPy": (np.float32(0.5), 0.5),
    "an index of NumPy as key": ({np.int64(3): 1}, {3: 1}),
}


@pytest.mark.parametrize("of_object", [False, True], ids=["file", "object"])
@pytest.mark.parametrize("key", [*SAME, *CHANGED])
def test_values_are_read_as_documented(tmp_path: Path, key: str, *, of_object: bool) -> None:
    value, expected = CHANGED.get(key, (SAME.get(key), SAME.get(key)))
    path = tmp_path / "a.zt"
    with ztensor.Writer(path, attributes=None if of_object else {key: value}) as writer:
        writer.write("w", ztensor.Tensor([1.0], attributes={key: value} if of_object else None))
    with ztensor.open(path) as reader:
        if of_object:
            found = [reader.metadata("w").attributes, reader.read("w").attributes]
        else:
            found = [reader.attributes]
    if not of_object:
        with Editor(path) as editor:
            found.append(editor.attributes)
    for attributes in found:
        assert attributes == {key: expected}
        assert repr(attributes[key]) == repr(expected)  # 1 is not True


@pytest.mark.wing
def test_a_save_keeps_keys_that_are_numbers(tmp_path: Path) -> None:
    save_file({}, tmp_path / "a.zt", SAME)
    ztensor.convert(tmp_path / "a.zt", tmp_path / "b.zt", check=True)
    for name in ("a.zt", "b.zt"):
        with ztensor.open(tmp_path / name) as reader:
            assert reader.attributes == SAME
            assert type(reader.attributes["labels"]) is dict


PAIRS: list[Pairs] = [
    Pairs([(1, "a"), (1.0, "b")]),
    Pairs([(1, "a"), (True, "b")]),
    Pairs([(0, "a"), (False, "b")]),
    Pairs([(math.nan, "a")]),
    Pairs([(Tag(1, 2), "a")]),
    Pairs([([1], "a")]),
]


@pytest.mark.parametrize("pairs", PAIRS, ids=repr)
def test_maps_that_no_dict_can_hold_stay_pairs(pairs: Pairs) -> None:
    data = cbor.encode({"a": [pairs, Pairs([(1, pairs)])]})
    found = with_dicts(cbor.decode(data))
    assert type(found["a"][0]) is Pairs
    assert type(found["a"][1]) is dict
    assert type(found["a"][1][1]) is Pairs
    assert cbor.encode(found) == data


def test_the_value_itself_is_not_changed() -> None:
    value = cbor.decode(cbor.encode({"a": {1: [Tag(5, {2: 3})]}}))
    found = with_dicts(value)
    assert isinstance(value, dict)
    assert type(value["a"]) is Pairs
    assert found == {"a": {1: [Tag(5, {2: 3})]}}
    same = {"a": [1, {"b": 2}]}
    assert with_dicts(same) is same
