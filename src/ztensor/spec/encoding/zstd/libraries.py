"""Adapters of the zstd libraries to one interface, and the choice of the installed one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ztensor.errors import MissingDependencyError
from ztensor.spec.encoding.base import Stored

# `compression.zstd` keeps unused input and returns new bytes objects: small pieces in both
# directions bound the copies.
_STORED_PIECE = 128 << 10
_DECODED_PIECE = 1 << 20
# At level 1 a table of 64 entries and matches of at least 7 bytes find next to none in weights:
# frames are Huffman codes. On exponents of bf16 that is 8 % smaller than level 1 itself, 2.6 times
# faster to write and 1.7 times faster to read.
_WITHOUT_MATCHES = {"hash_log": 6, "min_match": 7}


class Span:
    """A run of stored bytes as a file object that a library reads compressed bytes from.

    Attributes:
        piece_bytes: bytes per read of the library.
    """

    __slots__ = ("_position", "_stop", "_stored", "piece_bytes")

    def __init__(self, stored: Stored, start: int, stop: int, piece_bytes: int) -> None:
        self._stored = stored
        self._position = start
        self._stop = stop
        self.piece_bytes = piece_bytes

    def read(self, size: int) -> memoryview:
        """Return the next `size` bytes, or fewer at the end."""
        start = self._position
        self._position = min(start + size, self._stop)
        if start == self._position:
            return memoryview(b"")
        return self._stored.read(start, self._position - start)


class FrameReader(Protocol):
    """The decoded bytes of a span, in order."""

    def readinto(self, destination: memoryview, /) -> int:
        """Fill `destination`, or less of it at the end of the span. Return the bytes written."""
        ...


class Decoder(NamedTuple):
    """A decoding context.

    Attributes:
        open: starts a span; the previous one must be finished. A span that is read in one piece and
            fits into the first destination must not allocate a window.
        whole: `(frame, most) -> bytes` decodes one short frame to at most `most` bytes.
    """

    open: Callable[[Span], FrameReader]
    whole: Callable[[memoryview, int], bytes]


# An encoding context: bytes to one frame that declares its content size.
Encoder = Callable[[memoryview], bytes]


class Binding(NamedTuple):
    """A zstd library.

    `walk_frames` caps windows; a binding allows the largest that its library can.

    Attributes:
        error: the library's exception for damaged bytes.
        decoder: makes a decoding context.
        encoder: `(level, has_checksum, has_matches) -> Encoder` makes an encoding context. Without
            matches it looks for next to none, and frames are Huffman codes.
    """

    error: type[Exception]
    decoder: Callable[[], Decoder]
    encoder: Callable[[int, bool, bool], Encoder]


def bind_zstandard(module: Any) -> Binding:
    """Bind the package `zstandard`: it decodes straight into the destination."""

    def decoder() -> Decoder:
        context = module.ZstdDecompressor(max_window_size=1 << module.WINDOWLOG_MAX)

        def open_span(span: Span) -> FrameReader:
            reader: FrameReader = context.stream_reader(
                span, read_size=span.piece_bytes, closefd=False
            )
            return reader

        return Decoder(open_span, context.decompress)

    def encoder(
        level: int,
        has_checksum: bool,  # noqa: FBT001  # as `Binding` has it
        has_matches: bool,  # noqa: FBT001
    ) -> Encoder:
        if has_matches:
            own = {"level": level, "write_content_size": True, "write_checksum": has_checksum}
        else:
            parameters = module.ZstdCompressionParameters
            own = {"compression_params": parameters.from_level(level, **_WITHOUT_MATCHES)}
        context = module.ZstdCompressor(**own)
        encode: Encoder = context.compress
        return encode

    return Binding(module.ZstdError, decoder, encoder)


def bind_standard_library(module: Any) -> Binding:
    """Bind `compression.zstd` of Python 3.14: a decoder serves one frame and returns bytes."""
    largest = module.DecompressionParameter.window_log_max
    options = {largest: largest.bounds()[1]}
    parameter = module.CompressionParameter

    def decoder() -> Decoder:
        return Decoder(
            lambda span: _StandardReader(module.ZstdDecompressor(options=options), span),
            lambda data, _: module.decompress(data),
        )

    def encoder(
        level: int,
        has_checksum: bool,  # noqa: FBT001  # as `Binding` has it
        has_matches: bool,  # noqa: FBT001
    ) -> Encoder:
        own = {} if has_matches else _WITHOUT_MATCHES
        options = {getattr(parameter, name): value for name, value in own.items()}
        options[parameter.compression_level] = level
        options[parameter.checksum_flag] = int(has_checksum)
        context = module.ZstdCompressor(options=options)

        def encode(data: memoryview) -> bytes:
            context.set_pledged_input_size(len(data))
            frame: bytes = context.compress(data, context.FLUSH_FRAME)
            return frame

        return encode

    return Binding(module.ZstdError, decoder, encoder)


class _StandardReader:
    __slots__ = ("_context", "_span")

    def __init__(self, context: Any, span: Span) -> None:
        self._context = context
        self._span = span

    def readinto(self, destination: memoryview, /) -> int:
        context = self._context
        filled = 0
        while filled < len(destination) and not context.eof:
            piece: memoryview | bytes = b""
            if context.needs_input and not (piece := self._span.read(_STORED_PIECE)):
                break
            room = min(len(destination) - filled, _DECODED_PIECE)
            decoded = context.decompress(piece, max_length=room)
            destination[filled : filled + len(decoded)] = decoded
            filled += len(decoded)
        return filled


# In order of preference: zstandard is the faster one on small components.
_LIBRARIES = {"zstandard": bind_zstandard, "compression.zstd": bind_standard_library}


def find_binding() -> Binding:
    """Return the binding to the first zstd library that can be imported.

    Raises:
        MissingDependencyError: there is none.
    """
    for name, bind in _LIBRARIES.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return bind(module)
    raise MissingDependencyError(
        "zstd-compressed components need a zstd library: pip install zstandard, "
        "or use Python 3.14, which has one"
    )
