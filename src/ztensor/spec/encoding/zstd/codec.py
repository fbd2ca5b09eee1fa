"""The encoding: frames decoded straight into the destination, and written."""

from __future__ import annotations

import collections
import contextlib
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    EncodingError,
    LimitError,
    Reason,
    ZTensorError,
    describe,
)
from ztensor.spec.encoding.base import Encoding, Runs, require_decodable, wrong_length
from ztensor.spec.encoding.zstd.frames import (
    Frame,
    are_small_frames,
    require_window,
    telling_frame,
    walk_frames,
)
from ztensor.spec.encoding.zstd.held import Held, hold
from ztensor.spec.encoding.zstd.libraries import Binding, Decoder, Encoder, Span, find_binding
from ztensor.spec.encoding.zstd.listing import FRAME_FIELD, runs_of_field
from ztensor.threads.sharing import WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ztensor.limits import Limits
    from ztensor.spec.encoding.base import Bools, Ints, Stored

# Decoded bytes per frame written, by default. zstd codes blocks of 128 KiB at most, each by itself:
# measured on weights, tables and tokens, longer frames save under 1 % and make every row dear.
FRAME_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20  # largest piece `decode_chunks` yields, and one read of a streamed frame
ONE_PASS_BYTES = 8 << 20  # a frame up to here, stored, is read whole: see `_span`

FASTEST_LEVEL = -(1 << 17)
STRONGEST_LEVEL = 22
KEPT_LEVEL = 7  # above it a context takes 10 to 70 MB and saves nothing beside its work
KEPT_WINDOW = 8 << 20  # a context that streamed with a larger window is not kept: it holds it
KEPT_CONTEXTS = 16


