"""Decoded bytes to frames: in order, on several threads, and only where that makes them fewer."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, NamedTuple

from ztensor.io.writing.frames import Frames, batches
from ztensor.spec.encoding import ENCODINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from ztensor.threads.pool import Pool

    Pieces = Callable[[], Iterable[memoryview]]

DEFAULT_LEVEL = 3
# So much is handed to a thread to compress: less than a millisecond of work, 30 us to hand over.
_JOB_BYTES = 256 << 10
# Up to here one thread compresses: it would wait for the others as long as it works itself.
ALONE_BYTES = 512 << 10
# What a caller may change behind a call is copied up to here; of more, the call awaits the frames.
_COPIED_BYTES = 4 << 20
# Copies that wait for a thread, but always one of them: a frame is up to 16 MiB.
_MOST_WAITING_BYTES = 32 << 20
# Frames that are held until it is known whether they stay; then they are made a second time.
_HELD_BYTES = 8 << 20


class Compression(NamedTuple):
    """How components are encoded.

    Attributes:
        encoding: a name of the table of encodings.
        level: how hard to try, where that means something.
    """

    encoding: str
    level: int = DEFAULT_LEVEL

    @property
    def must_shrink(self) -> bool:
        """Return whether what does not become smaller by it is stored raw."""
        return ENCODINGS[self.encoding].must_shrink


class Frame(NamedTuple):
    """A frame, and how many bytes it decodes to."""

    decoded: int
    data: bytes | memoryview


class Compressor:
    """Makes the frames of one component, in order; they are the same whatever it comes in.

    Args:
        compression: how it is encoded.
        frames: where frames end.
        crew: threads that compress; None to do it in the caller's.
        alone_bytes: pieces up to here are compressed in the caller's thread.
        is_lent: pieces are the caller's again when `add` has returned its last frame.
    """

    def __init__(
        self,
        compression: Compression,
        frames: Frames,
        crew: Pool | None = None,
        *,
        alone_bytes: int = ALONE_BYTES,
        is_lent: bool = False,
    ) -> None:
        encoding = ENCODINGS[compression.encoding]
        self._encoding = encoding
        self._made: list[tuple[int, int]] = []  # for encodings that end with a table
        self._level = compression.level
        self._frames = frames
        self._crew = crew if crew is not None and crew.count > 1 else None
        self._alone_bytes = alone_bytes
        self._is_lent = is_lent
        self._copied_bytes = _COPIED_BYTES if is_lent and self._crew is not None else 0
        self._encoded_to = 0  # decoded bytes that were handed over; a frame begins here
        self._pending = bytearray()
        self._under_way: collections.deque[tuple[int, Future[list[Frame]]]] = collections.deque()
        self._waiting = 0

    def add(self, data: memoryview) -> Iterator[Frame]:
        """Take decoded bytes, and yield the frames that are ready."""
        if data.nbytes <= self._copied_bytes:
            self._pending += data
            if len(self._pending) >= _JOB_BYTES:
                yield from self._whole_frames()
            return
        # Whole frames only until the end, so that pieces of any size give the same file.
        if self._pending:
            position = self._encoded_to + len(self._pending)
            if self._frames.start(position) != position:
                take = self._frames.end(position) - position
                self._pending += data[:take]
                if data.nbytes < take:
                    return
                data = data[take:]
            yield from self._whole_frames()
        whole = self._frames.start(self._encoded_to + data.nbytes) - self._encoded_to
        if whole:
            yield from self._compressed(data[:whole])
            if self._is_lent:
                yield from self._ready(0)
        self._pending += data[whole:]

    def end(self) -> Iterator[Frame]:
        """Yield all other frames."""
        if self._pending or not self._encoded_to:
            yield from self._compressed(memoryview(self._pending))
        yield from self._ready(0)
        if self._encoding.has_table:
            yield Frame(0, self._encoding.end(self._made))

    def cancel(self) -> None:
        """Drop what was not compressed yet."""
        for _, future in self._under_way:
            future.cancel()

    def _whole_frames(self) -> Iterator[Frame]:
        """Yield what is ready when the whole frames that are pending were handed over."""
        whole = self._frames.start(self._encoded_to + len(self._pending)) - self._encoded_to
        if whole:
            own, self._pending = self._pending, self._pending[whole:]
            yield from self._compressed(memoryview(own)[:whole])

    def _compressed(self, data: memoryview) -> Iterator[Frame]:
        parts = self._frames.cut(self._encoded_to, data)
        self._encoded_to += data.nbytes
        crew = self._crew
        if crew is None or (not self._copied_bytes and data.nbytes <= self._alone_bytes):
            yield from self._ready(0)
            for part in parts:
                yield from self._noted(self._encoded((part,)))
            return
        # Frames are independent. A few more jobs than there are threads are under way at any time,
        # so that none waits and memory stays bounded.
        for batch in batches(parts, _JOB_BYTES):
            nbytes = sum(part.nbytes for part in batch)
            self._under_way.append((nbytes, crew.submit(self._encoded, batch)))
            self._waiting += nbytes
            yield from self._ready(2 * crew.count)

    def _ready(self, most: int) -> Iterator[Frame]:
        """Yield frames until at most so many jobs are under way."""
        is_copied = self._copied_bytes > 0
        while len(self._under_way) > most or (
            is_copied and self._waiting > _MOST_WAITING_BYTES and len(self._under_way) > 1
        ):
            nbytes, future = self._under_way.popleft()
            self._waiting -= nbytes
            yield from self._noted(future.result())

    def _noted(self, frames: list[Frame]) -> list[Frame]:
        if self._encoding.has_table:
            self._made += [(len(frame.data), frame.decoded) for frame in frames]
        return frames

    def _encoded(self, parts: Iterable[memoryview]) -> list[Frame]:
        encode, level = self._encoding.encode, self._level
        return [
            Frame(part.nbytes, frame)
            for part in parts
            for frame in encode(part, level=level, frame_bytes=max(part.nbytes, 1))
        ]


def compressed(pieces: Pieces, compressor: Compressor) -> Iterator[Frame]:
    """Yield the frames of a component that comes in pieces, which stay as they are."""
    try:
        for piece in pieces():
            yield from compressor.add(piece)
        yield from compressor.end()
    finally:
        compressor.cancel()


def smaller(
    pieces: Pieces, total: int | None, frames: Frames, compressor: Callable[[], Compressor]
) -> Iterator[Frame] | None:
    """Return the frames of a component, or None where they are no fewer bytes than it has.

    Mostly its first frames tell: they save more than the others can cost. Where they do not, all
    are made before a byte is written; those of a large component then once more, so that they
    need not be held.

    Args:
        pieces: gives its decoded bytes, twice where that is needed.
        total: how many they are. Where nobody knows, a component stays compressed whose first
            8 MiB of frames do not tell.
        frames: where frames end.
        compressor: makes a compressor.
    """
    source = compressed(pieces, compressor())
    held: list[Frame] = []
    is_held = True
    decoded = stored = 0
    for frame in source:
        decoded += frame.decoded
        stored += len(frame.data)
        if is_held:
            held.append(frame)
        if total is None:
            if stored > _HELD_BYTES:
                return itertools.chain(held, source)
            continue
        if stored + _most_stored(total - decoded, frames) < total:
            if is_held:
                return itertools.chain(held, source)
            source.close()  # type: ignore[attr-defined]  # a generator
            return compressed(pieces, compressor())
        if is_held and stored > _HELD_BYTES:
            is_held = False
            held.clear()
    if stored >= decoded:
        return None
    return iter(held) if is_held else compressed(pieces, compressor())


def _most_stored(nbytes: int, frames: Frames) -> int:
    """Return more than the bytes that zstd makes of so many it cannot shrink."""
    return nbytes + nbytes // 1024 + 64 * (nbytes // frames.piece + 1)
