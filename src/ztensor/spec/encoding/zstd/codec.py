"""The encoding `zstd`: frames are decoded straight into the destination, and written."""

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

CHUNK_BYTES = 1 << 20  # largest chunk of `decode_chunks`, and one read of a streamed frame
SHORT_BYTES = 128 << 10  # frames up to this decoded size are decoded in one call, and copied
ONE_PASS_BYTES = 8 << 20  # frames up to this stored size are read at once: see `_span`

FASTEST_LEVEL = -(1 << 17)
STRONGEST_LEVEL = 22
KEPT_LEVEL = 7  # above it a context takes 10 to 70 MB, and making one is cheap beside its work
KEPT_WINDOW = 8 << 20  # a context that streamed a larger window still holds it, and is dropped
KEPT_CONTEXTS = 16

_Context = TypeVar("_Context")
_SCRATCH = memoryview(bytearray(1))  # takes a byte beyond the end; never read


class Zstd(Encoding):
    """Zstandard frames (RFC 8878); thread-safe.

    Contexts are pooled, because making one costs as much as decoding a small component. They are
    not per thread, because an unfinished `decode_chunks` must not share its context with the next
    call of the same thread.

    Args:
        binding: the library to use; by default the installed one, found on first use.
    """

    name = "zstd"
    is_written = True
    must_shrink = True

    def __init__(self, binding: Binding | None = None) -> None:
        self._binding = binding
        self._decoders: collections.deque[Decoder] = collections.deque(maxlen=KEPT_CONTEXTS)
        self._encoders: dict[tuple[int, bool, bool], collections.deque[Encoder]] = {}

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the offset table, if every frame declares its size; only headers are read."""
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
        self.require_decodable(expected_length, limits)
        return runs

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode into `destination` (flat, bytes, writable), frame by frame; fill it exactly.

        Decoded bytes take no further memory, and decoding stops at the end of the destination.
        """
        self.decode_run(stored, 0, stored.length, destination, limits)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Decode the frames in `[start, stop)` into `destination`; fill it exactly."""
        total = len(destination)
        self.require_decodable(total, limits)
        stored = hold(stored, start, stop)
        frames = functools.partial(walk_frames, stored, limits, start=start, stop=stop)
        if isinstance(stored, Held) and self._decode_short(stored, frames(), destination):
            return
        for _ in self._decode(stored, frames(), destination, total, limits, is_whole=True):
            pass

    def _decode_short(self, stored: Held, frames: Iterable[Frame], destination: memoryview) -> bool:
        """Decode frames in one call each, a third of the time. Return False if one is unsuitable.

        Long frames, large windows and damaged frames are left to `_decode`, which starts again.
        """
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

    def decode_frame(self, frame: memoryview, length: int, limits: Limits) -> bytes:
        """Return the decoded bytes of exactly one frame that declares `length` as content size.

        The headers are checked before memory is allocated.
        """
        walk = walk_frames(Held(frame), limits)
        head = next(walk)
        if head.is_skippable or head.content_length != length or head.stop != len(frame):
            found = f"{head.content_length} in {head.stop} of {len(frame)} stored bytes"
            raise damaged("the zstd frame has another length", f"{length} bytes", found)
        if head.most_length < length:
            raise wrong_length(length, f"at most {head.most_length} in the frame")
        binding, decoder = self._bound(), _pop(self._decoders)
        decoder = decoder or binding.decoder()
        try:
            data = decoder.whole(frame, length)
        except binding.error as error:
            raise _undecodable(head, error) from error
        _require_declared(head, len(data))
        self._decoders.append(decoder)
        return data

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, at most 1 MiB at a time, each in new memory."""
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
        """Yield `chunk` filled, then new chunks of its length, until the frames end.

        Args:
            stored: the component's bytes.
            frames: the frames to decode.
            chunk: the first chunk.
            most: decoded bytes of all frames.
            limits: the caps in force.
            is_exact: the frames must decode to exactly `most` bytes; otherwise `most` is a cap.
            is_whole: all decoded bytes fit into `chunk`.
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
                        del reader  # and its window
                        decoder = None
            except binding.error as error:
                raise _undecodable(frame, error) from error
            _require_declared(frame, count)
        left -= filled
        if is_exact and left:
            raise wrong_length(most, str(most - left))
        if filled:
            yield chunk[:filled]
        # Only after success: a context in an unknown state is not reused.
        if decoder is not None:
            self._decoders.append(decoder)

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return the bytes of the largest window, 0 if it is small; only headers are read."""
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
        has_matches: bool = True,
    ) -> Iterator[bytes]:
        """Yield `data` (flat, bytes) as frames of `frame_bytes` decoded bytes; no data, one frame.

        Each frame declares its content size. It has a checksum only on request, since the
        manifest's digest covers the stored bytes. Frames are independent: slices of `data` at
        multiples of `frame_bytes` may be encoded in parallel with the same result. One release of
        the library always gives the same bytes. `has_matches=False` looks
        for next to no matches: the frames are Huffman codes.
        """
        binding, size = self._bound(), frame_bytes or self.frame_bytes
        kept = collections.deque[Encoder](maxlen=KEPT_CONTEXTS if level <= KEPT_LEVEL else 0)
        idle = self._encoders.setdefault((level, has_checksum, has_matches), kept)
        for start in range(0, max(len(data), 1), size):
            encoder = _pop(idle) or binding.encoder(level, has_checksum, has_matches)
            try:
                frame = encoder(data[start : start + size])
            except binding.error as error:  # any bytes can be encoded: only memory can run out
                raise MemoryError(str(error)) from error
            idle.append(encoder)
            yield frame

    def _bound(self) -> Binding:
        if self._binding is None:
            self._binding = find_binding()
        return self._binding


