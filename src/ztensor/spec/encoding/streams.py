"""Short runs of bytes, each stored in the smallest of three kinds: raw, one frame, one byte.

Encodings that split data into streams of similar bytes (planes of floats, differences) share this.
A stream has no header: its kind, stored and decoded length are recorded by the encoding.

| kind | stored bytes |
| --- | --- |
| 0 | the bytes themselves |
| 1 | one zstd frame that declares its content size |
| 2 | one byte, which is repeated |

Frames are Huffman codes without matches: numbers hardly repeat, and such frames take half the time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ztensor.errors import EncodingError, Reason, describe
from ztensor.limits import Limits
from ztensor.spec.encoding.base import Encoding
from ztensor.spec.encoding.zstd.codec import ZSTD

RAW, FRAME, REPEATED = 0, 1, 2

_LEVEL = 1
# A sample decides if a frame is tried. The step is odd: columns of tables are all in the sample.
_STEP, _LEAST_SAMPLED = 17, 16 << 10
_MOST_ENTROPY = 0.97 * 8  # bits per byte; a frame of such bytes saves less than 3 %


def encode(data: memoryview, *, has_matches: bool = False) -> tuple[int, memoryview | bytes]:
    """Return the kind and the stored bytes of a stream; a view of `data` if it is raw.

    One release of the zstd library always gives the same bytes.

    Args:
        data: the bytes, flat.
        has_matches: True also tries a frame with matches, and keeps the shorter one: for
            streams that repeat.
    """
    values = np.frombuffer(data, np.uint8)
    if not values.size:
        return RAW, data
    if values[0] == values[-1] and (values == values[0]).all():
        return REPEATED, data[:1]
    if not has_matches and _entropy(values) >= _MOST_ENTROPY:
        return RAW, data
    frame = _frame(data, has_matches=False)
    if has_matches:
        frame = min(frame, _frame(data, has_matches=True), key=len)
    return (FRAME, frame) if len(frame) < data.nbytes else (RAW, data)


def decode(kind: int, stored: memoryview, length: int, limits: Limits) -> memoryview | bytes:
    """Return the bytes of a stream, a view of `stored` if it is raw.

    The lengths are checked before memory is allocated.

    Args:
        kind: `RAW`, `FRAME` or `REPEATED`.
        stored: exactly the stored bytes.
        length: the decoded length, in bytes. It must be plausible: one stored byte may decode to
            any number.
        limits: the caps in force.

    Raises:
        EncodingError: the kind is unknown, or the bytes are damaged or decode to another length.
        UnsupportedError: the frame needs a dictionary.
        LimitError: the frame demands a window over the cap.
    """
    if kind == FRAME:
        return ZSTD.decode_frame(stored, length, limits)
    if kind == RAW:
        Encoding.require_equal_length(length, len(stored), "a raw stream has another length")
        return stored
    if kind == REPEATED:
        message = "a stream of one repeated byte has another length"
        Encoding.require_equal_length(1, len(stored), message)
        return bytes(stored) * length
    raise EncodingError(
        "unknown kind of a stream",
        reason=Reason.ENCODING_MALFORMED,
        expected="0, 1 or 2",
        found=describe(kind),
    )


def _entropy(values: np.ndarray[Any, Any]) -> float:
    """Return the entropy of a sample of bytes, in bits per byte."""
    sample = values[::_STEP] if values.size > _LEAST_SAMPLED else values
    counts = np.bincount(sample, minlength=256)
    shares = counts[counts > 0] / sample.size
    return float(-(shares * np.log2(shares)).sum())


def _frame(data: memoryview, *, has_matches: bool) -> bytes:
    return next(ZSTD.encode(data, level=_LEVEL, frame_bytes=len(data), has_matches=has_matches))
