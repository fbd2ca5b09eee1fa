"""The encoding: frames decoded straight into the destination, and written."""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ztensor.errors import EncodingError, LimitError, Reason
from ztensor.limits import Limits
from ztensor.spec.encoding.base import (
    Encoding,
    Held,
    Runs,
    Stored,
    damaged,
    require_decodable,
    wrong_length,
)
from ztensor.spec.encoding.zstd.frames import (
    Frame,
    hold,
    require_window,
    walk_frames,
)
from ztensor.spec.encoding.zstd.libraries import Binding, Decoder, Encoder, Span, find_binding
from ztensor.threads.sharing import large_window

# Decoded bytes per frame written, by default. zstd codes blocks of 128 KiB at most, each by itself:
# measured on weights, tables and tokens, longer frames save under 1 % and make every row dear.
FRAME_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20  # largest piece `decode_chunks` yields, and one read of a streamed frame
SHORT_BYTES = 128 << 10  # a frame up to here is decoded to memory of its own, and copied
ONE_PASS_BYTES = 8 << 20  # a frame up to here, stored, is read whole: see `_span`

FASTEST_LEVEL = -(1 << 17)
STRONGEST_LEVEL = 22
KEPT_LEVEL = 7  # above it a context takes 10 to 70 MB and saves nothing beside its work
KEPT_WINDOW = 8 << 20  # a context that streamed with a larger window is not kept: it holds it
KEPT_CONTEXTS = 16

_Context = TypeVar("_Context")
_SCRATCH = memoryview(bytearray(1))  # what is beyond the end; written, never read


