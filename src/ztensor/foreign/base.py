"""What a module of this room gives: a file of another format, said in our words."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from ztensor.encoding import ENCODINGS
from ztensor.errors import EncodingError, LimitError, Reason, UsageError, describe
from ztensor.layout.base import empty_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ztensor.encoding import Encoding, Stored
    from ztensor.limits import Limits
    from ztensor.model.manifest import Manifest
    from ztensor.reading.reader import ManifestReader
    from ztensor.source.base import Source
    from ztensor.source.sink import Sink

RAW: Mapping[str, Encoding] = {"raw": ENCODINGS["raw"]}
_PIECE_BYTES = 8 << 20


class Projection(NamedTuple):
    """A file of another format as our reader takes it.

    Attributes:
        format: the format's name, such as `safetensors`.
        manifest: what the file holds. Offsets and lengths are places in the file itself; nothing
            is aligned. `version` is the format's own, or empty.
        encodings: how components are stored, by the word `Component.encoding` has: at least
            `RAW`, and what is this file's own.
    """

    format: str
    manifest: Manifest
    encodings: Mapping[str, Encoding] = RAW


class Format(Protocol):
    """A module of this room."""

    NAME: str

    def project(self, source: Source, limits: Limits) -> Projection:
        """Return what the file says, every rule checked that needs no data.

        Raises:
            FormatError: the file is damaged.
            UnsupportedError: it holds what this release cannot read.
            LimitError: a safety cap is exceeded.
            SourceError: it cannot be read.
        """
        ...


class Exporting(Protocol):
    """A module of this room that also writes its format."""

    def export(
        self,
        reader: ManifestReader,
        sink: Sink,
        *,
        lose: Callable[[str | None, str], None],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write what a reader holds, of whatever format, as a file of this one; stream by stream.

        Args:
            reader: an open reader.
            sink: where the bytes go, in order; finished by the caller.
            lose: called with an object's name (None for the file's own) and a sentence about
                what the format cannot say. It may raise to refuse.
            progress: called with the bytes of tensors written so far and of all of them.

        Raises:
            NotRepresentableError: the format can hold nothing of the file.
            FormatError: stored bytes are damaged.
            SourceError: bytes could not be read or written.
        """
        ...


class Recipe(NamedTuple):
    """A line of the table of formats.

    Attributes:
        name: the format's name.
        module: where it is read, imported when the first such file is met.
        recognises: whether a file's first bytes, and the file, are of this format.
    """

    name: str
    module: str
    recognises: Callable[[bytes, Source], bool]


class ForeignEncoding(abc.ABC):
    """Bytes that another format stores in its own way: deflated, in another order, by a library.

    A subclass says how to fill a destination; the rest follows.

    Args:
        name: the word components have for it.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    @abc.abstractmethod
    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """

    def check_length(  # noqa: B027  # many have nothing to refuse
        self, stored: Stored, expected_length: int, limits: Limits
    ) -> None:
        """Refuse what cannot decode to `expected_length` bytes, before they are allocated."""

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Decode the whole, and yield it in pieces.

        Raises:
            EncodingError: the stored bytes are damaged, or nothing tells their decoded length.
            LimitError: a safety cap is exceeded.
        """
        if expected_length is None:
            raise EncodingError(
                "nothing tells how many bytes the component decodes to",
                reason=Reason.SIZE_MISMATCH,
                found=describe(self.name),
            )
        if expected_length > limits.decoded_bytes:
            raise LimitError(
                "a component decodes to more than Limits.decoded_bytes; pass a larger one",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {limits.decoded_bytes} bytes",
                found=describe(expected_length),
            )
        self.check_length(stored, expected_length, limits)
        whole = empty_array((expected_length,), np.dtype(np.uint8)).data
        self.decode_into(stored, whole, limits)
        for start in range(0, expected_length, _PIECE_BYTES):
            yield whole[start : start + _PIECE_BYTES]

    def encode(self, data: memoryview, *, level: int) -> Iterator[bytes | memoryview]:
        """Refuse: no file of ours is written so.

        Raises:
            UsageError: always.
        """
        raise UsageError("this encoding is only read", found=describe(self.name))
