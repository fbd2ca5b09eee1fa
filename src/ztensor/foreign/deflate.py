"""Deflate, undone strictly and in pieces: members of zip archives, chunks of HDF5.

A stream must give exactly the bytes that are expected of it, end there, and be followed by nothing.
zlib holds bytes back when it may give no more of them: whoever stops where the stored bytes are
used up refuses streams that are right. Here it is asked until it has said that the stream ends.

A long stream can be entered in its midst: one pass over it keeps the state of zlib here and there.
"""

from __future__ import annotations

import bisect
import zlib
from array import array
from typing import TYPE_CHECKING, Any

from ztensor.encoding.base import Runs
from ztensor.errors import EncodingError, Reason, describe
from ztensor.locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ztensor.encoding import Stored

PIECE_BYTES = 1 << 20  # the most that is given at once
ENTRY_BYTES = 4 << 20  # between two places where a stream can be entered, at least
MOST_ENTRIES = 256  # of 45 kB each
MOST_RATIO = 1032  # bytes that one deflated byte can become

_WHOLE_BYTES = 64 << 20  # what is read as a whole for any part of it
_TAKEN_BYTES = 1 << 16  # zlib copies what it leaves of them for every piece it gives


class Inflater:
    """A place in a deflated stream, moving on as its bytes are read.

    Args:
        stored: the deflated bytes.

    Attributes:
        position: how many bytes the stream has given.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
        self._taken = 0
        self._rest = b""
        self.position = 0

    def read(self, most: int) -> bytes:
        """Return the next bytes, from 1 to `most` of them; none only at the end of the stream.

        Raises:
            EncodingError: the bytes are damaged, or cut.
        """
        inflate, stored = self._zlib, self._stored
        while not inflate.eof:
            if not self._rest and self._taken < stored.length:
                count = min(_TAKEN_BYTES, stored.length - self._taken)
                self._rest = bytes(stored.read(self._taken, count))
                self._taken += count
            try:
                piece = inflate.decompress(self._rest, most)
            except zlib.error as error:
                raise _broken(error) from error
            self._rest = inflate.unconsumed_tail
            if piece:
                self.position += len(piece)
                return piece
            if not (inflate.eof or self._rest or self._taken < stored.length):
                raise _cut()
        return b""

    def finish(self) -> None:
        """Require that the stream ends here, and the stored bytes with it.

        Raises:
            EncodingError: they do not, or are damaged.
        """
        if self.read(1):
            raise _too_many(self.position - 1)
        if self._zlib.unused_data or self._taken < self._stored.length:
            raise _damaged("bytes follow the end of the deflated ones")

    def at(self, stored: Stored) -> Inflater:
        """Return the same place for another reader of the same bytes."""
        other = object.__new__(Inflater)
        other._stored, other._zlib = stored, self._zlib.copy()
        other._taken, other._rest, other.position = self._taken, self._rest, self.position
        return other


class Stream:
    """A deflated stream whose size is known: read as a whole, or from any place on.

    Args:
        size: bytes that it must give.
        step: bytes between two places where it can be entered.
        check: gets the pieces of each pass over the whole, and raises at its end where they are
            not the right ones.
    """

    def __init__(
        self,
        size: int,
        *,
        step: int = ENTRY_BYTES,
        check: Callable[[Iterator[bytes]], Iterator[bytes]] = iter,
    ) -> None:
        self.size = size
        self.step = step
        self._check = check
        self._entries: list[Inflater] | None = None
        self._failed: EncodingError | None = None
        self._entering = Lock()

    def pieces(self, stored: Stored, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, at most 1 MiB at a time.

        Raises:
            EncodingError: the stored bytes are damaged, or are not of the size.
        """
        stop = self.size if stop is None else stop
        if (start, stop) == (0, self.size):
            yield from self._check(self._whole(Inflater(stored)))
            return
        inflater = self._entered(stored, start)
        while inflater.position < stop:
            at = inflater.position
            piece = self._next(inflater, stop)
            if inflater.position > start:
                yield piece[max(start - at, 0) :]
        if stop == self.size:
            inflater.finish()

    def fill(self, stored: Stored, start: int, destination: memoryview) -> None:
        """Fill `destination` with the bytes from `start` on.

        Raises:
            EncodingError: the stored bytes are damaged, or are not of the size.
        """
        at = 0
        for piece in self.pieces(stored, start, start + len(destination)):
            destination[at : at + len(piece)] = piece
            at += len(piece)

    def runs(self, length: int) -> Runs | None:
        """Return the parts in which the last `length` bytes are read; None where they are few.

        Their places are those of the bytes given.
        """
        if length <= _WHOLE_BYTES:
            return None
        ends = array("Q", [*range(0, length, self.step), length])
        return Runs(ends, ends)

    def require(self, stored: Stored) -> None:
        """Check all of it once, so that parts of it can be given.

        Raises:
            EncodingError: the stored bytes are damaged, or are not of the size.
        """
        with self._entering:
            if self._failed is not None:  # once is enough: many tensors may lie in one stream
                failed = self._failed
                raise _damaged(
                    failed.message,
                    reason=failed.reason,
                    expected=failed.expected,
                    found=failed.found,
                )
            if self._entries is None:
                try:
                    self._entries = self._passed(stored)
                except EncodingError as error:
                    self._failed = error
                    raise

    def _passed(self, stored: Stored) -> list[Inflater]:
        first = Inflater(stored)
        inflater, entries = first.at(stored), [first]
        for _ in self._check(self._whole(inflater)):
            if inflater.position >= entries[-1].position + self.step:
                entries.append(inflater.at(stored))
        return entries

    def _entered(self, stored: Stored, start: int) -> Inflater:
        """Return a place before `start`, and not far."""
        if start < self.step and self._entries is None:
            return Inflater(stored)
        self.require(stored)
        entries = self._entries or []
        found = bisect.bisect_right(entries, start, key=lambda entry: entry.position)
        return entries[found - 1].at(stored)

    def _whole(self, inflater: Inflater) -> Iterator[bytes]:
        while inflater.position < self.size:
            yield self._next(inflater, self.size)
        inflater.finish()

    def _next(self, inflater: Inflater, stop: int) -> bytes:
        piece = inflater.read(min(PIECE_BYTES, stop - inflater.position))
        if not piece:
            raise _damaged(
                "the deflated bytes are too few",
                reason=Reason.DECODED_SHORT,
                expected=f"{self.size} bytes",
                found=describe(inflater.position),
            )
        return piece


