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

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.errors import EncodingError, Reason, describe
from ztensor.spec.encoding.base import Encoding, Runs, require_decodable, wrong_length
from ztensor.spec.encoding.zstd.codec import ZSTD, Zstd
from ztensor.spec.encoding.zstd.frames import walk_frames
from ztensor.spec.encoding.zstd.held import Held

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from ztensor.limits import Limits
    from ztensor.spec.encoding.base import Bools, Ints, Stored

    Uints = np.ndarray[Any, np.dtype[np.uint64]]

SECTION = "the encoding zt.zstd-seekable/1"
FRAME_MOST = 16 << 20

_HEAD_BYTES, _FOOT_BYTES = 8, 9
_SKIPPABLE, _MAGIC = bytes.fromhex("5E2A4D18"), bytes.fromhex("B1EA928F")
# A table of one entry.
_BEFORE_ONE = _SKIPPABLE + (8 + _FOOT_BYTES).to_bytes(4, "little")
_BEHIND_ONE = (1).to_bytes(4, "little") + b"\0" + _MAGIC
_ONE_ENTRY_BYTES = _HEAD_BYTES + 8 + _FOOT_BYTES
_PIECE_BYTES = 1 << 20
_USUAL_RATIO = 64  # decoded to stored bytes; more is believed after a look at the frames


class Table(NamedTuple):
    """Where the frames lie.

    Attributes:
        stored: (count + 1,) offsets in the stored bytes; the last is where the table begins.
        decoded: (count + 1,) offsets in the decoded bytes.
    """

    stored: Uints
    decoded: Uints


