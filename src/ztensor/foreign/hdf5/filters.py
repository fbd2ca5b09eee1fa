"""HDF5's filters, undone: deflate, shuffle, Fletcher-32 and LZF. Bytes in, bytes out."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import EncodingError, Reason

if TYPE_CHECKING:
    from collections.abc import Callable


def bad_chunk(what: str, expected: object, found: object) -> EncodingError:
    """Return the error for a chunk that cannot be decoded."""
    return EncodingError(
        f"a chunk cannot be decoded: {what}",
        reason=Reason.ENCODING_MALFORMED,
        expected=str(expected),
        found=str(found),
    )


def _inflated(data: bytes | bytearray, _: tuple[int, ...], most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise bad_chunk("deflate", "a zlib stream", error) from error
    if not inflater.eof:
        raise bad_chunk("deflate", f"an end within {most} bytes", f"none in {len(whole)}")
    return whole


def _unshuffled(data: bytes | bytearray, parameters: tuple[int, ...], _: int) -> bytes:
    width = parameters[0] if parameters else 1
    if width < 2 or width > len(data):
        return bytes(data)
    whole = len(data) // width * width
    planes = np.frombuffer(data, np.uint8, whole).reshape(width, -1)
    return planes.T.tobytes() + data[whole:]


def _unsummed(data: bytes | bytearray, _: tuple[int, ...], __: int) -> bytes | bytearray:
    """Check and remove a Fletcher-32 sum over big-endian 16-bit words, each half modulo 65535."""
    body, stored = data[:-4], data[-4:]
    words = np.frombuffer(body + b"\0" * (len(body) % 2), ">u2").astype(np.uint64)
    weights = np.arange(words.size, 0, -1, dtype=np.uint64) % 65535
    sums = (int(words.sum()) % 65535, int((words * weights).sum()) % 65535)
    found = (int.from_bytes(stored[:2], "little"), int.from_bytes(stored[2:], "little"))
    if len(stored) < 4 or tuple(value % 65535 for value in found) != sums:
        raise bad_chunk("fletcher32", sums, found)
    return body


def _unlzf(data: bytes | bytearray, _: tuple[int, ...], most: int) -> bytearray:
    """Expand LZF: runs of literals, and copies of what came up to 8 KiB before.

    Python takes some forty times as long as the C of h5py, which does not say where a chunk ends.
    """
    out = bytearray()
    place, end = 0, len(data)
    try:
        while place < end:
            control = data[place]
            if control < 32:
                stop = place + control + 2
                out += data[place + 1 : stop]
                place = stop
                continue
            if control < 224:
                length, back = (control >> 5) + 2, data[place + 1]
                place += 2
            else:
                length, back = data[place + 1] + 9, data[place + 2]
                place += 3
            back += ((control & 31) << 8) + 1
            start = len(out) - back
            if start < 0:
                raise bad_chunk("lzf", "a copy of what is there", f"{-start} bytes before it")
            if back >= length:
                out += out[start : start + length]
            else:  # it copies what it is just writing
                out += (out[start:] * (length // back + 1))[:length]
            if len(out) > most:
                break
    except IndexError as error:
        raise bad_chunk("lzf", "the rest of a copy", "the end") from error
    if place != end:
        raise bad_chunk("lzf", f"an end within {most} bytes", f"{len(out)} bytes")
    return out


# HDF5's numbers for its filters, and h5py's for LZF.
FILTERS: dict[int, Callable[[Any, tuple[int, ...], int], bytes | bytearray]] = {
    1: _inflated,
    2: _unshuffled,
    3: _unsummed,
    32000: _unlzf,
}
