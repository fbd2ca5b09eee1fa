"""Messages of protobuf: what a field is, at the edge of each rule."""

from __future__ import annotations

import pytest

from tests.refusals import refused
from ztensor.errors import FormatError, LimitError, Reason
from ztensor.formats.onnx.protobuf import BYTES, TEXT_BYTES, Field, Message
from ztensor.io.source.memory import MemorySource
from ztensor.limits import DEFAULT_LIMITS, Budget


def message(data: bytes) -> Message:
    return Message(MemorySource(data), Budget(DEFAULT_LIMITS, len(data)))


def varint(value: int) -> bytes:
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*made, value))


def fields(data: bytes) -> list[Field]:
    return list(message(data).fields(0, len(data)))


@pytest.mark.parametrize("value", [0, 1, 127, 128, (1 << 14) - 1, 1 << 14, 1 << 63, (1 << 64) - 1])
def test_a_number_of_any_length(value: int) -> None:
    data = varint(value)
    assert message(data).varint(0, len(data)) == (value, len(data))
    assert message(b"\xff" * 9 + data).varint(9, 9 + len(data)) == (value, 9 + len(data))
    with refused(FormatError, Reason.TRUNCATED):
        message(data).varint(0, len(data) - 1)


@pytest.mark.parametrize("data", [varint(1 << 64), b"\x80" * 10 + b"\1", b"\xff" * 12, b"\x80"])
def test_a_number_of_more_than_64_bits(data: bytes) -> None:
    with refused(FormatError, Reason.TRUNCATED):
        message(data).varint(0, len(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (varint(0) + b"\1", Reason.FIELD_VALUE),
        (varint(1 << 32) + b"\1", Reason.FIELD_VALUE),
        (b"\x0b", Reason.FIELD_TYPE),
        (b"\x0e", Reason.FIELD_TYPE),
        (b"\x12\x04abc", Reason.TRUNCATED),
        (b"\x1d123", Reason.TRUNCATED),
        (b"\x211234567", Reason.TRUNCATED),
        (b"\x08", Reason.TRUNCATED),
    ],
)
def test_what_is_no_field(data: bytes, reason: Reason) -> None:
    with refused(FormatError, reason):
        fields(data)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_text_is_as_long_as_one_is_read(more: int) -> None:
    length = TEXT_BYTES + more
    read, field = message(b"a" * length), Field(1, BYTES, 0, 0, length)
    if more <= 0:
        assert len(read.text(field)) == length
        return
    with refused(LimitError, Reason.LIMIT_MANIFEST):
        read.text(field)
