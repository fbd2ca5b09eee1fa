from __future__ import annotations

import collections
import contextlib
import math
import pickle
import random
import struct
from typing import Any

import pytest

from tests.extent import amount
from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError, ZTensorError
from ztensor.formats.pt.pickle_reader import read_pickle
from ztensor.formats.pt.pickled import Buildable, Call, Global, Items, Vocabulary, misfit
from ztensor.formats.pt.values import counts
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits


class Box(Buildable):
    def __init__(self, *values: object) -> None:
        self.values = values
        self.state: object = None

    def build(self, state: object) -> None:
        self.state = state


def persistent(saved_id: object) -> object:
    if saved_id == "none":
        raise misfit("a persistent id", "another", saved_id)
    return ("persistent", saved_id)


VOCABULARY = Vocabulary({"a.Box": Call(Box, 0, 2), "collections.OrderedDict": Call(Items, 0, 0)},
                        persistent)  # fmt: skip


def read(data: bytes, limits: Limits = DEFAULT_LIMITS) -> Any:
    value, end = read_pickle(data, VOCABULARY, Budget(limits, len(data)))
    assert end == len(data)
    return value


def plain(value: Any) -> Any:
    if isinstance(value, Items):
        return {key: plain(child) for key, child in value.pairs}
    if isinstance(value, (list, tuple)):
        return type(value)(map(plain, value))
    return value


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
    # Before protocol 3 bytes are a call, which is the vocabulary's affair.
    vocabulary = Vocabulary(
        {
            "_codecs.encode": Call(lambda text, encoding: text.encode(encoding), 2, 2),
            "__builtin__.bytes": Call(lambda: b"", 0, 0),
        },
        persistent,
    )
    data = pickle.dumps(value, protocol)
    found, end = read_pickle(data + b"what follows", vocabulary, Budget(DEFAULT_LIMITS, len(data)))
    assert plain(found) == value
    assert end == len(data)


@pytest.mark.parametrize("protocol", [4, 5])
def test_sets_are_lists(protocol: int) -> None:
    assert read(pickle.dumps({7}, protocol)) == [7]
    assert read(pickle.dumps(frozenset({7}), protocol)) == [7]


def test_shared_values_are_one() -> None:
    shared: list[object] = []
    first, second = read(pickle.dumps([shared, shared]))
    assert first is second


def test_a_value_may_contain_itself() -> None:
    value: list[object] = []
    value.append(value)
    found = read(pickle.dumps(value))
    assert found[0] is found


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
        (b"I" + b"1" * 100 + b"\n.", int("1" * 100)),
        (b"F1.5\n.", 1.5),
        (rb"V\u00e4" + b"\n.", "ä"),
        (b"\x96\3\0\0\0\0\0\0\0abc.", b"abc"),
        (b"(I1\nI2\nl.", [1, 2]),
        (b"(I1\nI2\nd.", {1: 2}),
        (b"NI1\n0.", None),
        (b"(NNN1N.", None),
        (b"I1\n2\x86.", (1, 1)),
        (b"Pkey\n.", ("persistent", "key")),
        (b"K\7Q.", ("persistent", 7)),
    ],
    ids=lambda value: repr(value)[:16],
)
def test_what_only_old_picklers_write(data: bytes, value: object) -> None:
    assert plain(read(data)) == value


@pytest.mark.parametrize(
    "data",
    [b"cos\nsystem\n.", b"\x8c\2os\x8c\6system\x93."],
    ids=["global", "stack_global"],
)
def test_a_name_stays_a_name(data: bytes) -> None:
    found = read(data)
    assert found == Global("os", "system")
    assert str(found) == "os.system"


@pytest.mark.parametrize(
    "data",
    [b"ca\nBox\n(NI1\ntR.", b"ca\nBox\nNI1\n\x86\x81.", b"ca\nBox\nNI1\n\x86}\x92.",
     b"(NI1\nia\nBox\n.", b"(ca\nBox\nNI1\no."],
    ids=["reduce", "newobj", "newobj_ex", "inst", "obj"],
)  # fmt: skip
def test_every_way_to_call_asks_the_vocabulary(data: bytes) -> None:
    assert read(data).values == (None, 1)
    with refused(
        UnsupportedError, Reason.PICKLE_CALL, match="nothing in it was imported or executed"
    ) as caught:
        read(data.replace(b"a\nBox", b"b\nBox"))
    assert "'b.Box'" in str(caught.value)


def test_a_state_goes_to_what_takes_one() -> None:
    assert read(b"ca\nBox\n)RK\7b.").state == 7


def test_attributes_of_a_dict_are_its_last_items() -> None:
    value: Any = collections.OrderedDict(a=1)
    value.note = 2
    assert plain(read(pickle.dumps(value, 2))) == {"a": 1, "note": 2}


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
        (b"ca\nBox\nNR.", Reason.ENCODING_MALFORMED),
        (b"\x80\6N.", Reason.ENCODING_MALFORMED),
        (b"\0.", Reason.ENCODING_MALFORMED),
        (b"ca\nBox\n(NNNtR.", Reason.FIELD_VALUE),
        (b"}Nb.", Reason.FIELD_TYPE),
        (b"Pnone\n.", Reason.FIELD_TYPE),
    ],
    ids=lambda value: repr(value)[:24] if isinstance(value, bytes) else str(value),
)
def test_what_is_no_pickle_is_refused(data: bytes, reason: Reason) -> None:
    with refused(FormatError, reason):
        read_pickle(data, VOCABULARY, Budget(DEFAULT_LIMITS, len(data)))


