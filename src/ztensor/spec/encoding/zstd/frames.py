"""Frame and block headers: where each frame lies, how long it decodes and what that takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ztensor.errors import EncodingError, LimitError, Reason, UnsupportedError, describe
from ztensor.limits import Limits
from ztensor.spec.encoding.base import Bools, Ints, Stored

HELD_BYTES = 1 << 20  # stored bytes that are read once and kept, even where that copies them
WALKED_BYTES = 64 << 10  # so many where only headers are looked at
LOOK_BYTES = 4 << 10  # one look at headers; of longer frames little is read between them

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"  # after one byte 0x50 to 0x5f
_HEADER_MOST = 18  # magic 4, descriptor 1, window 1, dictionary 4, content size 8
_BLOCK_MOST = 128 << 10  # RFC 8878 section 3.1.1.2.4
_RAW, _REPEATED, _COMPRESSED = 0, 1, 2  # 3 is reserved
_HAS_CHECKSUM, _IS_RESERVED, _IS_ONE_SEGMENT = 0x04, 0x08, 0x20


class Held:
    """Stored bytes that are in memory as one buffer: the bytes from `start` on."""

    __slots__ = ("length", "start", "view")

    def __init__(self, view: memoryview, start: int = 0) -> None:
        self.view = view
        self.start = start
        self.length = start + len(view)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        return self.view[offset - self.start : offset - self.start + length]


def hold(stored: Stored, start: int, stop: int, most: int | None = None) -> Stored:
    """Return a part of `stored` as `Held` where that costs little: short, or a view of a map.

    Args:
        stored: the bytes.
        start: where the part begins.
        stop: where it ends.
        most: bytes that may be copied, 1 MiB by default.
    """
    if isinstance(stored, Held):
        return stored
    if stop - start > (HELD_BYTES if most is None else most):
        # Pieces of one object, as far apart as can be: the source gives views and copies nothing.
        # Not single bytes: those are shared objects in CPython.
        first, last = stored.read(start, 16), stored.read(stop - 16, 16)
        if first.obj is not last.obj:
            return stored
    return Held(stored.read(start, stop - start), start)


class Frame(NamedTuple):
    """What the headers of one frame tell.

    Attributes:
        start: offset of its first byte in the stored bytes.
        stop: offset behind its last byte.
        is_skippable: it holds no data.
        content_length: the decoded length it declares, or None.
        window: bytes a decoder must look back on; the content length of a single-segment frame.
        is_single_segment: its content is its window.
        most_length: no decoder gets more bytes out of its blocks.
    """

    start: int
    stop: int
    is_skippable: bool = False
    content_length: int | None = 0
    window: int = 0
    is_single_segment: bool = False
    most_length: int = 0


def walk_frames(
    stored: Stored, limits: Limits, *, start: int = 0, stop: int | None = None
) -> Iterator[Frame]:
    """Yield the frames of `stored` in order, reading headers only.

    Memory: 64 KiB. Time: linear in the number of blocks, under a microsecond each.

    Args:
        stored: the frames.
        limits: the caps in force.
        start: where the first frame to yield begins.
        stop: where the last one ends; by default behind the last stored byte.

    Raises:
        EncodingError: not one or more whole frames from the first byte to the last.
        UnsupportedError: a frame needs a dictionary.
        LimitError: a frame demands a window over `limits.window_log`. Not raised for
            single-segment frames: one pass decodes them without a window.
    """
    if not stored.length:
        raise EncodingError(
            "zstd data is one or more frames",
            reason=Reason.ENCODING_TRUNCATED,
            expected="at least one frame",
            found="no bytes",
        )
    end = stored.length if stop is None else stop
    look = _Look(hold(stored, start, end, WALKED_BYTES))
    while start < end:
        frame = _parse_frame(look, start, limits)
        yield frame
        start = frame.stop


class _Look:
    """A window that moves over stored bytes, so that headers do not cost one read each."""

    __slots__ = ("base", "length", "stored", "window")

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.length = stored.length
        self.base, self.window = 0, memoryview(b"")
        if isinstance(stored, Held):
            self.base, self.window = stored.start, stored.view

    def at(self, position: int, most: int) -> memoryview:
        """Return the `most` bytes from `position`, or those left there are before the end."""
        start = position - self.base
        if start + most > len(self.window) and self.base + len(self.window) < self.length:
            size = max(0, min(LOOK_BYTES, self.length - position))
            self.window = self.stored.read(position, size) if size else memoryview(b"")
            self.base, start = position, 0
        return self.window[start : start + most]


def window_of(descriptor: int) -> int:
    """Return the window that a frame's descriptor of it demands, in bytes."""
    base = 1 << (10 + (descriptor >> 3))
    return base + (base >> 3) * (descriptor & 7)


