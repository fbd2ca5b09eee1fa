"""The index at the end of the stored bytes: where the planes of each block are.

| at the end of the stored bytes | |
| --- | --- |
| u32 per block and plane | bits 31 and 30 the kind of stream, the others its stored bytes |
| u32, u8, u8, u16 | elements of a block, transform, bytes of an element, 0 |
| u32, `ZPL1` | number of blocks, magic |
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ztensor.errors import EncodingError, Reason, describe
from ztensor.ext import Encoding, Runs, Stored, streams
from ztensor.limits import Limits
from ztensor.planes.transforms import WIDTHS

SECTION = "the encoding pyztensor.planes/1"
MOST_ELEMENTS = 1 << 22  # of a block

_TRAILER = np.dtype("<u4, u1, u1, <u2, <u4, S4")
_MAGIC = b"ZPL1"
_KIND_SHIFT = 30
_SIZE = (1 << _KIND_SHIFT) - 1
# The index of a tensor in usual blocks has at most one byte in so many decoded ones.
_USUAL_PART = 1 << 14
_USUAL_BYTES = 256


class Index(NamedTuple):
    """The facts of the blocks: `Runs.detail`.

    Attributes:
        transform: see `transforms.py`.
        width: bytes of an element.
        kinds: (blocks, width) uint8, the kind of each stream.
        lengths: (blocks, width) int64, its stored bytes.
    """

    transform: int
    width: int
    kinds: np.ndarray[Any, np.dtype[np.uint8]]
    lengths: np.ndarray[Any, np.dtype[np.int64]]


def tail_of(
    lengths: Sequence[int], transform: int, width: int, elements: int, block_elements: int
) -> bytes:
    """Return index and trailer.

    Args:
        lengths: stored bytes of each stream, block by block.
        transform: see `transforms.py`.
        width: bytes of an element.
        elements: of the tensor.
        block_elements: of each block except the last.
    """
    count = len(lengths) // width
    sizes = np.asarray(lengths, "<u4").reshape(count, width)
    decoded = np.full((count, 1), block_elements, "<u4")
    decoded[-1:] = elements - (count - 1) * block_elements
    kinds = np.full(sizes.shape, streams.FRAME, "<u4")
    kinds[sizes == 1] = streams.REPEATED  # no frame is that short
    kinds[sizes == decoded] = streams.RAW
    trailer = np.array((block_elements, transform, width, 0, count, _MAGIC), _TRAILER).tobytes()
    index: bytes = (kinds << _KIND_SHIFT | sizes).astype("<u4").tobytes()
    return index + trailer


def parse_tail(stored: Stored, expected_length: int, limits: Limits) -> Runs:
    """Return the blocks, with an `Index`; the stored bytes are read at their end only, once.

    Raises:
        EncodingError: there is no index, or it does not fit the stored bytes or the length.
        LimitError: the decoded bytes are more than the cap.
    """
    Encoding.require_decodable(expected_length, limits)
    length = stored.length
    if length < _TRAILER.itemsize:
        raise malformed("a trailer at the end", f"{length} stored bytes")
    usual = _TRAILER.itemsize + _USUAL_BYTES + expected_length // _USUAL_PART
    tail = stored.read(max(0, length - usual), min(usual, length))
    trailer = np.frombuffer(tail[-_TRAILER.itemsize :], _TRAILER)[0].item()
    elements, transform, width, zero, count, magic = trailer
    if magic != _MAGIC:
        raise malformed(f"{_MAGIC!r} as the last bytes", describe(magic))
    if zero or width not in WIDTHS.get(transform, ()) or not 0 < elements <= MOST_ELEMENTS:
        found = f"{elements} elements in a block, transform {transform}, width {width}, {zero}"
        raise malformed("known values in the trailer", found)
    total, rest = divmod(expected_length, width)
    if rest or count != -(-total // elements):
        found = f"{count} blocks of {elements} elements of {width} bytes"
        raise malformed(f"blocks for {expected_length} bytes", found)
    nbytes = 4 * width * count + _TRAILER.itemsize
    if nbytes > length:
        raise malformed("an index within the stored bytes", f"{count} blocks")
    if nbytes > len(tail):
        tail = stored.read(length - nbytes, nbytes)
    entries = np.frombuffer(tail[len(tail) - nbytes : -_TRAILER.itemsize], "<u4")
    entries = entries.reshape(count, width)
    kinds = (entries >> _KIND_SHIFT).astype(np.uint8)
    sizes = (entries & _SIZE).astype(np.int64)
    decoded = np.full((count, 1), elements)
    decoded[-1:] = total - (count - 1) * elements
    is_wrong = (kinds == streams.RAW) & (sizes != decoded)
    is_wrong |= (kinds == streams.REPEATED) & (sizes != 1)
    is_wrong |= kinds > streams.REPEATED
    if is_wrong.any():
        block, plane = map(int, np.argwhere(is_wrong)[0])
        found = f"kind {kinds[block, plane]}, {sizes[block, plane]} bytes"
        raise malformed(f"a stream of a known kind in block {block}, plane {plane}", found)
    ends = np.cumsum(sizes.sum(axis=1))
    end = int(ends[-1]) if count else 0
    if end != length - nbytes:
        raise malformed("the index right behind the streams that it lists", f"{end} bytes of them")
    starts = array("Q", [0, *ends.tolist()])
    places = array("Q", [*range(0, expected_length, elements * width), expected_length])
    return Runs(starts, places, Index(transform, width, kinds, sizes))


def malformed(expected: str, found: str) -> EncodingError:
    """Return the error for stored bytes that break a rule of the encoding."""
    return EncodingError(
        "the planes are malformed",
        reason=Reason.ENCODING_MALFORMED,
        expected=expected,
        found=found,
        section=SECTION,
    )