class Zstd(Encoding):
    """Zstandard frames; thread-safe.

    Contexts are lent for the time of one call and kept for the next, because making one costs as
    much as decoding a small component. A pool instead of one context per thread, because a
    `decode_chunks` that is not finished yet must not share its context with another call.

    Args:
        binding: the library to use; without it, the installed one is looked for at first use.
    """

    name = "zstd"
    is_written = True
    must_shrink = True  # what it makes no smaller is stored raw

    def __init__(self, binding: Binding | None = None) -> None:
        self._binding = binding
        self._decoders: collections.deque[Decoder] = collections.deque(maxlen=KEPT_CONTEXTS)
        self._encoders: dict[tuple[int, bool], collections.deque[Encoder]] = {}

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return which frames decode to which bytes; only headers are read."""
        runs: Runs | None = Runs.none()
        least = most = 0
        for frame in walk_frames(stored, limits):
            declared = frame.content_length
            least += declared or 0
            most += frame.most_length if declared is None else min(declared, frame.most_length)
            if declared is None or least > expected_length:
                runs = None
            elif runs is not None:
                runs.add(frame.stop, least, is_last=frame.stop == stored.length)
        if expected_length > most:
            raise wrong_length(expected_length, f"at most {most} in the frames")
        if expected_length < least:
            raise wrong_length(expected_length, f"{least} declared by the frames", is_long=True)
        require_decodable(expected_length, limits)
        return runs

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, frame after frame.

        Nothing is allocated for decoded bytes, and decoding stops where the destination ends.
        """
        self.decode_run(stored, 0, stored.length, destination, limits)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` exactly with what the frames from `start` to `stop` decode to."""
        total = len(destination)
        require_decodable(total, limits)
        stored = hold(stored, start, stop)
        frames = functools.partial(walk_frames, stored, limits, start=start, stop=stop)
        if isinstance(stored, Held) and self._decode_short(stored, frames(), destination):
            return
        for _ in self._decode(stored, frames(), destination, total, limits, is_whole=True):
            pass

    def _decode_short(self, stored: Held, frames: Iterable[Frame], destination: memoryview) -> bool:
        """Decode short frames, each in one call, a third of the time; say whether all was right."""
        binding, decoder, filled = self._bound(), _pop(self._decoders), 0
        for frame in frames:
            size = frame.content_length
            if size is None:
                size = len(destination) - filled
            is_short = size > 0 and max(size, frame.most_length) <= SHORT_BYTES
            if not is_short or frame.window > KEPT_WINDOW:
                return False
            decoder = decoder or binding.decoder()
            try:
                data = decoder.whole(stored.read(frame.start, frame.stop - frame.start), size)
            except binding.error:
                return False
            if len(data) != size or size > len(destination) - filled:
                return False
            destination[filled : filled + size] = data
            filled += size
        if decoder is not None:
            self._decoders.append(decoder)
        return filled == len(destination)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, at most 1 MiB at a time, each piece new memory."""
        stored = hold(stored, 0, stored.length)
        most, is_exact = limits.decoded_bytes, False
        if expected_length is not None:
            self.require_length(stored, expected_length, limits)
            most, is_exact = expected_length, True
        chunk = memoryview(bytearray(min(CHUNK_BYTES, most)))
        frames = walk_frames(stored, limits)
        yield from self._decode(stored, frames, chunk, most, limits, is_exact=is_exact)

    def _decode(
        self,
        stored: Stored,
        frames: Iterable[Frame],
        chunk: memoryview,
        most: int,
        limits: Limits,
        *,
        is_exact: bool = True,
        is_whole: bool = False,
    ) -> Iterator[memoryview]:
        """Fill `chunk` and give it, then new ones of its length, until the frames end.

        Args:
            stored: the component's bytes.
            frames: what to decode of them.
            chunk: the first to fill.
            most: bytes that the frames may decode to.
            limits: the caps in force.
            is_exact: they must decode to as many; else `most` is the cap.
            is_whole: `chunk` takes all of them.
        """
        binding, decoder = self._bound(), _pop(self._decoders)
        filled = 0  # of this chunk
        left = most  # decoded bytes still allowed, this chunk's included
        for frame in frames:
            if frame.is_skippable:
                continue
            if frame.content_length is not None and frame.content_length > left - filled:
                raise _too_long(most, is_exact=is_exact)
            span, window = _span(stored, frame, limits, is_whole=is_whole)
            count = 0
            try:
                with _memory(min(window, frame.most_length), is_whole=is_whole):
                    decoder = decoder or binding.decoder()
                    reader = decoder.open(span)
                    while True:
                        room = chunk[filled:] if filled < len(chunk) else _SCRATCH
                        got = reader.readinto(room)
                        if got and room is _SCRATCH:
                            raise _too_long(most, is_exact=is_exact)
                        filled += got
                        count += got
                        if got < len(room):
                            break  # the frame ends here
                        if filled == len(chunk):
                            yield chunk
                            left -= filled
                            filled = 0
                            chunk = memoryview(bytearray(min(len(chunk), left)))
                    if window > KEPT_WINDOW:
                        del reader  # and what it holds
                        decoder = None
            except binding.error as found:
                raise _undecodable(frame, found) from found
            _require_declared(frame, count)
        left -= filled
        if is_exact and left:
            raise wrong_length(most, str(most - left))
        if filled:
            yield chunk[:filled]
        # Reached after success only: what an error leaves behind in a context is not reused.
        if decoder is not None:
            self._decoders.append(decoder)

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return what the largest window holds, 0 where that is little; only headers are read."""
        frames = walk_frames(stored, limits)
        most = max(min(frame.window, frame.most_length) for frame in frames)
        return most if most > KEPT_WINDOW else 0

    def encode(
        self,
        data: memoryview,
        *,
        level: int,
        frame_bytes: int | None = None,
        has_checksum: bool = False,
    ) -> Iterator[bytes]:
        """Yield `data` (flat, bytes) as frames of `frame_bytes` of it each; no data, one frame.

        Each frame declares its content size and carries no checksum, unless that is asked for: the
        manifest's digest covers the stored bytes. Frames know nothing of one another, so slices of
        `data` cut at multiples of `frame_bytes` may be encoded, and frames decoded, in parallel
        with the same result. The same library release gives the same bytes.
        """
        binding, size = self._bound(), frame_bytes or FRAME_BYTES
        kept = collections.deque[Encoder](maxlen=KEPT_CONTEXTS if level <= KEPT_LEVEL else 0)
        idle = self._encoders.setdefault((level, has_checksum), kept)
        for start in range(0, max(len(data), 1), size):
            encoder = _pop(idle) or binding.encoder(level, has_checksum)
            try:
                frame = encoder(data[start : start + size])
            except binding.error as error:  # whatever the bytes are, only memory can be missing
                raise MemoryError(str(error)) from error
            idle.append(encoder)
            yield frame

    def _bound(self) -> Binding:
        if self._binding is None:
            self._binding = find_binding()
        return self._binding


def _pop(idle: collections.deque[_Context]) -> _Context | None:
    try:
        return idle.pop()  # one operation: two threads never get the same context
    except IndexError:
        return None


def _memory(window: int, *, is_whole: bool) -> contextlib.AbstractContextManager[None]:
    """Return what waits for the memory that a window takes, where it is much."""
    if window <= KEPT_WINDOW:
        return contextlib.nullcontext()
    return large_window(is_whole=is_whole)


def _span(stored: Stored, frame: Frame, limits: Limits, *, is_whole: bool) -> tuple[Span, int]:
    """Return a frame for a library, and the window it is streamed through.

    A frame that is handed over whole is decoded without a window. It must declare its content
    size. Bytes that are not held yet may be, up to a fixed size, or up to the window that streaming
    would allocate in their place.

    Raises:
        LimitError: the window is over the cap; only single-segment frames come here unchecked.
    """
    length = frame.stop - frame.start
    is_short = isinstance(stored, Held) or length <= ONE_PASS_BYTES + frame.window
    if is_whole and frame.content_length is not None and is_short:
        return Span(stored, frame.start, frame.stop, length), 0
    require_window(frame.window, frame.start, limits)
    return Span(stored, frame.start, frame.stop, CHUNK_BYTES), frame.window


def _require_declared(frame: Frame, count: int) -> None:
    # Libraries that stream do not look when a frame's last block is empty.
    if frame.content_length is not None and frame.content_length != count:
        message = f"the zstd frame at stored byte {frame.start} does not hold what it declares"
        raise damaged(message, f"{frame.content_length} bytes", str(count))


def _too_long(most: int, *, is_exact: bool) -> EncodingError | LimitError:
    if is_exact:
        return wrong_length(most, "more", is_long=True)
    return LimitError(
        f"a zstd component decodes to more than Limits.decoded_bytes, {most}",
        reason=Reason.LIMIT_DECODED,
    )


def _undecodable(frame: Frame, error: Exception) -> EncodingError | LimitError:
    if "not enough memory" in str(error):  # libzstd's own words: the frame may be right
        return LimitError(
            f"the zstd frame at stored byte {frame.start} needs more memory than there is",
            reason=Reason.LIMIT_MEMORY,
            found=f"a window of {frame.window} bytes",
        )
    message = f"zstd data from stored byte {frame.start} on is damaged"
    return damaged(message, "a frame that can be decoded", str(error))


ZSTD = Zstd()
