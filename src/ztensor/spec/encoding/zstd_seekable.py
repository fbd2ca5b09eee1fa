"""`zt.zstd-seekable/1`: zstd frames of one decoded size, then a table that says where each lies.

| at the end of the stored bytes | |
| --- | --- |
| `5E 2A 4D 18`, u32 | a skippable frame, and the length of what follows |
| u32, u32 [, u32] for each entry | stored size, decoded size, perhaps part of a checksum |
| u32, u8, `B1 EA 92 8F` | number of entries, descriptor, magic |

The table alone tells which frames some bytes are in, so that no others are read. It is believed as
far as the bytes bear it out: sizes have to add up before anything is allocated, and each entry has
to decode to exactly what it says.
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
    require_decodable,
    wrong_length,
)
from ztensor.spec.encoding.zstd.codec import ZSTD, Zstd
from ztensor.spec.encoding.zstd.frames import hold, walk_frames

SECTION = "the encoding zt.zstd-seekable/1"
FRAME_MOST = 16 << 20

_HEAD, _ENTRY, _FOOT = struct.Struct("<4sI"), struct.Struct("<II"), struct.Struct("<IB4s")
_SKIPPABLE, _MAGIC = bytes.fromhex("5E2A4D18"), bytes.fromhex("B1EA928F")
_END_OF_ONE = _HEAD.size + _ENTRY.size + _FOOT.size  # the table of one frame
_USUAL_RATIO = 64  # decoded to stored bytes; more is believed after a look at the frames


class ZstdSeekable(Encoding):
    """Seekable zstd frames; thread-safe.

    Args:
        zstd: what decodes frames.
    """

    name = "zt.zstd-seekable/1"
    is_written = False  # by this name: who asks for zstd gets it in files of 2.x
    must_shrink = True  # what it makes no smaller is stored raw
    has_table = True

    def __init__(self, zstd: Zstd) -> None:
        self._zstd = zstd

    def table(self, stored: Stored, limits: Limits, expected_length: int | None = None) -> Runs:
        """Return where each frame lies, checked as far as it can be without the frames.

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
        # Frames of one size, all but the last; those without data are in nobody's way.
        if count > 1 and ((sizes[:-1] != sizes[np.argmax(sizes > 0)]) & (sizes[:-1] > 0)).any():
            raise _broken("frames of one decoded size but for the last", "several sizes")
        total = table.decoded[-1]
        require_decodable(total, limits)
        if expected_length is not None and total != expected_length:
            is_long = total > expected_length
            raise wrong_length(expected_length, f"{total} by the table", is_long=is_long)
        return table

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs:
        """Return which frames decode to which bytes.

        Only the table is read. The frames are looked at where so many bytes would be much memory
        for a lie.
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
        """Fill `destination` (flat, bytes, writable) exactly, frame after frame."""
        length, total = stored.length - _END_OF_ONE, len(destination)
        if length >= 0 and total <= FRAME_MOST:  # most have one frame
            one = self.end([(length, total)])
            if stored.read(length, len(one)) == one:
                self.decode_run(stored, 0, length, destination, limits)
                return
        for _ in self._decode(stored, total, limits, lambda start, stop: destination[start:stop]):
            pass

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, a frame at a time, new memory each."""

        def new(start: int, stop: int) -> memoryview:
            # Bounded beside what is decoded: an entry may claim 16 MiB over a few bytes.
            return memoryview(bytearray(stop - start))

        yield from filter(len, self._decode(stored, expected_length, limits, new))

    def _decode(
        self,
        stored: Stored,
        expected_length: int | None,
        limits: Limits,
        target: Callable[[int, int], memoryview],
    ) -> Iterator[memoryview]:
        """Decode entries one by one: each has to give exactly what the table says of it."""
        table = self.table(stored, limits, expected_length)
        stored = hold(stored, 0, table.stored[-1])
        for (start, begin), (stop, end) in itertools.pairwise(zip(*table, strict=True)):
            part = target(begin, end)
            if start < stop:
                self.decode_run(stored, start, stop, part, limits)
            elif part.nbytes:
                raise wrong_length(part.nbytes, "no stored bytes")
            yield part

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` exactly with what the frames from `start` to `stop` decode to."""
        try:
            self._zstd.decode_run(stored, start, stop, destination, limits)
        except EncodingError as error:
            if error.reason is Reason.ENCODING_TRUNCATED:  # not the end of what is stored
                error.reason = Reason.ENCODING_MALFORMED
            raise

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes | memoryview]:
        """Yield `data` (flat, bytes) as frames with a checksum each; no data, no frame.

        The table follows when all are made: see `end`.
        """
        if len(data):
            yield from self._zstd.encode(
                data, level=level, frame_bytes=frame_bytes, has_checksum=True
            )

    def end(self, frames: Iterable[tuple[int, int]]) -> bytes:
        """Return the table behind frames: the stored and the decoded length of each."""
        entries = b"".join(_ENTRY.pack(*frame) for frame in frames)
        foot = _FOOT.pack(len(entries) // _ENTRY.size, 0, _MAGIC)
        return _HEAD.pack(_SKIPPABLE, len(entries) + len(foot)) + entries + foot


def _sums(sizes: np.ndarray[tuple[int], np.dtype[np.uint32]]) -> array[int]:
    """Return where frames of these sizes begin, and where the last ends."""
    return array(
        "Q", np.cumsum(np.append(np.zeros(1, np.uint64), sizes), dtype=np.uint64).tobytes()
    )


def _broken(expected: str, found: str) -> EncodingError:
    return damaged("the table of zstd frames is damaged", expected, found, SECTION)


ZSTD_SEEKABLE = ZstdSeekable(ZSTD)
