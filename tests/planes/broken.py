"""Stored bytes of planes that break one rule each: 1,000 elements of f32 in three blocks."""

from __future__ import annotations

import numpy as np

from tests.planes import slow
from ztensor.errors import Reason

DATA = np.random.default_rng(5).normal(0, 0.02, 1000).astype("<f4").tobytes()  # 1,000 f32
GOOD = slow.write(DATA, slow.FLOAT, 4, 400)
INDEX = len(GOOD) - 16 - 4 * 4 * 3  # where it begins
FRAME_0 = int.from_bytes(GOOD[INDEX : INDEX + 4], "little") & (1 << 30) - 1  # bytes of the first


def entry(number: int, kind: int, length: int) -> bytes:
    """Return the good bytes with one entry of the index changed."""
    at = INDEX + 4 * number
    return GOOD[:at] + (kind << 30 | length).to_bytes(4, "little") + GOOD[at + 4 :]


def ending(
    elements: int, transform: int, width: int, count: int, zero: int = 0, magic: bytes = b"ZPL1"
) -> bytes:
    return GOOD[:-16] + slow.trailer(elements, transform, width, count, zero, magic)


def first_frame(change: bytes) -> bytes:
    """Return the good bytes with another first stream and the entry for it."""
    index = (1 << 30 | len(change)).to_bytes(4, "little") + GOOD[INDEX + 4 :]
    return change + GOOD[FRAME_0:INDEX] + index


SHORT = slow.stream_of(b"ab" * 100)[1]  # declares 200 bytes
NO_SIZE = bytes.fromhex("28b52ffd 0000") + b"\x0b\0\0" + b"a"  # a window of 1 KiB, no content size
DICTIONARY = bytes.fromhex("28b52ffd 61 07 9000") + b"\x83\x0c\0" + b"a"
BOMB = bytes.fromhex("28b52ffd e0") + (1 << 40).to_bytes(8, "little") + b"\x03\0\0" + b"a"
MALFORMED, LONG = Reason.ENCODING_MALFORMED, Reason.DECODED_LONG
BROKEN = {
    "nothing": (b"", MALFORMED),
    "no trailer": (GOOD[-15:], MALFORMED),
    "no index": (GOOD[-16:], MALFORMED),
    "cut at the start": (GOOD[1:], MALFORMED),
    "a byte before the streams": (b"\0" + GOOD, MALFORMED),
    "a byte behind the trailer": (GOOD + b"\0", MALFORMED),
    "magic": (ending(400, 2, 4, 3, magic=b"ZPL2"), MALFORMED),
    "reserved bits": (ending(400, 2, 4, 3, 1), MALFORMED),
    "transform 0": (ending(400, 0, 4, 3), MALFORMED),
    "transform 3": (ending(400, 3, 4, 3), MALFORMED),
    "width 3": (ending(400, 2, 3, 3), MALFORMED),
    "width of another dtype": (ending(800, 2, 2, 3), MALFORMED),
    "floats of one byte": (ending(1600, 2, 1, 3), MALFORMED),
    "no elements in a block": (ending(0, 2, 4, 3), MALFORMED),
    "a block too large": (ending((1 << 22) + 1, 2, 4, 1), MALFORMED),
    "a block too few": (ending(400, 2, 4, 2), MALFORMED),
    "a block too many": (ending(400, 2, 4, 4), MALFORMED),
    "very many blocks": (ending(1, 2, 4, (1 << 32) - 1), MALFORMED),
    "kind 3": (entry(0, 3, FRAME_0), MALFORMED),
    "raw of another length": (entry(0, 0, FRAME_0), MALFORMED),
    "repeated of two bytes": (entry(0, 2, 2), MALFORMED),
    "a stream too short": (entry(0, 1, FRAME_0 - 1), MALFORMED),
    "a stream too long": (entry(0, 1, FRAME_0 + 1), MALFORMED),
    "a frame of another size": (first_frame(SHORT), MALFORMED),
    "a frame without a size": (first_frame(NO_SIZE), MALFORMED),
    "a frame of a terabyte": (first_frame(BOMB), MALFORMED),
    "a dictionary": (first_frame(DICTIONARY), Reason.UNKNOWN_ENCODING),
    "two frames": (first_frame(GOOD[:FRAME_0] * 2), MALFORMED),
    "bytes behind a frame": (first_frame(GOOD[:FRAME_0] + b"\0"), MALFORMED),
    "a cut frame": (first_frame(GOOD[: FRAME_0 - 1]), Reason.ENCODING_TRUNCATED),
    "no frame": (first_frame(b"x" * 20), MALFORMED),
}
