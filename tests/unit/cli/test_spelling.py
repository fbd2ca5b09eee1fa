from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ztensor.cli.spelling import as_json, count_text, cut, json_text, shape_text, size_text
from ztensor.model.showing import visible
from ztensor.wire.cbor import UNDEFINED, Pairs, Simple, Tag


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("h.0.attn.c_attn.weight", "h.0.attn.c_attn.weight"),
        ("Gewicht_ä 重み вес", "Gewicht_ä 重み вес"),
        ("e\u0301", "e\u0301"),
        ("\x00\x1b\x7f", r"\x00\x1b\x7f"),
        ("a\nb\rc\td", r"a\x0ab\x0dc\x09d"),
        ("\x80\x9b\xa0\xad", r"\x80\x9b\xa0\xad"),
        ("\u202a\u202e\u2066\u2069\u200e\u200f", r"\u202a\u202e\u2066\u2069\u200e\u200f"),
        ("\u200b\u200c\u200d\ufeff\u2028", r"\u200b\u200c\u200d\ufeff\u2028"),
        ("\ud800x\udc80", r"\ud800x\udc80"),
        ("\U000e0001", r"\U000e0001"),
        ("\u3164\ufe0f\u2800", r"\u3164\ufe0f\u2800"),
        ("\u0301a", r"\u0301a"),
        ("a" + "\u0301" * 6, "a" + "\u0301" * 4 + r"\u0301\u0301"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.slow
def test_every_character_is_printable_once_visible() -> None:
    everything = "".join(map(chr, range(0x110000)))
    assert visible(everything).isprintable()
    assert not set(visible(everything)) & set(map(chr, (*range(0x20), *range(0x7F, 0xA0))))


def test_visible_twice_is_visible_once() -> None:
    text = "\x1b\u202e\u3164a\u0301"
    assert visible(visible(text)) == visible(text)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (77_194_752, "77.2 MB"),
        (2**40, "1.1 TB"),
        (2**64 - 1, "18.4 EB"),
        pytest.param(10**5000, "over 18 EB", id="5000 digits"),
    ],
)
def test_size_text(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


def test_shape_text() -> None:
    assert shape_text([]) == "[]"
    assert shape_text([50257, 768]) == "[50257, 768]"
    assert shape_text([1] * 1000) == "[1, 1, 1, 1, 1, 1, ... 1000 dimensions]"


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
    """A map of the file that looks like one of our spellings is told apart."""
    looks = [b"\x00", {"$bytes": "00"}, Pairs([("$bytes", "00"), (1, 2)]), {"$map": []}]
    spelled = [json.dumps(as_json(value)) for value in looks]
    assert len(set(spelled)) == len(looks)


def test_json_text_shows_letters_and_no_controls() -> None:
    assert json_text({"ä": "\x1b\u202e\n"}, 100) == r'{"ä": "\u001b\u202e\n"}'
    assert json_text("y" * 100, 10) == '"yyyyyyyyy... (102 characters)'
