"""LZF: runs of literals, and copies of what came up to 8 KiB before.

A token begins with a byte. Up to 31, it is followed by one literal more than it says. Else its
upper three bits are the length of a copy less two (7: the next byte is added to it), and the other
five, with the last byte of the token, how far back the copy begins, less one.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from ztensor.typing import Array

# Of each byte a token may begin with: how long the token is, and how many bytes it gives.
_STEPS = bytes((*range(2, 34), *[2] * 192, *[3] * 32))
_COUNTS = np.array([*range(1, 33), *((code >> 5) + 2 for code in range(32, 256))], np.uint8)
_COPY = 32  # from here on a token copies
_LONG = 224  # from here on the next byte is added
_BATCH = 1 << 16  # tokens looked at at once: their places take memory


def expand(data: bytes | bytearray | memoryview, most: int) -> bytearray:
    """Return what LZF bytes expand to.

    NumPy finds what each token means and copies all literals at once; copies, which may need what
    others gave, are done one by one.

    Raises:
        ValueError: that is more than `most` bytes, a token is cut, or a copy begins before the
            first byte.
    """
    data = bytes(data)
    stored = np.frombuffer(data, np.uint8)
    steps, end, at = data.translate(_STEPS), len(data), 0
    out = bytearray()
    while at < end:
        places = array("I")
        add = places.append
        for _ in range(_BATCH):
            add(at)
            at += steps[at]
            if at >= end:
                break
        if at > end:
            raise ValueError("the last token is cut")
        _expand_tokens(stored, np.frombuffer(places, np.dtype(places.typecode)), out, most)
    return out


def _expand_tokens(stored: Array, starts: Array, out: bytearray, most: int) -> None:
    """Append what tokens, all of them whole, expand to."""
    begin = len(out)
    starts = starts.astype(np.int64)
    codes = stored[starts]
    counts = _COUNTS[codes].astype(np.int64)
    is_long = codes >= _LONG
    counts[is_long] += stored[starts[is_long] + 1]
    ends = np.cumsum(counts) + begin
    if int(ends[-1]) > most:
        raise ValueError(f"there are {int(ends[-1])} bytes or more")
    out.extend(bytes(int(ends[-1]) - begin))
    targets = ends - counts

    is_literal = codes < _COPY
    lengths = counts[is_literal]
    if lengths.size:
        # One number for each literal: how many come before its token, and where they begin.
        before = np.cumsum(lengths) - lengths
        numbers = np.arange(int(lengths.sum()))
        whole: Any = np.frombuffer(out, np.uint8)
        whole[np.repeat(targets[is_literal] - before, lengths) + numbers] = stored[
            np.repeat(starts[is_literal] + 1 - before, lengths) + numbers
        ]
        del whole  # else `out` cannot grow
    is_copy = ~is_literal
    if not is_copy.any():
        return
    starts, codes, targets = starts[is_copy], codes[is_copy], targets[is_copy]
    far = (codes & 31).astype(np.int64) << 8
    distances = far + stored[starts + 1 + is_long[is_copy]] + 1
    if (distances > targets).any():
        raise ValueError("a copy begins before the first byte")
    for target, distance, length in zip(
        targets.tolist(), distances.tolist(), counts[is_copy].tolist(), strict=True
    ):
        start = target - distance
        if length <= distance:
            out[target : target + length] = out[start : start + length]
        elif distance == 1:
            out[target : target + length] = out[start:target] * length
        else:  # it copies what it has just given
            piece = out[start:target]
            out[target : target + length] = (piece * (length // distance + 1))[:length]
