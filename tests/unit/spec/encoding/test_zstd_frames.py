"""Frames of one block: which ones are known to be right from their first bytes alone."""

from __future__ import annotations

import numpy as np
import pytest

from ztensor.limits import DEFAULT_LIMITS
from ztensor.spec.encoding.zstd.frames import Held, are_small_frames, walk_frames, window_of

RAW, REPEATED, COMPRESSED, RESERVED = range(4)
BLOCK_MOST = 128 << 10
MAGIC = b"\x28\xb5\x2f\xfd"


def block(kind: int, count: int, payload: int, *, is_last: bool = True) -> bytes:
    return (count << 3 | kind << 1 | is_last).to_bytes(3, "little") + b"a" * payload


def told(size: int, body: bytes, *, width: int | None = None, bits: int = 0) -> bytes:
    """Return a frame in one segment that tells its size."""
    if width is None:
        width = 1 if size < 256 else 2 if size < 65536 + 256 else 4
    descriptor = 0x20 | bits | {1: 0, 2: 1, 4: 2, 8: 3}[width] << 6
    number = size - 256 if width == 2 else size
    return MAGIC + bytes((descriptor,)) + number.to_bytes(width, "little") + body


def windowed(window: int, body: bytes, *, bits: int = 0) -> bytes:
    """Return a frame with a window and no size."""
    return MAGIC + bytes((bits, window)) + body


def is_small(frame: bytes, size: int, *, most_window: int = 1 << 27, cut: int = 0) -> bool:
    """Return what is said of a frame between two others."""
    memory = memoryview(b"\xff" * 7 + frame + b"\xff" * 20)
    found = are_small_frames(
        memory, np.array([7]), np.array([len(frame) - cut]), np.array([size]), most_window
    )
    return bool(found[0])


def require_walked(frame: bytes, size: int) -> None:
    (found,) = walk_frames(Held(memoryview(frame)), DEFAULT_LIMITS)
    assert (found.start, found.stop) == (0, len(frame))
    assert found.content_length in (None, size)
    assert size <= found.most_length


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65535, 65536, 65791, 65792, BLOCK_MOST])
@pytest.mark.parametrize("kind", [RAW, REPEATED])
def test_a_frame_tells_the_size_it_has(size: int, kind: int) -> None:
    payload = size if kind == RAW else 1
    frame = told(size, block(kind, size, payload))
    require_walked(frame, size)
    assert is_small(frame, size)
    for wrong in (size - 1, size + 1):
        assert not is_small(frame, wrong)
        assert not is_small(told(size, block(kind, max(wrong, 0), payload)), size) or wrong < 0
    for more in (-1, 1):
        assert payload + more < 0 or not is_small(
            told(size, block(kind, size, payload + more)), size
        )
    assert not is_small(frame, size, cut=1)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_the_size_has_any_width(width: int) -> None:
    size = 300 if width == 2 else 200
    frame = told(size, block(RAW, size, size), width=width)
    require_walked(frame, size)
    assert is_small(frame, size)
    if width < 8:
        large = told(size + (1 << 8 * width), block(RAW, size, size), width=8)
        assert not is_small(large, size)


def test_a_block_has_no_more_than_a_block_can() -> None:
    for size, expected in ((BLOCK_MOST, True), (BLOCK_MOST + 1, False)):
        assert is_small(told(size, block(RAW, size, size)), size) is expected
        assert (
            is_small(windowed(0xFF, block(RAW, size, size)), size, most_window=1 << 62) is expected
        )


@pytest.mark.parametrize("window", [0, 1, 7, 8, 0x38, 0x3F])
def test_a_frame_without_a_size_has_no_more_than_its_window(window: int) -> None:
    most = min(window_of(window), BLOCK_MOST)
    for kind in (RAW, REPEATED):
        for size, expected in ((most - 1, True), (most, True), (most + 1, False)):
            frame = windowed(window, block(kind, size, size if kind == RAW else 1))
            assert is_small(frame, size) is expected
    frame = windowed(window, block(RAW, 9, 9))
    require_walked(frame, 9)
    for more, expected in ((-1, False), (0, True), (1, True)):
        assert is_small(frame, 9, most_window=window_of(window) + more) is expected


def test_a_window_takes_no_size_beside_it() -> None:
    frame = MAGIC + bytes((0x40, 0x38)) + (0).to_bytes(2, "little") + block(RAW, 256, 256)
    assert not is_small(frame, 256)


@pytest.mark.parametrize("count", [1, 2, 3, 199, 200, 201])
def test_a_compressed_block_has_two_bytes_and_no_more_than_it_decodes_to(count: int) -> None:
    for frame in (
        told(200, block(COMPRESSED, count, count)),
        told(200, block(COMPRESSED, count, count) + b"sum!", bits=0x04),
    ):
        assert is_small(frame, 200) is (2 <= count <= 200)
        assert not is_small(frame, 200, cut=1)
    most = window_of(0)
    for length, expected in ((most, True), (most + 1, False)):
        assert is_small(windowed(0, block(COMPRESSED, length, length)), 500) is expected


def test_a_sum_takes_four_bytes() -> None:
    body = block(RAW, 9, 9)
    for frame in (told(9, body + b"sum!", bits=0x04), windowed(0x38, body + b"sum!", bits=0x04)):
        require_walked(frame, 9)
        assert is_small(frame, 9)
    for frame in (
        told(9, body, bits=0x04),
        told(9, body + b"sum!"),
        windowed(0x38, body + b"sum!"),
    ):
        assert not is_small(frame, 9)


@pytest.mark.parametrize(
    "frame",
    [
        told(9, block(RESERVED, 9, 9)),
        told(9, block(RAW, 9, 9, is_last=False)),
        told(9, block(RAW, 9, 9), bits=0x08),
        told(9, block(RAW, 9, 9), bits=0x10),
        told(9, b"\1" + block(RAW, 9, 9), bits=0x01),
        b"\x50\x2a\x4d\x18" + told(9, block(RAW, 9, 9))[4:],
        MAGIC,
        b"",
    ],
    ids=["reserved", "not the last", "reserved bit", "unused bit", "dictionary", "skippable",
         "magic alone", "nothing"],
)  # fmt: skip
def test_other_frames(frame: bytes) -> None:
    assert not is_small(frame, 9)
