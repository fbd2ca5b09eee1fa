"""One segment of a sparse stream: positions and values of changed elements, as bytes and back.

```text
segment  u8 K (1..8), K x u8 upper limit of the class byte (rising, the last 255)
         K x { u32 members, u32 changed, u8 positions: 0 none 1 gaps 2 bitmap 3 all,
               u8 gap width 1, 2, 4 (0 without gaps), u8 value planes 0..width }
         class by class: gap planes (low byte first) or the bitmap (bit 0 first), value planes
stream   u8 0 raw | 1 zstd frame with content size | 2 repeated byte; u32 stored bytes; the bytes
```

Numbers are little-endian. Classes: see `classes.py`. A rank is the number of an element within its
class and segment. A gap is a rank less the previous rank less one; the first follows rank -1.
A difference is the zigzag code of new bits less old bits, wrapping; missing planes are zero.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from ztensor.delta.classes import (
    LAST,
    choose_limits,
    class_bytes,
    has_classes,
    indices_of,
    members_of,
)
from ztensor.delta.errors import DeltaReason, malformed, needs_base, require
from ztensor.errors import ZTensorError, describe
from ztensor.ext import streams
from ztensor.limits import DEFAULT_LIMITS
from ztensor.typing import Array

# Ascending positions, (changed,) int64, and unsigned values of the elements' width, (changed,).
Changes: TypeAlias = tuple[Array, Array]
# The head of a class, and the heads and bytes of its streams.
_Coded: TypeAlias = tuple[bytes, list[bytes | memoryview]]

_CLASS_HEAD = struct.Struct("<IIBBB")
_STREAM_HEAD = struct.Struct("<BI")
_MOST_CLASSES = 8
_NONE, _GAPS, _BITMAP, _ALL = range(4)
_BITMAP_SHARE = 5  # where more than one member in so many changed, a bitmap is shorter
_TRIED_BYTES = 16 << 10  # so much of a longer stream shows if it has matches, as of whole rows
_UINT8, _INT64 = np.dtype("u1"), np.dtype("<i8")


def zigzag(differences: Array) -> Array:
    """Return the codes of wrapping differences: 0, -1, 1, -2, ... become 0, 1, 2, 3, ..."""
    codes: Array = differences >> (differences.itemsize * 8 - 1)
    np.negative(codes, out=codes)
    codes ^= differences << 1
    return codes


def unzigzag(codes: Array) -> Array:
    """Return the wrapping differences of codes."""
    differences: Array = codes & 1
    np.negative(differences, out=differences)
    differences ^= codes >> 1
    return differences


# Differences by codes of one byte, for each width of elements. For a few codes one call takes half
# the time of six; for many it takes longer.
_SHORT = 1 << 14
_DIFFERENCES = {width: unzigzag(np.arange(256).astype(f"<u{width}")) for width in (1, 2, 4, 8)}


# --- Writing --------------------------------------------------------------------------------------


def encode_segment(before: Array, after: Array, *, is_difference: bool, has_classes: bool) -> bytes:
    """Return the bytes of a segment; none if nothing changed.

    Args:
        before: the old elements, (elements,) unsigned integers of their width.
        after: the new elements, likewise.
        is_difference: True stores differences, False new bits.
        has_classes: divide the elements into classes where that is shorter.
    """
    positions = indices_of(np.not_equal(before, after))
    if not positions.size:
        return b""
    values = after[positions]
    if is_difference:
        values -= before[positions]
        values = zigzag(values)
    if not has_classes:
        return encode_positions(positions, values, before.size)
    classes = class_bytes(before)
    changed = classes[positions]
    limits = choose_limits(classes, changed)
    if len(limits) == 1:
        return encode_positions(positions, values, before.size)
    numbers = np.searchsorted(limits, np.arange(256)).astype(np.uint8)[changed]
    coded = []
    for number, members in enumerate(members_of(classes, limits)):
        of_class = numbers == number
        ranks = members.ranks(positions[of_class])
        coded.append(_encode_class(ranks, values[of_class], members.count))
    return _joined(limits, coded)


def encode_positions(positions: Array, codes: Array, elements: int) -> bytes:
    """Return the bytes of a segment of one class.

    Args:
        positions: of the changed elements in the segment, (changed,) int64, ascending, not empty.
        codes: of their values, (changed,) unsigned integers of the elements' width.
        elements: of the segment.
    """
    return _joined([LAST], [_encode_class(positions, codes, elements)])


def _joined(limits: list[int], coded: list[_Coded]) -> bytes:
    heads = [bytes([len(limits), *limits]), *(head for head, _ in coded)]
    return b"".join(itertools.chain(heads, *(body for _, body in coded)))


def _encode_class(ranks: Array, codes: Array, members: int) -> _Coded:
    kind, gap_width, planes = _NONE, 0, 0
    body: list[bytes | memoryview] = []
    if not ranks.size:
        pass
    elif ranks.size == members:
        kind = _ALL
    elif ranks.size * _BITMAP_SHARE > members:
        kind = _BITMAP
        flags = np.zeros(members, bool)
        flags[ranks] = True
        body += _encode_stream(np.packbits(flags, bitorder="little"))
    else:
        kind = _GAPS
        gaps = ranks.copy()
        gaps[1:] -= ranks[:-1] + 1
        gap_width = {1: 1, 2: 2}.get(_bytes_of(gaps), 4)
        body += _encode_planes(gaps.astype(f"<u{gap_width}"), gap_width)
    if ranks.size:
        planes = _bytes_of(codes)
        body += _encode_planes(codes, planes)
    return _CLASS_HEAD.pack(members, ranks.size, kind, gap_width, planes), body


def _bytes_of(numbers: Array) -> int:
    """Return the bytes of the largest number; 0 for zero."""
    return (int(numbers.max()).bit_length() + 7) // 8


def _encode_planes(numbers: Array, planes: int) -> list[bytes | memoryview]:
    """Return the streams of the lowest bytes of unsigned numbers, lowest first."""
    columns = numbers.view(np.uint8).reshape(-1, numbers.itemsize)
    body: list[bytes | memoryview] = []
    for plane in range(planes):
        body += _encode_stream(np.ascontiguousarray(columns[:, plane]))
    return body


def _encode_stream(data: Array) -> list[bytes | memoryview]:
    """Return the head of a stream and its bytes in their shortest form."""
    raw = data.data
    has_matches = True
    if len(raw) > _TRIED_BYTES:
        middle = len(raw) // 2
        tried = raw[middle - _TRIED_BYTES // 2 : middle + _TRIED_BYTES // 2]
        has_matches = streams.encode(tried, has_matches=True) != streams.encode(tried)
    kind, stored = streams.encode(raw, has_matches=has_matches)
    return [_STREAM_HEAD.pack(kind, len(stored)), stored]


# --- Reading --------------------------------------------------------------------------------------


class _Class(NamedTuple):
    """The head of a class; the fields are those in the table above."""

    members: int
    changed: int
    kind: int
    gap_width: int
    planes: int

    def is_valid(self, width: int) -> bool:
        """Return whether the fields fit each other, and elements of `width` bytes."""
        members, changed, kind, gap_width, planes = self
        if not changed:
            return kind == gap_width == planes == 0
        if kind == _GAPS:
            has_form = gap_width in (1, 2, 4)
        else:
            has_form = not gap_width and (kind == _BITMAP or (kind == _ALL and changed == members))
        return has_form and changed <= members and planes <= width


class Segment:
    """A segment with checked heads; its streams are checked when they are decoded.

    Only one iteration over its changes may be under way.

    Args:
        blob: the bytes of the whole stream.
        offset: of the segment in the stream.
        end: of the segment in the stream.
        elements: of the segment.
        dtype: of the elements.

    Attributes:
        elements: the argument.
        changed: the number of changed elements.
        has_classes: whether positions are counted within classes.

    Raises:
        DeltaError: a head breaks a rule (`delta_malformed`).
    """

    def __init__(
        self, blob: memoryview, offset: int, end: int, elements: int, dtype: np.dtype[Any]
    ) -> None:
        count = blob[offset]
        most = _MOST_CLASSES if has_classes(dtype) else 1
        if not 1 <= count <= most:
            refuse("the number of classes is invalid", offset, f"1 to {most}", count)
        heads = offset + 1 + count
        body = heads + count * _CLASS_HEAD.size
        if body > end:
            refuse("the heads of a segment are cut off", offset, body - offset, end - offset)
        limits = blob[offset + 1 : heads].tolist()
        if limits[-1] != LAST or sorted(set(limits)) != limits:
            refuse("the limits of classes do not rise to 255", offset + 1, "rising", limits)
        classes = list(map(_Class._make, _CLASS_HEAD.iter_unpack(blob[heads:body])))
        members = changed = 0
        for one in classes:
            if not one.is_valid(dtype.itemsize):
                refuse("the head of a class is invalid", heads, "fields that fit", tuple(one))
            members += one.members
            changed += one.changed
        if members != elements:
            refuse("members are not the segment's elements", heads, elements, members)
        if not changed:
            refuse("a stored segment has no changes", heads, "1 or more", 0)
        self._blob, self._end, self._limits, self._classes = blob, end, limits, classes
        self._unsigned = np.dtype(f"<u{dtype.itemsize}")
        self._body, self.changed, self.elements = body, changed, elements

    @property
    def has_classes(self) -> bool:
        """Return whether positions are counted within classes."""
        return len(self._limits) > 1

    def changes(self, old: Array | None, *, is_difference: bool) -> Iterator[Changes]:
        """Yield positions in the segment, ascending, and values, for each class with changes.

        Args:
            old: the old elements, (elements,) unsigned integers; None unless `has_classes`.
            is_difference: whether values are differences.
        """
        self._offset, every = self._body, None  # of the next stream
        if self.has_classes:
            if old is None:
                raise needs_base("the positions of changes are counted with the old elements")
            every = members_of(class_bytes(old), self._limits)
        for one in self._classes:
            members = None if every is None else next(every)
            count = one.members if members is None else members.count
            message = "the base has another number of elements in a class"
            require(count == one.members, message, count, reason=DeltaReason.BASE)
            if not one.changed:
                continue
            ranks = self._ranks(one)
            start = self._offset
            is_short = is_difference and one.planes == 1 and one.changed < _SHORT
            values = self._planes(one.changed, one.planes, _UINT8 if is_short else self._unsigned)
            if is_difference:
                if np.count_nonzero(values) < one.changed:
                    refuse("a difference is zero", start, "not zero", 0)
                table = _DIFFERENCES[self._unsigned.itemsize]
                values = table.take(values) if is_short else unzigzag(values)
            yield ranks if members is None else members.positions(ranks), values
        if self._offset != self._end:
            refuse("bytes follow the last stream", self._offset, self._end, self._offset)

    def _ranks(self, one: _Class) -> Array:
        """Return the ranks of the changed elements of a class, (changed,) int64, ascending."""
        start = self._offset
        if one.kind == _ALL:
            return np.arange(one.members)
        if one.kind == _BITMAP:
            bits = self._stream((one.members + 7) // 8)
            flags = np.unpackbits(bits, bitorder="little").view(bool)
            if flags[one.members :].any():
                refuse("a bitmap has bits after the last member", start, 0, 1)
            ranks = indices_of(flags)
            if ranks.size != one.changed:
                refuse("a bitmap has another number of bits", start, one.changed, ranks.size)
            return ranks
        ranks = self._planes(one.changed, one.gap_width, _INT64)
        ranks += 1
        np.add.accumulate(ranks, out=ranks)
        ranks -= 1
        if ranks[-1] >= one.members:
            refuse("gaps go past the end", start, f"less than {one.members}", int(ranks[-1]))
        return ranks

    def _planes(self, count: int, planes: int, dtype: np.dtype[Any]) -> Array:
        """Return numbers, (count,), from the next streams: their bytes, lowest first."""
        out = self._stream(count).astype(dtype) if planes else np.zeros(count, dtype)
        for plane in range(1, planes):
            column = self._stream(count)
            if not column.strides[0] and not column[0]:
                continue
            if dtype.itemsize == 2:  # twice as fast as strided bytes, but with a temporary array
                column = column.astype(dtype)
                column <<= 8
                out |= column
            else:
                out.view(np.uint8)[plane :: dtype.itemsize] = column
        return out

    def _stream(self, size: int) -> Array:
        """Return the bytes of the next stream, (size,) uint8, read-only."""
        start = self._offset + _STREAM_HEAD.size
        if start > self._end:
            refuse("a stream is cut off", self._offset, _STREAM_HEAD.size, self._end - self._offset)
        kind, stored = _STREAM_HEAD.unpack_from(self._blob, self._offset)
        if stored > self._end - start:
            refuse("a stream is cut off", self._offset + 1, stored, self._end - start)
        self._offset = start + stored
        if kind == streams.REPEATED and stored == 1:
            return np.ndarray(size, np.uint8, self._blob, start, (0,))
        try:
            data = streams.decode(kind, self._blob[start : self._offset], size, DEFAULT_LIMITS)
        except ZTensorError as error:
            message = f"{error.message}, in the stream at byte {start}"
            raise malformed(message, expected=error.expected, found=error.found) from error
        return np.frombuffer(data, np.uint8)


def refuse(message: str, offset: int, expected: object, found: object) -> NoReturn:
    """Raise the error for a broken rule at an offset in the stream."""
    raise malformed(f"{message}, at byte {offset}", expected=str(expected), found=describe(found))
