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

_PIECE_BYTES = 8 << 20  # of what is decoded as a whole
RUN_BYTES = 4 << 10  # runs that decode to less are entered together

FRAME_FIELD = "frames"
# Below it a component is read at once: one request, and no field.
LEAST_LISTED_BYTES = 1 << 20
_LEAST_FRAME_BYTES = 1 << 10  # on average: the field takes 0.4 % at most


class Stored(Protocol):
    """Random access to the stored bytes of one component, without holding them all.

    Attributes:
        length: how many bytes are stored.
    """

    @property
    def length(self) -> int:
        """Return how many bytes are stored."""
        ...

    def read(self, offset: int, length: int) -> memoryview:
        """Return exactly `length` bytes from `offset`; a view where they are in memory."""
        ...


class Held:
    """Stored bytes that are in memory as one buffer: the bytes from `start` on."""

    __slots__ = ("length", "start", "view")

    def __init__(self, view: memoryview, start: int = 0) -> None:
        self.view = view
        self.start = start
        self.length = start + len(view)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        return self.view[offset - self.start : offset - self.start + length]


class Runs(NamedTuple):
    """Where stored bytes may be entered: runs that decode without those before them.

    The stored bytes from `stored[i]` to `stored[i + 1]` decode to those from `decoded[i]` to
    `decoded[i + 1]`; both rise from 0 to the whole length.

    Attributes:
        stored: offsets in the stored bytes.
        decoded: offsets in the decoded bytes.
    """

    stored: array[int]
    decoded: array[int]

    @classmethod
    def none(cls) -> Runs:
        """Return a table without a run, to add to."""
        return cls(array("Q", [0]), array("Q", [0]))

    @classmethod
    def joined(cls, ends: Iterable[tuple[int, int]]) -> Runs:
        """Return runs of pieces that follow one another: where each ends, stored and decoded."""
        runs, end = cls.none(), (0, 0)
        for end in ends:
            runs.add(*end)
        if runs.stored[-1] < end[0]:
            runs.add(*end, is_last=True)
        return runs

    def add(self, stored: int, decoded: int, *, is_last: bool = False) -> None:
        """Add a piece that ends there; runs are some KiB long, so that they stay few."""
        if is_last or decoded - self.decoded[-1] >= RUN_BYTES:
            self.stored.append(stored)
            self.decoded.append(decoded)


