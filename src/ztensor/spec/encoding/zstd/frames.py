"""A walk over frame and block headers: extent, decoded length and window of each frame."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ztensor.errors import EncodingError, LimitError, Reason, UnsupportedError, describe
from ztensor.limits import Limits
from ztensor.spec.encoding.base import Held, Stored, damaged

HELD_BYTES = 1 << 20  # shorter runs of stored bytes are read once and kept, even as a copy
WALKED_BYTES = 64 << 10  # the same bound for a walk over headers
LOOK_BYTES = 4 << 10  # one read of headers: few of the bytes between them are read

_SECTION = "RFC 8878, 3.1.1"
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE_TAIL = b"\x2a\x4d\x18"  # after one byte 0x50 to 0x5f
_HEADER_MOST = 18  # magic 4, descriptor 1, window 1, dictionary 4, content size 8
_BLOCK_MOST = 128 << 10  # RFC 8878 section 3.1.1.2.4
_REPEATED, _COMPRESSED = 1, 2  # 0 is raw, 3 reserved
_HAS_CHECKSUM, _IS_RESERVED, _IS_ONE_SEGMENT = 0x04, 0x08, 0x20


def hold(stored: Stored, start: int, stop: int, most: int | None = None) -> Stored:
    """Return `stored[start:stop]` as `Held` if that is cheap: short, or a view of mapped memory.

    Args:
        stored: the stored bytes.
        start: first byte needed.
        stop: behind the last byte needed.
        most: bytes that may be copied; 1 MiB by default.
    """
    if isinstance(stored, Held):
        return stored
    if stop - start > (HELD_BYTES if most is None else most):
        # If both ends are views of one object, the source is mapped and reading copies nothing.
        # Not single bytes: CPython shares those objects.
        first, last = stored.read(start, 16), stored.read(stop - 16, 16)
        if first.obj is not last.obj:
            return stored
    return Held(stored.read(start, stop - start), start)


class Frame(NamedTuple):
    """The headers of one frame (RFC 8878 section 3.1.1).

    Attributes:
        start: offset of its first byte in the stored bytes.
        stop: offset behind its last byte.
        is_skippable: it holds no data.
        content_length: the declared decoded length; None if none is declared.
        window: window size in bytes; the content length of a single-segment frame.
        most_length: upper bound of the decoded length, from the block headers.
    """

    start: int
    stop: int
    is_skippable: bool = False
    content_length: int | None = 0
    window: int = 0
    most_length: int = 0


def walk_frames(
    stored: Stored, limits: Limits, *, start: int = 0, stop: int | None = None
) -> Iterator[Frame]:
    """Yield the frames of `stored` in order; only headers are read.

    Memory: 64 KiB. Time: linear in the number of blocks, under a microsecond each.

    Args:
        stored: the stored bytes.
        limits: the caps in force.
        start: offset of the first frame to yield.
        stop: offset behind the last one; by default the end of the stored bytes.

    Raises:
        EncodingError: the bytes are not one or more whole frames.
        UnsupportedError: a frame needs a dictionary.
        LimitError: a frame demands a window over `limits.window_log`. Not raised for
            single-segment frames: one pass decodes them without a window.
    """
    if not stored.length:
        raise _truncated(start, stored.length)
    end = stored.length if stop is None else stop
    look = _Look(hold(stored, start, end, WALKED_BYTES))
    while start < end:
        frame = _parse_frame(look, start, limits)
        yield frame
        start = frame.stop


class _Look:
    """A buffered view of stored bytes, so that not every header costs a read."""

    __slots__ = ("base", "length", "stored", "window")

    def __init__(self, stored: Stored) -> None:
        self.stored = stored
        self.length = stored.length
        self.base, self.window = 0, memoryview(b"")
        if isinstance(stored, Held):
            self.base, self.window = stored.start, stored.view

    def at(self, position: int, most: int) -> memoryview:
        """Return `most` bytes from `position`, or fewer at the end."""
        start = position - self.base
        if start + most > len(self.window) and self.base + len(self.window) < self.length:
            size = max(0, min(LOOK_BYTES, self.length - position))
            self.window = self.stored.read(position, size) if size else memoryview(b"")
            self.base, start = position, 0
        return self.window[start : start + most]


def _places(descriptor: int) -> tuple[int, int, int, int]:
    """Return the offsets of dictionary, content size and blocks, and the addend of the size."""
    is_single_segment, size_code = descriptor >> 5 & 1, descriptor >> 6
    dictionary_at = 6 - is_single_segment
    size_at = dictionary_at + (0, 1, 2, 4)[descriptor & 3]
    blocks_at = size_at + (is_single_segment, 2, 4, 8)[size_code]
    return dictionary_at, size_at, blocks_at, 256 if size_code == 1 else 0


_PLACES = tuple(map(_places, range(256)))  # by the descriptor, RFC 8878 section 3.1.1.1.1


def _parse_frame(look: _Look, start: int, limits: Limits) -> Frame:
    head = bytes(look.at(start, _HEADER_MOST))
    if head[:4] != _MAGIC:
        return _parse_skippable(look, start, head)
    if len(head) < 5:
        raise _truncated(start, look.length)
    descriptor = head[4]
    dictionary_at, size_at, blocks_at, added = _PLACES[descriptor]
    if descriptor & _IS_RESERVED:
        message = f"the zstd frame at stored byte {start} sets a reserved bit"
        raise damaged(message, "0", "1", f"{_SECTION}.1.1")
    if len(head) < blocks_at:
        raise _truncated(start, look.length)
    if descriptor & 3 and any(head[dictionary_at:size_at]):
        dictionary = int.from_bytes(head[dictionary_at:size_at], "little")
        raise UnsupportedError(
            f"the zstd frame at stored byte {start} needs dictionary {dictionary}, "
            "and zTensor files carry none",
            reason=Reason.UNKNOWN_ENCODING,
        )
    size = int.from_bytes(head[size_at:blocks_at], "little") + added
    content_length = size if blocks_at > size_at else None
    window = size
    if not descriptor & _IS_ONE_SEGMENT:
        window = (8 + (head[5] & 7)) << (7 + (head[5] >> 3))
        require_window(window, start, limits)
    stop, most_length = _walk_blocks(look, start, start + blocks_at, min(_BLOCK_MOST, window))
    stop += 4 if descriptor & _HAS_CHECKSUM else 0
    if stop > look.length:
        raise _truncated(start, look.length)
    return Frame(start, stop, False, content_length, window, most_length)  # noqa: FBT003  # a row


def _walk_blocks(look: _Look, start: int, position: int, block_most: int) -> tuple[int, int]:
    """Return the offset behind the last block, and the upper bound of the decoded length."""
    most_length = 0
    while True:
        head = look.at(position, 3)
        if len(head) < 3:
            raise _truncated(start, look.length)
        header = int.from_bytes(head, "little")
        kind, size = header >> 1 & 3, header >> 3
        if size > block_most or kind > _COMPRESSED or (kind == _COMPRESSED and size < 2):
            # Libraries refuse some of these in one mode only; all are refused here.
            message = f"the zstd block at stored byte {position} has an invalid size or type"
            expected = f"type 0 to 2, at most {block_most} bytes, compressed at least 2"
            raise damaged(message, expected, f"type {kind}, {size} bytes", f"{_SECTION}.2")
        position += 4 if kind == _REPEATED else 3 + size
        most_length += block_most if kind == _COMPRESSED else size
        if header & 1:
            return position, most_length


def _parse_skippable(look: _Look, start: int, head: bytes) -> Frame:
    magic = head[:4]
    may_be_skippable = magic[0] & 0xF0 == 0x50 and _SKIPPABLE_TAIL.startswith(magic[1:])
    stop = start + 8 + int.from_bytes(head[4:8], "little")
    if may_be_skippable and len(head) >= 8 and stop <= look.length:
        return Frame(start, stop, is_skippable=True)
    if may_be_skippable or _MAGIC.startswith(magic):
        raise _truncated(start, look.length)
    message = f"no zstd frame begins at stored byte {start}"
    raise damaged(message, describe(_MAGIC), describe(magic), _SECTION)


def _truncated(start: int, length: int) -> EncodingError:
    return EncodingError(
        f"the zstd frame at stored byte {start} is cut",
        reason=Reason.ENCODING_TRUNCATED,
        found=f"{length} stored bytes",
    )


def require_window(window: int, start: int, limits: Limits) -> None:
    """Check a window against `Limits.window_log`.

    Raises:
        LimitError: it is larger.
    """
    if window > 1 << limits.window_log:
        raise LimitError(
            f"the zstd frame at stored byte {start} demands a window of {window} bytes, "
            "more than Limits.window_log allows",
            reason=Reason.LIMIT_WINDOW,
            expected=f"at most {1 << limits.window_log}",
        )
