"""Where the frames of a compressed component end: behind whole rows, so that a row is in one frame.

A reader decodes whole frames, so their size is the price of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.spec.encoding.zstd.codec import FRAME_BYTES
from ztensor.spec.layout import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.spec.model.manifest import TensorObject

# No frame is longer, whatever `chunk_rows` says: writers and readers hold a frame in memory.
MOST_FRAME_BYTES = 16 << 20
_WORD = 64  # parts of a row end between elements of any width


class Frames(NamedTuple):
    """Where frames end, in decoded bytes: every `piece` bytes, and anew behind each `period`.

    Attributes:
        period: bytes after which it all begins again.
        piece: bytes of a frame; fewer at the end of a period.
    """

    period: int
    piece: int

    def start(self, position: int) -> int:
        """Return where the frame begins that the byte at `position` is in."""
        return position - position % self.period % self.piece

    def end(self, position: int) -> int:
        """Return where the frame ends that the byte at `position` is in."""
        start = self.start(position)
        return start + min(self.piece, self.period - start % self.period)

    def cut(self, position: int, data: memoryview) -> Iterator[memoryview]:
        """Yield the parts of `data`, whose first byte is at `position`, by the frames they are in.

        Of a component without bytes there is one, which is empty.
        """
        start, stop = position, position + data.nbytes
        while start < stop:
            end = min(self.end(start), stop)
            yield data[start - position : end - position]
            start = end
        if not data.nbytes:
            yield data


def frames_of(
    plan: TensorObject, role: str, chunk_rows: int | None, *, are_equal: bool = False
) -> Frames:
    """Return where the frames of a component end.

    Args:
        plan: the object it is of.
        role: its role.
        chunk_rows: rows in a frame; None for as many as `FRAME_BYTES` holds. A row that is longer
            than that, or than `MOST_FRAME_BYTES`, is cut into equal parts.
        are_equal: all frames but the last have one length, as 2.x asks for; those of long rows
            then end anywhere in them.
    """
    row = _row_bytes(plan, role)
    if row is None or (chunk_rows is None and len(plan.shape) < 2):
        return Frames(FRAME_BYTES, FRAME_BYTES)
    wanted = FRAME_BYTES if chunk_rows is None else min(chunk_rows * row, MOST_FRAME_BYTES)
    if are_equal and row > wanted:
        return Frames(wanted // _WORD * _WORD, wanted // _WORD * _WORD)
    if row <= wanted:
        return Frames(wanted // row * row, wanted // row * row)
    parts = -(-row // wanted)
    part = -(-row // parts)
    return Frames(row, -(-part // _WORD) * _WORD)


def _row_bytes(plan: TensorObject, role: str) -> int | None:
    """Return the bytes of an index of the first axis, or None where rows are no runs of bytes."""
    layout = LAYOUTS.get(plan.format)
    if not plan.shape or role != "data" or layout is None or not layout.has_row_bytes:
        return None
    total = layout.expected_length(plan, role, None)
    if not total or total % plan.shape[0]:
        return None
    return total // plan.shape[0]


def batches(parts: Iterator[memoryview], nbytes: int) -> Iterator[list[memoryview]]:
    """Yield parts that follow one another, together `nbytes` long or a little longer."""
    batch: list[memoryview] = []
    held = 0
    for part in parts:
        batch.append(part)
        held += part.nbytes
        if held >= nbytes:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def require_chunk_rows(chunk_rows: object) -> int | None:
    """Return how many rows a caller wants in a frame.

    Raises:
        ArgumentTypeError: it is no integer and not None.
        ArgumentValueError: it is not positive.
    """
    if chunk_rows is None:
        return None
    if not isinstance(chunk_rows, int) or isinstance(chunk_rows, bool):
        raise ArgumentTypeError(
            "chunk_rows is a number of rows",
            expected="an integer from 1 on, or None",
            found=describe(chunk_rows, 40),
        )
    if chunk_rows < 1:
        raise ArgumentValueError(
            "a frame holds one row or more",
            expected="an integer from 1 on, or None",
            found=describe(chunk_rows, 40),
        )
    return chunk_rows
