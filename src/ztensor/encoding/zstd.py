"""`zstd`: one or more Zstandard frames (RFC 8878), decoded straight into the destination.

Three parts, read in this order. The *walker* steps through frame and block headers and knows,
without decoding, where each frame lies, how much it can decode to and which window it demands.
The *binding* is the seam to whichever library is installed. `Zstd` joins the two.
"""

from __future__ import annotations

import array
import collections
import contextlib
import importlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ztensor.encoding.base import Runs
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    EncodingError,
    LimitError,
    MissingDependencyError,
    Reason,
    UnsupportedError,
    describe,
)
from ztensor.threads import WINDOWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.encoding.base import Stored
    from ztensor.limits import Limits

# Decoded bytes per frame written, by default. zstd codes blocks of 128 KiB at most, each by itself:
# measured on weights, tables and tokens, longer frames save under 1 % and make every row dear.
FRAME_BYTES = 64 << 10
CHUNK_BYTES = 1 << 20  # largest piece `decode_chunks` yields, and one read of a streamed frame
HELD_BYTES = 1 << 20  # stored bytes that are read once and kept, even where that copies them
ONE_PASS_BYTES = 8 << 20  # a frame up to here, stored, is read whole: see `_is_one_pass`
LOOK_BYTES = 4 << 10  # one look at headers: little to copy for each block of tens of KiB
RUN_BYTES = 4 << 10  # frames that decode to less than this are found together: see `find_runs`

FASTEST_LEVEL = -(1 << 17)
STRONGEST_LEVEL = 22
KEPT_LEVEL = 7  # above it a context takes 10 to 70 MB and saves nothing beside its work
KEPT_WINDOW = 8 << 20  # a context that streamed with a larger window is not kept: it holds it
KEPT_CONTEXTS = 16


# --- The walker: frame and block headers ----------------------------------------------------

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"  # after one byte 0x50 to 0x5f
_HEADER_MOST = 18  # magic 4, descriptor 1, window 1, dictionary 4, content size 8
_BLOCK_MOST = 128 << 10  # RFC 8878 section 3.1.1.2.4
_RAW, _COMPRESSED = 0, 2  # 1 repeats one byte, 3 is reserved
_NOTHING = memoryview(b"")


class Frame(NamedTuple):
    """What the headers of one frame tell.

    Attributes:
        start: offset of its first byte in the stored bytes.
        stop: offset behind its last byte.
        is_skippable: it holds no data.
        content_length: the decoded length it declares, or None.
        window: bytes a decoder must look back on; the content length of a single-segment frame.
        is_single_segment: its content is its window.
        most_length: no decoder gets more bytes out of its blocks.
    """

    start: int
    stop: int
    is_skippable: bool = False
    content_length: int | None = 0
    window: int = 0
    is_single_segment: bool = False
    most_length: int = 0


def walk_frames(
    stored: Stored, limits: Limits, *, start: int = 0, stop: int | None = None
) -> Iterator[Frame]:
    """Yield the frames of `stored` in order, reading headers only.

    Memory: one small window. Time: linear in the number of blocks, under a microsecond each.

    Args:
        stored: the frames.
        limits: the caps in force.
        start: where the first frame to yield begins.
        stop: where the last one ends; by default behind the last stored byte.

    Raises:
        EncodingError: not one or more whole frames from the first byte to the last.
        UnsupportedError: a frame needs a dictionary.
        LimitError: a frame demands a window over `limits.window_log`. Not raised for
            single-segment frames: one pass decodes them without a window.
    """
    end = stored.length if stop is None else stop
    look = _Look(_hold(stored, start, end))
    if not stored.length:
        raise EncodingError(
            "zstd data is one or more frames",
            reason=Reason.ENCODING_TRUNCATED,
            expected="at least one frame",
            found="no bytes",
        )
    position = start
    while position < end:
        frame = _parse_frame(look, position, limits)
        yield frame
        position = frame.stop


