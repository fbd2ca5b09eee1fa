"""Frames of a compressed component: their lengths, and threads that compress them in order.

A frame ends at the end of a row, so that each row is in one frame: a reader decodes whole frames,
and so their length is the cost of reading one row.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ztensor.spec.encoding import ENCODINGS
from ztensor.spec.encoding.base import listed_frames
from ztensor.spec.layout import LAYOUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from ztensor.io.writing.options import BlobOptions
    from ztensor.spec.encoding import Encoding
    from ztensor.spec.model.manifest import Component, TensorObject
    from ztensor.threads.pool import Pool

_WORD = 64  # parts of a row end between elements of any width
# Bytes of one job of a thread: less than a millisecond of work, 30 us to hand over.
_JOB_BYTES = 256 << 10
# Up to this length one thread compresses: it would wait for others as long as it works itself.
_ALONE_BYTES = 512 << 10
# Shorter pieces are buffered up to this length.
_GATHERED_BYTES = 1 << 20
# Frames are held up to this length until it is known that they save; beyond they are made again.
_HELD_BYTES = 8 << 20
_TABLE_BYTES = 16  # of an offset table for each frame, at most


class Frames(NamedTuple):
    """The ends of frames, in decoded bytes: every `piece` bytes, and at the end of each `period`.

    Attributes:
        period: bytes after which the pattern repeats.
        piece: bytes of a frame; the last of a period may be shorter.
    """

    period: int
    piece: int

    def start(self, position: int) -> int:
        """Return the start of the frame with the byte at `position`."""
        return position - position % self.period % self.piece

    def end(self, position: int) -> int:
        """Return the end of the frame with the byte at `position`."""
        start = self.start(position)
        return start + min(self.piece, self.period - start % self.period)


def frames_of(plan: TensorObject, role: str, options: BlobOptions, encoding: Encoding) -> Frames:
    """Return the ends of the frames of a component.

    A row longer than a frame is cut into equal parts; in 2.x and with an offset table, where all
    frames except the last have one length, it is cut anywhere.
    """
    chunk_rows, layout = options.chunk_rows, LAYOUTS.get(plan.format)
    total = None
    if plan.shape and role == "data" and layout is not None and layout.has_row_bytes:
        total = layout.expected_length(plan, role, None)
    has_rows = total and total % plan.shape[0] == 0 and (chunk_rows or len(plan.shape) > 1)
    if not total or not has_rows:
        return Frames(encoding.frame_bytes, encoding.frame_bytes)
    row = total // plan.shape[0]
    wanted = encoding.frame_bytes
    if chunk_rows is not None:
        least, most = encoding.least_frame_bytes, encoding.most_frame_bytes
        wanted = min(max(chunk_rows * row, least), most)
    if row > wanted and not (options.form.is_exact or encoding.has_table):
        parts = -(-row // wanted)
        return Frames(row, -(-row // parts // _WORD) * _WORD)
    length = wanted // row * row if row <= wanted else wanted // _WORD * _WORD
    return Frames(length, length)


class Frame(NamedTuple):
    """A frame, and the number of bytes that it decodes to with those before it that have 0."""

    decoded: int
    data: bytes | memoryview


class Compressor:
    """Makes the frames of one component, in order; they do not depend on the pieces of input.

    Args:
        plan: the object of the component.
        role: its role.
        options: how it is stored.
        crew: threads that compress.

    Attributes:
        must_shrink: whether frames are stored only if they are shorter than raw.
    """

    def __init__(self, plan: TensorObject, role: str, options: BlobOptions, crew: Pool) -> None:
        called, self._level = options.compression or ("zstd", 0)
        self._called = called
        self._encoding = ENCODINGS[called].for_component(plan.components[role])
        self.must_shrink = self._encoding.must_shrink
        self._is_exact = options.form.is_exact
        # In 2.x the digest covers the decoded bytes.
        self._algorithm = options.algorithm if self._is_exact else None
        self._frames, self._crew = frames_of(plan, role, options, self._encoding), crew
        self._begin()

    def _begin(self) -> None:
        self._encoded_to = 0  # decoded bytes that were compressed; a frame begins here
        self._pending = bytearray()
        self._lengths: list[tuple[int, int]] = []
        self._hasher = self._algorithm and self._algorithm.hasher()

    def add(self, data: memoryview) -> Iterator[Frame]:
        """Take decoded bytes, valid until the last frame is taken; yield finished frames."""
        if self._hasher is not None:
            self._hasher.update(data)
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
        """Yield the remaining frames."""
        if self._pending:
            yield from self._encoded(memoryview(self._pending))
        elif not self._encoded_to:  # a component without bytes is one frame
            yield from self._noted(self._encode([memoryview(b"")]))
        if self._encoding.has_table:
            yield Frame(0, self._encoding.end(self._lengths))

    def frames(
        self, pieces: Callable[[], Iterable[memoryview]], most: int | None
    ) -> Iterator[Frame] | None:
        """Return all frames of a component; None if they are not shorter than `most`.

        Args:
            pieces: returns the decoded bytes; called a second time if the frames that decide it are
                more than are held.
            most: the number of raw bytes; None means no limit.
        """
        if most is None:
            return self._all(pieces())
        held: list[Frame] = []
        stored, rest, kept = 0, most, 1 - self._encoding.least_saving
        table = _TABLE_BYTES if self._encoding.has_table else 0
        frames = self._all(pieces())
        for frame in frames:
            stored += len(frame.data)
            rest -= frame.decoded
            held.append(frame)
            if stored > _HELD_BYTES:
                held.clear()
            # Most components save more at their start than the rest can cost.
            so_far = stored + table * len(self._lengths)
            worst = so_far + rest + rest // 1024 + 64 * (rest // self._frames.piece + 1)
            if worst < most and so_far < (most - rest) * kept:
                break
        if stored >= most * kept:
            return None
        return itertools.chain(held, frames) if held else self._all(pieces())

    def _all(self, pieces: Iterable[memoryview]) -> Iterator[Frame]:
        """Yield all frames of a component, from its first byte on."""
        self._begin()
        for data in pieces:
            yield from self.add(data)
        yield from self.end()

    def described(self, stored: Component) -> Component:
        """Return a component of written frames, with its encoding and decoded length."""
        extra, digest = None, stored.digest
        if self._called == "zstd" and not self._is_exact:  # in 2.x the frames have a table
            extra = listed_frames(*self._frames, [length for length, _ in self._lengths])
        if self._algorithm is not None and self._hasher is not None:
            digest = self._algorithm.spell(self._hasher.hexdigest())
        return stored._replace(
            encoding=self._called,
            decoded_length=sum(decoded for _, decoded in self._lengths),
            digest=digest,
            extra=extra,
        )

    def _encoded(self, data: memoryview) -> Iterator[Frame]:
        """Yield the frames of bytes that end with a frame, or with the component."""
        jobs = self._jobs(data)
        if self._crew.count == 1 or data.nbytes <= _ALONE_BYTES:
            for job in jobs:
                yield from self._noted(self._encode(job))
            return
        # Twice as many jobs as threads at any time: no thread waits, and memory is bounded.
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
        """Yield jobs, each with the bytes of consecutive frames."""
        job: list[memoryview] = []
        start = done = 0
        while done < data.nbytes:
            end = self._frames.end(self._encoded_to) - self._encoded_to
            job.append(data[done : done + end])
            done += job[-1].nbytes
            self._encoded_to += job[-1].nbytes
            if done - start >= _JOB_BYTES or done == data.nbytes:
                yield job
                job, start = [], done

    def _encode(self, parts: list[memoryview]) -> list[Frame]:
        encode, level = self._encoding.encode, self._level
        frames: list[Frame] = []
        for part in parts:
            pieces = list(encode(part, level=level, frame_bytes=max(part.nbytes, 1)))
            frames += (Frame(0, piece) for piece in pieces[:-1])
            frames += (Frame(part.nbytes, piece) for piece in pieces[-1:])
        return frames

    def _noted(self, frames: list[Frame]) -> list[Frame]:
        self._lengths += [(len(frame.data), frame.decoded) for frame in frames]
        return frames