@pytest.mark.parametrize(
    "data",
    [b"\x82\1.", b"\x83\1\0.", b"\x84\1\0\0\0.", b"\x97.", b"N\x98.", b"NNb.", b"cos\nenviron\n}b.",
     b"N)R.", b"ca\nBox\n)}(K\1Nu\x92."],
    ids=["ext1", "ext2", "ext4", "next_buffer", "readonly_buffer", "build_none", "build_name",
         "call_none", "call_with_names"],
)  # fmt: skip
def test_what_could_reach_outside_is_refused(data: bytes) -> None:
    with refused(UnsupportedError, Reason.PICKLE_CALL):
        read_pickle(data, VOCABULARY, Budget(DEFAULT_LIMITS, len(data)))


def test_instructions_are_counted() -> None:
    data = b"]" + b"N0" * 1000 + b"."
    assert read(data) == []
    with refused(LimitError, Reason.LIMIT_MANIFEST, match=r"Limits\.manifest_bytes"):
        read(data, Limits(manifest_bytes=64 * 1000))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"Nq\x070K\1\x940h\7h\1\x86.", (None, 1)),
        (b"Nq\x020K\1q\x000K\2q\x010K\3q\x020K\4\x940h\2h\0h\3\x87.", (3, 1, 4)),
        (b"K\1q\x000K\2q\x000h\0.", 2),
    ],
    ids=["beyond", "filled up", "again"],
)
def test_a_memo_with_gaps(data: bytes, value: object) -> None:
    assert pickle._loads(data) == value  # type: ignore[attr-defined]
    assert read(data) == value


def test_places_of_the_memo_behind_a_gap_are_dear_the_first_time() -> None:
    limits = Limits(cost_floor=1 << 20)
    puts = [b"r" + struct.pack("<I", place) for place in range(1, 10_000)]
    assert read(b"N" + puts[0] * len(puts) + b".", limits) is None
    with refused(LimitError, Reason.LIMIT_COST):
        read(b"N" + b"".join(puts) + b".", limits)


@pytest.mark.slow
@pytest.mark.parametrize(
    "code", [b"}", b"]", b"\x8f", b"(", b"}\x94", b"]\x94", b"N\x85", b"(l", b"\x94", b"h\0)R"]
)
def test_memory_is_in_proportion_to_the_pickle(code: bytes) -> None:
    data = (
        b"ccollections\nOrderedDict\nq\0("
        + code * (amount(20_000, full=200_000) // len(code))
        + b"1."
    )
    with traced() as memory:
        with contextlib.suppress(FormatError):  # where marks are left
            read(data)
        assert memory()[1] < 80 * len(data)


def test_calls_cannot_copy_one_value_over_and_over() -> None:
    data = b"](" + b"N" * 4000 + b"eq\0ca\nBox\nq\1" + b"h\1h\0\x85R0" * 4000 + b"."
    with refused(LimitError, Reason.LIMIT_COST):
        read(data)


@pytest.mark.slow
def test_depth_needs_no_recursion() -> None:
    deep = amount(50_000, full=200_000)
    value = read(b"N" + b"\x85" * deep + b".")
    for _ in range(deep):
        (value,) = value
    assert value is None
    read(b"]" * deep + b"a" * (deep - 1) + b".")
    read(b"}" + b"N}" * deep + b"s" * deep + b".")


def test_keys_are_never_hashed() -> None:
    # A list as a key, and integers that Python's dict would hash alike.
    assert [key for key, _ in read(b"}]Ns.").pairs] == [[]]
    same = b"".join(
        b"\x8a\x10" + (k * (2**61 - 1)).to_bytes(16, "little") + b"N" for k in range(20_000)
    )
    assert len(read(b"}(" + same + b"u.")) == 20_000


class Size(tuple[int, ...]):
    __slots__ = ()

    def __reduce__(self) -> Any:
        return Size, (tuple(self),)


class Row:
    def __init__(self, **fields: object) -> None:
        vars(self).update(fields)


def table(count: int, protocol: int = 4) -> bytes:
    """Return a pickle like that of a checkpoint of many chunks."""
    rows = []
    for number in range(count):
        offset = Size((number * 3 % 700, 0))
        rows += [
            Row(offsets=offset, sizes=Size((70_000, number)[: 1 + number % 2])),
            Row(fqn=f"name {number % 5}", offset=Size((number, 1 << 20, 3)), index=None),
            Row(fqn="name", offset=offset, index=1 << (number % 40)),
            Row(a=offset, b=number, c="x" * 300 if number % 7 == 0 else "é"),
        ]
    return pickle.dumps([rows, [row.__dict__ for row in rows]], protocol)


ROWS = Vocabulary(
    {
        f"{__name__}.Row": Call(Box, 0, 0),
        f"{__name__}.Size": Call(lambda value=(): counts(value, "a size"), 0, 1),
        **VOCABULARY.calls,
    },
    persistent,
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mutations_give_a_value_or_our_error(seed: int) -> None:
    draw = random.Random(seed)
    good = pickle.dumps([VALUES[:30], {"a": ({}, [1.5]), "b": b"x"}], seed + 2)
    fragments = [b"ca\nBox\n", b"R", b"b", b"(", b"t", b"u", b"q\0", b"h\0", b"\x81", b"Q", b"."]
    refused: list[ZTensorError] = []
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                data[at:at] = draw.choice(fragments)
            elif kind == 2:
                del data[at : at + draw.randint(1, 8)]
            else:
                data[at : at + 4] = struct.pack("<I", draw.choice([0, 1, 2**31, 2**32 - 1]))
        try:
            read_pickle(bytes(data), VOCABULARY, Budget(DEFAULT_LIMITS, len(data)))
        except (FormatError, UnsupportedError, LimitError) as error:
            refused.append(error)
    assert len(refused) > 1000
    assert all(error.reason is not None and str(error).isascii() for error in refused)
