"""The deterministic form of CBOR, on both sides of each of its borders."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from ztensor.errors import ManifestError, Reason
from ztensor.wire import cbor

MAJORS = {"unsigned": 0, "negative": 1, "bytes": 2, "text": 3, "array": 4, "map": 5}
FORMS = {24: ">B", 25: ">H", 26: ">I", 27: ">Q"}
LEAST = {24: 24, 25: 1 << 8, 26: 1 << 16, 27: 1 << 32}


def head(major: int, info: int, argument: int) -> bytes:
    return bytes((major << 5 | info,)) + struct.pack(FORMS[info], argument)


def require_other_form(data: bytes) -> None:
    cbor.decode(data)
    with pytest.raises(ManifestError) as caught:
        cbor.decode(data, strict=True)
    assert caught.value.reason is Reason.CBOR_FORM


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