class ZstdSeekable(Encoding):
    """Seekable zstd frames; thread-safe.

    Args:
        zstd: what decodes frames.
    """

    name = "zt.zstd-seekable/1"
    is_written = False  # by this name: who asks for zstd gets it in files of 2.x
    must_shrink = True  # what it makes no smaller is stored raw
    decodes_many = True
    has_table = True

    def __init__(self, zstd: Zstd) -> None:
        self._zstd = zstd

    def table(self, stored: Stored, limits: Limits) -> Table:
        """Return the table, checked as far as it can be without the frames.

        Raises:
            EncodingError: there is none, or it does not fit the stored bytes.
            LimitError: the decoded bytes are more than the cap.
        """
        length = stored.length
        if length < _HEAD_BYTES + _FOOT_BYTES:
            raise _broken("a table at the end", f"{length} stored bytes")
        foot = bytes(stored.read(length - _FOOT_BYTES, _FOOT_BYTES))
        count, descriptor, magic = _uint32(foot), foot[4], foot[5:]
        if magic != _MAGIC:
            raise _broken(f"{_MAGIC!r} as the last bytes", describe(magic))
        if descriptor & 0x7C:
            raise _broken("reserved bits of the table's descriptor to be 0", f"{descriptor:#04x}")
        width = 12 if descriptor & 0x80 else 8
        start = length - _FOOT_BYTES - count * width - _HEAD_BYTES
        if start < 0:
            raise _broken("a table within the stored bytes", f"{count} entries")
        whole = bytes(stored.read(start, _HEAD_BYTES))
        head, size = whole[:4], _uint32(whole[4:])
        if head != _SKIPPABLE or size != length - start - _HEAD_BYTES:
            raise _broken("a skippable frame as long as the table", f"{head!r}, {size} bytes")
        entries = np.frombuffer(stored.read(start + _HEAD_BYTES, count * width), "<u4")
        columns = entries.reshape(count, width // 4)
        if count and int(columns[:, 1].max()) > FRAME_MOST:
            largest = int(columns[:, 1].max())
            raise _broken(f"frames of at most {FRAME_MOST} decoded bytes", f"{largest}")
        table = Table(*(_sums(columns[:, place]) for place in (0, 1)))
        if int(table.stored[-1]) != start:
            raise _broken(
                "the table right behind the frames it lists",
                f"{int(table.stored[-1])} bytes of frames, the table at {start}",
            )
        sizes = columns[:, 1]
        # Frames of one size, all but the last; those without data are in nobody's way.
        if count > 1 and ((sizes[:-1] != sizes[np.argmax(sizes > 0)]) & (sizes[:-1] > 0)).any():
            raise _broken("frames of one decoded size but for the last", "several sizes")
        require_decodable(int(table.decoded[-1]), limits)
        return table

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse stored bytes whose table or frames cannot give `expected_length` bytes.

        The frames are looked at where so many bytes would be much memory for a lie.
        """
        table = self.table(stored, limits)
        _require_length(table, expected_length)
        if expected_length <= _USUAL_RATIO * stored.length:
            return
        most = sum(
            frame.most_length if frame.content_length is None else frame.content_length
            for frame in walk_frames(stored, limits)
        )
        if most < expected_length:
            raise wrong_length(expected_length, f"at most {most} in the frames")

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, frame after frame."""
        table = self.table(stored, limits)
        _require_length(table, len(destination))
        self._zstd_frames(stored, table, 0, len(table.stored) - 1, destination, limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded bytes in order, about 1 MiB or a frame at a time, new memory each."""
        table = self.table(stored, limits)
        if expected_length is not None:
            _require_length(table, expected_length)
        first, count = 0, len(table.stored) - 1
        while first < count:
            begin = int(table.decoded[first])
            last = int(np.searchsorted(table.decoded, begin + _PIECE_BYTES, side="right")) - 1
            last = min(max(last, first + 1), count)
            # Bounded beside what is decoded: an entry may claim 16 MiB over a few bytes.
            chunk = memoryview(bytearray(int(table.decoded[last]) - begin))
            self._zstd_frames(stored, table, first, last, chunk, limits)
            first = last
            if chunk.nbytes:
                yield chunk

    def decode_small(
        self,
        memory: memoryview,
        starts: Ints,
        lengths: Ints,
        targets: Sequence[memoryview],
        limits: Limits,
    ) -> Bools:
        """Decode many frames of one block each, with tables of one entry; see `Encoding`."""
        at = np.arange(_ONE_ENTRY_BYTES)
        stored = lengths - _ONE_ENTRY_BYTES
        data = np.frombuffer(memory, np.uint8)
        tables = data.take(np.maximum(starts + stored, 0)[:, None] + at, mode="clip")
        before, behind = len(_BEFORE_ONE), _ONE_ENTRY_BYTES - len(_BEHIND_ONE)
        sizes = np.fromiter(map(len, targets), np.int64, len(targets))
        told = tables[:, before:behind].copy().view("<u4")
        is_one: Bools = (stored >= 0) & (told == np.stack((stored, sizes), axis=1)).all(axis=1)
        is_one &= (tables[:, :before] == np.frombuffer(_BEFORE_ONE, np.uint8)).all(axis=1)
        is_one &= (tables[:, behind:] == np.frombuffer(_BEHIND_ONE, np.uint8)).all(axis=1)
        some = np.flatnonzero(is_one)
        into = [targets[number] for number in some.tolist()]
        is_one[some] = self._zstd.decode_small(memory, starts[some], stored[some], into, limits)
        return is_one

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs:
        """Return which frames decode to which bytes; only the table is read."""
        table = self.table(stored, limits)
        _require_length(table, expected_length)
        ends = zip(table.stored[1:].tolist(), table.decoded[1:].tolist(), strict=True)
        return Runs.joined(ends)

    def listed_runs(
        self, stored: Stored, extra: Mapping[str, object], expected_length: int, limits: Limits
    ) -> Runs:
        """Return `find_runs`: the table is behind the frames."""
        del extra
        return self.find_runs(stored, expected_length, limits)

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

    def is_streamed(self, stored: Stored) -> bool:
        """Return True: a piece is decoded when it is asked for."""
        del stored
        return True

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
        entries = np.array([*frames], "<u4").tobytes()
        size = (len(entries) + _FOOT_BYTES).to_bytes(4, "little")
        count = (len(entries) // 8).to_bytes(4, "little")
        return b"".join((_SKIPPABLE, size, entries, count, b"\0", _MAGIC))

    def _zstd_frames(
        self,
        stored: Stored,
        table: Table,
        first: int,
        last: int,
        destination: memoryview,
        limits: Limits,
    ) -> None:
        """Decode entries one by one: each has to give exactly what the table says of it."""
        stops, begins = table.stored.tolist(), table.decoded.tolist()
        low, high = stops[first], stops[last]
        if high - low <= _PIECE_BYTES:  # read once, not once for every frame
            stored = Held(stored.read(low, high - low), low)
        base = begins[first]
        for entry in range(first, last):
            if stops[entry] == stops[entry + 1]:
                if begins[entry] != begins[entry + 1]:
                    raise wrong_length(begins[entry + 1] - begins[entry], "no stored bytes")
                continue
            part = destination[begins[entry] - base : begins[entry + 1] - base]
            self.decode_run(stored, stops[entry], stops[entry + 1], part, limits)


def _uint32(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


def _sums(sizes: np.ndarray[Any, np.dtype[np.uint32]]) -> Uints:
    whole = np.zeros(len(sizes) + 1, np.uint64)
    np.cumsum(sizes, dtype=np.uint64, out=whole[1:])
    return whole


def _require_length(table: Table, expected: int) -> None:
    found = int(table.decoded[-1])
    if found != expected:
        raise wrong_length(expected, f"{found} by the table", is_long=found > expected)


def _broken(expected: str, found: str) -> EncodingError:
    return EncodingError(
        "the table of zstd frames is damaged",
        reason=Reason.ENCODING_MALFORMED,
        expected=expected,
        found=found,
        section=SECTION,
    )


ZSTD_SEEKABLE = ZstdSeekable(ZSTD)
