"""The contract between the reader, the writer and an encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ztensor.errors import EncodingError, LimitError, Reason, describe

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import numpy as np

    from ztensor.limits import Limits

    Bools = np.ndarray[Any, np.dtype[np.bool_]]
    Ints = np.ndarray[Any, np.dtype[np.int64]]


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


class Encoding(Protocol):
    """How stored bytes become decoded bytes and back.

    Beside what its methods say, each may raise `UnsupportedError` for stored bytes that need what
    files do not carry, and `MissingDependencyError` where it needs a library.
    """

    @property
    def name(self) -> str:
        """Return the manifest's word for this encoding."""
        ...

    @property
    def is_written(self) -> bool:
        """Return whether a writer may be asked for it by this name."""
        ...

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse stored bytes that cannot decode to `expected_length` bytes; decode nothing.

        Cheap, and meant for the moment before the destination is allocated: a shape that claims
        terabytes over a few stored bytes fails here. Passing is no promise: decoding still checks.

        Raises:
            EncodingError: the stored bytes are damaged, or cannot give that length.
            LimitError: a safety cap is exceeded.
        """
        ...

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly; safe without `require_length`.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another length.
            LimitError: a safety cap is exceeded.
        """
        ...

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
        ...

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether `decode_chunks` holds little more than the piece it gives."""
        ...

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
        ...


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


@runtime_checkable
class EncodingInRuns(Protocol):
    """What an encoding has beside `Encoding` whose stored bytes are runs.

    If it has a true attribute `runs_tell_length`, who has found runs need not `require_length`.
    """

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the runs of stored bytes that decode to `expected_length`; decode nothing.

        None where nothing but decoding tells.

        Raises:
            EncodingError: the stored bytes are damaged, or cannot give that length.
            LimitError: a safety cap is exceeded.
        """
        ...

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
        ...


@runtime_checkable
class EncodingWithTable(EncodingInRuns, Protocol):
    """What an encoding has beside `EncodingInRuns` that can tell its runs without a walk."""

    def told_runs(
        self, stored: Stored, told: Mapping[str, object], expected_length: int, limits: Limits
    ) -> Runs | None:
        """Return the runs as a table in the stored bytes or in the manifest has them.

        Args:
            stored: the component's bytes; little of them is read.
            told: the component's fields that the specification does not name.
            expected_length: how many bytes it decodes to.
            limits: the caps in force.

        Returns:
            None where there is no table, or it cannot be true.

        Raises:
            EncodingError: the stored bytes are damaged, or cannot give that length.
            LimitError: a safety cap is exceeded.
        """
        ...


@runtime_checkable
class EncodingInBoxes(Protocol):
    """What an encoding has beside `Encoding` that reads any box of an array without the rest."""

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Any
    ) -> None:
        """Fill an array with a box of the component.

        Args:
            stored: the component's bytes.
            offsets: where the box begins along each axis; it lies in the array.
            sizes: how long it is.
            target: (sizes) array of the component's elements, of any strides.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        ...


@runtime_checkable
class EncodingOfSmall(Protocol):
    """What an encoding has beside `Encoding` that decodes little data in few steps."""

    def decode_small(
        self,
        memory: memoryview,
        starts: Ints,
        lengths: Ints,
        targets: Sequence[memoryview],
        limits: Limits,
    ) -> Bools:
        """Decode many components of the form that little data usually has; return which were.

        Those that are of another form, or wrong, leave anything where they should go:
        `decode_into` then decodes them, or says what is wrong.

        Args:
            memory: where the stored bytes are.
            starts: where in it those of each begin.
            lengths: how many each has, within the memory.
            targets: memory that each has to fill exactly.
            limits: the caps in force.
        """
        ...


@runtime_checkable
class EncodingWithEnd(Protocol):
    """What an encoding also has if its stored bytes end with a table of the others."""

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return what follows the pieces that `encode` gave.

        Args:
            frames: of each piece, its stored and its decoded length.
        """
        ...


@runtime_checkable
class EncodingWithWindow(Protocol):
    """What an encoding has beside `Encoding` that may hold much of what it decoded."""

    def window_bytes(self, stored: Stored, limits: Limits) -> int:
        """Return the bytes that decoding piece by piece keeps, 0 where that is little.

        Raises:
            EncodingError: the stored bytes are damaged.
            LimitError: a safety cap is exceeded.
        """
        ...
