"""A member that is an array: what its header says, and how its elements are decoded."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from ztensor.errors import EncodingError, Reason
from ztensor.ext import Encoding, Source, Stored, empty_array, require_equal_length
from ztensor.formats import deflate, npy
from ztensor.formats.deflate import PIECE_BYTES, Stream
from ztensor.formats.npy import Header, parse_header, transpose
from ztensor.formats.zip import DEFLATED, STORED, Entry, Member, place
from ztensor.limits import Budget, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator


SUFFIX = ".npy"

_USUAL_HEAD = 1 << 9
_LONG_STEPS = 4  # for each byte of a header beyond that, which may be a number
_NUMBER_COST = 40  # of a dimension, in memory


def is_array(source: Source, entry: Entry) -> bool:
    """Return whether a member begins as .npy files do."""
    member, stored = place(source, entry, len(npy.MAGIC))
    try:
        return _head(stored, member, len(npy.MAGIC)) == npy.MAGIC
    except EncodingError:  # damaged, but none of ours
        return False


def header_of(source: Source, entry: Entry, budget: Budget) -> tuple[Member, Header, bytes]:
    """Return a member, what its header says, and its bytes, perhaps with some behind them.

    Raises:
        FormatError: it is malformed, or the data is not of the array's size.
        LimitError: it costs more to read than the budget has.
        SourceError: it cannot be read.
    """
    member, stored = place(source, entry, _USUAL_HEAD)
    # First what most headers fit into: a member may be nothing but the longest header, deflated.
    head = _head(stored, member, _USUAL_HEAD)
    length = npy.header_length(head)
    budget.charge_steps(length + _LONG_STEPS * max(length - _USUAL_HEAD, 0))
    if length > len(head):
        head = _head(stored, member, length)
    header = parse_header(memoryview(head))
    budget.charge_bytes(len(header.shape) * _NUMBER_COST + 4 * len(header.dtype))
    header.require_length(member.size - header.length)
    return member, header, head


def _head(stored: Stored, member: Member, length: int) -> bytes:
    """Return the first bytes of a member, unpacked."""
    if member.method == STORED:
        return bytes(stored.read(0, min(member.length, length)))
    return deflate.head(stored, min(member.size, length))


class Whole(Encoding):
    """A member that has to be read as a whole: deflated, in Fortran's order, or both.

    Args:
        name: the word components have for it.
        member: the member; its bytes, with the header of the array, are the stored ones.
        header: that header.
    """

    def __init__(self, name: str, member: Member, header: Header) -> None:
        self.name = name
        self.has_sum = True  # the archive's CRC-32, compared whenever all is read
        self._member = member
        self._header = header

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse an expected length that is not the one the archive tells."""
        length = self._member.size - self._header.length
        require_equal_length(expected_length, length, "the member is not as long as the array")
        require_equal_length(self._member.length, stored.length, "the member has another length")

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with the array's elements in our order."""
        self.require_length(stored, len(destination), limits)
        whole = destination
        if self._header.is_transposed:
            whole = empty_array((len(destination),)).data
        at = 0
        for piece in self._unpacked(stored):
            whole[at : at + len(piece)] = piece
            at += len(piece)
        if self._header.is_transposed:
            transpose(whole, destination, self._header.shape, self._header.width or 1)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the array's elements, without holding them all where they are in our order."""
        if self._header.is_transposed or expected_length is None:
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.require_length(stored, expected_length, limits)
        yield from self._unpacked(stored)

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether the elements need not be put in another order."""
        del stored
        return not self._header.is_transposed

    def _unpacked(self, stored: Stored) -> Iterator[memoryview]:
        """Yield the member's bytes behind the array's header; exactly as many as it has."""
        skip = self._header.length
        is_deflated = self._member.method == DEFLATED
        pieces = Stream(self._member.size).pieces(stored) if is_deflated else _read(stored)
        for piece in self._checked(pieces):
            if skip < len(piece):
                yield memoryview(piece)[skip:]
            skip = max(skip - len(piece), 0)

    def _checked(
        self, pieces: Iterator[bytes] | Iterator[memoryview]
    ) -> Iterator[bytes | memoryview]:
        crc = 0
        for piece in pieces:
            crc = zlib.crc32(piece, crc)
            yield piece
        if crc != self._member.crc:
            raise EncodingError(
                "the CRC-32 differs",
                reason=Reason.DIGEST_MISMATCH,
                expected=f"{self._member.crc:08x}",
                found=f"{crc:08x}",
            )


def _read(stored: Stored) -> Iterator[memoryview]:
    for at in range(0, stored.length, PIECE_BYTES):
        yield stored.read(at, min(PIECE_BYTES, stored.length - at))