class Zstd(Encoding):
    """Zstandard frames; thread-safe.

    Contexts are lent for the time of one call and kept for the next, because making one costs as
    much as decoding a small component. A pool instead of one context per thread, because a
    `decode_chunks` that is not finished yet must not share its context with another call.
    """

    name = "zstd"
    is_written = True
    must_shrink = True  # what it makes no smaller is stored raw
    decodes_many = True

    def __init__(self, binding: Binding | None = None) -> None:
        """Take the library to use; without it, the installed one is looked for at first use."""
        self._binding = binding
        self._decoders: collections.deque[Decoder] = collections.deque(maxlen=KEPT_CONTEXTS)
        self._encoders: dict[tuple[int, bool], collections.deque[Encoder]] = {
            (level, has_checksum): collections.deque(maxlen=KEPT_CONTEXTS)
            for level in range(1, KEPT_LEVEL + 1)
            for has_checksum in (False, True)
        }

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse frames that cannot decode to `expected_length` bytes; only headers are read."""
        least = most = 0
        for frame in walk_frames(stored, limits):
            declared = frame.content_length
            least += declared or 0
            most += frame.most_length if declared is None else min(declared, frame.most_length)
        if expected_length > most:
            raise wrong_length(expected_length, f"at most {most} in the frames")
        if expected_length < least:
            raise wrong_length(expected_length, f"{least} declared by the frames", is_long=True)
        require_decodable(expected_length, limits)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, frame after frame.

        Nothing is allocated for decoded bytes, and decoding stops where the destination ends.
        """
        self.decode_run(stored, 0, stored.length, destination, limits)

    def decode_small(
        self,
        memory: memoryview,
        starts: Ints,
        lengths: Ints,
        targets: Sequence[memoryview],
        limits: Limits,
    ) -> Bools:
        """Decode many frames of one block each; see `Encoding.decode_small`."""
        binding = self._bound()
        decompress, error = binding.small(), binding.error
        sizes = np.fromiter(map(len, targets), np.int64, len(targets))
        most_window = min(KEPT_WINDOW, 1 << limits.window_log)
        right = are_small_frames(memory, starts, lengths, sizes, most_window)
        some = np.flatnonzero(right).tolist()
        begins, ends = starts.tolist(), (starts + lengths).tolist()
        for number in some:
            target = targets[number]
            try:
                decoded = decompress(memory[begins[number] : ends[number]], len(target))
            except error:
                right[number] = False
                continue
            if len(decoded) == len(target):
                target[:] = decoded
            else:
                right[number] = False
        return right

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return which frames decode to which bytes, or None where not all of them tell.

        Only headers are read.
        """
        require_decodable(expected_length, limits)
        runs = Runs.joined(_declared_ends(stored, expected_length, limits))
        if runs.stored[-1] < stored.length:
            return None
        if runs.decoded[-1] < expected_length:
            raise wrong_length(expected_length, str(runs.decoded[-1]))
        return runs

    def listed_runs(
        self, stored: Stored, extra: Mapping[str, object], expected_length: int, limits: Limits
    ) -> Runs | None:
        """Return the frames that the field `frames` of a component lists; see `listing.py`."""
        require_decodable(expected_length, limits)
        return runs_of_field(extra.get(FRAME_FIELD), stored.length, expected_length)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` exactly with what the frames from `start` to `stop` decode to."""
        total = len(destination)
        require_decodable(total, limits)
        stored = hold(stored, start, stop)
        if isinstance(stored, Held) and self._decode_at_once(
            stored, start, stop, destination, limits
        ):
            return
        for _ in self._decode(stored, start, stop, destination, total, limits, is_whole=True):
            pass

    def _decode_at_once(
        self, stored: Held, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> bool:
        """Decode frames by one call of the library; say whether they filled `destination`.

        Only those that declare their length, all of it together: each is decoded in one pass
        then, and held to what it declares. Who decodes one after the other says what is wrong.
        """
        if not self._bound().crosses_frames:
            return False
        total = 0
        try:
            for frame in walk_frames(stored, limits, start=start, stop=stop):
                if frame.is_skippable or frame.content_length is None:
                    return False
                total += frame.content_length
        except ZTensorError:
            return False
        if not total or total != len(destination):
            return False
        span = Span(stored, start, stop, stop - start, is_several=True)
        return self._decode_pass(span, destination)

    def _decode_pass(self, span: Span, destination: memoryview) -> bool:
        """Decode a span in one pass; say whether it filled `destination` and had no more."""
        decoder = self._take_decoder()
        try:
            reader = decoder(span)
            if reader.readinto(destination) != len(destination) or reader.readinto(_SCRATCH):
                return False
        except self._bound().error:
            return False
        self._decoders.append(decoder)
        return True

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, at most 1 MiB at a time, each piece new memory."""
        stored = hold(stored, 0, stored.length)
        if expected_length is not None:
            self.require_length(stored, expected_length, limits)
        most = limits.decoded_bytes if expected_length is None else expected_length
        chunk = memoryview(bytearray(min(CHUNK_BYTES, most)))
        is_exact = expected_length is not None
        yield from self._decode(stored, 0, stored.length, chunk, most, limits, is_exact=is_exact)

    def _decode(
        self,
        stored: Stored,
        start: int,
        stop: int,
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
            start: where the first frame begins in them.
            stop: where the last one ends.
            chunk: the first to fill.
            most: bytes that the frames may decode to.
            limits: the caps in force.
            is_exact: they must decode to as many; else `most` is the cap.
            is_whole: `chunk` takes all of them.
        """
        error, decoder, largest = self._bound().error, self._take_decoder(), 0
        filled = 0  # of this chunk
        left = most  # decoded bytes still allowed, this chunk's included
        for frame in walk_frames(stored, limits, start=start, stop=stop):
            if frame.is_skippable:
                continue
            if frame.content_length is not None and frame.content_length > left - filled:
                raise _too_long(most, is_exact=is_exact)
            if is_whole and frame.stop == stop and self._decode_last(stored, frame, chunk[filled:]):
                filled = len(chunk)
                continue
            span, window, held = _span(stored, frame, limits, is_whole=is_whole)
            largest = max(largest, window)
            try:
                with _room(held, is_whole=is_whole):
                    reader, count = decoder(span), 0
                    while room := min(len(chunk), left) - filled:
                        got = reader.readinto(chunk[filled : filled + room])
                        count += got
                        filled += got
                        if got < room:
                            break  # the frame ends here
                        if filled == len(chunk):
                            yield chunk
                            left -= filled
                            filled = 0
                            chunk = memoryview(bytearray(len(chunk))) if left else _NOTHING
                    else:  # no room is left: the frame must end here
                        if reader.readinto(_SCRATCH):
                            raise _too_long(most, is_exact=is_exact)
                    if held > KEPT_WINDOW:
                        del reader, decoder  # and with them what they hold
                        decoder = self._take_decoder()
            except error as found:
                raise _damaged(frame, found) from found
            _require_declared(frame, count)
        left -= filled
        if is_exact and left:
            raise wrong_length(most, str(most - left))
        if filled:
            yield chunk[:filled]
        # Reached after success only: what an error leaves behind in a context is not reused.
        if largest <= KEPT_WINDOW:
            self._decoders.append(decoder)

    def _decode_last(self, stored: Stored, frame: Frame, destination: memoryview) -> bool:
        """Decode a frame that declares no length in one pass; say whether it filled `destination`.

        If it does not, decoding it as it is says what is wrong.
        """
        told = None
        if isinstance(stored, Held):
            told = telling_frame(stored, frame, len(destination))
        if told is None:
            return False
        return self._decode_pass(Span(Held(told), 0, len(told), len(told)), destination)

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return what the largest window holds, 0 where that is little; only headers are read."""
        frames = walk_frames(stored, limits)
        most = max(min(frame.window, frame.most_length) for frame in frames)
        return most if most > KEPT_WINDOW else 0

    def is_streamed(self, stored: Stored) -> bool:
        """Return True: a piece is decoded when it is asked for."""
        del stored
        return True

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
        _require_level(level)
        size = frame_bytes or FRAME_BYTES
        return self._encode_frames(self._bound(), data, level, size, has_checksum=has_checksum)

    def _encode_frames(
        self,
        binding: Binding,
        data: memoryview,
        level: int,
        frame_bytes: int,
        *,
        has_checksum: bool,
    ) -> Iterator[bytes]:
        idle = self._encoders.get((level, has_checksum))
        for start in range(0, max(len(data), 1), frame_bytes):
            encoder = _pop(idle) or binding.encoder(level, has_checksum)
            try:
                frame = encoder(data[start : start + frame_bytes])
            except binding.error as error:  # whatever the bytes are, only memory can be missing
                raise MemoryError(str(error)) from error
            if idle is not None:
                idle.append(encoder)
            yield frame

    def _bound(self) -> Binding:
        if self._binding is None:
            self._binding = find_binding()
        return self._binding

    def _take_decoder(self) -> Decoder:
        return _pop(self._decoders) or self._bound().decoder()


_SCRATCH = memoryview(bytearray(1))  # what is beyond the end; written, never read
_NOTHING = memoryview(b"")


def _declared_ends(
    stored: Stored, expected_length: int, limits: Limits
) -> Iterator[tuple[int, int]]:
    """Yield where frames end, stored and decoded, up to the first that does not tell."""
    decoded = 0
    for frame in walk_frames(stored, limits):
        if frame.content_length is None:
            return
        if frame.content_length > frame.most_length:
            raise wrong_length(frame.content_length, f"at most {frame.most_length} in its blocks")
        decoded += frame.content_length
        if decoded > expected_length:
            raise wrong_length(expected_length, f"{decoded} or more", is_long=True)
        yield frame.stop, decoded


_Context = TypeVar("_Context")


def _pop(idle: collections.deque[_Context] | None) -> _Context | None:
    # One operation, so that two threads never get the same context.
    try:
        return idle.pop() if idle is not None else None
    except IndexError:
        return None


_FREELY = contextlib.nullcontext()


def _room(held: int, *, is_whole: bool = False) -> contextlib.AbstractContextManager[None]:
    """Return what waits for the memory that a window takes, where it is much."""
    if held <= KEPT_WINDOW:
        return _FREELY
    return WINDOWS.lent(held, is_whole=is_whole)


def _span(stored: Stored, frame: Frame, limits: Limits, *, is_whole: bool) -> tuple[Span, int, int]:
    """Return a frame for a library, the window it is streamed through, and memory held by that.

    A frame that is handed over whole is decoded without a window. It must declare its content
    size. Bytes that are not held yet may be, up to a fixed size, or up to the window that streaming
    would allocate in their place.

    Raises:
        LimitError: the window is over the cap; only single-segment frames come here unchecked.
    """
    length = frame.stop - frame.start
    is_short = isinstance(stored, Held) or length <= ONE_PASS_BYTES + frame.window
    if is_whole and frame.content_length is not None and is_short:
        return Span(stored, frame.start, frame.stop, length), 0, 0
    if frame.is_single_segment:
        require_window(frame.window, frame.start, limits)
    span = Span(stored, frame.start, frame.stop, CHUNK_BYTES)
    return span, frame.window, min(frame.window, frame.most_length)


def _require_declared(frame: Frame, count: int) -> None:
    # Libraries that stream do not look when a frame's last block is empty.
    if frame.content_length is not None and frame.content_length != count:
        raise EncodingError(
            f"the zstd frame at stored byte {frame.start} does not hold what it declares",
            reason=Reason.ENCODING_MALFORMED,
            expected=f"{frame.content_length} bytes",
            found=str(count),
        )


def _require_level(level: object) -> None:
    expected = f"1 to {STRONGEST_LEVEL}, or -1 down to {FASTEST_LEVEL}"
    if not isinstance(level, int) or isinstance(level, bool):
        raise ArgumentTypeError(
            "a zstd level is an integer", expected=expected, found=type(level).__name__
        )
    if not FASTEST_LEVEL <= level <= STRONGEST_LEVEL or level == 0:
        raise ArgumentValueError("no such zstd level", expected=expected, found=describe(level))


def _too_long(most: int, *, is_exact: bool) -> EncodingError | LimitError:
    if is_exact:
        return wrong_length(most, "more", is_long=True)
    return LimitError(
        f"a zstd component decodes to more than Limits.decoded_bytes, {most}",
        reason=Reason.LIMIT_DECODED,
    )


def _damaged(frame: Frame, error: Exception) -> EncodingError | LimitError:
    if "not enough memory" in str(error):  # libzstd's own words: the frame may be right
        return LimitError(
            f"the zstd frame at stored byte {frame.start} needs more memory than there is",
            reason=Reason.LIMIT_MEMORY,
            found=f"a window of {frame.window} bytes",
        )
    return EncodingError(
        f"the zstd frame at stored byte {frame.start} is damaged: {error}",
        reason=Reason.ENCODING_MALFORMED,
    )


ZSTD = Zstd()