class Held:
    """Stored bytes that are in memory as one piece: those from `start` on."""

    __slots__ = ("length", "start", "view")

    def __init__(self, view: memoryview, start: int = 0) -> None:
        self.view = view
        self.start = start
        self.length = start + len(view)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        return self.view[offset - self.start : offset - self.start + length]


def _hold(stored: Stored, start: int, stop: int) -> Stored:
    """Return a part of `stored` as `Held` where that costs little: short, or a view of a map."""
    if isinstance(stored, Held):
        return stored
    if stop - start > HELD_BYTES:
        # Pieces of one object, as far apart as can be: the source gives views and copies nothing.
        # Not single bytes: those are shared objects in CPython, whoever reads them.
        first, last = stored.read(start, 16), stored.read(stop - 16, 16)
        if first.obj is not last.obj:
            return stored
    return Held(stored.read(start, stop - start), start)


class _Look:
    """A window that moves over stored bytes, so that headers do not cost one read each."""

    __slots__ = ("base", "length", "stored", "window")

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.length = stored.length
        self.base = stored.start if isinstance(stored, Held) else 0
        self.window = stored.view if isinstance(stored, Held) else _NOTHING

    def at(self, position: int, most: int) -> memoryview:
        """Return the `most` bytes from `position`, or those left there are before the end."""
        start = position - self.base
        end = self.base + len(self.window)
        if position + most > end and position < self.length and end < self.length:
            self.window = self.stored.read(position, min(LOOK_BYTES, self.length - position))
            self.base = position
            start = 0
        return self.window[start : start + most]


