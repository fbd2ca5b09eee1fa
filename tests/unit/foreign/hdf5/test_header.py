"""Object headers of both versions, at the edges of what they may say."""

from __future__ import annotations

import struct

import pytest

from tests.unit.foreign.hdf5.parts import summed, window_of
from ztensor.errors import FormatError
from ztensor.foreign.hdf5.header import Kind, read_header

NOTHING, UNKNOWN = 0, 0x70
MUST_BE_KNOWN = 0x80
MORE = 1000  # where a header goes on


def message(version: int, kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    if version == 1:
        return struct.pack("<HHB3x", kind, len(body), flags) + body
    return struct.pack("<BHB", kind, len(body), flags) + body


def header(version: int, *messages: bytes, count: int | None = None) -> bytes:
    body = b"".join(messages)
    if version == 1:
        count = len(messages) if count is None else count
        return struct.pack("<BxHIII", 1, count, 1, len(body), 0) + body
    return summed(struct.pack("<4sBBH", b"OHDR", 2, 1, len(body)) + body)


def further(version: int, *messages: bytes) -> bytes:
    """Return what a header goes on with."""
    body = b"".join(messages)
    return body if version == 1 else summed(b"OCHK" + body)


def kinds(data: bytes, more: bytes = b"") -> list[tuple[int, bytes]]:
    found = read_header(window_of({0: data, MORE: more}), 0)
    return [(one.kind, one.body) for one in found.messages]


@pytest.mark.parametrize("version", [1, 2])
def test_a_message_without_a_body_may_be_the_last(version: int) -> None:
    full = message(version, Kind.FILL, b"12345678")
    assert kinds(header(version, full)) == [(Kind.FILL, b"12345678")]
    empty = message(version, Kind.LINK)
    assert kinds(header(version, full, empty)) == [(Kind.FILL, b"12345678"), (Kind.LINK, b"")]
    unknown = message(version, UNKNOWN, flags=MUST_BE_KNOWN)
    with pytest.raises(FormatError, match="must be understood"):
        kinds(header(version, full, unknown))


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_too_short_for_a_message_is_left(version: int) -> None:
    full = message(version, Kind.FILL, b"12345678")
    least = len(message(version, Kind.LINK))
    for length in range(least):
        gap = bytes((Kind.LINK,) * length)
        assert kinds(header(version, full, gap)) == [(Kind.FILL, b"12345678")]


@pytest.mark.parametrize("version", [1, 2])
def test_messages_that_nobody_need_know(version: int) -> None:
    parts = [message(version, UNKNOWN, bytes(8)), message(version, NOTHING, bytes(16))]
    assert kinds(header(version, *parts, message(version, Kind.TYPE, bytes(8)))) == [
        (Kind.TYPE, bytes(8))
    ]


@pytest.mark.parametrize("version", [1, 2])
def test_a_message_lies_in_its_header(version: int) -> None:
    good = message(version, Kind.TYPE, bytes(8))
    length = good.index(b"\x08")
    wrong = good[:length] + b"\x09" + good[length + 1 :]
    with pytest.raises(FormatError, match="leads out of its header"):
        kinds(header(version, wrong), bytes(64))


@pytest.mark.parametrize("version", [1, 2])
def test_a_header_goes_on(version: int) -> None:
    rest = further(version, message(version, Kind.TYPE, bytes(8)), message(version, Kind.LINK))
    more = message(version, Kind.CONTINUATION, struct.pack("<QQ", MORE, len(rest)))
    data = header(version, more, message(version, Kind.FILL, bytes(8)), count=4)
    assert [kind for kind, _ in kinds(data, rest)] == [Kind.FILL, Kind.TYPE, Kind.LINK]


def test_as_many_messages_are_read_as_the_first_version_counts() -> None:
    parts = [message(1, Kind.FILL, bytes(8)), message(1, Kind.TYPE, bytes(8))]
    for count in (0, 1, 2, 3):
        assert len(kinds(header(1, *parts, count=count))) == min(count, 2)


@pytest.mark.parametrize(("length", "is_right"), [(7, False), (8, True)])
def test_a_continuation_has_room_for_its_sign_and_sum(length: int, is_right: bool) -> None:
    rest = further(2)
    assert len(rest) == 8
    data = header(2, message(2, Kind.CONTINUATION, struct.pack("<QQ", MORE, length)))
    if is_right:
        assert kinds(data, rest) == []
    else:
        with pytest.raises(FormatError, match="continuation is too short"):
            kinds(data, rest)


def test_a_continuation_has_its_sign() -> None:
    data = header(2, message(2, Kind.CONTINUATION, struct.pack("<QQ", MORE, 8)))
    with pytest.raises(FormatError, match="continuation has another sign"):
        kinds(data, summed(b"OCHL"))


@pytest.mark.parametrize("version", [0, 2, 3])
def test_a_header_of_another_version_is_refused(version: int) -> None:
    data = bytearray(header(1))
    data[0] = version
    with pytest.raises(FormatError, match="no object header is here"):
        kinds(bytes(data))


@pytest.mark.parametrize("flags", range(0, 64, 4))
def test_fields_of_the_second_version_that_may_be_there(flags: int) -> None:
    """Orders of attributes, their numbers that change how they are kept, and times."""
    has_order = bool(flags & 4)
    order = b"\7\0" if has_order else b""
    body = struct.pack("<BHB", Kind.ATTRIBUTE, 2, 2) + order + b"ab"
    body += struct.pack("<BHB", NOTHING, 0, 0) + order
    extra = bytes((16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0))
    for width in (0, 1, 2, 3):
        data = struct.pack("<4sBB", b"OHDR", 2, flags | width) + extra
        data += len(body).to_bytes(1 << width, "little") + body
        found = read_header(window_of({0: summed(data)}, 64), 0)
        assert found.keeps_order is has_order
        (one,) = found.messages
        assert (one.kind, one.body, one.is_shared) == (Kind.ATTRIBUTE, b"ab", True)
        assert one.order == (7 if has_order else 0)