def inflated(data: bytes | bytearray | memoryview, most: int) -> bytes:
    """Return what a stream in memory gives that has the head and the sum of zlib around it.

    What follows its end is not asked about: a chunk of HDF5 may have been given a longer room.

    Args:
        data: the deflated bytes.
        most: how many bytes it may give.

    Raises:
        EncodingError: it is damaged, cut, or gives more.
    """
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise _broken(error) from error
    if len(whole) > most:
        raise _too_many(most)
    if not inflater.eof:  # one byte more was asked for: none is held back
        raise _cut()
    return whole


def head(stored: Stored, length: int) -> bytes:
    """Return the first bytes that a stream gives, fewer where it has fewer or is cut.

    Raises:
        EncodingError: it is damaged before there.
    """
    inflater = Inflater(stored)
    found = b""
    try:
        while len(found) < length and (piece := inflater.read(length - len(found))):
            found += piece
    except EncodingError as error:
        if error.reason is not Reason.ENCODING_TRUNCATED:
            raise
    return found


def entry_step(total: int) -> int:
    """Return how far apart streams of `total` bytes in all are entered: each state takes memory."""
    return max(ENTRY_BYTES, -(-total // MOST_ENTRIES))


def _damaged(message: str, **details: Any) -> EncodingError:
    return EncodingError(message, **{"reason": Reason.ENCODING_MALFORMED, **details})


def _broken(error: zlib.error) -> EncodingError:
    return _damaged(f"the deflated bytes are damaged: {error}")


def _cut() -> EncodingError:
    return _damaged("the deflated bytes are cut", reason=Reason.ENCODING_TRUNCATED)


def _too_many(most: int) -> EncodingError:
    return _damaged(
        "the deflated bytes give more than they should",
        reason=Reason.DECODED_LONG,
        expected=f"{most} bytes",
        found="more",
    )