def _parse_frame(look: _Look, start: int, limits: Limits) -> Frame:
    head = look.at(start, _HEADER_MOST)
    magic = bytes(head[:4])
    if magic != _MAGIC:
        return _parse_skippable(look, start, head, magic)
    if len(head) < 5:
        raise _truncated(start, look.length)
    descriptor = head[4]
    if descriptor & 0x08:
        raise EncodingError(
            f"the zstd frame at stored byte {start} sets a reserved bit",
            reason=Reason.ENCODING_MALFORMED,
            section="RFC 8878, 3.1.1.1.1",
        )
    is_single_segment = bool(descriptor & 0x20)
    dictionary_at = 5 if is_single_segment else 6
    size_at = dictionary_at + (0, 1, 2, 4)[descriptor & 3]
    position = size_at + (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    if len(head) < position:
        raise _truncated(start, look.length)
    if dictionary := int.from_bytes(head[dictionary_at:size_at], "little"):
        raise UnsupportedError(
            f"the zstd frame at stored byte {start} needs dictionary {dictionary}, "
            "and zTensor files carry none",
            reason=Reason.UNKNOWN_ENCODING,
        )
    content_length: int | None = None
    if position > size_at:
        content_length = int.from_bytes(head[size_at:position], "little")
        if descriptor >> 6 == 1:
            content_length += 256
    if is_single_segment and content_length is not None:
        window = content_length
    else:
        base = 1 << (10 + (head[5] >> 3))
        window = base + (base >> 3) * (head[5] & 7)
        _require_window(window, start, limits)
    stop, most_length = _walk_blocks(look, start, start + position, min(_BLOCK_MOST, window))
    if descriptor & 0x04:
        stop += 4  # the content checksum
    if stop > look.length:
        raise _truncated(start, look.length)
    return Frame(
        start,
        stop,
        content_length=content_length,
        window=window,
        is_single_segment=is_single_segment,
        most_length=most_length,
    )


def _walk_blocks(look: _Look, start: int, position: int, block_most: int) -> tuple[int, int]:
    """Return where the last block ends and the most that the blocks can decode to."""
    most_length = 0
    window, base = look.window, look.base
    while True:
        at = position - base
        head = window[at : at + 3]  # the hot line of the walk: no call while the window holds it
        if len(head) < 3:
            head = look.at(position, 3)
            if len(head) < 3:
                raise _truncated(start, look.length)
            window, base = look.window, look.base
        header = int.from_bytes(head, "little")
        kind = header >> 1 & 3
        size = header >> 3
        if size > block_most or kind > _COMPRESSED or (kind == _COMPRESSED and size < 2):
            # Libraries refuse some of these in one mode and not in another; here the answer is one.
            raise EncodingError(
                f"the zstd block at stored byte {position} has a size or type that no block has",
                reason=Reason.ENCODING_MALFORMED,
                expected=f"type 0 to 2, at most {block_most} bytes, compressed at least 2",
                found=f"type {kind}, {size} bytes",
                section="RFC 8878, 3.1.1.2",
            )
        if kind == _COMPRESSED:
            position += 3 + size
            most_length += block_most
        elif kind == _RAW:
            position += 3 + size
            most_length += size
        else:
            position += 4
            most_length += size
        if header & 1:
            return position, most_length


def _parse_skippable(look: _Look, start: int, head: memoryview, magic: bytes) -> Frame:
    may_be_skippable = magic[0] & 0xF0 == 0x50 and _SKIPPABLE_TAIL.startswith(magic[1:])
    if may_be_skippable and len(magic) == 4:
        stop = start + 8 + int.from_bytes(head[4:8], "little")
        if len(head) < 8 or stop > look.length:
            raise _truncated(start, look.length)
        return Frame(start, stop, is_skippable=True)
    if may_be_skippable or _MAGIC.startswith(magic):
        raise _truncated(start, look.length)
    raise EncodingError(
        f"no zstd frame begins at stored byte {start}",
        reason=Reason.ENCODING_MALFORMED,
        expected=describe(_MAGIC),
        found=describe(magic),
        section="RFC 8878, 3.1.1",
    )


def _truncated(start: int, length: int) -> EncodingError:
    return EncodingError(
        f"the zstd frame at stored byte {start} goes on behind the last stored byte",
        reason=Reason.ENCODING_TRUNCATED,
        found=f"{length} stored bytes",
    )


def _require_window(window: int, start: int, limits: Limits) -> None:
    if window > 1 << limits.window_log:
        raise LimitError(
            f"the zstd frame at stored byte {start} demands a window of {window} bytes, "
            "more than Limits.window_log allows",
            reason=Reason.LIMIT_WINDOW,
            expected=f"at most {1 << limits.window_log}",
        )


# --- The binding: whichever library is installed --------------------------------------------


class Span:
    """A run of stored bytes as the file a binding pulls compressed bytes from."""

    __slots__ = ("_position", "_stop", "_stored", "piece_bytes")

    def __init__(self, stored: Stored, start: int, stop: int, piece_bytes: int) -> None:
        self._stored = stored
        self._position = start
        self._stop = stop
        self.piece_bytes = piece_bytes

    def read(self, size: int) -> memoryview:
        """Return the next `size` bytes, or those left."""
        start = self._position
        self._position = min(start + size, self._stop)
        if start == self._position:
            return _NOTHING
        return self._stored.read(start, self._position - start)


class FrameReader(Protocol):
    """The decoded bytes of one frame, from first to last."""

    def readinto(self, destination: memoryview, /) -> int:
        """Fill `destination`, or less of it where the frame ends; return how many bytes."""
        ...


class Decoder(Protocol):
    """A decoding context: one frame at a time, any number after another."""

    def open_frame(self, span: Span) -> FrameReader:
        """Return a reader of the one frame that is `span`.

        A frame that comes in one piece and fits the first destination must not need a window.
        """
        ...


class Encoder(Protocol):
    """An encoding context of one level."""

    def encode_frame(self, data: memoryview) -> bytes:
        """Return `data` as one frame that declares its content size and has no checksum."""
        ...


class Binding(Protocol):
    """A zstd library.

    Caps on windows are the walker's business; a binding allows the largest its library can.
    """

    @property
    def error(self) -> type[Exception]:
        """Return what the library raises for damaged bytes."""
        ...

    def decoder(self) -> Decoder:
        """Return a new decoding context."""
        ...

    def encoder(self, level: int) -> Encoder:
        """Return a new encoding context."""
        ...


class ZstandardBinding:
    """The `zstandard` package: contexts are reused and bytes go straight to the destination."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.error: type[Exception] = module.ZstdError

    def decoder(self) -> _ZstandardDecoder:
        """Return a new decoding context."""
        largest = 1 << self._module.WINDOWLOG_MAX
        return _ZstandardDecoder(self._module.ZstdDecompressor(max_window_size=largest))

    def encoder(self, level: int) -> _ZstandardEncoder:
        """Return a new encoding context."""
        return _ZstandardEncoder(
            self._module.ZstdCompressor(level=level, write_content_size=True, write_checksum=False)
        )


class _ZstandardDecoder:
    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def open_frame(self, span: Span) -> FrameReader:
        reader: FrameReader = self._context.stream_reader(
            span, read_size=span.piece_bytes, read_across_frames=False, closefd=False
        )
        return reader


class _ZstandardEncoder:
    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def encode_frame(self, data: memoryview) -> bytes:
        frame: bytes = self._context.compress(data)
        return frame


class StandardLibraryBinding:
    """`compression.zstd` of Python 3.14; its decoders serve one frame and return bytes."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.error: type[Exception] = module.ZstdError

    def decoder(self) -> _StandardDecoder:
        """Return a new decoding context."""
        return _StandardDecoder(self._module)

    def encoder(self, level: int) -> _StandardEncoder:
        """Return a new encoding context."""
        return _StandardEncoder(self._module.ZstdCompressor(level=level))


class _StandardDecoder:
    __slots__ = ("_decompressor", "_options")

    def __init__(self, module: Any) -> None:
        parameter = module.DecompressionParameter.window_log_max
        self._decompressor = module.ZstdDecompressor
        self._options = {parameter: parameter.bounds()[1]}

    def open_frame(self, span: Span) -> FrameReader:
        return _StandardFrameReader(self._decompressor(options=self._options), span)


class _StandardFrameReader:
    # The library keeps what it was given and did not use, and returns new bytes objects: small
    # pieces both ways bound the copies.
    _STORED_PIECE = 128 << 10
    _DECODED_PIECE = 1 << 20

    __slots__ = ("_context", "_span")

    def __init__(self, context: Any, span: Span) -> None:
        self._context = context
        self._span = span

    def readinto(self, destination: memoryview, /) -> int:
        context = self._context
        filled = 0
        while filled < len(destination) and not context.eof:
            piece: memoryview | bytes = b""
            if context.needs_input and not (piece := self._span.read(self._STORED_PIECE)):
                break
            room = min(len(destination) - filled, self._DECODED_PIECE)
            decoded = context.decompress(piece, max_length=room)
            destination[filled : filled + len(decoded)] = decoded
            filled += len(decoded)
        return filled


class _StandardEncoder:
    __slots__ = ("_context",)

    def __init__(self, context: Any) -> None:
        self._context = context

    def encode_frame(self, data: memoryview) -> bytes:
        self._context.set_pledged_input_size(len(data))
        frame: bytes = self._context.compress(data, self._context.FLUSH_FRAME)
        return frame


# In order of preference: zstandard is the faster one on small components.
_BINDINGS = (("zstandard", ZstandardBinding), ("compression.zstd", StandardLibraryBinding))


def find_binding() -> Binding:
    """Return the binding to the first zstd library that can be imported.

    Raises:
        MissingDependencyError: there is none.
    """
    for module_name, bind in _BINDINGS:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        return bind(module)
    raise MissingDependencyError(
        "zstd-compressed components need a zstd library: pip install zstandard, "
        "or use Python 3.14, which has one"
    )


# --- The encoding ---------------------------------------------------------------------------


class Zstd:
    """Zstandard frames; thread-safe.

    Contexts are lent for the time of one call and kept for the next, because making one costs as
    much as decoding a small component. A pool instead of one context per thread, because a
    `decode_chunks` that is not finished yet must not share its context with another call.
    """

    name = "zstd"

    def __init__(self, binding: Binding | None = None) -> None:
        """Take the library to use; without it, the installed one is looked for at first use."""
        self._binding = binding
        self._decoders: collections.deque[Decoder] = collections.deque(maxlen=KEPT_CONTEXTS)
        self._encoders: dict[int, collections.deque[Encoder]] = {
            level: collections.deque(maxlen=KEPT_CONTEXTS) for level in range(1, KEPT_LEVEL + 1)
        }

    def check_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse frames that cannot decode to `expected_length` bytes; only headers are read.

        Raises:
            EncodingError: the frames are damaged, declare another length, or have too few blocks.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window, or the length itself, is over its cap.
        """
        least = most = 0
        for frame in walk_frames(stored, limits):
            declared = frame.content_length
            least += declared or 0
            most += frame.most_length if declared is None else min(declared, frame.most_length)
        if expected_length > most:
            raise _short(expected_length, f"at most {most} in the frames")
        if expected_length < least:
            raise _long(expected_length, f"{least} declared by the frames")
        _require_decoded(expected_length, limits)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, frame after frame.

        Nothing is allocated for decoded bytes, and decoding stops where the destination ends.

        Raises:
            EncodingError: the frames are damaged, or decode to another length.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window, or the destination's length, is over its cap.
            MissingDependencyError: no zstd library is installed.
        """
        self._decode_frames(stored, 0, stored.length, destination, limits)

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return which frames decode to which bytes, or None where not all of them tell.

        Only headers are read. A run is a frame, or several small ones: so the runs stay few
        whatever a file claims.

        Raises:
            EncodingError: the frames are damaged, declare another length, or have too few blocks.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window, or the length itself, is over its cap.
        """
        _require_decoded(expected_length, limits)
        runs = Runs(array.array("Q", [0]), array.array("Q", [0]))
        decoded = 0
        for frame in walk_frames(stored, limits):
            if frame.content_length is None:
                return None
            if frame.content_length > frame.most_length:
                raise _short(frame.content_length, f"at most {frame.most_length} in its blocks")
            decoded += frame.content_length
            if decoded > expected_length:
                raise _long(expected_length, f"{decoded} or more")
            if decoded - runs.decoded[-1] >= RUN_BYTES:
                runs.stored.append(frame.stop)
                runs.decoded.append(decoded)
        if decoded != expected_length:
            raise _short(expected_length, str(decoded))
        if runs.stored[-1] < stored.length:
            runs.stored.append(stored.length)
            runs.decoded.append(decoded)
        return runs

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` exactly with what the frames from `start` to `stop` decode to.

        Raises:
            EncodingError: the frames are damaged, or decode to another length.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window, or the destination's length, is over its cap.
            MissingDependencyError: no zstd library is installed.
        """
        self._decode_frames(stored, start, stop, destination, limits)

    def _decode_frames(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        total = len(destination)
        _require_decoded(total, limits)
        stored = _hold(stored, start, stop)
        binding, decoder, largest = self._bound(), self._take_decoder(), 0
        filled = 0
        for frame in walk_frames(stored, limits, start=start, stop=stop):
            if frame.is_skippable:
                continue
            if frame.content_length is not None and frame.content_length > total - filled:
                raise _long(total, f"{filled + frame.content_length} or more")
            window = 0
            if _is_one_pass(frame, is_held=isinstance(stored, Held)):
                piece_bytes = frame.stop - frame.start
            else:
                piece_bytes = CHUNK_BYTES
                window = _streaming_window(frame, limits)
                largest = max(largest, window)
            try:
                held = min(window, frame.most_length)
                with _room(held, is_whole=True):
                    span = Span(stored, frame.start, frame.stop, piece_bytes)
                    reader = decoder.open_frame(span)
                    count = reader.readinto(destination[filled:]) if filled < total else 0
                    filled += count
                    if filled == total and reader.readinto(_SCRATCH):
                        raise _long(total, "more")
                    if held > KEPT_WINDOW:
                        del reader, decoder  # and with them what they hold
                        decoder = self._take_decoder()
            except binding.error as error:
                raise _damaged(frame, error) from error
            _require_declared(frame, count)
        if filled < total:
            raise _short(total, str(filled))
        self._keep_decoder(decoder, largest)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, at most 1 MiB at a time, each piece new memory.

        Raises:
            EncodingError: the frames are damaged, or decode to another length.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window or the decoded length is over its cap.
            MissingDependencyError: no zstd library is installed.
        """
        stored = _hold(stored, 0, stored.length)
        if expected_length is not None:
            self.check_length(stored, expected_length, limits)
        cap = limits.decoded_bytes if expected_length is None else expected_length
        binding, decoder, largest = self._bound(), self._take_decoder(), 0
        chunk = memoryview(bytearray(min(CHUNK_BYTES, cap)))
        filled = 0  # of this chunk
        left = cap  # decoded bytes still allowed, this chunk's included
        for frame in walk_frames(stored, limits):
            if frame.is_skippable:
                continue
            if frame.content_length is not None and frame.content_length > left - filled:
                raise _over(cap) if expected_length is None else _long(cap, "more")
            window = _streaming_window(frame, limits)
            largest, held = max(largest, window), min(window, frame.most_length)
            try:
                with _room(held):
                    reader = decoder.open_frame(Span(stored, frame.start, frame.stop, CHUNK_BYTES))
                    count = 0
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
                            chunk = memoryview(bytearray(len(chunk)))
                    else:  # no room is left: the frame must end here
                        if reader.readinto(_SCRATCH):
                            raise _over(cap) if expected_length is None else _long(cap, "more")
                    if held > KEPT_WINDOW:
                        del reader, decoder  # and with them what they hold
                        decoder = self._take_decoder()
            except binding.error as error:
                raise _damaged(frame, error) from error
            _require_declared(frame, count)
        if filled:
            yield chunk[:filled]
            left -= filled
        if expected_length is not None and left:
            raise _short(cap, str(cap - left))
        self._keep_decoder(decoder, largest)

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return what the largest window holds, 0 where that is little; only headers are read.

        Raises:
            EncodingError: the frames are damaged.
            UnsupportedError: a frame needs a dictionary.
            LimitError: a window is over its cap.
        """
        frames = walk_frames(stored, limits)
        most = max(min(frame.window, frame.most_length) for frame in frames)
        return most if most > KEPT_WINDOW else 0

    def is_streamed(self, stored: Stored) -> bool:
        """Return True: a piece is decoded when it is asked for."""
        del stored
        return True

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes]:
        """Yield `data` (flat, bytes) as frames of `frame_bytes` of it each; no data, one frame.

        Each frame declares its content size and carries no checksum: the manifest's digest covers
        the stored bytes. Frames know nothing of one another, so slices of `data` cut at multiples
        of `frame_bytes` may be encoded, and frames decoded, in parallel with the same result.
        The same library release gives the same bytes.

        Args:
            data: what to compress.
            level: 1 (fast) to 22 (small), or -1 down to -131072 (faster still).
            frame_bytes: by default `FRAME_BYTES`.

        Raises:
            ArgumentTypeError: the level is no integer.
            ArgumentValueError: the level is out of range.
            MissingDependencyError: no zstd library is installed.
        """
        _require_level(level)
        return self._encode_frames(self._bound(), data, level, frame_bytes or FRAME_BYTES)

    def _encode_frames(
        self, binding: Binding, data: memoryview, level: int, frame_bytes: int
    ) -> Iterator[bytes]:
        idle = self._encoders.get(level)
        for start in range(0, max(len(data), 1), frame_bytes):
            encoder = _pop(idle) or binding.encoder(level)
            frame = encoder.encode_frame(data[start : start + frame_bytes])
            if idle is not None:
                idle.append(encoder)
            yield frame

    def _bound(self) -> Binding:
        if self._binding is None:
            self._binding = find_binding()
        return self._binding

    def _take_decoder(self) -> Decoder:
        return _pop(self._decoders) or self._bound().decoder()

    def _keep_decoder(self, decoder: Decoder, largest_window: int) -> None:
        # Reached after success only: what an error leaves behind in a context is not reused.
        if largest_window <= KEPT_WINDOW:
            self._decoders.append(decoder)


_SCRATCH = memoryview(bytearray(1))  # what is beyond the end; written, never read


_Context = TypeVar("_Context")


def _pop(idle: collections.deque[_Context] | None) -> _Context | None:
    # One operation, so that two threads never get the same context.
    try:
        return idle.pop() if idle is not None else None
    except IndexError:
        return None


def _is_one_pass(frame: Frame, *, is_held: bool) -> bool:
    """Return whether to hand the frame over whole, which decodes it without a window buffer.

    It must declare its content size. Bytes that are not held yet may be, up to a fixed size, or
    up to the window that streaming would allocate in their place.
    """
    if frame.content_length is None:
        return False
    return is_held or frame.stop - frame.start <= ONE_PASS_BYTES + frame.window


_FREELY = contextlib.nullcontext()


def _room(held: int, *, is_whole: bool = False) -> contextlib.AbstractContextManager[None]:
    """Return what waits for the memory that a window takes, where it is much."""
    if held <= KEPT_WINDOW:
        return _FREELY
    return WINDOWS.lent(held, is_whole=is_whole)


def _streaming_window(frame: Frame, limits: Limits) -> int:
    """Return the window that decoding the frame piece by piece takes.

    Raises:
        LimitError: it is over the cap; only single-segment frames come here unchecked.
    """
    if frame.is_single_segment:
        _require_window(frame.window, frame.start, limits)
    return frame.window


def _require_declared(frame: Frame, count: int) -> None:
    # Libraries that stream do not look when a frame's last block is empty.
    if frame.content_length is not None and frame.content_length != count:
        raise EncodingError(
            f"the zstd frame at stored byte {frame.start} does not hold what it declares",
            reason=Reason.ENCODING_MALFORMED,
            expected=f"{frame.content_length} bytes",
            found=str(count),
        )


def _require_decoded(length: int, limits: Limits) -> None:
    if length > limits.decoded_bytes:
        raise LimitError(
            f"a zstd component claims {length} decoded bytes, "
            "more than Limits.decoded_bytes allows",
            reason=Reason.LIMIT_DECODED,
            expected=f"at most {limits.decoded_bytes}",
        )


def _require_level(level: object) -> None:
    expected = f"1 to {STRONGEST_LEVEL}, or -1 down to {FASTEST_LEVEL}"
    if not isinstance(level, int) or isinstance(level, bool):
        raise ArgumentTypeError(
            "a zstd level is an integer", expected=expected, found=type(level).__name__
        )
    if not FASTEST_LEVEL <= level <= STRONGEST_LEVEL or level == 0:
        raise ArgumentValueError("no such zstd level", expected=expected, found=describe(level))


def _short(expected: int, found: str) -> EncodingError:
    return EncodingError(
        "zstd data decodes to too few bytes",
        reason=Reason.DECODED_SHORT,
        expected=str(expected),
        found=found,
    )


def _long(expected: int, found: str) -> EncodingError:
    return EncodingError(
        "zstd data decodes to too many bytes",
        reason=Reason.DECODED_LONG,
        expected=str(expected),
        found=found,
    )


def _over(cap: int) -> LimitError:
    return LimitError(
        f"a zstd component decodes to more than {cap} bytes, more than Limits.decoded_bytes allows",
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
