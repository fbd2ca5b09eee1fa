"""The decoders of HDF5's filters, from bytes to bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import EncodingError, Reason
from ztensor.formats import deflate
from ztensor.formats.hdf5.messages import Filter

if TYPE_CHECKING:
    from collections.abc import Callable


Chunk = bytes | bytearray | memoryview
_SLACK_BYTES = 64  # checksums


def bad_chunk(problem: str, expected: object, found: object) -> EncodingError:
    """Return the error for a chunk that cannot be decoded."""
    return EncodingError(
        f"a chunk cannot be decoded: {problem}",
        reason=Reason.ENCODING_MALFORMED,
        expected=str(expected),
        found=str(found),
    )


def unfiltered(data: Chunk, filters: tuple[Filter, ...], skipped: int, most: int) -> Chunk:
    """Return a chunk decoded by all of its filters, in reverse order.

    Args:
        data: the stored chunk.
        filters: its filters, all in `FILTERS`.
        skipped: bit i is set if filter i was not applied.
        most: the largest decoded length.

    Raises:
        EncodingError: the chunk is damaged.
    """
    for number in reversed(range(len(filters))):
        if not skipped >> number & 1:
            code, parameters = filters[number]
            data = FILTERS[code](data, parameters, most + _SLACK_BYTES)
    return data


def _inflated(data: Chunk, _: tuple[int, ...], most: int) -> bytes:
    return deflate.inflated(data, most)


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
    stored_sums = (int.from_bytes(stored[:2], "little"), int.from_bytes(stored[2:], "little"))
    if len(stored) < 4 or tuple(value % 65535 for value in stored_sums) != sums:
        raise bad_chunk("fletcher32", sums, stored_sums)
    return body


def _unlzf(data: Chunk, _: tuple[int, ...], most: int) -> bytearray:
    """Expand LZF: runs of literals, and copies from up to 8 KiB before.

    A token begins with a byte. From 0 to 31, it is the number of literals that follow, less one.
    Else its upper three bits are the length of a copy less two (if 7, the next byte is added), and
    its lower five bits with the last byte of the token are the distance less one.
    """
    data, out, at = bytes(data), bytearray(), 0
    end = len(data)
    try:
        while at < end:
            code = data[at]
            at += 1
            if code < 32:
                start, at = at, at + code + 1
                out += data[start:at]
                continue
            length = (code >> 5) + 2
            if code >= 224:
                length += data[at]
                at += 1
            distance = ((code & 31) << 8) + data[at] + 1
            at += 1
            size = len(out)
            if distance > size or size + length > most:
                raise bad_chunk("lzf", f"copies within {most} bytes", (size, distance, length))
            piece = out[size - distance : size - distance + length]
            if length > distance:  # the copy overlaps itself
                piece = (piece * (length // distance + 1))[:length]
            out += piece
    except IndexError:
        at = end + 1
    if at > end or len(out) > most:
        raise bad_chunk("lzf", f"whole tokens of at most {most} bytes", len(out))
    return out


# HDF5's numbers for its filters, and h5py's for LZF.
FILTERS: dict[int, Callable[[Chunk, tuple[int, ...], int], Chunk]] = {
    1: _inflated,
    2: _unshuffled,
    3: _unsummed,
    32000: _unlzf,
}

# HDF5's own filters that are not decoded here.
_NAMES = {4: "szip", 5: "n-bit", 6: "scale-offset"}


def filter_name(code: int) -> str:
    """Return the name of a filter that is not in `FILTERS`, or its number."""
    return _NAMES.get(code, str(code))
