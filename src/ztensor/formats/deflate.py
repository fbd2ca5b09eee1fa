"""Strict inflation in chunks: members of zip archives, chunks of HDF5.

A stream must decode to exactly the expected number of bytes, and nothing may follow it. zlib holds
back bytes that do not fit the output, so the end of the stored bytes is not the end of the stream:
zlib is called until it reports the end.

A range of a stream is inflated from the beginning, and the bytes before the range are discarded.
Keeping zlib's states on the way was tried: 25 ranges of 100 MB took 3 s instead of 11, but loading
all of it took twice as long, and no stream of a real file that was examined exceeds 64 MiB.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from ztensor.errors import EncodingError, Reason, describe
from ztensor.ext import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator


PIECE_BYTES = 1 << 20  # of a decoded chunk at most
MOST_RATIO = 1032  # decoded bytes of one deflated byte at most

_TAKEN_BYTES = 1 << 16  # of one input; zlib copies its rest for each chunk of output


class Inflater:
    """A position in a deflated stream.

    Args:
        stored: the deflated bytes.

    Attributes:
        position: the number of bytes decoded so far.
    """

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self._zlib = zlib.decompressobj(-zlib.MAX_WBITS)
        self._taken = 0
        self._rest = b""
        self.position = 0

    def read(self, most: int) -> bytes:
        """Return the next 1 to `most` bytes, or b"" at the end of the stream.

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


class Stream:
    """A deflated stream of a known size.

    Args:
        size: its decoded length.
        crc: the CRC-32 of the decoded bytes, checked when they are inflated to the end; or None.
    """

    def __init__(self, size: int, crc: int | None = None) -> None:
        self.size = size
        self.crc = crc

    def pieces(self, stored: Stored, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` to `stop`, at most 1 MiB at a time.

        The bytes before `start` are inflated too; those after `stop` are not.

        Raises:
            EncodingError: the stored bytes are damaged, or decode to another size.
        """
        stop = self.size if stop is None else stop
        inflater, crc = Inflater(stored), 0
        while (at := inflater.position) < stop:
            piece = inflater.read(min(PIECE_BYTES, stop - at))
            if not piece:
                raise _damaged(
                    "the deflated bytes are too few",
                    reason=Reason.DECODED_SHORT,
                    expected=f"{self.size} bytes",
                    found=describe(at),
                )
            if self.crc is not None:
                crc = zlib.crc32(piece, crc)
            if inflater.position > start:
                yield piece[max(start - at, 0) :]
        if stop == self.size:
            inflater.finish()
            if self.crc not in (None, crc):
                raise _damaged(
                    "the CRC-32 differs",
                    reason=Reason.DIGEST_MISMATCH,
                    expected=f"{self.crc:08x}",
                    found=f"{crc:08x}",
                )

    def fill(self, stored: Stored, start: int, destination: memoryview) -> None:
        """Fill `destination` with the bytes from `start` on.

        Raises:
            EncodingError: as `pieces`.
        """
        at = 0
        for piece in self.pieces(stored, start, start + len(destination)):
            destination[at : at + len(piece)] = piece
            at += len(piece)


def inflated(data: bytes | bytearray | memoryview, most: int) -> bytes:
    """Return the decoded bytes of a zlib stream in memory.

    Bytes after its end are ignored: HDF5 may have allocated more space for a chunk.

    Args:
        data: the stream, with zlib's header and checksum.
        most: the largest decoded length.

    Raises:
        EncodingError: it is damaged or cut, or decodes to more bytes.
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
    """Return the first decoded bytes of a stream; fewer if it is shorter or cut.

    Raises:
        EncodingError: it is damaged before that length.
    """
    inflater = Inflater(stored)
    data = b""
    try:
        while len(data) < length and (piece := inflater.read(length - len(data))):
            data += piece
    except EncodingError as error:
        if error.reason is not Reason.ENCODING_TRUNCATED:
            raise
    return data


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
