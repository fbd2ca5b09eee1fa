"""Frames that are decoded together: what they declare, and which window they take."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import zstandard

from tests.unit.spec.encoding.test_zstd import frame, raw
from ztensor.errors import EncodingError, Reason
from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.encoding.base import Held
from ztensor.spec.encoding.zstd.codec import Zstd
from ztensor.spec.encoding.zstd.libraries import Binding, Decoder, Span

DATA = np.random.default_rng(3).integers(0, 9, 1 << 14, np.uint8).tobytes()


@pytest.mark.parametrize(
    ("window", "blocks", "expected"),
    [(0x68, 80, 0), (0x69, 80, 9 << 20), (0x69, 64, 0), (0x69, 65, 65 << 17), (0x69, 0, 0)],
)
def test_a_window_is_much_above_8_mib(window: int, blocks: int, expected: int) -> None:
    """Of a frame that decodes to less than its window, no more than it decodes to."""
    repeated = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = (1).to_bytes(3, "little")
    frame = bytes.fromhex("28b52ffd00") + bytes([window]) + repeated * blocks + last
    held = Held(memoryview(zstandard.compress(b"first") + frame))
    assert Zstd().window_bytes(held, DEFAULT_LIMITS) == expected


class Careless:
    """A library that decodes raw and repeated blocks, and does not look at what frames declare."""

    def __init__(self, span: Span) -> None:
        data = bytes(iter_read(span))
        decoded = b""
        while data:
            is_one, size = data[4] & 0x20, (0, 2, 4, 8)[data[4] >> 6]
            data, is_last = data[(5 if is_one else 6) + size :], False
            while not is_last:
                head = int.from_bytes(data[:3], "little")
                is_last, is_repeated, count = bool(head & 1), head >> 1 & 3 == 1, head >> 3
                length = 1 if is_repeated else count
                decoded += data[3 : 3 + length] * (count if is_repeated else 1)
                data = data[3 + length :]
        self._decoded = io.BytesIO(decoded)

    def readinto(self, destination: memoryview | bytearray) -> int:
        return self._decoded.readinto(destination)


def iter_read(span: Span) -> bytearray:
    data = bytearray()
    while piece := span.read(1 << 20):
        data += piece
    return data


def raw_frame(size: int | None, *blocks: bytes) -> bytes:
    """Return a frame with a window of 64 KiB, and what it declares."""
    return frame(*map(raw, blocks), size=size, size_bytes=4, window=6 << 3)


LONGER = {
    "declares nothing": ([raw_frame(None, DATA[:600], DATA[600:1001])], 1000),
    "declares nothing, behind another": (
        [raw_frame(500, DATA[:500]), raw_frame(None, DATA[:501])],
        1000,
    ),
    "declares less": ([raw_frame(1000, DATA[:1001], b"")], 1000),
    "declares less, before another": ([raw_frame(9, DATA[:10]), raw_frame(7, DATA[:7])], 16),
    "declares more, before another": ([raw_frame(9, DATA[:8]), raw_frame(7, DATA[:7])], 16),
    "declares more": ([raw_frame(1001, DATA[:600], DATA[600:1000])], 1001),
}


@pytest.mark.parametrize("case", LONGER)
def test_a_frame_of_another_length_is_refused_also_where_the_library_does_not_look(
    case: str,
) -> None:
    frames, length = LONGER[case]

    def unused(*_: object) -> Any:
        raise AssertionError

    def whole(data: memoryview, most: int) -> bytes:
        target = bytearray(most + 1)
        return bytes(target[: Careless(Span(Held(data), 0, len(data), 1)).readinto(target)])

    decoder = Decoder(Careless, whole)
    encoding = Zstd(Binding(ValueError, lambda: decoder, unused))
    right = raw_frame(None, DATA[:600], DATA[600:1000]) + raw_frame(3, b"abc")
    memory = memoryview(bytearray(1003))
    encoding.decode_into(Held(memoryview(right)), memory, DEFAULT_LIMITS)
    assert memory == DATA[:1000] + b"abc"
    stored = Held(memoryview(b"".join(frames)))
    reasons = (Reason.DECODED_LONG, Reason.DECODED_SHORT, Reason.ENCODING_MALFORMED)
    with pytest.raises(EncodingError) as caught:
        encoding.decode_into(stored, memoryview(bytearray(length)), DEFAULT_LIMITS)
    assert caught.value.reason in reasons
    with pytest.raises(EncodingError) as caught:
        list(encoding.decode_chunks(stored, length, DEFAULT_LIMITS))
    assert caught.value.reason in reasons
