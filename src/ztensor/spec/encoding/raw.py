"""`raw`: the stored bytes are the decoded bytes (1.2 section 1, `encoding`)."""

from __future__ import annotations

from collections.abc import Iterator

from ztensor.limits import Limits
from ztensor.spec.encoding.base import Encoding, Stored

PIECE_BYTES = 1 << 20  # one read: it stays in the CPU cache until the caller has used it


class Raw(Encoding):
    """The identity; `Limits.decoded_bytes` does not apply, since every byte is in the file."""

    name = "raw"
    is_written = True

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Check that the stored length is the expected one."""
        message = "the stored length of a raw component is not its size"
        self.require_equal_length(expected_length, stored.length, message)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Copy the stored bytes to `destination`, which must be filled exactly."""
        self.require_length(stored, len(destination), limits)
        start = 0
        for piece in _pieces(stored):
            destination[start : start + len(piece)] = piece
            start += len(piece)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the stored bytes in order, at most 1 MiB at a time."""
        if expected_length is not None:
            self.require_length(stored, expected_length, limits)
        yield from _pieces(stored)

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[memoryview]:
        """Yield `data` itself; `level` and `frame_bytes` are ignored."""
        yield data


def _pieces(stored: Stored) -> Iterator[memoryview]:
    for start in range(0, stored.length, PIECE_BYTES):
        yield stored.read(start, min(PIECE_BYTES, stored.length - start))


RAW = Raw()
