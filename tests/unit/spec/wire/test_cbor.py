from __future__ import annotations

import array
import decimal
import enum
import fractions
import math
import pickle
import re
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import LimitError, ManifestError, NotRepresentableError, Reason
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits
from ztensor.spec.wire import cbor
from ztensor.spec.wire.cbor import UNDEFINED, Pairs, Simple, Tag

MIB = 1 << 20
UINT64_MAX = (1 << 64) - 1
ONE_TO_25 = list(range(1, 26))
TAIL_25 = bytes([*range(1, 24), 0x18, 24, 0x18, 25]).hex()

# RFC 8949 appendix A: hexadecimal, value. These are also what we write.
PREFERRED: list[tuple[str, object]] = [
    ("00", 0),
    ("01", 1),
    ("0a", 10),
    ("17", 23),
    ("1818", 24),
    ("1819", 25),
    ("1864", 100),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1b000000e8d4a51000", 1000000000000),
    ("1bffffffffffffffff", 18446744073709551615),
    ("c249010000000000000000", Tag(2, bytes.fromhex("010000000000000000"))),
    ("3bffffffffffffffff", -18446744073709551616),
    ("c349010000000000000000", Tag(3, bytes.fromhex("010000000000000000"))),
    ("20", -1),
    ("29", -10),
    ("3863", -100),
    ("3903e7", -1000),
    ("f90000", 0.0),
    ("f98000", -0.0),
    ("f93c00", 1.0),
    ("fb3ff199999999999a", 1.1),
    ("f93e00", 1.5),
    ("f97bff", 65504.0),
    ("fa47c35000", 100000.0),
    ("fa7f7fffff", 3.4028234663852886e38),
    ("fb7e37e43c8800759c", 1.0e300),
    ("f90001", 5.960464477539063e-8),
    ("f90400", 0.00006103515625),
    ("f9c400", -4.0),
    ("fbc010666666666666", -4.1),
    ("f97c00", math.inf),
    ("f97e00", math.nan),
    ("f9fc00", -math.inf),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("f7", UNDEFINED),
    ("f0", Simple(16)),
    ("f8ff", Simple(255)),
    ("c074323031332d30332d32315432303a30343a30305a", Tag(0, "2013-03-21T20:04:00Z")),
    ("c11a514b67b0", Tag(1, 1363896240)),
    ("c1fb41d452d9ec200000", Tag(1, 1363896240.5)),
    ("d74401020304", Tag(23, b"\x01\x02\x03\x04")),
    ("d818456449455446", Tag(24, b"dIETF")),
    ("d82076687474703a2f2f7777772e6578616d706c652e636f6d", Tag(32, "http://www.example.com")),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6161", "a"),
    ("6449455446", "IETF"),
    ("62225c", '"\\'),
    ("62c3bc", "\u00fc"),
    ("63e6b0b4", "\u6c34"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("83010203", [1, 2, 3]),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("9819" + TAIL_25, ONE_TO_25),
    ("a0", {}),
    ("a201020304", Pairs(((1, 2), (3, 4)))),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("826161a161626163", ["a", {"b": "c"}]),
    ("a56161614161626142616361436164614461656145", {c: c.upper() for c in "abcde"}),
]
# The rest of appendix A: other spellings, which are read.
OTHER_SPELLINGS: list[tuple[str, object]] = [
    ("fa7f800000", math.inf),
    ("fa7fc00000", math.nan),
    ("faff800000", -math.inf),
    ("fb7ff0000000000000", math.inf),
    ("fb7ff8000000000000", math.nan),
    ("fbfff0000000000000", -math.inf),
    ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9fff", []),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("9f01820203820405ff", [1, [2, 3], [4, 5]]),
    ("83018202039f0405ff", [1, [2, 3], [4, 5]]),
    ("83019f0203ff820405", [1, [2, 3], [4, 5]]),
    ("9f" + TAIL_25 + "ff", ONE_TO_25),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("826161bf61626163ff", ["a", {"b": "c"}]),
    ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
    # Not in the appendix: heads longer than they need be, empty chunks, tags of every width.
    ("1800", 0),
    ("190001", 1),
    ("1a00000002", 2),
    ("1b0000000000000003", 3),
    ("3b0000000000000000", -1),
    ("5801aa", b"\xaa"),
    ("590001aa", b"\xaa"),
    ("780161", "a"),
    ("79000161", "a"),
    ("7a0000000161", "a"),
    ("7b000000000000000161", "a"),
    ("9b000000000000000101", [1]),
    ("9800", []),
    ("bb00000000000000016161f6", {"a": None}),
    ("b800", {}),
    ("bfff", {}),
    ("a1780161f6", {"a": None}),
    ("a179000161f6", {"a": None}),
    ("a17f616161626063c3bc63ff01", {"ab\u00fcc": 1}),
    ("5f404040ff", b""),
    ("7f6060ff", ""),
    ("5fff", b""),
    ("7fff", ""),
    ("7f780161ff", "a"),
    ("d9d9f700", Tag(55799, 0)),
    ("da0000000000", Tag(0, 0)),
    ("dbffffffffffffffff80", Tag(UINT64_MAX, [])),
    ("d81c81d81d00", Tag(28, [Tag(29, 0)])),
    ("bf01020304ff", Pairs(((1, 2), (3, 4)))),
    ("a2616101f402", Pairs((("a", 1), (False, 2)))),
    ("bf616101f402ff", Pairs((("a", 1), (False, 2)))),
    ("a1a10102a0", Pairs(((Pairs(((1, 2),)), {}),))),
    ("a1c16161f7", Pairs(((Tag(1, "a"), UNDEFINED),))),
    ("a19fff9fff", Pairs((([], []),))),
    ("e0", Simple(0)),
    ("f820", Simple(32)),
]
for _length in (23, 24, 255, 256, 65535, 65536):
    _raw = b"x" * _length
    for _major, _value in ((2, _raw), (3, _raw.decode())):
        PREFERRED.append(((cbor.head(_major, _length) + _raw).hex(), _value))


def typed(value: object) -> object:
    """Return something equal only where type and value are, so that 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return "dict", [(typed(key), typed(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)) and not isinstance(value, Simple):
        return type(value).__name__, [typed(item) for item in value]
    if isinstance(value, float):
        return "float", "nan" if math.isnan(value) else value.hex()
    return type(value).__name__, value


def short(text: str) -> str:
    return text if len(text) < 40 else f"{text[:8]}-{len(text) // 2}-bytes"


def refusal(data: bytes, *, depth: int = 64) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        cbor.decode(data, depth=depth)
    return caught.value


# --- Reading --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [pytest.param(*case, id=short(case[0])) for case in PREFERRED + OTHER_SPELLINGS],
)
def test_reads(text: str, expected: object) -> None:
    data = bytes.fromhex(text)
    assert typed(cbor.decode(data)) == typed(expected)
    assert typed(cbor.decode(memoryview(data))) == typed(expected)
    assert typed(cbor.decode(b"\x81" + data)) == typed([expected])
    assert typed(cbor.decode(b"\xa1\x60" + data)) == typed({"": expected})
    assert typed(cbor.decode(b"\xc5" + data)) == typed(Tag(5, expected))
    as_key = {expected: 0} if isinstance(expected, str) else Pairs(((expected, 0),))
    assert typed(cbor.decode(b"\xa1" + data + b"\x00")) == typed(as_key)


def test_a_map_keeps_the_order_of_the_file() -> None:
    assert list(cbor.decode(b"\xa3\x61c\x00\x61a\x00\x61b\x00")) == ["c", "a", "b"]  # type: ignore[call-overload]


# RFC 8949 appendix F (what is not well-formed), and more: hexadecimal, reason, offset.
MALFORMED = [
    # Reserved additional information.
    *((f"{major << 5 | info:02x}", 0) for major in range(8) for info in (28, 29, 30)),
    ("a11c00", 1),
    ("a1611c00", None),  # a text of one byte: fine so far, and then one byte too many
    ("a17c00", 1),
    ("5f5cff", 1),
    ("7f7dff", 1),
    # Simple values below 32 in two bytes.
    *((f"f8{value:02x}", 0) for value in (0, 1, 0x14, 0x18, 0x1F)),
    ("81f81f", 1),
    # Chunks of another type, and chunks of indefinite length.
    ("5f00ff", 1),
    ("5f21ff", 1),
    ("5f6100ff", 1),
    ("5f80ff", 1),
    ("5fa0ff", 1),
    ("5fc000ff", 1),
    ("5fe0ff", 1),
    ("5f41005f4100ffff", 3),
    ("7f4100ff", 1),
    ("7f7f6100ffff", 1),
    ("a17f4100ff00", 2),
    # A break on its own.
    ("ff", 0),
    ("81ff", 1),
    ("8200ff", 2),
    ("a1ff", 1),
    ("a1ff00", 1),
    ("a100ff", 2),
    ("a16161ff", 3),
    ("a20000ff", 3),
    ("c0ff", 1),
    ("9f81ff", 2),
    ("9f829f819f9fffffffff", 9),
    # A break where a value is due.
    ("bf00ff", 2),
    ("bf000001ff", 4),
    ("bf6161ff", 3),
    ("bf616100f4ff", 5),
    # Indefinite length where there is no length.
    ("1f", 0),
    ("3f", 0),
    ("df", 0),
    ("811f", 1),
    ("a13f00", 1),
]


@pytest.mark.parametrize(
    ("text", "offset"), [case for case in MALFORMED if case[1] is not None], ids=lambda x: f"{x}"
)
def test_malformed(text: str, offset: int) -> None:
    error = refusal(bytes.fromhex(text))
    assert error.reason is Reason.CBOR_MALFORMED
    assert error.message.endswith(f"at byte {offset}")
    assert error.expected
    assert error.found
    assert error.section


TRUNCATED = [
    *("", "18", "19", "1a", "1b", "1901", "1a0102", "1b01020304050607", "38", "39", "3b00"),
    *("58", "5900", "78", "98", "9a01ff00", "b8", "bb00", "d8", "db00", "f8", "f9", "f900"),
    *("fa0000", "fb000000", "41", "61", "5affffffff00", "5bffffffffffffffff010203"),
    *("7affffffff00", "7b7fffffffffffffff010203", "81", "818181818181818181", "8200", "a1"),
    *("a20102", "a100", "a2000001", "c0", "c1c2", "5f", "5f4100", "7f", "7f6100", "5f58", "7f78"),
    *("9f", "9f0102", "bf", "bf01020302", "bf6161", "819f", "9f8000", "9f9f9f9f9fffffffff"),
    *("9f819f819f9fffffff", "7803", "780361", "78056162e6b0", "62e6", "63e6b0", "8162c3", "a162c3"),
    *("a1780361", "a2616100", "a261610062", "a26161006261", "a2616100780261"),
    *("a261610061", "7a00000003c3bc", "5a0000000300", "a17a00000003c3bc", "9b0000000000000001"),
    *("9803", "980300", "b80200", "b802000000", "9a00000100" + "00" * 255, "a3616100616200"),
]


@pytest.mark.parametrize("text", TRUNCATED, ids=lambda text: short(text) or "nothing")
def test_truncated(text: str) -> None:
    data = bytes.fromhex(text)
    error = refusal(data)
    assert error.reason is Reason.CBOR_TRUNCATED
    match = re.search(r"at byte (\d+)$", error.message)
    assert match
    assert 0 <= int(match[1]) <= len(data)
    assert error.found == f"the manifest's end at byte {len(data)}"
    assert error.expected


@pytest.mark.parametrize(
    ("text", "offset"),
    [("0000", 1), ("a000", 1), ("6161ff", 2), ("9fffff", 2), ("f61c", 1), ("a16161006162", 4)],
)
def test_trailing(text: str, offset: int) -> None:
    error = refusal(bytes.fromhex(text))
    assert error.reason is Reason.CBOR_TRAILING
    assert error.message.endswith(f"at byte {offset}")
    assert error.found == f"{len(text) // 2 - offset} more bytes"


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("61ff", 1),
        ("6261ff", 2),
        ("8261616362c0af", 5),  # an overlong slash
        ("63eda080", 1),  # a lone surrogate
        ("66eda080edb080", 1),  # a pair of them
        ("64f4908080", 1),  # beyond the last code point
        ("7804616262ff", 5),
        ("790001ff", 3),
        ("7f61c361bcff", 2),  # one character in two chunks
        ("a162c32801", 2),
        ("a17802c32801", 3),
        ("a1790002c32801", 4),
        ("a17f61ffff01", 3),
    ],
)
def test_text_that_is_not_utf8(text: str, offset: int) -> None:
    error = refusal(bytes.fromhex(text))
    assert error.reason is Reason.CBOR_UTF8
    assert error.message.endswith(f"at byte {offset}")
    assert error.expected == "UTF-8"


NAN_FORMS = ("f97e00", "f9fe01", "fa7fc00000", "fb7ff8000000000001")
SAME_KEYS = [
    ("6161", "6161"),
    ("6161", "780161"),
    ("6161", "7a0000000161"),
    ("60", "7fff"),
    ("6161", "7f61616060ff"),
    ("01", "1801"),
    ("01", "1b0000000000000001"),
    ("20", "390000"),
    ("f93c00", "fa3f800000"),
    ("f93c00", "fb3ff0000000000000"),
    *(("f97e00", other) for other in NAN_FORMS),
    ("4161", "5f4161ff"),
    ("f4", "f4"),
    ("f6", "f6"),
    ("f7", "f7"),
    ("e1", "e1"),
    ("820102", "9f1801190002ff"),
    ("80", "9fff"),
    ("a0", "bfff"),
    ("a2616101616202", "bf616202616101ff"),
    ("a201020304", "a203040102"),
    ("a20102616104", "a26161040102"),
    ("c101", "d8011801"),
    ("c18101", "c19f01ff"),
    ("8181a18001", "8181a19fff01"),
]


@pytest.mark.parametrize(("first", "second"), SAME_KEYS)
@pytest.mark.parametrize("between", ["", "0700", "617a00", "617a000700"])
@pytest.mark.parametrize("is_definite", [True, False], ids=["definite", "indefinite"])
def test_a_key_twice(first: str, second: str, between: str, *, is_definite: bool) -> None:
    """Also across the point where a map turns out to have keys that are not text."""
    count = 2 + {"": 0, "0700": 1, "617a00": 1}.get(between, 2)
    pairs = bytes.fromhex(f"{first}f6{between}{second}f6")
    data = bytes([0xA0 + count]) + pairs if is_definite else b"\xbf" + pairs + b"\xff"
    error = refusal(data)
    assert error.reason is Reason.CBOR_DUPLICATE_KEY
    assert error.message.endswith(f"at byte {1 + len(first + between) // 2 + 1}")
    assert error.found is not None
    assert "a second time" in error.found
    nested = refusal(b"\x82\x00" + data)
    assert nested.message.endswith(f"at byte {3 + len(first + between) // 2 + 1}")


def test_a_key_twice_is_named() -> None:
    assert refusal(b"\xa2\x61a\x00\x61a\x00").found == "the key 'a' a second time"
    assert refusal(b"\xa2\x01\x00\x01\x00").found == "the key 1 a second time"
    assert (
        refusal(b"\xa2\x80\x00\x80\x00").found
        == "the key that is an array, map or tag a second time"
    )


DIFFERENT_KEYS = [
    *("00", "01", "20", "f90000", "f98000", "f93c00", "f97e00", "f4", "f5", "f6", "f7", "e1"),
    *("f8ff", "40", "60", "4101", "6101", "4161", "6161", "80", "a0", "8101", "81f5", "81f93c00"),
    *("8180", "81a0", "820101", "81820101", "a10101", "a10102", "a16161f5", "a1616101", "c001"),
    *("c101", "c201", "c24101", "c180", "c1a0", "818101", "82018101", "82810101", "a18001"),
    *("a1a001", "a101a0", "a10180", "82f701", "82616060", "82606160", "83606060"),
    *("49ff0000000000000000", "69" + "00" * 9),
]


def test_keys_of_other_type_or_value_are_others() -> None:
    keys = [bytes.fromhex(text) for text in DIFFERENT_KEYS]
    pairs = b"".join(key + b"\x00" for key in keys)
    value = cbor.decode(b"\xbf" + pairs + b"\xff")
    assert isinstance(value, Pairs)
    assert typed(value) == typed(Pairs((cbor.decode(key), 0) for key in keys))


def test_the_same_key_in_two_maps_is_fine() -> None:
    data = bytes.fromhex("82a26161a1616100616200a1616100")
    assert cbor.decode(data) == [{"a": {"a": 0}, "b": 0}, {"a": 0}]


# --- Reading what is made to hurt -----------------------------------------------------------

OPENERS = {
    "arrays": b"\x81",
    "endless arrays": b"\x9f",
    "long arrays": b"\x98\x01",
    "maps": b"\xa1\x60",
    "endless maps": b"\xbf\x60",
    "maps as keys": b"\xa1",
    "maps behind an integer": b"\xa1\x00",
    "tags": b"\xc1",
    "long tags": b"\xd9\xd9\xf7",
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_too_deep(opener: bytes) -> None:
    with pytest.raises(LimitError) as caught:
        cbor.decode(opener * 1_000_000)
    error = caught.value
    assert error.reason is Reason.LIMIT_DEPTH
    assert "Limits.depth" in error.message
    assert error.message.endswith(f"at byte {64 * len(opener)}")
    assert "limits=ztensor.Limits(depth=...)" in str(error)
    assert error.expected == "at most 64 levels"


@pytest.mark.parametrize("empty", [b"\x80", b"\xa0", b"\x9f\xff", b"\xbf\xff", b"\xc1\x00"])
def test_depth_counts_each_array_map_and_tag(empty: bytes) -> None:
    assert cbor.decode(b"\x00", depth=0) == 0
    with pytest.raises(LimitError):
        cbor.decode(empty, depth=0)
    cbor.decode(empty, depth=1)
    nest = b"\x81\xc1\xa1\x61a" * 21  # 63 levels
    cbor.decode(nest + empty)
    for data in (nest + b"\x81" + empty, nest + b"\xa1" + empty + b"\x00"):
        with pytest.raises(LimitError):
            cbor.decode(data)
        cbor.decode(data, depth=65)


def nested_list(depth: int) -> object:
    value: object = 0
    for _ in range(depth):
        value = [value]
    return value


def level_of(value: object) -> int:
    depth = 0
    while isinstance(value, list):
        depth += 1
        (value,) = value
    return depth


def test_deeper_than_python_goes() -> None:
    """Whatever the caller allows."""
    for opener in OPENERS.values():
        with refused(LimitError, Reason.LIMIT_DEPTH):
            cbor.decode(opener * 100_000, depth=1_000_000)


@pytest.mark.usefixtures("_quick")
def test_maps_that_are_keys_of_maps_cost_what_they_have() -> None:
    """Each is looked at on every level around it."""
    data = b"\xa1" * 60 + cbor.encode(list(range(1000, 201_000))) + bytes(60)
    with refused(LimitError, Reason.LIMIT_COST):
        cbor.decode(data, budget=Budget(DEFAULT_LIMITS, len(data)))


HUGE = ["0000000000010000", "0000000100000000", "7fffffffffffffff", "ffffffffffffffff"]


@pytest.mark.parametrize("count", HUGE)
@pytest.mark.parametrize("initial", ["5b", "7b", "9b", "bb", "819b", "a1617a7b", "a17b", "5f5b"])
def test_huge_counts_allocate_nothing(initial: str, count: str) -> None:
    data = bytes.fromhex(initial + count) + b"\x00" * 1000
    with traced() as memory:
        assert refusal(data).reason is Reason.CBOR_TRUNCATED
        peak = memory()[1]
    assert peak < 1 << 16


@pytest.mark.parametrize(("head", "count", "each"), [(b"\x9a", 0x01FF, 1), (b"\xba", 0x0100, 2)])
def test_a_count_is_compared_with_the_bytes_left(head: bytes, count: int, each: int) -> None:
    """Each item is a byte at least, a pair two; one too few is noticed at the head."""
    data = head + count.to_bytes(4, "big")
    needed = count * each
    assert refusal(data + b"\x1c" * (needed - 1)).reason is Reason.CBOR_TRUNCATED
    assert refusal(data + b"\x1c" * needed).reason is Reason.CBOR_MALFORMED


def within(seconds: float) -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < seconds


@pytest.fixture
def _quick() -> Iterator[None]:
    """Ten times what linear work takes here, far below what quadratic work would."""
    yield from within(6)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("initial", [0x5F, 0x7F])
def test_millions_of_empty_chunks(initial: int) -> None:
    data = bytes([initial]) + bytes([initial & 0xE0]) * 3_000_000 + b"\xff"
    assert not cbor.decode(data)


@pytest.mark.slow
def test_empty_chunks_take_no_memory() -> None:
    data = b"\x7f" + b"\x60" * 300_000 + b"\xff"
    with traced() as memory:
        cbor.decode(data)
        peak = memory()[1]
    assert peak < 1 << 16


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_many_chunks_are_joined_once() -> None:
    assert cbor.decode(b"\x7f" + b"\x61a" * 500_000 + b"\xff") == "a" * 500_000
    assert cbor.decode(b"\x5f" + b"\x41a" * 500_000 + b"\xff") == b"a" * 500_000


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_many_keys_that_are_not_text() -> None:
    count = 100_000
    for keys in (range(count), [[index] for index in range(count)]):
        data = cbor.encode(Pairs((key, None) for key in keys))
        assert len(cbor.decode(data)) == count  # type: ignore[arg-type]
    with pytest.raises(ManifestError, match="a second time"):
        cbor.decode(b"\xbf" + b"\x01\x00" * count + b"\xff")


@pytest.mark.slow
@pytest.mark.usefixtures("_quick")
def test_numbers_that_collide_as_dict_keys() -> None:
    """All multiples of 2^61 - 1 that are floats have one hash; in a dict this is quadratic."""
    prime = (1 << 61) - 1
    keys = [float(0), *(m * 2.0**61 * 2.0 ** (61 * k) for m in range(1, 5000) for k in range(15))]
    assert len({hash(key) for key in keys[1:16]}) == 1
    assert hash(prime) == hash(0)
    assert len(cbor.decode(cbor.encode(Pairs((key, 0) for key in set(keys))))) > 50_000  # type: ignore[arg-type]


# --- The deterministic form, on both sides of each of its borders ---------------------------

FORMS = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}
LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}


def head(major: int, info: int, argument: int) -> bytes:
    return bytes((major << 5 | info,)) + struct.pack(FORMS[info], argument)


def require_other_form(data: bytes) -> None:
    cbor.decode(data)
    with refused(ManifestError, Reason.CBOR_FORM):
        cbor.decode(data, strict=True)


@pytest.mark.parametrize("info", FORMS)
@pytest.mark.parametrize("major", [0, 1])
def test_a_number_has_the_shortest_head(major: int, info: int) -> None:
    most = (1 << 8 * struct.calcsize(FORMS[info])) - 1
    for argument in (LEAST[info], LEAST[info] + 1, most):
        expected = -1 - argument if major else argument
        assert cbor.decode(head(major, info, argument), strict=True) == expected
    for argument in (0, LEAST[info] - 1):
        require_other_form(head(major, info, argument))


@pytest.mark.parametrize("info", [24, 25, 26])
@pytest.mark.parametrize("major", [2, 3, 4, 5])
def test_a_length_has_the_shortest_head(major: int, info: int) -> None:
    def item(count: int) -> bytes:
        if major == 5:
            keys = (b"\x63" + b"%03x" % number for number in range(count))
            return head(major, info, count) + b"".join(key + b"\0" for key in keys)
        return head(major, info, count) + (b"\0" if major == 4 else b"a") * count

    if major != 5 or info == 24:  # no more keys than three digits tell apart
        value: Any = cbor.decode(item(LEAST[info]), strict=True)
        assert len(value) == LEAST[info]
    require_other_form(item(min(LEAST[info] - 1, 255)))


@pytest.mark.parametrize("data", [b"\x5f\xff", b"\x7f\xff", b"\x9f\xff", b"\xbf\xff"])
def test_a_length_is_definite(data: bytes) -> None:
    require_other_form(data)
    require_other_form(b"\x81" + data)
    require_other_form(b"\xa1\x61a" + data)


@pytest.mark.parametrize(
    ("data", "is_shortest"),
    [
        (b"\xf9" + struct.pack(">e", 1.5), True),
        (b"\xfa" + struct.pack(">f", 1.5), False),
        (b"\xfb" + struct.pack(">d", 1.5), False),
        (b"\xfa" + struct.pack(">f", 1e5), True),
        (b"\xfb" + struct.pack(">d", 1e5), False),
        (b"\xfb" + struct.pack(">d", 0.1), True),
        (b"\xf9\x7e\x00", True),
        (b"\xfa\x7f\xc0\x00\x00", False),
        (b"\xf9\x7c\x00", True),
        (b"\xfb\x7f\xf0" + bytes(6), False),
    ],
)
def test_a_float_is_the_shortest_that_keeps_it(data: bytes, is_shortest: bool) -> None:
    for one in (data, b"\x81" + data, b"\xa1\x61a" + data):
        if is_shortest:
            assert repr(cbor.decode(one, strict=True)) == repr(cbor.decode(one))
        else:
            require_other_form(one)


def test_simple_values() -> None:
    data = b"\x83\xf4\xf5\xf6"
    assert cbor.decode(data, strict=True) == cbor.decode(data) == [False, True, None]
    require_other_form(b"\xf8\xff")


@pytest.mark.parametrize(
    ("keys", "is_rising"),
    [
        (("a", "b"), True),
        (("b", "a"), False),
        (("b", "aa"), True),
        (("aa", "b"), False),
        (("", "a"), True),
        (("a", "ä"), True),  # of one character, but of two bytes
        (("ä", "a"), False),
        (("ab", "ä"), True),
        (("ä", "ab"), False),
    ],
)
def test_keys_rise_as_their_bytes_do(keys: tuple[str, ...], is_rising: bool) -> None:
    data = cbor.head(5, len(keys)) + b"".join(cbor.encode(key) + b"\0" for key in keys)
    if is_rising:
        value: Any = cbor.decode(data, strict=True)
        assert list(value) == list(keys)
    else:
        require_other_form(data)


@pytest.mark.parametrize(
    "data", [b"\x18", b"\x19\0", b"\x58\x18", b"\xf9\0", b"\x9f", b"\xa1\x61a"]
)
def test_what_is_cut_is_cut_in_a_strict_reading_too(data: bytes) -> None:
    for strict in (False, True):
        with pytest.raises(ManifestError) as caught:
            cbor.decode(data, strict=strict)
        if not (strict and data == b"\x9f"):  # that form is another before anything is cut
            assert caught.value.reason is Reason.CBOR_TRUNCATED


@pytest.mark.parametrize("key", [b"\x62a", b"\x78\x18a"])
def test_a_cut_key_that_begins_like_the_one_before_is_cut(key: bytes) -> None:
    """Neither is it the same key, nor one that comes too late."""
    with refused(ManifestError, Reason.CBOR_TRUNCATED):
        cbor.decode(b"\xa2\x61a\0" + key, strict=True)


# --- What it costs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("190100", "1a00010000", "1b0000000100000000", "390100", "3a00010000"),
        *("3b0000000100000000", "f93c00", "fa3fc00000", "fb3ff199999999999a", "6161", "62c3bc"),
        *("4161", "7f6161ff", "80", "a0", "9f00ff", "c100", "f4"),
    ],
)
@pytest.mark.parametrize("way", ["array", "map", "open array", "open map"])
def test_what_an_item_takes_is_charged(text: str, way: str) -> None:
    count = 600
    item = bytes.fromhex(text)
    some = Budget(DEFAULT_LIMITS, 0)
    before = some.bytes_left
    if "array" in way:
        data = item * count
        data = cbor.head(4, count) + data if way == "array" else b"\x9f" + data + b"\xff"
        value = cbor.decode(data, budget=some)
        assert isinstance(value, list)
        inside = value
    else:
        data = b"".join(cbor.encode(f"{number}") + item for number in range(count))
        data = cbor.head(5, count) + data if way == "map" else b"\xbf" + data + b"\xff"
        value = cbor.decode(data, budget=some)
        assert isinstance(value, dict)
        inside = [*value.values(), *value]
    each = {id(one): sys.getsizeof(one) for one in inside}
    assert before - some.bytes_left >= sys.getsizeof(value) + sum(each.values())


@pytest.mark.parametrize("is_open", [False, True])
def test_maps_are_charged_where_their_keys_are_there_already(*, is_open: bool) -> None:
    pairs = b"".join(cbor.encode(f"{number}") + b"\xf4" for number in range(400))
    one = b"\xbf" + pairs + b"\xff" if is_open else cbor.head(5, 400) + pairs
    costs = []
    for count in (1, 9):
        some = Budget(DEFAULT_LIMITS, 0)
        before = some.bytes_left
        value = cbor.decode(cbor.head(4, count) + one * count, budget=some)
        costs.append(before - some.bytes_left)
    assert isinstance(value, list)
    assert costs[1] - costs[0] >= sum(map(sys.getsizeof, value[1:]))


def budget(nbytes: int) -> Budget:
    return Budget(Limits(cost_floor=nbytes, cost_factor=0), 0)


def peak_of_a_refusal(data: bytes, nbytes: int) -> int:
    """Return the memory that reading took until the budget ended it."""
    with traced() as memory:
        with pytest.raises(LimitError) as caught:
            cbor.decode(data, budget=budget(nbytes))
        peak = memory()[1]
    assert caught.value.reason is Reason.LIMIT_COST
    return peak


@pytest.mark.parametrize(
    ("data", "nbytes", "most"),
    [
        (cbor.head(2, MIB) + bytes(MIB), MIB, MIB // 2),
        (cbor.head(3, MIB) + b"a" * MIB, MIB, MIB // 2),
        (cbor.head(3, MIB) + "😀".encode() + b"a" * (MIB - 4), 3 * MIB, 2 * MIB),
        (cbor.head(4, 20_000) + b"\x80" * 20_000, MIB // 8, MIB // 4),
        (b"\x9f" + b"\x80" * 20_000 + b"\xff", MIB // 8, MIB // 2),
    ],
    ids=["bytes", "text", "wide text", "many arrays", "many arrays, uncounted"],
)
def test_what_the_budget_has_no_room_for_is_not_made(data: bytes, nbytes: int, most: int) -> None:
    assert peak_of_a_refusal(data, nbytes) < most


def test_bytes_in_chunks_are_never_wide() -> None:
    """Of a text every character may take four bytes, if one does."""
    chunk = cbor.head(2, 1 << 16) + b"\xff" * (1 << 16)
    data = b"\x5f" + chunk * 2 + b"\xff"
    assert cbor.decode(data, budget=budget(4 << 17)) == b"\xff" * (1 << 17)


@pytest.mark.parametrize("major", [2, 3], ids=["bytes", "text"])
def test_pieces_are_put_together_where_the_budget_has_room_for_the_whole(major: int) -> None:
    """Each piece alone has room; of the text a character in four bytes makes all others wide."""
    first = "😀".encode() if major == 3 else b"four"
    piece = cbor.head(major, MIB) + b"a" * MIB
    data = bytes((major << 5 | 31,)) + cbor.head(major, 4) + first + piece * 2 + b"\xff"
    value = cbor.decode(data, budget=budget(20 * MIB))
    assert value == (first + b"a" * 2 * MIB if major == 2 else first.decode() + "a" * 2 * MIB)
    del value
    with traced() as memory:
        with pytest.raises(LimitError) as caught:
            cbor.decode(data, budget=budget(3 * MIB))
        peak = memory()[1]
    assert caught.value.reason is Reason.LIMIT_COST
    assert peak < (8 if major == 3 else 5.5) * MIB


# --- The values -----------------------------------------------------------------------------


# --- Writing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"), [pytest.param(*case, id=short(case[0])) for case in PREFERRED]
)
def test_writes(text: str, value: object) -> None:
    assert cbor.encode(value).hex() == text


@pytest.mark.parametrize(
    "n", [0, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, UINT64_MAX]
)
def test_heads_are_the_shortest(n: int) -> None:
    width = next(
        w
        for w, top in ((0, 23), (1, 255), (2, 65535), (4, (1 << 32) - 1), (8, UINT64_MAX))
        if n <= top
    )
    for major in range(7):
        data = cbor.head(major, n)
        assert len(data) == 1 + width
        assert data[0] >> 5 == major
        assert int.from_bytes(data[1:], "big") == n if width else data[0] & 31 == n
    assert cbor.head(0, n) == cbor.encode(n)
    assert cbor.head(1, n) == cbor.encode(-1 - n)
    assert cbor.decode(cbor.head(1, n)) == -1 - n


def test_keys_come_in_the_order_of_their_bytes() -> None:
    """RFC 8949 section 4.2.1 has this example."""
    keys: list[object] = [10, 100, -1, "z", "aa", [100], [-1], False]
    pairs = [(key, None) for key in keys]
    written = cbor.decode(cbor.encode(Pairs(reversed(pairs))))
    assert written == Pairs(pairs)
    assert list(cbor.decode(cbor.encode({"b": 0, "aa": 0, "": 0, "a": 0}))) == ["", "a", "b", "aa"]  # type: ignore[call-overload]


def test_a_dict_may_have_other_keys_than_text() -> None:
    assert cbor.encode({2: "b", "a": 1, -1: None, (1,): 0}).hex() == "a402616220f6616101810100"


def test_sequences_are_arrays() -> None:
    assert cbor.encode((1, [2, (3,)], range)[:2]).hex() == "820182028103"


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(b"a-b-c-d")[::2],
        memoryview(array.array("H", b"abcd")),
    ],
)
def test_bytes_like(value: object) -> None:
    assert cbor.encode(value) == b"\x44abcd"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (65504.0, "f97bff"),
        (65505.0, "fa477fe100"),
        (65520.0, "fa477ff000"),
        (2.0**-24, "f90001"),
        (2.0**-25, "fa33000000"),
        (1 / 3, "fb3fd5555555555555"),
        (float(np.float32(1 / 3)), "fa3eaaaaab"),
        (2.0**-149, "fa00000001"),
        (2.0**-150, "fb3690000000000000"),
        (5e-324, "fb0000000000000001"),
        (1.7976931348623157e308, "fb7fefffffffffffff"),
        (-math.nan, "f97e00"),
        (np.frombuffer(bytes.fromhex("fff8000000000123"), ">f8")[0], "f97e00"),
    ],
)
def test_floats_are_the_shortest_that_keep_the_value(value: float, text: str) -> None:
    assert cbor.encode(value).hex() == text
    assert typed(cbor.decode(bytes.fromhex(text))) == typed(float(value))


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    DENSE = "dense"


class Index:
    def __index__(self) -> int:
        return 7


class Float:
    def __float__(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Colour.RED, 1),
        (Word.DENSE, "dense"),
        (Index(), 7),
        (Float(), 0.5),
        (fractions.Fraction(1, 4), 0.25),
        (decimal.Decimal("2.5"), 2.5),
        (np.bool_(True), True),
        (np.bool_(False), False),
        (np.int8(-3), -3),
        (np.uint64(UINT64_MAX), UINT64_MAX),
        (np.float16(1.5), 1.5),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.1), 0.1),
        (np.longdouble(1.5), 1.5),
        (np.str_("text"), "text"),
        (np.bytes_(b"bytes"), b"bytes"),
        (np.array(5), 5),
        (np.array(True), True),
        (ml_dtypes.bfloat16(1.5), 1.5),
        (ml_dtypes.int4(-3), -3),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_scalars_of_libraries_and_subclasses(value: object, plain: object) -> None:
    assert typed(cbor.decode(cbor.encode(value))) == typed(plain)
    assert typed(cbor.decode(cbor.encode([value]))) == typed([plain])


class Lies:
    def __index__(self) -> int:
        raise ValueError("no")


class Shape:
    shape = ()


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        1j,
        object(),
        range(3),
        Lies(),
        Shape(),
        decimal.Decimal("sNaN"),
        fractions.Fraction(10**400),
        np.array([5]),
        np.array([]),
        np.complex64(1),
        np.clongdouble(1),
        np.datetime64(5, "ns"),
        np.datetime64("2020-01-01"),
        np.timedelta64(5, "s"),
        int,
        np.float32,
        iter(()),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_other_types_are_refused_by_name(value: object) -> None:
    for wrapped in (value, [value], {"a": value}, Tag(1, value), Pairs(((value, 1),))):
        with pytest.raises(NotRepresentableError, match="list") as caught:
            cbor.encode(wrapped)
        assert caught.value.found == type(value).__name__


@pytest.mark.parametrize(
    "value",
    [
        1 << 64,
        -1 - (1 << 64),
        10**5000,
        Simple(20),
        Simple(31),
        Simple(256),
        Simple(-1),
        Tag(-1, 0),
        Tag(1 << 64, 0),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_numbers_out_of_range(value: object) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        cbor.encode([value])
    assert caught.value.expected
    assert caught.value.found
    assert len(str(caught.value)) < 300


def test_lone_surrogates() -> None:
    with pytest.raises(NotRepresentableError, match="position 1"):
        cbor.encode("a\ud800")
    for kind in (dict, cbor.Fields):
        with pytest.raises(NotRepresentableError):
            cbor.encode(kind({"\udfff": 0}))


def test_cycles_and_depth() -> None:
    assert level_of(cbor.decode(cbor.encode(nested_list(64)))) == 64
    endless: list[object] = []
    endless += [endless, endless]
    ring: dict[str, object] = {}
    ring["ring"] = Tag(1, Pairs(((1, [ring]),)))
    for value in (nested_list(65), nested_list(100_000), endless, ring):
        with pytest.raises(NotRepresentableError, match="64 levels"):
            cbor.encode(value)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (Pairs(((0, "a"), (1, "a"), (1, "b"))), "1"),
        (Pairs((("b", 0), ("a", 1), ("a", 1))), "'a'"),
        (Pairs((([0], 0), ([1], 0), ((1,), 0))), "that is an array, map or tag"),
        (Pairs(((math.nan, 0), (-math.nan, 0))), "nan"),
        ({math.nan: 0, -math.nan: 1}, "nan"),
        ({5: 1, Index(): 0, 7: 1}, "7"),
    ],
)
def test_keys_written_alike(value: object, key: str) -> None:
    with pytest.raises(NotRepresentableError, match="two keys") as caught:
        cbor.encode({"a": value})
    assert caught.value.found == key


def test_keys_that_differ_in_type_are_written() -> None:
    keys = [0, 0.0, -0.0, False, "", b"", None, UNDEFINED, Simple(0), (), Tag(0, 0)]
    value = Pairs((key, 0) for key in keys)
    again = cbor.decode(cbor.encode(value))
    assert isinstance(again, Pairs)
    assert len(again) == len(keys)


@pytest.mark.parametrize(
    "data", [b"\x81\x00", b"\xa1\x61a\x00", b"\x9f\x00\xff", b"\xbf\x61a\x00\xff"]
)
@pytest.mark.parametrize("error", [IndexError, RecursionError])
def test_what_a_reader_of_values_raises_is_no_damage_of_the_manifest(
    data: bytes, error: type[Exception]
) -> None:
    def read(key: object, start: int) -> tuple[object, int]:
        raise error

    with pytest.raises(error):
        cbor.Decoder(data).visit(0, 0, read)


def test_values_pickle_and_print() -> None:
    value = Pairs(((1, Tag(2, b"")), (Simple(3), None)))
    again = pickle.loads(pickle.dumps(value))
    assert typed(again) == typed(value)
    assert repr(value) == "Pairs(((1, Tag(number=2, value=b'')), (Simple(value=3), None)))"
