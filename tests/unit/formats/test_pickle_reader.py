"""Pickles of every protocol, through files of `torch.save`: built here, nothing executed."""

from __future__ import annotations

import collections
import math
import pickle
from typing import Any

import pytest

import ztensor
from tests.corpus.foreign.make_pt import zipped
from tests.extent import amount
from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError
from ztensor.limits import Limits


def read(data: bytes, **limits: int) -> Any:
    """Return the value that a file's pickle has, as attributes have it."""
    file = zipped({"archive/data.pkl": data, "archive/version": b"3"})
    found = ztensor.open(file, limits=Limits(**limits)).attributes
    return found.get("value", found)


def as_attribute(value: Any) -> Any:
    """Return a value of a pickle as an attribute: tuples as lists, keys of dicts as text."""
    if isinstance(value, dict):
        keys = (",".join(map(str, key)) if isinstance(key, tuple) else str(key) for key in value)
        return dict(zip(keys, map(as_attribute, value.values()), strict=True))
    if isinstance(value, (list, tuple)):
        return list(map(as_attribute, value))
    is_long = type(value) is int and not -(1 << 63) <= value < 1 << 64
    return hex(value) if is_long else value


VALUES: list[Any] = [
    None, True, False, 0, 255, 256, 65536, -1, 2**31, -(2**31), 2**63, -(2**100), 2**300,
    0.0, -1.5, math.inf, "", "text", "ä€🎈", "line\nbreak\\ 'quote'", "a" * 300,
    b"", b"\0\xff" * 200,
    [], [1, [2, [3]]], (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {}, {"a": 1, 2: [None]},
    {(1, "x"): {"y": ({},)}}, list(range(3000)), {str(i): i for i in range(2000)},
    [["same"] * 2] * 3,
]  # fmt: skip


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:20])
def test_plain_values_are_what_pickle_says(value: Any, protocol: int) -> None:
    data = pickle.dumps([value], protocol)
    assert read(data + b"what follows") == [as_attribute(value)]


@pytest.mark.parametrize("protocol", [4, 5])
def test_sets_are_lists(protocol: int) -> None:
    assert read(pickle.dumps([{7}, frozenset({7})], protocol)) == [[7], [7]]


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with refused(LimitError, Reason.LIMIT_DEPTH):
        read(pickle.dumps(value))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"S'text'\n.", "text"),
        (b"S''\n.", ""),
        (b'S"it\'s"\n.', "it's"),
        (rb"S'a\tb\n\\\'\x41'" + b"\n.", "a\tb\n\\'A"),
        (rb"S'\xff\x00'" + b"\n.", b"\xff\0"),
        (b"U\3abc.", "abc"),
        (b"T\2\0\0\0\xff\xfe.", b"\xff\xfe"),
        (b"I01\n.", True),
        (b"I00\n.", False),
        (b"I-12\n.", -12),
        (b"L12L\n.", 12),
        (b"I" + b"1" * 100 + b"\n.", hex(int("1" * 100))),
        (b"F1.5\n.", 1.5),
        (rb"V\u00e4" + b"\n.", "ä"),
        (b"\x96\3\0\0\0\0\0\0\0abc.", b"abc"),
        (b"(I1\nI2\nl.", [1, 2]),
        (b"(I1\nI2\nd.", {"1": 2}),
        (b"NI1\n0.", None),
        (b"(NNN1N.", None),
        (b"I1\n2\x86.", [1, 1]),
        (b"cos\nsystem\n.", "os.system"),
        (b"\x8c\2os\x8c\6system\x93.", "os.system"),
        # A memo with gaps, as picklers of Python 2 leave them.
        (b"Nq\x070K\1\x940h\7h\1\x86.", [None, 1]),
        (b"Nq\x020K\1q\x000K\2q\x010K\3q\x020K\4\x940h\2h\0h\3\x87.", [3, 1, 4]),
        (b"K\1q\x000K\2q\x000h\0.", 2),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_instructions_of_other_picklers(data: bytes, value: object) -> None:
    assert read(data) == value


@pytest.mark.parametrize(
    "data",
    [b"ctorch\nSize\n((K\1ttR.", b"ctorch\nSize\nK\1\x85\x85\x81.",
     b"ctorch\nSize\nK\1\x85\x85}\x92.", b"((K\1titorch\nSize\n.",
     b"(ctorch\nSize\n(K\1to."],
    ids=["reduce", "newobj", "newobj_ex", "inst", "obj"],
)  # fmt: skip
def test_every_way_to_call_asks_the_vocabulary(data: bytes) -> None:
    assert read(data) == [1]
    with refused(UnsupportedError, Reason.PICKLE_CALL) as caught:
        read(data.replace(b"torch\nSize", b"torch\nother"))
    assert "torch.other" in str(caught.value.found)