def _parse_frame(look: _Look, start: int, limits: Limits) -> Frame:
    head = look.at(start, _HEADER_MOST)
    if bytes(head[:4]) != _MAGIC:
        return _parse_skippable(look, start, head)
    if len(head) < 5:
        raise _truncated(start, look.length)
    descriptor = head[4]
    if descriptor & _IS_RESERVED:
        raise EncodingError(
            f"the zstd frame at stored byte {start} sets a reserved bit",
            reason=Reason.ENCODING_MALFORMED,
            section="RFC 8878, 3.1.1.1.1",
        )
    is_single_segment = bool(descriptor & _IS_ONE_SEGMENT)
    dictionary_at = 6 - is_single_segment
    size_at = dictionary_at + (0, 1, 2, 4)[descriptor & 3]
    blocks_at = size_at + (int(is_single_segment), 2, 4, 8)[descriptor >> 6]
    if len(head) < blocks_at:
        raise _truncated(start, look.length)
    if dictionary := int.from_bytes(head[dictionary_at:size_at], "little"):
        raise UnsupportedError(
            f"the zstd frame at stored byte {start} needs dictionary {dictionary}, "
            "and zTensor files carry none",
            reason=Reason.UNKNOWN_ENCODING,
        )
    content_length: int | None = None
    if blocks_at > size_at:
        added = 256 if descriptor >> 6 == 1 else 0
        content_length = int.from_bytes(head[size_at:blocks_at], "little") + added
    if is_single_segment and content_length is not None:
        window = content_length
    else:
        window = window_of(head[5])
        require_window(window, start, limits)
    stop, most_length = _walk_blocks(look, start, start + blocks_at, min(_BLOCK_MOST, window))
    stop += 4 if descriptor & _HAS_CHECKSUM else 0
    if stop > look.length:
        raise _truncated(start, look.length)
    return Frame(start, stop, False, content_length, window, is_single_segment, most_length)  # noqa: FBT003  # a row


def _walk_blocks(look: _Look, start: int, position: int, block_most: int) -> tuple[int, int]:
    """Return where the last block ends and the most that the blocks can decode to."""
    most_length = 0
    while True:
        head = look.at(position, 3)
        if len(head) < 3:
            raise _truncated(start, look.length)
        header = int.from_bytes(head, "little")
        kind, size = header >> 1 & 3, header >> 3
        if size > block_most or kind > _COMPRESSED or (kind == _COMPRESSED and size < 2):
            # Libraries refuse some of these in one mode and not in another; here the answer is one.
            raise EncodingError(
                f"the zstd block at stored byte {position} has a size or type that no block has",
                reason=Reason.ENCODING_MALFORMED,
                expected=f"type 0 to 2, at most {block_most} bytes, compressed at least 2",
                found=f"type {kind}, {size} bytes",
                section="RFC 8878, 3.1.1.2",
            )
        position += 4 if kind == _REPEATED else 3 + size
        most_length += block_most if kind == _COMPRESSED else size
        if header & 1:
            return position, most_length


def _parse_skippable(look: _Look, start: int, head: memoryview) -> Frame:
    magic = bytes(head[:4])
    may_be_skippable = magic[0] & 0xF0 == 0x50 and _SKIPPABLE_TAIL.startswith(magic[1:])
    stop = start + 8 + int.from_bytes(head[4:8], "little")
    if may_be_skippable and len(head) >= 8 and stop <= look.length:
        return Frame(start, stop, is_skippable=True)
    if may_be_skippable or _MAGIC.startswith(magic):
        raise _truncated(start, look.length)
    raise EncodingError(
        f"no zstd frame begins at stored byte {start}",
        reason=Reason.ENCODING_MALFORMED,
        expected=describe(_MAGIC),
        found=describe(magic),
        section="RFC 8878, 3.1.1",
    )


