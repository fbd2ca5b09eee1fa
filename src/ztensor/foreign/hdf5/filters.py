"""HDF5's filters, undone: deflate, shuffle, Fletcher-32 and LZF. Bytes in, bytes out."""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import EncodingError, Reason, describe
from ztensor.foreign.hdf5.file import RAISED, lzf_expanded

if TYPE_CHECKING:
    from collections.abc import Callable

Chunk = bytes | bytearray | memoryview


def bad_chunk(what: str, expected: object, found: object) -> EncodingError:
    """Return the error for a chunk that cannot be decoded."""
    return EncodingError(
        f"a chunk cannot be decoded: {what}",
        reason=Reason.ENCODING_MALFORMED,
        expected=str(expected),
        found=str(found),
    )


def _inflated(data: Chunk, _: tuple[int, ...], most: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        whole = inflater.decompress(data, most + 1)
    except zlib.error as error:
        raise bad_chunk("deflate", "a zlib stream", error) from error
    if not inflater.eof:
        raise bad_chunk("deflate", f"an end within {most} bytes", f"none in {len(whole)}")
    return whole


def _unshuffled(data: Chunk, parameters: tuple[int, ...], _: int) -> bytes:
    width = parameters[0] if parameters else 1
    if width < 2 or width > len(data):
        return bytes(data)
    whole = len(data) // width * width
    planes = np.frombuffer(data, np.uint8, whole).reshape(width, -1)
    return planes.T.tobytes() + data[whole:]


def _unsummed(data: Chunk, _: tuple[int, ...], __: int) -> bytes:
    """Check and remove a Fletcher-32 sum over big-endian 16-bit words, each half modulo 65535."""
    body, stored = bytes(data[:-4]), bytes(data[-4:])
    words = np.frombuffer(body + b"\0" * (len(body) % 2), ">u2").astype(np.uint64)
    weights = np.arange(words.size, 0, -1, dtype=np.uint64) % 65535
    sums = (int(words.sum()) % 65535, int((words * weights).sum()) % 65535)
    found = (int.from_bytes(stored[:2], "little"), int.from_bytes(stored[2:], "little"))
    if len(stored) < 4 or tuple(value % 65535 for value in found) != sums:
        raise bad_chunk("fletcher32", sums, found)
    return body


# Of each byte an LZF token may begin with: how long the token is, and how many bytes it gives.
_LZF_STEPS = bytes((*range(2, 34), *[2] * 192, *[3] * 32))
_LZF_COUNTS = np.array([*range(1, 33), *((code >> 5) + 2 for code in range(32, 256))], np.uint8)
_LZF_LONG = 224  # from here on the next byte is added
_LZF_BATCH = 1 << 18  # tokens counted at once: their places take memory


def _lzf_length(data: bytes, most: int) -> int:
    """Return how many bytes LZF tokens expand to.

    Raises:
        EncodingError: that is more than `most`, or the last token is cut.
    """
    stored = np.frombuffer(data, np.uint8)
    steps, end, at, length = data.translate(_LZF_STEPS), len(data), 0, 0
    while at < end:
        places = array("I")
        add = places.append
        for _ in range(_LZF_BATCH):
            add(at)
            at += steps[at]
            if at >= end:
                break
        if at > end:
            raise bad_chunk("lzf", "the rest of a token", "the end")
        starts: Any = np.frombuffer(places, np.dtype(places.typecode))
        codes = stored[starts]
        more = stored[starts[codes >= _LZF_LONG] + 1]
        length += int(_LZF_COUNTS[codes].sum(dtype=np.int64)) + int(more.sum(dtype=np.int64))
        if length > most:
            raise bad_chunk("lzf", f"at most {most} bytes", f"{length} or more")
    return length


def _unlzf(data: Chunk, _: tuple[int, ...], most: int) -> Chunk:
    """Expand LZF: runs of literals, and copies of what came up to 8 KiB before.

    The copying is left to h5py's C, which is many times as fast as Python. Given any bytes it stays
    within its output, but takes ever more memory until all of it fits, and where that turns out
    short libhdf5 goes on reading behind it. So the tokens are counted first: h5py gets whole ones
    only, and a chunk that is exactly as long as what they give.
    """
    data = bytes(data)  # a map may be changed between counting and expanding
    length = _lzf_length(data, most)
    try:
        return lzf_expanded(data, length) if length else b""
    except RAISED as error:  # it found a copy of what is before the beginning
        raise bad_chunk("lzf", "copies of what is there", describe(str(error), 200)) from error


# HDF5's numbers for its filters, and h5py's for LZF.
FILTERS: dict[int, Callable[[Chunk, tuple[int, ...], int], Chunk]] = {
    1: _inflated,
    2: _unshuffled,
    3: _unsummed,
    32000: _unlzf,
}
