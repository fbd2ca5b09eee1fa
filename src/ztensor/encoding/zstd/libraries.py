"""Whichever zstd library is installed, behind one face."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from ztensor.errors import MissingDependencyError

if TYPE_CHECKING:
    from ztensor.encoding.base import Stored

_NOTHING = memoryview(b"")


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
