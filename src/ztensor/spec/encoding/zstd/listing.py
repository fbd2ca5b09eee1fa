"""The field `frames` of a component: where its frames are, so that no reader has to look for them.

Readers ignore fields they do not know. Over a network the walk from header to header would cost
a request for each frame, and a few numbers in the manifest save it. The field is
`[period, piece, lengths]`: frames hold `piece` decoded bytes each, and anew behind each `period`
of them; `lengths` are the stored bytes of each frame, little-endian numbers of four bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.spec.encoding.base import Runs

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME_FIELD = "frames"
# Below it a component is read at once: one request, and no field.
LEAST_LISTED_BYTES = 1 << 20
_LEAST_FRAME_BYTES = 1 << 10  # on average: the field takes 0.4 % at most


def listed_frames(period: int, piece: int, lengths: Sequence[int]) -> dict[str, object] | None:
    """Return the component's field for frames that were written; None where it is of no use.

    So it is of few bytes, of one frame, and of frames so short that the field would be long.

    Args:
        period: decoded bytes after which frames begin anew.
        piece: decoded bytes of a frame.
        lengths: stored bytes of each frame, in order.
    """
    total, count = sum(lengths), len(lengths)
    if total < LEAST_LISTED_BYTES or count < 2 or total < count * _LEAST_FRAME_BYTES:
        return None
    return {FRAME_FIELD: [period, piece, np.asarray(lengths, "<u4").tobytes()]}


def runs_of_field(field: object, stored_length: int, decoded_length: int) -> Runs | None:
    """Return the runs a field tells; None where it is none, or cannot be true.

    Whether it is true is seen when a frame is decoded, and by `verify`.

    Args:
        field: what the manifest has.
        stored_length: bytes of all frames.
        decoded_length: bytes they decode to.
    """
    match field:
        case [int(period), int(piece), bytes(lengths)] if 0 < piece <= period and lengths:
            pass
        case _:
            return None
    # Counted before anything is made: a short field may claim any numbers.
    whole, rest = divmod(decoded_length, period)
    per_period = -(-period // piece)
    if len(lengths) != 4 * (whole * per_period + -(-rest // piece)):
        return None
    stored = np.cumsum(np.frombuffer(lengths, "<u4"), dtype=np.uint64)
    if int(stored[-1]) != stored_length or (np.frombuffer(lengths, "<u4") == 0).any():
        return None
    numbers = np.arange(1, len(stored) + 1, dtype=np.uint64)
    periods, within = numbers // per_period, numbers % per_period
    decoded = np.minimum(periods * np.uint64(period) + within * np.uint64(piece), decoded_length)
    return Runs.joined(zip(stored.tolist(), decoded.tolist(), strict=True))