class Encoding(abc.ABC):
    """How stored bytes become decoded bytes and back.

    A subclass says how to fill a destination; what else it can do better than by that, it says,
    too. Beside what its methods say, each may raise `UnsupportedError` for stored bytes that need
    what files do not carry, and `MissingDependencyError` where it needs a library.

    Attributes:
        name: the manifest's word for it.
        is_written: whether a writer may be asked for it by this name.
        must_shrink: whether what it makes no smaller is stored raw.
        has_sum: whether decoding all of a component compares a checksum that its format has.
        is_absent: whether it refuses all: what has it is listed only.
        has_table: whether its stored bytes end with a table of their runs: see `end`.
    """

    name: str
    is_written = False
    must_shrink = False
    has_sum = False
    is_absent = False
    has_table = False

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Refuse stored bytes that cannot decode to `expected_length` bytes; decode nothing.

        Cheap, and meant for the moment before the destination is allocated: a shape that claims
        terabytes over a few stored bytes fails here. Passing is no promise: decoding still checks.

        Returns:
            The runs of the stored bytes, each of which `decode_run` decodes by itself. None where
            only the whole can be decoded, or nothing but decoding tells.

        Raises:
            EncodingError: the stored bytes are damaged, or cannot give that length.
            LimitError: a safety cap is exceeded.
        """
        del stored, expected_length, limits
        return None

    @abc.abstractmethod
    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly; safe without `require_length`.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, in pieces of bounded size that stay as they are.

        Args:
            stored: the component's bytes.
            expected_length: the exact decoded length, or None where nothing but the bytes tell;
                then `limits.decoded_bytes` is the cap.
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
        require_decodable(expected_length, limits)
        self.require_length(stored, expected_length, limits)
        whole = new_bytes(expected_length)
        self.decode_into(stored, whole, limits)
        for start in range(0, expected_length, _PIECE_BYTES):
            yield whole[start : start + _PIECE_BYTES]

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether `decode_chunks` holds little more than the piece it gives.

        By default, whether the encoding has a `decode_chunks` of its own.
        """
        del stored
        return type(self).decode_chunks is not Encoding.decode_chunks

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return the bytes that decoding piece by piece keeps, 0 where that is little.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        del stored, limits
        return 0

    def is_summed(self, component: Component) -> bool:
        """Return whether decoding all of this component compares a checksum."""
        del component
        return self.has_sum

    # --- Parts of a component -----------------------------------------------------------------

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` (flat, bytes, writable) with what one run decodes to, exactly.

        Args:
            stored: the component's bytes.
            start: where the run begins in them.
            stop: where it ends.
            destination: as long as `Runs.decoded` says.
            limits: the caps in force.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """
        raise NotImplementedError  # there are no runs

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Any
    ) -> bool:
        """Fill an array with a box of the component, where that needs not the rest; say whether.

        Args:
            stored: the component's bytes.
            offsets: where the box begins along each axis; it lies in the array.
            sizes: how long it is.
            target: (sizes) array of the component's elements, of any strides.

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
        """Yield the stored form of `data` (flat, bytes) in pieces; same bytes, same result.

        Args:
            data: decoded bytes.
            level: how hard to try, where that means something.
            frame_bytes: how many bytes of `data` can be decoded without those before them, where
                that means something; None for the encoding's own measure.
        """
        raise UsageError("this encoding is only read", found=describe(self.name))

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return the table behind the pieces that `encode` gave, where there is one.

        Args:
            frames: of each piece, its stored and its decoded length.
        """
        raise NotImplementedError  # it has none


def require_equal_length(expected: int, found: int, message: str) -> None:
    """Raise where something is not as long as it has to be.

    Raises:
        EncodingError: it is not.
    """
    if found != expected:
        raise EncodingError(
            message, reason=Reason.SIZE_MISMATCH, expected=f"{expected} bytes", found=str(found)
        )


def require_decodable(length: int, limits: Limits) -> None:
    """Raise where a component decodes to more than `Limits.decoded_bytes`.

    Raises:
        LimitError: it does.
    """
    if length > limits.decoded_bytes:
        raise LimitError(
            "a component decodes to more than Limits.decoded_bytes",
            reason=Reason.LIMIT_DECODED,
            expected=f"at most {limits.decoded_bytes} bytes",
            found=describe(length),
        )


def damaged(message: str, expected: str, found: str, section: str | None = None) -> EncodingError:
    """Return the error for encoded data that is malformed."""
    return EncodingError(
        message,
        reason=Reason.ENCODING_MALFORMED,
        expected=expected,
        found=found,
        section=section,
    )


def wrong_length(expected: int, found: str, *, is_long: bool = False) -> EncodingError:
    """Return the error for encoded data of another decoded length."""
    return EncodingError(
        f"encoded data decodes to too {'many' if is_long else 'few'} bytes",
        reason=Reason.DECODED_LONG if is_long else Reason.DECODED_SHORT,
        expected=str(expected),
        found=found,
    )


# --- The field `frames` of a component -------------------------------------------------------
#
# It says where the frames are, so that no reader has to look for them. Readers ignore fields they
# do not know. Over a network the walk from header to header would cost a request for each frame,
# and a few numbers in the manifest save it. The field is `[period, piece, lengths]`: frames hold
# `piece` decoded bytes each, and anew behind each `period` of them; `lengths` are the stored bytes
# of each frame, little-endian numbers of four bytes.


def listed_frames(period: int, piece: int, lengths: Sequence[int]) -> dict[str, object] | None:
    """Return the component's field for frames that were written; None where it is of no use.

    So it is of few bytes, of one frame, and of frames so short that the field would be long.

    Args:
        period: decoded bytes after which frames begin anew.
        piece: decoded bytes of a frame.
        lengths: stored bytes of each frame, in order.
    """
    total, count = sum(lengths), len(lengths)
    if total < LEAST_LISTED_BYTES or count < 2 or total < count * _LEAST_FRAME_BYTES:
        return None
    return {FRAME_FIELD: [period, piece, np.asarray(lengths, "<u4").tobytes()]}


def runs_of_field(field: object, stored_length: int, decoded_length: int) -> Runs | None:
    """Return the runs a field tells; None where it is none, or cannot be true.

    Whether it is true is seen when a frame is decoded, and by `verify`.

    Args:
        field: what the manifest has.
        stored_length: bytes of all frames.
        decoded_length: bytes they decode to.
    """
    match field:
        case [int(period), int(piece), bytes(lengths)] if 0 < piece <= period and lengths:
            pass
        case _:
            return None
    # Counted before anything is made: a short field may claim any numbers.
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