def _truncated(start: int, length: int) -> EncodingError:
    return EncodingError(
        f"the zstd frame at stored byte {start} goes on behind the last stored byte",
        reason=Reason.ENCODING_TRUNCATED,
        found=f"{length} stored bytes",
    )


def require_window(window: int, start: int, limits: Limits) -> None:
    """Raise where a frame demands more than the cap.

    Raises:
        LimitError: it does.
    """
    if window > 1 << limits.window_log:
        raise LimitError(
            f"the zstd frame at stored byte {start} demands a window of {window} bytes, "
            "more than Limits.window_log allows",
            reason=Reason.LIMIT_WINDOW,
            expected=f"at most {1 << limits.window_log}",
        )


# --- Many at once ---------------------------------------------------------------------------

# By the two high bits of the descriptor of frames in one segment: how many bytes the content size
# takes, which bits of eight bytes that is, and what is added to it.
_SIZE_BYTES = np.array([1, 2, 4, 8])
_SIZE_BITS = np.array([(1 << 8 * count) - 1 for count in _SIZE_BYTES.tolist()], np.uint64)
_SIZE_ADDED = np.array([0, 256, 0, 0], np.uint64)
_HEAD_BYTES = 16  # magic, descriptor, content size of 8 bytes, and the header of a block


def are_small_frames(
    memory: memoryview, starts: Ints, lengths: Ints, sizes: Ints, most_window: int
) -> Bools:
    """Return a mask of the buffers that are exactly one single-block frame that fits a size.

    So is what `walk_frames` finds nothing wrong with, in the forms that writers give little data:
    one segment that says its length, or a window, of at most so many bytes, and no length.

    Args:
        memory: where they are.
        starts: where each begins.
        lengths: how many bytes each has, within the memory.
        sizes: to how many bytes each has to decode.
        most_window: bytes.
    """
    at = np.arange(_HEAD_BYTES)
    heads = np.frombuffer(memory, np.uint8).take(starts[:, None] + at, mode="clip")
    heads[at >= lengths[:, None]] = 0
    is_right: Bools = (heads[:, :4] == np.frombuffer(_MAGIC, np.uint8)).all(axis=1)
    is_right &= (lengths >= 9) & (sizes <= _BLOCK_MOST)
    descriptors, exponents = heads[:, 4], heads[:, 5].astype(np.int64) + (10 << 3)
    windows = (8 + (exponents & 7)) << (exponents >> 3) >> 3  # as `window_of`
    is_right &= (descriptors & 0x1B) == 0  # reserved bits, or a dictionary
    is_one, flags = (descriptors & _IS_ONE_SEGMENT) != 0, descriptors >> 6
    told = (heads[:, 5:13].copy().view("<u8")[:, 0] & _SIZE_BITS[flags]) + _SIZE_ADDED[flags]
    is_right &= np.where(
        is_one, told == sizes.astype(np.uint64), (flags == 0) & (windows <= most_window)
    )
    most = np.where(is_one, sizes, np.minimum(windows, _BLOCK_MOST))
    is_right &= sizes <= most
    behind = np.where(is_one, 5 + _SIZE_BYTES[flags], 6)
    low, middle, high = np.take_along_axis(heads, behind[:, None] + np.arange(3), 1).T.astype(int)
    header = low | middle << 8 | high << 16
    kinds, counts = header >> 1 & 3, header >> 3
    is_right &= (header & 1) == 1
    left = lengths - np.where(descriptors & _HAS_CHECKSUM, 4, 0) - behind - 3
    is_compressed = kinds == _COMPRESSED
    is_right &= np.where(
        is_compressed, (counts >= 2) & (counts <= most), (kinds < _COMPRESSED) & (counts == sizes)
    )
    is_right &= left == np.where(is_compressed | (kinds == _RAW), counts, 1)
    return is_right