def _pop(idle: collections.deque[_Context]) -> _Context | None:
    try:
        return idle.pop()  # atomic: two threads never get the same context
    except IndexError:
        return None


def _memory(window: int, *, is_whole: bool) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that waits for the memory of a large window; else a null one."""
    if window <= KEPT_WINDOW:
        return contextlib.nullcontext()
    return large_window(is_whole=is_whole)


def _span(stored: Stored, frame: Frame, limits: Limits, *, is_whole: bool) -> tuple[Span, int]:
    """Return the bytes of a frame as a file for the library, and the window it then allocates.

    A frame with a declared content size that the library gets in one piece is decoded without a
    window. Its bytes may be read into memory for that, up to a fixed size, or up to the window that
    streaming would allocate instead.

    Raises:
        LimitError: the window is over the cap (checked here only for single-segment frames).
    """
    length = frame.stop - frame.start
    is_short = isinstance(stored, Held) or length <= ONE_PASS_BYTES + frame.window
    if is_whole and frame.content_length is not None and is_short:
        return Span(stored, frame.start, frame.stop, length), 0
    require_window(frame.window, frame.start, limits)
    return Span(stored, frame.start, frame.stop, CHUNK_BYTES), frame.window


def _require_declared(frame: Frame, count: int) -> None:
    # Streaming decoders do not compare the size if the last block is empty.
    if frame.content_length is not None and frame.content_length != count:
        message = f"the zstd frame at stored byte {frame.start} has another length than it declares"
        raise damaged(message, f"{frame.content_length} bytes", str(count))


def _too_long(most: int, *, is_exact: bool) -> EncodingError | LimitError:
    if is_exact:
        return wrong_length(most, "more", is_long=True)
    return LimitError(
        f"a zstd component decodes to more than Limits.decoded_bytes, {most}",
        reason=Reason.LIMIT_DECODED,
    )


def _undecodable(frame: Frame, error: Exception) -> EncodingError | LimitError:
    if "not enough memory" in str(error):  # libzstd's message: the frame may be valid
        return LimitError(
            f"the zstd frame at stored byte {frame.start} needs more memory than there is",
            reason=Reason.LIMIT_MEMORY,
            found=f"a window of {frame.window} bytes",
        )
    message = f"zstd data from stored byte {frame.start} on is damaged"
    return damaged(message, "a frame that can be decoded", str(error))


ZSTD = Zstd()