def test_attributes_of_a_dict_are_its_last_items() -> None:
    value: Any = collections.OrderedDict(a=1)
    value.note = 2
    assert read(pickle.dumps(value, 2)) == {"a": 1, "note": 2}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", Reason.TRUNCATED),
        (b"N", Reason.TRUNCATED),
        (b"K", Reason.TRUNCATED),
        (b"I1", Reason.TRUNCATED),
        (b"X\5\0\0\0abc.", Reason.TRUNCATED),
        (b"\x8b\xff\xff\xff\x7f.", Reason.TRUNCATED),
        (b"\x8e" + b"\xff" * 8 + b".", Reason.TRUNCATED),
        (b"\x95" + b"\xff" * 8 + b"N.", Reason.TRUNCATED),
        (b"\x8b\xff\xff\xff\xff.", Reason.ENCODING_MALFORMED),
        (b"T\xff\xff\xff\xff.", Reason.ENCODING_MALFORMED),
        (b"I" + b"1" * 101 + b"\n.", Reason.ENCODING_MALFORMED),
        (b"Ione\n.", Reason.ENCODING_MALFORMED),
        (b"Fone\n.", Reason.ENCODING_MALFORMED),
        (b"Stext\n.", Reason.ENCODING_MALFORMED),
        (b"S'text\n.", Reason.ENCODING_MALFORMED),
        (b"S'\n.", Reason.ENCODING_MALFORMED),
        (b"X\1\0\0\0\xff", Reason.ENCODING_MALFORMED),
        (b"r\0\0\0\0", Reason.ENCODING_MALFORMED),
        (rb"V\ud800" + b"\n.", Reason.ENCODING_MALFORMED),
        (rb"V\u12" + b"\n.", Reason.ENCODING_MALFORMED),
        (b"X\1\0\0\0\xff.", Reason.ENCODING_MALFORMED),
        (b"c\xff\nname\n.", Reason.ENCODING_MALFORMED),
        (b"K\1K\2\x93.", Reason.ENCODING_MALFORMED),
        (b".", Reason.ENCODING_MALFORMED),
        (b"NN.", Reason.ENCODING_MALFORMED),
        (b"(N.", Reason.ENCODING_MALFORMED),
        (b"0.", Reason.ENCODING_MALFORMED),
        (b"q\0.", Reason.ENCODING_MALFORMED),
        (b"h\0.", Reason.ENCODING_MALFORMED),
        (b"Np-1\n.", Reason.ENCODING_MALFORMED),
        (b"Np4294967296\n.", Reason.ENCODING_MALFORMED),
        (b"t.", Reason.ENCODING_MALFORMED),
        (b"1.", Reason.ENCODING_MALFORMED),
        (b"N\x86.", Reason.ENCODING_MALFORMED),
        (b"Na.", Reason.ENCODING_MALFORMED),
        (b"NNa.", Reason.ENCODING_MALFORMED),
        (b"NNNs.", Reason.ENCODING_MALFORMED),
        (b"}(Nu.", Reason.ENCODING_MALFORMED),
        (b"(Nd.", Reason.ENCODING_MALFORMED),
        (b"(o.", Reason.ENCODING_MALFORMED),
        (b"ctorch\nSize\nNR.", Reason.ENCODING_MALFORMED),
        (b"\x80\6N.", Reason.ENCODING_MALFORMED),
        (b"\0.", Reason.ENCODING_MALFORMED),
        (b"ctorch\nSize\n(NNNtR.", Reason.FIELD_VALUE),
        (b"}Nb.", Reason.FIELD_TYPE),
        (b"Pnone\n.", Reason.FIELD_TYPE),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, bytes) else str(value),
)
def test_invalid_pickles_are_refused(data: bytes, reason: Reason) -> None:
    with refused(FormatError, reason):
        read(data)


@pytest.mark.parametrize(
    "data",
    [b"\x82\1.", b"\x83\1\0.", b"\x84\1\0\0\0.", b"\x97.", b"N\x98.", b"NNb.", b"cos\nenviron\n}b.",
     b"N)R.", b"ctorch\nSize\n)}(K\1Nu\x92."],
    ids=["ext1", "ext2", "ext4", "next_buffer", "readonly_buffer", "build_none", "build_name",
         "call_none", "call_with_names"],
)  # fmt: skip
def test_instructions_that_reach_outside_are_refused(data: bytes) -> None:
    with refused(UnsupportedError, Reason.PICKLE_CALL):
        read(data)


def test_instructions_are_counted() -> None:
    data = b"]" + b"N0" * 1000 + b"."
    assert read(data) == []
    with refused(LimitError, Reason.LIMIT_MANIFEST):
        read(data, manifest_bytes=64 * 1000)


@pytest.mark.slow
def test_depth_needs_no_recursion() -> None:
    deep = amount(50_000, full=200_000)
    for data in (
        b"N" + b"\x85" * deep,
        b"]" * deep + b"a" * (deep - 1),
        b"}" + b"N}" * deep + b"s" * deep,
    ):
        with refused(LimitError, Reason.LIMIT_DEPTH):
            read(data + b".", cost_floor=1 << 30)


def test_keys_are_never_hashed() -> None:
    """Integers that Python's dict would hash alike."""
    same = b"".join(
        b"\x8a\x10" + (k * (2**61 - 1)).to_bytes(16, "little") + b"N" for k in range(20_000)
    )
    assert len(read(b"}(" + same + b"u.")) == 20_000
