from __future__ import annotations

import array
import decimal
import enum
import fractions
import math
import pickle
import time
from collections.abc import Callable, Iterable

import ml_dtypes
import numpy as np
import pytest

from tests.refusals import refused
from tests.tracing import traced
from ztensor.errors import LimitError, ManifestError, NotRepresentableError, Reason
from ztensor.ext import cbor
from ztensor.limits import DEFAULT_LIMITS, Budget, Limits

Pairs = cbor.Pairs
Simple = cbor.Simple
Tag = cbor.Tag
UNDEFINED = cbor.UNDEFINED

UINT64_MAX = (1 << 64) - 1
ONE_TO_25 = list(range(1, 26))
TAIL_25 = bytes([*range(1, 24), 0x18, 24, 0x18, 25]).hex()

# RFC 8949 appendix A: hexadecimal, value. These are also what we write.
PREFERRED: list[tuple[str, object]] = [
    ("00", 0),
    ("17", 23),
    ("1818", 24),
    ("1903e8", 1000),
    ("1a000f4240", 1000000),
    ("1b000000e8d4a51000", 1000000000000),
    ("1bffffffffffffffff", 18446744073709551615),
    ("c249010000000000000000", Tag(2, bytes.fromhex("010000000000000000"))),
    ("3bffffffffffffffff", -18446744073709551616),
    ("c349010000000000000000", Tag(3, bytes.fromhex("010000000000000000"))),
    ("20", -1),
    ("f90000", 0.0),
    ("f98000", -0.0),
    ("f93c00", 1.0),
    ("fb3ff199999999999a", 1.1),
    ("f97bff", 65504.0),
    ("fa47c35000", 100000.0),
    ("fa7f7fffff", 3.4028234663852886e38),
    ("f90001", 5.960464477539063e-8),
    ("f90400", 0.00006103515625),
    ("fbc010666666666666", -4.1),
    ("f97c00", math.inf),
    ("f97e00", math.nan),
    ("f9fc00", -math.inf),
    ("f4", False),
    ("f5", True),
    ("f6", None),
    ("f7", UNDEFINED),
    ("f8ff", Simple(255)),
    ("c074323031332d30332d32315432303a30343a30305a", Tag(0, "2013-03-21T20:04:00Z")),
    ("c1fb41d452d9ec200000", Tag(1, 1363896240.5)),
    ("d74401020304", Tag(23, b"\x01\x02\x03\x04")),
    ("40", b""),
    ("4401020304", b"\x01\x02\x03\x04"),
    ("60", ""),
    ("6449455446", "IETF"),
    ("62c3bc", "\u00fc"),
    ("63e6b0b4", "\u6c34"),
    ("64f0908591", "\U00010151"),
    ("80", []),
    ("8301820203820405", [1, [2, 3], [4, 5]]),
    ("9819" + TAIL_25, ONE_TO_25),
    ("a0", {}),
    ("a201020304", Pairs(((1, 2), (3, 4)))),
    ("a26161016162820203", {"a": 1, "b": [2, 3]}),
    ("a56161614161626142616361436164614461656145", {c: c.upper() for c in "abcde"}),
]
# The rest of appendix A: other spellings, which are read.
OTHER_SPELLINGS: list[tuple[str, object]] = [
    ("fa7f800000", math.inf),
    ("fa7fc00000", math.nan),
    ("faff800000", -math.inf),
    ("fb7ff8000000000000", math.nan),
    ("5f42010243030405ff", b"\x01\x02\x03\x04\x05"),
    ("7f657374726561646d696e67ff", "streaming"),
    ("9fff", []),
    ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
    ("83018202039f0405ff", [1, [2, 3], [4, 5]]),
    ("9f" + TAIL_25 + "ff", ONE_TO_25),
    ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
    ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
    # Not in the appendix: heads longer than they need be, empty chunks, tags of every width;
    # `tests/property` draws any spelling of any value.
    ("1b0000000000000003", 3),
    ("3b0000000000000000", -1),
    ("7b000000000000000161", "a"),
    ("9800", []),
    ("b800", {}),
    ("a17f616161626063c3bc63ff01", {"ab\u00fcc": 1}),
    ("5f404040ff", b""),
    ("d9d9f700", Tag(55799, 0)),
    ("dbffffffffffffffff80", Tag(UINT64_MAX, [])),
    ("a2616101f402", Pairs((("a", 1), (False, 2)))),
    ("bf616101f402ff", Pairs((("a", 1), (False, 2)))),
    ("a1a10102a0", Pairs(((Pairs(((1, 2),)), {}),))),
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
    if isinstance(value, (list, tuple)) and type(value) is not Simple:
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


# Not well-formed (RFC 8949 appendix F, and more): hexadecimal, offset.
MALFORMED = [
    # Reserved additional information.
    *((f"{major << 5 | info:02x}", 0) for major in range(8) for info in (28, 30)),
    ("a17c00", 1),
    ("5f5cff", 1),
    # Simple values below 32 in two bytes.
    *((f"f8{value:02x}", 0) for value in (0, 0x1F)),
    # Chunks of another type, and chunks of indefinite length.
    ("5f00ff", 1),
    ("5f6100ff", 1),
    ("5f41005f4100ffff", 3),
    ("7f7f6100ffff", 1),
    ("a17f4100ff00", 2),
    # A break on its own, and where a value is due.
    ("ff", 0),
    ("8200ff", 2),
    ("a1ff", 1),
    ("a16161ff", 3),
    ("c0ff", 1),
    ("9f829f819f9fffffffff", 9),
    ("bf00ff", 2),
    ("bf616100f4ff", 5),
    # Indefinite length of a type that has no length.
    ("1f", 0),
    ("3f", 0),
    ("df", 0),
    ("a13f00", 1),
]


@pytest.mark.parametrize(("text", "offset"), MALFORMED, ids=str)
def test_malformed(text: str, offset: int) -> None:
    error = refusal(bytes.fromhex(text))
    assert error.reason is Reason.CBOR_MALFORMED
    assert error.message.endswith(f"at byte {offset}")
    assert error.expected
    assert error.found
    assert error.section


# Items that are cut in their heads, in texts, behind keys; `tests/property` cuts any item anywhere.
TRUNCATED = [
    *("", "18", "1b01020304050607", "bb00", "f8", "f900", "7affffffff00", "8200", "a20102", "c1c2"),
    *("62e6", "a162c3", "a26161006261", "a17a00000003c3bc", "9b" + "00" * 7 + "01"),
]


@pytest.mark.parametrize("text", TRUNCATED, ids=lambda text: short(text) or "nothing")
@pytest.mark.parametrize("strict", [False, True])
def test_truncated(text: str, *, strict: bool) -> None:
    data = bytes.fromhex(text)
    with pytest.raises(ManifestError) as caught:
        cbor.decode(data, strict=strict)
    error = caught.value
    if strict and error.reason is Reason.CBOR_FORM:  # which comes before the cut
        return
    assert error.reason is Reason.CBOR_TRUNCATED
    assert error.found == f"the manifest's end at byte {len(data)}"


@pytest.mark.parametrize("key", [b"\x62a", b"\x78\x18a"])
def test_a_cut_key_that_begins_like_the_one_before_is_truncated(key: bytes) -> None:
    """It is neither the same key nor out of order."""
    with refused(ManifestError, Reason.CBOR_TRUNCATED):
        cbor.decode(b"\xa2\x61a\0" + key, strict=True)


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
        ("63eda080", 1),  # a lone surrogate
        ("64f4908080", 1),  # beyond the last code point
        ("7f61c361bcff", 2),  # one character in two chunks
        ("a162c32801", 2),
        ("a17f61ffff01", 3),
    ],
)
def test_text_that_is_not_utf8(text: str, offset: int) -> None:
    error = refusal(bytes.fromhex(text))
    assert error.reason is Reason.CBOR_UTF8
    assert error.message.endswith(f"at byte {offset}")
    assert error.expected == "UTF-8"


