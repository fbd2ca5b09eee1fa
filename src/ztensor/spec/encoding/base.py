"""The contract between the reader, the writer and an encoding."""

from __future__ import annotations

import abc
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ztensor.buffers import new_bytes
from ztensor.errors import EncodingError, LimitError, Reason, UsageError, describe
from ztensor.limits import Limits
from ztensor.spec.model.manifest import Component

_PIECE_BYTES = 8 << 20  # yielded at a time by encodings that decode a component in one step
RUN_BYTES = 4 << 10  # shorter runs (decoded) are merged with their successors

FRAME_FIELD = "frames"
# A shorter component is fetched in one request and needs no field.
LEAST_LISTED_BYTES = 1 << 20
_LEAST_FRAME_BYTES = 1 << 10  # on average: the field then adds 0.4 % at most


class Stored(Protocol):
    """Random access to the stored bytes of one component."""

    @property
    def length(self) -> int:
        """Return the number of stored bytes."""
        ...

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`; a view if they are in memory."""
        ...


class Held:
    """Stored bytes in memory, in one buffer that begins at offset `start`."""

    __slots__ = ("length", "start", "view")

    def __init__(self, view: memoryview, start: int = 0) -> None:
        self.view = view
        self.start = start
        self.length = start + len(view)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        return self.view[offset - self.start : offset - self.start + length]


class Runs(NamedTuple):
    """The offset table of a component: runs of stored bytes that decode independently.

    The stored bytes `[stored[i], stored[i + 1])` decode to `[decoded[i], decoded[i + 1])`.

    Attributes:
        stored: (runs + 1,) offsets in the stored bytes, ascending from 0 to the length.
        decoded: (runs + 1,) offsets in the decoded bytes, likewise.
        detail: further facts of each run, for the encoding itself.
    """

    stored: array[int]
    decoded: array[int]
    detail: Any = None

    @classmethod
    def none(cls) -> Runs:
        """Return an empty table, to add to."""
        return cls(array("Q", [0]), array("Q", [0]))

    @classmethod
    def joined(cls, ends: Iterable[tuple[int, int]]) -> Runs:
        """Return the table of frames from their ends (stored, decoded); short ones are merged."""
        runs, end = cls.none(), (0, 0)
        for end in ends:
            runs.add(*end)
        if runs.stored[-1] < end[0]:
            runs.add(*end, is_last=True)
        return runs

    def add(self, stored: int, decoded: int, *, is_last: bool = False) -> None:
        """Add a frame by its end; it is merged with the next one while the run is short."""
        if is_last or decoded - self.decoded[-1] >= RUN_BYTES:
            self.stored.append(stored)
            self.decoded.append(decoded)


class Encoding(abc.ABC):
    """A way to store bytes: decoding and encoding (1.2 section 1, `encoding`; 2.1 section 5.3).

    A subclass implements `decode_into`; the other methods have defaults that use it. In addition to
    the errors listed, each method may raise `UnsupportedError` for stored bytes that need data from
    outside the file, and `MissingDependencyError` if a library is not installed.

    Attributes:
        name: the manifest's word for it.
        is_written: callers may choose it by this name.
        must_shrink: a component that it does not shrink is stored raw.
        has_sum: decoding a whole component verifies a checksum of the encoding itself.
        is_absent: it cannot decode: such components are only listed.
        has_table: the stored bytes end with an offset table: see `end`.
        is_typed: the stored bytes depend on the type of the elements: see `for_component`.
        least_saving: the part that must be saved of a component; otherwise it is stored raw.
        frame_bytes: decoded bytes per frame that is written, about: frames end with a row.
        least_frame_bytes: the shortest frame, also with `chunk_rows`.
        most_frame_bytes: the longest frame, also with `chunk_rows`: it is held in memory.
    """

    name: str
    is_written = False
    must_shrink = False
    has_sum = False
    is_absent = False
    has_table = False
    is_typed = False
    least_saving = 0.0
    # zstd codes blocks of 128 KiB at most: measured on weights, tables and tokens, longer frames
    # save under 1 % and make single rows slow to read.
    frame_bytes = 64 << 10
    least_frame_bytes = 1
    most_frame_bytes = 16 << 20

    def for_component(self, component: Component) -> Encoding:
        """Return the encoding for components of this element type; itself by default."""
        del component
        return self

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Check, without decoding, that the stored bytes can decode to `expected_length` bytes.

        Cheap. It is called before the destination is allocated: a shape of terabytes over a few
        stored bytes fails here. Decoding checks the length again.

        Returns:
            The offset table for `decode_run`. None if the component decodes only as a whole, or if
            only decoding gives the offsets.

        Raises:
            EncodingError: the stored bytes are damaged, or cannot decode to that length.
            LimitError: a safety cap is exceeded.
        """
        del stored, expected_length, limits
        return None

    @abc.abstractmethod
    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode into `destination` (flat, bytes, writable), which must be filled exactly.

        It does not rely on an earlier `require_length`.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, in chunks of bounded size that are not reused.

        Args:
            stored: the component's bytes.
            expected_length: the exact decoded length; None if it is unknown, and then
                `limits.decoded_bytes` is the cap.
            limits: the caps in force.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """
        if expected_length is None:
            raise EncodingError(
                "the file does not say how many bytes the component decodes to",
                reason=Reason.SIZE_MISMATCH,
                found=describe(self.name),
            )
        self.require_decodable(expected_length, limits)
        self.require_length(stored, expected_length, limits)
        whole = new_bytes(expected_length)
        self.decode_into(stored, whole, limits)
        for start in range(0, expected_length, _PIECE_BYTES):
            yield whole[start : start + _PIECE_BYTES]

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether `decode_chunks` takes memory for little more than one chunk.

        By default, whether the subclass overrides `decode_chunks`.
        """
        del stored
        return type(self).decode_chunks is not Encoding.decode_chunks

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return the memory of a decoder's window, in bytes; 0 if it is small.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        del stored, limits
        return 0

    def is_summed(self, component: Component) -> bool:
        """Return whether decoding this whole component verifies a checksum of the encoding."""
        del component
        return self.has_sum

    @staticmethod
    def require_equal_length(expected: int, found: int, message: str) -> None:
        """Check a length.

        Raises:
            EncodingError: it is not the expected one.
        """
        if found != expected:
            raise EncodingError(
                message, reason=Reason.SIZE_MISMATCH, expected=f"{expected} bytes", found=str(found)
            )

    @staticmethod
    def require_decodable(length: int, limits: Limits) -> None:
        """Check a decoded length against `Limits.decoded_bytes`.

        Raises:
            LimitError: it is larger.
        """
        if length > limits.decoded_bytes:
            raise LimitError(
                "a component decodes to more than Limits.decoded_bytes",
                reason=Reason.LIMIT_DECODED,
                expected=f"at most {limits.decoded_bytes} bytes",
                found=describe(length),
            )

    # --- Parts of a component -----------------------------------------------------------------

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Decode one run into `destination` (flat, bytes, writable), which must be filled exactly.

        Args:
            stored: the component's bytes.
            start: offset of the run's first stored byte, from `Runs.stored`.
            stop: offset behind its last.
            destination: memory of the run's decoded length, from `Runs.decoded`.
            limits: the caps in force.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """
        raise NotImplementedError  # `require_length` returns no runs

    def decode_numbered(
        self, stored: Stored, runs: Runs, number: int, destination: memoryview, limits: Limits
    ) -> None:
        """Decode a run by its number in the offset table; by default with `decode_run`.

        An encoding overrides it if a run decodes only with `Runs.detail`.
        """
        start, stop = runs.stored[number : number + 2]
        self.decode_run(stored, start, stop, destination, limits)

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Any
    ) -> bool:
        """Read a box of the component without the rest. Return False if the encoding cannot.

        Args:
            stored: the component's bytes.
            offsets: per axis the first index of the box, which is inside the array.
            sizes: per axis its length.
            target: array of shape `sizes` and the component's dtype, of any strides.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        del stored, offsets, sizes, target
        return False

    # --- Writing ------------------------------------------------------------------------------

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes | memoryview]:
        """Yield the stored form of `data` (flat, bytes) in pieces; deterministic.

        Args:
            data: decoded bytes.
            level: compression level, if the encoding has levels.
            frame_bytes: decoded bytes per independent frame, if the encoding has frames; None for
                its default.
        """
        raise UsageError("this encoding is only read", found=describe(self.name))

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return the offset table that follows the pieces of `encode`, if `has_table`.

        Args:
            frames: stored and decoded length of each piece; of the pieces of one `encode`, only the
                last has a decoded length.
        """
        raise NotImplementedError  # only if `has_table`


def damaged(message: str, expected: str, found: str, section: str | None = None) -> EncodingError:
    """Return the error for malformed encoded data."""
    return EncodingError(
        message,
        reason=Reason.ENCODING_MALFORMED,
        expected=expected,
        found=found,
        section=section,
    )


def wrong_length(expected: int, found: str, *, is_long: bool = False) -> EncodingError:
    """Return the error for encoded data whose decoded length is not the expected one."""
    return EncodingError(
        f"encoded data decodes to too {'many' if is_long else 'few'} bytes",
        reason=Reason.DECODED_LONG if is_long else Reason.DECODED_SHORT,
        expected=str(expected),
        found=found,
    )


# --- The field `frames` of a component -------------------------------------------------------
#
# The offset table of a component's frames, as an additional field that other readers ignore.
# Without it a reader on a network would need one request per frame to walk from header to header.
# The field is `[period, piece, lengths]`: each frame holds `piece` decoded bytes, the last frame of
# each `period` decoded bytes the remainder; `lengths` are the stored lengths of all frames, u32
# little-endian.


def listed_frames(period: int, piece: int, lengths: Sequence[int]) -> dict[str, object] | None:
    """Return the field `frames` of a written component; None if it would not pay.

    It does not for a short component, a single frame, or frames so short that the field is long.

    Args:
        period: decoded bytes between two forced frame boundaries.
        piece: decoded bytes per frame.
        lengths: stored length of each frame, in order.
    """
    total, count = sum(lengths), len(lengths)
    if total < LEAST_LISTED_BYTES or count < 2 or total < count * _LEAST_FRAME_BYTES:
        return None
    return {FRAME_FIELD: [period, piece, np.asarray(lengths, "<u4").tobytes()]}


def runs_of_field(field: object, stored_length: int, decoded_length: int) -> Runs | None:
    """Return the offset table of a field `frames`; None if it is absent, malformed or impossible.

    A possible but wrong table is detected when a frame is decoded, and by `verify`.

    Args:
        field: the value in the manifest.
        stored_length: stored bytes of the component.
        decoded_length: its decoded bytes.
    """
    match field:
        case [int(period), int(piece), bytes(lengths)] if 0 < piece <= period and lengths:
            pass
        case _:
            return None
    # Compared before any allocation: a short field may claim any period and piece.
    whole, rest = divmod(decoded_length, period)
    per_period = -(-period // piece)
    if len(lengths) != 4 * (whole * per_period + -(-rest // piece)):
        return None
    stored = np.cumsum(np.frombuffer(lengths, "<u4"), dtype=np.uint64)
    if int(stored[-1]) != stored_length or (np.frombuffer(lengths, "<u4") == 0).any():
        return None
    numbers = np.arange(1, len(stored) + 1, dtype=np.uint64)
    periods, within = numbers // per_period, numbers % per_period
    decoded = np.minimum(periods * np.uint64(period) + within * np.uint64(piece), decoded_length)
    return Runs.joined(zip(stored.tolist(), decoded.tolist(), strict=True))
