"""`zt.zstd-seekable/1`: zstd frames of equal decoded size, then their offset table (2.x).

| at the end of the stored bytes | |
| --- | --- |
| `5E 2A 4D 18`, u32 | a skippable frame, and the length of the rest |
| u32, u32 [, u32] per frame | stored size, decoded size, optionally part of a checksum |
| u32, u8, `B1 EA 92 8F` | number of frames, descriptor, magic |

With the table a reader fetches only the frames of a slice. The table is not trusted: its sizes must
add up before anything is allocated, and each frame must decode to exactly its entry's size.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from ztensor.errors import EncodingError, Reason, describe
from ztensor.limits import Limits
from ztensor.spec.encoding.base import (
    Encoding,
    Runs,
    Stored,
    damaged,
    wrong_length,
)
from ztensor.spec.encoding.zstd.codec import ZSTD, Zstd
from ztensor.spec.encoding.zstd.frames import hold, walk_frames

SECTION = "the encoding zt.zstd-seekable/1"
FRAME_MOST = 16 << 20

_HEAD, _ENTRY, _FOOT = struct.Struct("<4sI"), struct.Struct("<II"), struct.Struct("<IB4s")
_SKIPPABLE, _MAGIC = bytes.fromhex("5E2A4D18"), bytes.fromhex("B1EA928F")
_END_OF_ONE = _HEAD.size + _ENTRY.size + _FOOT.size  # bytes of the table of one frame
_USUAL_RATIO = 64  # decoded to stored bytes; above it the frame headers are checked too


class ZstdSeekable(Encoding):
    """Seekable zstd frames; thread-safe.

    Args:
        zstd: the codec of the frames.
    """

    name = "zt.zstd-seekable/1"
    is_written = False  # not by this name: the option `zstd` selects it in files of 2.x
    must_shrink = True
    has_table = True

    def __init__(self, zstd: Zstd) -> None:
        self._zstd = zstd

    def table(self, stored: Stored, limits: Limits, expected_length: int | None = None) -> Runs:
        """Parse the table, and check it as far as possible without the frames.

        Raises:
            EncodingError: there is no table, or it does not fit the stored bytes or the length.
            LimitError: the decoded bytes are more than the cap.
        """
        length = stored.length
        if length < _HEAD.size + _FOOT.size:
            raise _broken("a table at the end", f"{length} stored bytes")
        count, descriptor, magic = _FOOT.unpack(stored.read(length - _FOOT.size, _FOOT.size))
        if magic != _MAGIC:
            raise _broken(f"{_MAGIC!r} as the last bytes", describe(magic))
        if descriptor & 0x7C:
            raise _broken("reserved bits of the table's descriptor to be 0", f"{descriptor:#04x}")
        width = 12 if descriptor & 0x80 else 8
        start = length - _FOOT.size - count * width - _HEAD.size
        if start < 0:
            raise _broken("a table within the stored bytes", f"{count} entries")
        head, size = _HEAD.unpack(stored.read(start, _HEAD.size))
        if head != _SKIPPABLE or size != length - start - _HEAD.size:
            raise _broken("a skippable frame as long as the table", f"{head!r}, {size} bytes")
        entries = np.frombuffer(stored.read(start + _HEAD.size, count * width), "<u4")
        columns = entries.reshape(count, width // 4)
        sizes = columns[:, 1]
        if count and (largest := int(sizes.max())) > FRAME_MOST:
            raise _broken(f"frames of at most {FRAME_MOST} decoded bytes", f"{largest}")
        table = Runs(_sums(columns[:, 0]), _sums(sizes))
        if table.stored[-1] != start:
            raise _broken(
                "the table right behind the frames it lists",
                f"{table.stored[-1]} bytes of frames, the table at {start}",
            )
        # All frames but the last have one decoded size; empty frames are allowed anywhere.
        if count > 1 and ((sizes[:-1] != sizes[np.argmax(sizes > 0)]) & (sizes[:-1] > 0)).any():
            raise _broken("frames of one decoded size, except the last", "several sizes")
        total = table.decoded[-1]
        self.require_decodable(total, limits)
        if expected_length is not None and total != expected_length:
            is_long = total > expected_length
            raise wrong_length(expected_length, f"{total} in the table", is_long=is_long)
        return table

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs:
        """Return the offset table. Reads the table only, and frame headers above a high ratio.

        A false table could otherwise make a reader allocate far more than the file contains.
        """
        table = self.table(stored, limits, expected_length)
        if expected_length > _USUAL_RATIO * stored.length:
            most = sum(
                frame.most_length if frame.content_length is None else frame.content_length
                for frame in walk_frames(stored, limits)
            )
            if most < expected_length:
                raise wrong_length(expected_length, f"at most {most} in the frames")
        return Runs.joined(zip(table.stored[1:], table.decoded[1:], strict=True))

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Decode into `destination` (flat, bytes, writable), frame by frame; fill it exactly."""
        length, total = stored.length - _END_OF_ONE, len(destination)
        if length >= 0 and total <= FRAME_MOST:  # most components have one frame
            table_of_one = self.end([(length, total)])
            if stored.read(length, len(table_of_one)) == table_of_one:
                self.decode_run(stored, 0, length, destination, limits)
                return
        for _ in self._decode(stored, total, limits, lambda start, stop: destination[start:stop]):
            pass

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, one frame at a time, each in new memory."""

        def new(start: int, stop: int) -> memoryview:
            # At most 16 MiB, even if an entry claims more than its frame holds.
            return memoryview(bytearray(stop - start))

        yield from filter(len, self._decode(stored, expected_length, limits, new))

    def _decode(
        self,
        stored: Stored,
        expected_length: int | None,
        limits: Limits,
        target: Callable[[int, int], memoryview],
    ) -> Iterator[memoryview]:
        """Decode frame by frame into `target(start, stop)`; each must have its entry's size."""
        table = self.table(stored, limits, expected_length)
        stored = hold(stored, 0, table.stored[-1])
        for (start, begin), (stop, end) in itertools.pairwise(
            zip(table.stored, table.decoded, strict=True)
        ):
            part = target(begin, end)
            if start < stop:
                self.decode_run(stored, start, stop, part, limits)
            elif part.nbytes:
                raise wrong_length(part.nbytes, "no stored bytes")
            yield part

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Decode the frames in `[start, stop)` into `destination`; fill it exactly."""
        try:
            self._zstd.decode_run(stored, start, stop, destination, limits)
        except EncodingError as error:
            if error.reason is Reason.ENCODING_TRUNCATED:  # the table follows: nothing is cut off
                error.reason = Reason.ENCODING_MALFORMED
            raise

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes | memoryview]:
        """Yield `data` (flat, bytes) as frames with a checksum each; no frame for no data.

        The table is not included: see `end`.
        """
        if len(data):
            yield from self._zstd.encode(
                data, level=level, frame_bytes=frame_bytes, has_checksum=True
            )

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return the table of frames, given as pairs of stored and decoded length."""
        entries = b"".join(_ENTRY.pack(*frame) for frame in frames)
        foot = _FOOT.pack(len(entries) // _ENTRY.size, 0, _MAGIC)
        return _HEAD.pack(_SKIPPABLE, len(entries) + len(foot)) + entries + foot


def _sums(sizes: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> array[int]:
    """Return the offsets of frames from their sizes: 0, then the end of each."""
    return array(
        "Q", np.cumsum(np.append(np.zeros(1, np.uint64), sizes), dtype=np.uint64).tobytes()
    )


def _broken(expected: str, found: str) -> EncodingError:
    return damaged("the table of zstd frames is damaged", expected, found, SECTION)


ZSTD_SEEKABLE = ZstdSeekable(ZSTD)