SAME_KEYS = [
    ("6161", "6161"),
    ("6161", "780161"),
    ("60", "7fff"),
    ("01", "1b0000000000000001"),
    ("20", "390000"),
    ("f93c00", "fb3ff0000000000000"),
    ("f97e00", "f9fe01"),
    ("f97e00", "fb7ff8000000000001"),
    ("4161", "5f4161ff"),
    ("f7", "f7"),
    ("820102", "9f1801190002ff"),
    ("a2616101616202", "bf616202616101ff"),
    ("a20102616104", "a26161040102"),
    ("c18101", "d8019f01ff"),
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


# --- Hostile items --------------------------------------------------------------------------

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
    with refused(LimitError, Reason.LIMIT_DEPTH):  # deeper than Python goes, whatever is allowed
        cbor.decode(opener * 100_000, depth=1_000_000)


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


def colliding() -> bytes:
    """Return a map of numbers with one hash: multiples of 2^61 - 1 that are floats."""
    keys = [float(0), *(m * 2.0**61 * 2.0 ** (61 * k) for m in range(1, 5000) for k in range(15))]
    assert len({hash(key) for key in keys[1:16]}) == 1
    return cbor.encode(Pairs((key, 0) for key in set(keys)))


def keyed(keys: Iterable[object]) -> bytes:
    return cbor.encode(Pairs((key, None) for key in keys))


# Items that a naive reader takes quadratic time for; the reason if they are refused.
LINEAR: dict[str, tuple[Callable[[], bytes], Reason | None]] = {
    "empty chunks of bytes": (lambda: b"\x5f" + b"\x40" * 600_000 + b"\xff", None),
    "empty chunks of a text": (lambda: b"\x7f" + b"\x60" * 600_000 + b"\xff", None),
    "chunks of bytes": (lambda: b"\x5f" + b"\x41a" * 500_000 + b"\xff", None),
    "chunks of a text": (lambda: b"\x7f" + b"\x61a" * 500_000 + b"\xff", None),
    "keys that are numbers": (lambda: keyed(range(100_000)), None),
    "keys that are arrays": (lambda: keyed([index] for index in range(100_000)), None),
    "keys that collide": (colliding, None),
    "one key again": (
        lambda: b"\xbf" + b"\x01\x00" * 100_000 + b"\xff",
        Reason.CBOR_DUPLICATE_KEY,
    ),
    # Each is encoded on every level around it.
    "maps that are keys": (
        lambda: b"\xa1" * 60 + cbor.encode(list(range(1000, 201_000))) + bytes(60),
        Reason.LIMIT_COST,
    ),
}


@pytest.mark.slow  # long enough that quadratic work would take minutes
@pytest.mark.parametrize("name", LINEAR)
def test_reading_takes_linear_time(name: str) -> None:
    make, reason = LINEAR[name]
    data = make()
    start = time.process_time()
    if reason is None:
        cbor.decode(data)
    else:
        with refused((ManifestError, LimitError), reason):
            cbor.decode(data, budget=Budget(DEFAULT_LIMITS, len(data)))
    assert time.process_time() - start < 6  # ten times what linear work takes here


# --- The deterministic form, on both sides of each of its borders ---------------------------


def long_head(major: int, width: int, argument: int) -> bytes:
    """Return a head with an argument of so many bytes."""
    return bytes((major << 5 | 23 + width.bit_length(),)) + argument.to_bytes(width, "big")


def of_length(major: int, width: int, count: int) -> bytes:
    """Return a string, array or map with such a head."""
    if major == 5:
        items = b"".join(b"\x63%03x\0" % number for number in range(count))
    else:
        items = (b"\0" if major == 4 else b"a") * count
    return long_head(major, width, count) + items


LEAST = {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}
DETERMINISTIC: dict[str, bytes] = {
    **{
        f"number {major} {width} {argument}": long_head(major, width, argument)
        for major in (0, 1)
        for width, least in LEAST.items()
        for argument in (least, least + 1, (1 << 8 * width) - 1)
    },
    **{
        f"length {major} {width}": of_length(major, width, LEAST[width])
        for major in (2, 3, 4, 5)
        for width in (1, 2, 4)
        if major != 5 or width == 1  # three digits name no more keys
    },
    **{
        f"float {text}": bytes.fromhex(text)
        for text in ("f93e00", "fa47c35000", "fb3fb999999999999a", "f97e00", "f97c00")
    },
    "simple values": b"\x83\xf4\xf5\xf6",
    **{
        f"keys {keys}": cbor.head(5, 2) + b"".join(cbor.encode(key) + b"\0" for key in keys)
        for keys in (("a", "b"), ("b", "aa"), ("", "a"), ("a", "ä"), ("ab", "ä"))
    },
}
OTHER_FORMS: dict[str, bytes] = {
    **{
        f"number {major} {width} {argument}": long_head(major, width, argument)
        for major in (0, 1)
        for width, least in LEAST.items()
        for argument in (0, least - 1)
    },
    **{
        f"length {major} {width}": of_length(major, width, min(LEAST[width] - 1, 255))
        for major in (2, 3, 4, 5)
        for width in (1, 2, 4)
    },
    **{
        f"indefinite {data.hex()}": data
        for data in (b"\x5f\xff", b"\x7f\xff", b"\x9f\xff", b"\xbf\xff")
    },
    **{
        f"float {text}": bytes.fromhex(text)
        for text in ("fa3fc00000", "fb3ff8000000000000", "fb40f86a0000000000", "fa7fc00000")
    },
    "infinity": b"\xfb\x7f\xf0" + bytes(6),
    "a simple value": b"\xf8\xff",
    "undefined": b"\xf7",
    "a tag": b"\xc1\x00",
    **{
        f"keys {keys}": cbor.head(5, 2) + b"".join(cbor.encode(key) + b"\0" for key in keys)
        for keys in (("b", "a"), ("aa", "b"), ("ä", "a"), ("ä", "ab"))
    },
}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_the_deterministic_form_is_read(name: str) -> None:
    for data in (DETERMINISTIC[name], b"\x81" + DETERMINISTIC[name]):
        assert typed(cbor.decode(data, strict=True)) == typed(cbor.decode(data))


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_every_other_form_is_refused_in_a_strict_reading(name: str) -> None:
    item = OTHER_FORMS[name]
    for data in (item, b"\x81" + item, b"\xa1\x61a" + item):
        cbor.decode(data)
        with refused(ManifestError, Reason.CBOR_FORM):
            cbor.decode(data, strict=True)


# --- Memory; attacks are in `tests/attacks/test_budget_manifests.py` ------------------------


# What an item takes at most while it is decoded, in bytes.
COSTS: dict[str, tuple[str, int]] = {
    "a number": ("01", 0),
    "a byte string": ("41ff", 80 + 1),
    "a text": ("6161", 80 + 2),
    "a wide text": ("62c3a4", 80 + (2 + 5) * 2),
    "an array": ("80", 96),
    "an array of three": ("83010203", 96 + 64 * 3),
    "a map": ("a0", 96),
    "a map of one text": ("a1616101", 96 + 160 + 82),
    "a map of one number": ("a10101", 96 + 160 + 360),
    "a map of two numbers": ("a201010201", 96 + (160 + 360) * 2),
    "a tag": ("c101", 96 + 64),
    "an endless array": ("9f0102ff", 96 + 64 * 2),
    "an endless map": ("bf0101ff", 96 + 360 * 2),
}


@pytest.mark.parametrize("name", COSTS)
def test_the_memory_of_an_item_is_charged(name: str) -> None:
    data, cost = bytes.fromhex(COSTS[name][0]), COSTS[name][1]
    cbor.decode(data, budget=Budget(Limits(cost_floor=cost, cost_factor=0), 0))
    if cost:
        with refused(LimitError, Reason.LIMIT_COST):
            cbor.decode(data, budget=Budget(Limits(cost_floor=cost - 1, cost_factor=0), 0))


def test_bytes_in_chunks_are_never_wide() -> None:
    """Of a text every character may take four bytes, if one does."""
    chunk = cbor.head(2, 1 << 16) + b"\xff" * (1 << 16)
    data = b"\x5f" + chunk * 2 + b"\xff"
    assert cbor.decode(
        data, budget=Budget(Limits(cost_floor=4 << 17, cost_factor=0), 0)
    ) == b"\xff" * (1 << 17)


# --- Writing --------------------------------------------------------------------------------


WRITTEN: list[tuple[str, object]] = [
    *PREFERRED,
    ("820182028103", (1, [2, (3,)])),
    ("a402616220f6616101810100", {2: "b", "a": 1, -1: None, (1,): 0}),
    ("4461626364", bytearray(b"abcd")),
    ("4461626364", memoryview(b"a-b-c-d")[::2]),
    ("4461626364", memoryview(array.array("H", b"abcd"))),
    # Floats, around the borders of each width.
    ("fa477fe100", 65505.0),
    ("fa477ff000", 65520.0),
    ("fa33000000", 2.0**-25),
    ("fb3fd5555555555555", 1 / 3),
    ("fa3eaaaaab", float(np.float32(1 / 3))),
    ("fa00000001", 2.0**-149),
    ("fb3690000000000000", 2.0**-150),
    ("fb0000000000000001", 5e-324),
    ("fb7fefffffffffffff", 1.7976931348623157e308),
    ("f97e00", -math.nan),
    ("f97e00", np.frombuffer(bytes.fromhex("fff8000000000123"), ">f8")[0]),
]


@pytest.mark.parametrize(
    ("text", "value"), [pytest.param(*case, id=short(case[0])) for case in WRITTEN]
)
def test_writes(text: str, value: object) -> None:
    assert cbor.encode(value).hex() == text


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
        "a\ud800",
        {"\udfff": 0},
        cbor.Fields({"\udfff": 0}),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_values_without_a_form_are_refused(value: object) -> None:
    with pytest.raises(NotRepresentableError) as caught:
        cbor.encode([value])
    assert caught.value.expected
    assert caught.value.found
    assert len(str(caught.value)) < 300


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
def test_keys_with_one_form_are_refused(value: object, key: str) -> None:
    with pytest.raises(NotRepresentableError, match="two keys") as caught:
        cbor.encode({"a": value})
    assert caught.value.found == key


def test_values_pickle_and_print() -> None:
    value = Pairs(((1, Tag(2, b"")), (Simple(3), None)))
    again = pickle.loads(pickle.dumps(value))
    assert typed(again) == typed(value)
    assert repr(value) == "Pairs(((1, Tag(number=2, value=b'')), (Simple(value=3), None)))"
