"""Streams: every kind comes back, is the smallest one, and is checked before it is decoded."""

from __future__ import annotations

import random

import pytest

from tests.refusals import refused
from ztensor.errors import Reason, ZTensorError
from ztensor.ext import streams
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.encoding.zstd.codec import ZSTD

RANDOM = random.Random(20)
SKEWED = bytes(min(int(RANDOM.expovariate(0.5)), 255) for _ in range(100_000))
PERIODIC = bytes(RANDOM.randbytes(5_000) * 20)
STREAMS = {
    "empty": (b"", streams.RAW),
    "one byte": (b"\x07", streams.REPEATED),
    "two": (b"\x07\x08", streams.RAW),
    "repeated": (b"\x80" * 70_000, streams.REPEATED),
    "repeated but one": (b"\x80" * 70_000 + b"\x81", streams.FRAME),
    "random": (RANDOM.randbytes(70_000), streams.RAW),
    "skewed": (SKEWED, streams.FRAME),
    "short": (SKEWED[:300], streams.FRAME),
    "up to 16 KiB all bytes count": (
        b"".join(bytes([number]) + bytes(16) for number in range(256)), streams.FRAME
    ),
    "long": (SKEWED * 5, streams.FRAME),
}  # fmt: skip


@pytest.mark.parametrize("has_matches", [False, True])
@pytest.mark.parametrize("case", STREAMS)
def test_each_kind_comes_back(case: str, has_matches: bool) -> None:
    data, expected = STREAMS[case]
    kind, stored = streams.encode(memoryview(data), has_matches=has_matches)
    assert kind == expected
    assert streams.encode(memoryview(data), has_matches=has_matches) == (kind, stored)
    assert len(stored) < len(data) or kind != streams.FRAME
    assert streams.decode(kind, memoryview(stored), len(data), DEFAULT_LIMITS) == data


def test_huffman_codes_beat_matches_on_numbers_and_lose_on_repetition() -> None:
    level_1 = len(next(ZSTD.encode(memoryview(SKEWED), level=1, frame_bytes=len(SKEWED))))
    assert len(streams.encode(memoryview(SKEWED))[1]) <= level_1
    assert streams.encode(memoryview(PERIODIC))[0] == streams.RAW
    assert len(streams.encode(memoryview(PERIODIC), has_matches=True)[1]) < len(PERIODIC) / 10


FRAME = bytes(streams.encode(memoryview(SKEWED))[1])
SIZE = len(SKEWED)
SKIPPABLE = b"\x50\x2a\x4d\x18\x01\0\0\0x"
BROKEN = {
    "kind": (3, FRAME, SIZE, Reason.ENCODING_MALFORMED),
    "raw, short": (streams.RAW, b"ab", 3, Reason.SIZE_MISMATCH),
    "raw, long": (streams.RAW, b"abc", 2, Reason.SIZE_MISMATCH),
    "no byte": (streams.REPEATED, b"", 3, Reason.SIZE_MISMATCH),
    "two bytes": (streams.REPEATED, b"ab", 3, Reason.SIZE_MISMATCH),
    "frame, other size": (streams.FRAME, FRAME, SIZE + 1, Reason.ENCODING_MALFORMED),
    "no frame": (streams.FRAME, b"", SIZE, Reason.ENCODING_TRUNCATED),
    "cut": (streams.FRAME, FRAME[:-1], SIZE, Reason.ENCODING_TRUNCATED),
    "trailing byte": (streams.FRAME, FRAME + b"\0", SIZE, Reason.ENCODING_MALFORMED),
    "second frame": (streams.FRAME, FRAME + FRAME, SIZE, Reason.ENCODING_MALFORMED),
    "skippable": (streams.FRAME, SKIPPABLE, 0, Reason.ENCODING_MALFORMED),
    "dictionary": (
        streams.FRAME, b"\x28\xb5\x2f\xfd\x21\x07\x02" + b"\x11\0\0ab", 2, Reason.UNKNOWN_ENCODING
    ),
    "no content size": (
        streams.FRAME, b"\x28\xb5\x2f\xfd\x00\x00" + b"\x11\0\0ab", 2, Reason.ENCODING_MALFORMED
    ),
    "size of a terabyte": (
        streams.FRAME, b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + b"\x11\0\0ab",
        1 << 40, Reason.DECODED_SHORT,
    ),
    "damaged": (
        streams.FRAME, FRAME[:12] + b"\xff" * 40 + FRAME[52:], SIZE, Reason.ENCODING_MALFORMED
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_broken_streams_are_refused(case: str) -> None:
    kind, stored, length, reason = BROKEN[case]
    with refused(ZTensorError, reason):
        streams.decode(kind, memoryview(stored), length, DEFAULT_LIMITS)
