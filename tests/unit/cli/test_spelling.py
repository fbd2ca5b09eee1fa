from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ztensor.cli.spelling import as_json, count_text, cut, json_text, parameters_text
from ztensor.spec.wire.cbor import UNDEFINED, Pairs, Simple, Tag


def test_cut_and_count() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcdef", 3) == "abc... (6 characters)"
    assert count_text(1, "object") == "1 object"
    assert count_text(12345, "object") == "12,345 objects"


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (b"\x00\xff", {"$bytes": "00ff"}),
        (math.nan, {"$float": "nan"}),
        (math.inf, {"$float": "inf"}),
        (-math.inf, {"$float": "-inf"}),
        (1.5, 1.5),
        (2**64 - 1, 2**64 - 1),
        (-(2**64), -(2**64)),
        pytest.param(10**5000, {"$int": hex(10**5000)}, id="5000 digits"),
        (True, True),
        (complex(1, math.nan), [1, {"$float": "nan"}]),
        (None, None),
        (Tag(32, "x"), {"$tag": [32, "x"]}),
        (Tag(2, b"\x01"), {"$tag": [2, {"$bytes": "01"}]}),
        (Simple(40), {"$simple": 40}),
        (UNDEFINED, {"$undefined": True}),
        (
            Pairs([(1, "a"), (b"k", [math.nan])]),
            {"$map": [[1, "a"], [{"$bytes": "6b"}, [{"$float": "nan"}]]]},
        ),
        ({"a": {"b": [1, (2,)]}}, {"a": {"b": [1, [2]]}}),
        ({"$bytes": "not bytes"}, {"$map": [["$bytes", "not bytes"]]}),
    ],
)
def test_as_json(value: object, spelled: Any) -> None:
    assert as_json(value) == spelled
    assert json.loads(json.dumps(as_json(value), allow_nan=False)) == spelled


def test_nothing_is_spelled_like_something_else() -> None:
    """A map of the file that looks like one of our spellings gets another spelling."""
    looks = [b"\x00", {"$bytes": "00"}, Pairs([("$bytes", "00"), (1, 2)]), {"$map": []}]
    spelled = [json.dumps(as_json(value)) for value in looks]
    assert len(set(spelled)) == len(looks)


def test_json_text_shows_letters_and_no_controls() -> None:
    assert json_text({"ä": "\x1b\u202e\n"}, 100) == r'{"ä": "\u001b\u202e\n"}'
    assert json_text("y" * 100, 10) == '"yyyyyyyyy... (102 characters)'


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 parameters"),
        (1, "1 parameter"),
        (999, "999 parameters"),
        (1000, "1.0 k parameters"),
        (999_949, "999.9 k parameters"),
        (999_950, "1.0 M parameters"),
        (6_738_415_616, "6.7 B parameters"),
        (10**12, "1.0 T parameters"),
        (10**18, "over 1,000,000 T parameters"),
        (10**4000, "over 1,000,000 T parameters"),
    ],
)
def test_parameters_for_people(number: int, text: str) -> None:
    assert parameters_text(number) == text
