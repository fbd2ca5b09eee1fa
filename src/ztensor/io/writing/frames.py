"""Frames of a compressed component: where they end, and how they are made, in order, by threads.

A frame ends behind whole rows, so that a row is in one frame: a reader decodes whole frames, so
their size is the price of one row.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.zstd.codec import FRAME_BYTES
from ztensor.spec.layout import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from ztensor.spec.model.manifest import TensorObject
    from ztensor.threads.pool import Pool

# No frame is longer, whatever `chunk_rows` says: writers and readers hold a frame in memory.
MOST_FRAME_BYTES = 16 << 20
_WORD = 64  # parts of a row end between elements of any width
# A thread is handed so much to compress: less than a millisecond of work, 30 us to hand over.
_JOB_BYTES = 256 << 10
# Up to here one thread compresses: it would wait for the others as long as it works itself.
_ALONE_BYTES = 512 << 10
# Shorter pieces are copied together until so much is there.
_GATHERED_BYTES = 1 << 20


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
    if row > wanted and not are_equal:
        parts = -(-row // wanted)
        return Frames(row, -(-row // parts // _WORD) * _WORD)
    length = wanted // row * row if row <= wanted else wanted // _WORD * _WORD
    return Frames(length, length)


def _row_bytes(plan: TensorObject, role: str) -> int | None:
    """Return the bytes of an index of the first axis, or None where rows are no runs of bytes."""
    layout = LAYOUTS.get(plan.format)
    if not plan.shape or role != "data" or layout is None or not layout.has_row_bytes:
        return None
    total = layout.expected_length(plan, role, None)
    if not total or total % plan.shape[0]:
        return None
    return total // plan.shape[0]


def require_chunk_rows(chunk_rows: object) -> int | None:
    """Return how many rows a caller wants in a frame.

    Raises:
        ArgumentTypeError: it is no integer and not None.
        ArgumentValueError: it is not positive.
    """
    if chunk_rows is None or (type(chunk_rows) is int and chunk_rows >= 1):
        return chunk_rows
    raise (ArgumentValueError if type(chunk_rows) is int else ArgumentTypeError)(
        "chunk_rows is the number of rows in a frame",
        expected="an integer from 1 on, or None",
        found=describe(chunk_rows, 40),
    )


class Frame(NamedTuple):
    """A frame, and how many bytes it decodes to."""

    decoded: int
    data: bytes | memoryview


class Compressor:
    """Makes the frames of one component, in order; they are the same whatever it comes in.

    Args:
        encoding: how it is encoded, by its name in the table.
        level: how hard to try.
        frames: where frames end.
        crew: threads that compress.

    Attributes:
        lengths: stored and decoded bytes of each frame so far.
    """

    def __init__(self, encoding: str, level: int, frames: Frames, crew: Pool) -> None:
        self._encoding, self._level = ENCODINGS[encoding], level
        self._frames, self._crew = frames, crew
        self._encoded_to = 0  # decoded bytes that were handed over; a frame begins here
        self._pending = bytearray()
        self.lengths: list[tuple[int, int]] = []

    def add(self, data: memoryview) -> Iterator[Frame]:
        """Take decoded bytes, the caller's again behind the last frame; yield what is ready."""
        if len(self._pending) + data.nbytes < _GATHERED_BYTES:
            self._pending += data
            return
        if self._pending:  # up to the end of the frame that it ends in
            last = self._encoded_to + len(self._pending) - 1
            missing = self._frames.end(last) - last - 1
            self._pending += data[:missing]
            if data.nbytes < missing:
                return
            pending, self._pending = self._pending, bytearray()
            data = data[missing:]
            yield from self._encoded(memoryview(pending))
        whole = self._frames.start(self._encoded_to + data.nbytes) - self._encoded_to
        yield from self._encoded(data[:whole])
        self._pending += data[whole:]

    def end(self) -> Iterator[Frame]:
        """Yield all other frames."""
        if self._pending:
            yield from self._encoded(memoryview(self._pending))
        elif not self._encoded_to:  # a component without bytes is one frame
            yield from self._noted(self._encode([memoryview(b"")]))
        if self._encoding.has_table:
            yield Frame(0, self._encoding.end(self.lengths))

    def _encoded(self, data: memoryview) -> Iterator[Frame]:
        """Yield the frames of bytes that end with one, or are the last."""
        jobs = self._jobs(data)
        if self._crew.count == 1 or data.nbytes <= _ALONE_BYTES:
            for job in jobs:
                yield from self._noted(self._encode(job))
            return
        # A few more jobs than there are threads are under way at any time, so that no thread waits
        # and memory stays bounded.
        under_way: deque[Future[list[Frame]]] = deque()
        try:
            for job in jobs:
                under_way.append(self._crew.submit(self._encode, job))
                if len(under_way) > 2 * self._crew.count:
                    yield from self._noted(under_way.popleft().result())
            while under_way:
                yield from self._noted(under_way.popleft().result())
        finally:
            for future in under_way:
                future.cancel()

    def _jobs(self, data: memoryview) -> Iterator[list[memoryview]]:
        """Yield the bytes of frames that follow one another, some together."""
        job: list[memoryview] = []
        start = done = 0
        while done < data.nbytes:
            end = self._frames.end(self._encoded_to) - self._encoded_to
            job.append(data[done : done + end])
            done += job[-1].nbytes
            self._encoded_to += job[-1].nbytes
            if done - start >= _JOB_BYTES:
                yield job
                job, start = [], done
        if job:
            yield job

    def _encode(self, parts: list[memoryview]) -> list[Frame]:
        encode, level = self._encoding.encode, self._level
        return [
            Frame(part.nbytes, frame)
            for part in parts
            for frame in encode(part, level=level, frame_bytes=max(part.nbytes, 1))
        ]

    def _noted(self, frames: list[Frame]) -> list[Frame]:
        self.lengths += [(len(frame.data), frame.decoded) for frame in frames]
        return frames
