"""The sparse stream: the changed elements of one array, as bytes, and back.

```text
u32 segment_elements (1 .. 2^22) | u8 width | u8 values: 0 difference, 1 new bits | u16 0
u32 stored bytes of each segment, ceil(count / segment_elements) of them; 0: nothing changed in it
segment: u8 K (1..8), K x u8 upper limit of the class byte (rising, the last 255)
         K x { u32 members, u32 changed, u8 positions: 0 none 1 gaps 2 bitmap 3 all,
               u8 gap width 1, 2, 4 (0 without gaps), u8 value planes 0..width }
         class by class: gap planes (low byte first) or the bitmap (bit 0 first), value planes
stream:  u8 0 raw | 1 a zstd frame with content size | 2 one byte repeated; u32 stored bytes; bytes
```

All numbers are little-endian. A gap is a rank less the previous rank less one; a rank counts the
elements of a class in the segment. A difference is the zigzag code of new less old bits, wrapping.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

import numpy as np

from ztensor.delta.classes import (
    LAST,
    choose_limits,
    class_bytes,
    has_classes,
    indices_of,
    members_of,
)
from ztensor.delta.errors import DeltaError, DeltaReason, malformed
from ztensor.errors import ZTensorError, describe
from ztensor.ext import cached_property, streams
from ztensor.limits import Limits
from ztensor.typing import Array

Values: TypeAlias = Literal["difference", "new"]
Effort: TypeAlias = Literal["fast", "small"]
Changes: TypeAlias = tuple[Array, Array]

MOST_ELEMENTS = 1 << 22  # of a segment
DENSE_ELEMENTS = 1 << 20  # of a segment where more than 5 percent changed

_HEAD = struct.Struct("<IBBH")
_CLASS_HEAD = struct.Struct("<IIBBB")
_STREAM_HEAD = struct.Struct("<BI")
_MOST_CLASSES = 8
_LIMITS = Limits()
_VALUES: tuple[Values, ...] = ("difference", "new")
_NONE, _GAPS, _BITMAP, _ALL = range(4)
_TRIED_BYTES = 64 << 10  # of a longer stream, so much shows if it repeats


def encode(
    old: Array, new: Array, *, effort: Effort = "fast", values: Values = "difference"
) -> bytes | None:
    """Return the stream that changes `old` into `new`, or None if their bits are equal.

    Equal arguments give equal bytes, with the same zstd library.

    Args:
        old: the elements, (count,), C-contiguous. bf16 and fp8 are arrays of ml_dtypes.
        new: as `old`, of the same dtype and count.
        effort: "small" divides floats into classes: half the bytes, a third of the speed.
        values: "new" stores new bits, so that a receiver needs no old values; K is 1.
    """
    before, after = _bits(old), _bits(new)
    classed = effort == "small" and values == "difference" and has_classes(old.dtype)
    elements = _segment_elements(before, after)
    segments = []
    for start in range(0, before.size, elements):
        stop = min(start + elements, before.size)
        segments.append(_segment(before[start:stop], after[start:stop], values, classed=classed))
    return _assembled(segments, elements, before.itemsize, values) if any(segments) else None


def encode_changes(
    pieces: Iterable[Changes],
    count: int,
    dtype: np.dtype[Any],
    *,
    values: Values = "difference",
    segment_elements: int | None = None,
) -> bytes:
    """Return the stream of changes at known positions, without classes.

    Args:
        pieces: positions, (changed,) int64, ascending over all pieces; and unsigned values of the
            elements' width, (changed,): wrapping differences, none of them zero, or new bits.
        count: elements of the array.
        dtype: their dtype.
        values: what the values are.
        segment_elements: elements of a segment; by default as many as suit the first pieces.
    """
    pending, first = iter(pieces), []
    if segment_elements is None:
        for piece in pending:
            first.append(piece)
            if piece[0].size and piece[0][-1] >= MOST_ELEMENTS:
                break
        changed = sum(int(np.searchsorted(positions, MOST_ELEMENTS)) for positions, _ in first)
        segment_elements = _elements_for(changed, min(count, MOST_ELEMENTS))
    segments = [b""] * -(-count // segment_elements)
    for number, (positions, bits) in _divided(itertools.chain(first, pending), segment_elements):
        start = number * segment_elements
        members = min(segment_elements, count - start)
        coded = _zigzag(bits) if values == "difference" else bits
        segments[number] = _joined([LAST], [_class(positions - start, members, coded)])
    return _assembled(segments, segment_elements, np.dtype(dtype).itemsize, values)


def _divided(pieces: Iterable[Changes], elements: int) -> Iterator[tuple[int, Changes]]:
    """Yield the changes of each segment that has some, with the segment's number."""
    number, held = 0, list[Changes]()
    for positions, bits in pieces:
        done = 0
        while done < positions.size:
            following = int(positions[done]) // elements
            if held and following != number:
                yield number, _concatenated(held)
                held.clear()
            number, start = following, done
            done = int(np.searchsorted(positions, (number + 1) * elements))
            held.append((positions[start:done], bits[start:done]))
    if held:
        yield number, _concatenated(held)


def _concatenated(parts: list[Changes]) -> Changes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([at for at, _ in parts]), np.concatenate([bits for _, bits in parts])


def _bits(array: Array) -> Array:
    """Return a view of the elements as unsigned integers, little-endian."""
    return array.reshape(-1).view(f"<u{array.dtype.itemsize}")


def _zigzag(differences: Array) -> Array:
    signs = differences >> (differences.itemsize * 8 - 1)
    np.negative(signs, out=signs)
    signs ^= differences << 1
    return signs


def _unzigzag(codes: Array) -> Array:
    signs = codes & 1
    np.negative(signs, out=signs)
    signs ^= codes >> 1
    return signs


# --- Writing --------------------------------------------------------------------------------------


def _elements_for(changed: int, count: int) -> int:
    is_dense = count <= DENSE_ELEMENTS or changed * 20 > count
    return DENSE_ELEMENTS if is_dense else MOST_ELEMENTS


def _segment_elements(before: Array, after: Array) -> int:
    """Return the elements of a segment, by the changes in four samples."""
    run = 1 << 16
    if before.size <= DENSE_ELEMENTS:
        return _elements_for(0, before.size)
    changed = 0
    for number in range(4):
        start = (before.size - run) * number // 3
        changed += int(np.count_nonzero(before[start : start + run] != after[start : start + run]))
    return _elements_for(changed, 4 * run)


def _assembled(segments: list[bytes], elements: int, width: int, values: Values) -> bytes:
    head = _HEAD.pack(elements, width, _VALUES.index(values), 0)
    table = np.fromiter(map(len, segments), "<u4", len(segments)).tobytes()
    return b"".join([head, table, *segments])


def _segment(before: Array, after: Array, values: Values, *, classed: bool) -> bytes:
    """Return the bytes of a segment; none if nothing changed."""
    flags = np.not_equal(before, after)
    positions = indices_of(flags)
    if not positions.size:
        return b""
    coded = after[positions]
    if values == "difference":
        coded -= before[positions]
        coded = _zigzag(coded)
    if classed:
        classes = class_bytes(before)
        changed = classes[positions]
        limits = choose_limits(classes, changed)
        if len(limits) > 1:
            number = np.searchsorted(np.array(limits, np.uint8), changed)
            parts = []
            for index, members in enumerate(members_of(classes, limits)):
                of_class = number == index
                ranks = members.ranks(positions[of_class])
                parts.append(_class(ranks, members.count, coded[of_class]))
            return _joined(limits, parts)
    return _joined([LAST], [_class(positions, before.size, coded)])


def _joined(limits: list[int], parts: list[tuple[bytes, list[bytes | memoryview]]]) -> bytes:
    """Return a segment of classes' heads and streams."""
    heads = [bytes([len(limits), *limits]), *(head for head, _ in parts)]
    return b"".join(itertools.chain(heads, *(body for _, body in parts)))


def _class(ranks: Array, members: int, coded: Array) -> tuple[bytes, list[bytes | memoryview]]:
    """Return the head of a class and its streams."""
    found: list[bytes | memoryview] = []
    kind, gap_width = _NONE, 0
    if ranks.size == members:
        kind = _ALL if members else _NONE
    elif ranks.size * 5 > members:
        kind = _BITMAP
        flags = np.zeros(members, bool)
        flags[ranks] = True
        found += _packed(np.packbits(flags, bitorder="little"))
    elif ranks.size:
        kind = _GAPS
        gaps = np.diff(ranks, prepend=-1)
        gaps -= 1
        most = int(gaps.max())
        gap_width = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4
        found += _planes(gaps.astype(f"<u{gap_width}"), gap_width)
    planes = (int(coded.max()).bit_length() + 7) // 8 if ranks.size else 0
    found += _planes(coded, planes)
    return _CLASS_HEAD.pack(members, ranks.size, kind, gap_width, planes), found


def _planes(numbers: Array, planes: int) -> list[bytes | memoryview]:
    """Return the streams of the lowest bytes of unsigned numbers, lowest first."""
    columns = numbers.view(np.uint8).reshape(-1, numbers.itemsize)
    found: list[bytes | memoryview] = []
    for plane in range(planes):
        found += _packed(np.ascontiguousarray(columns[:, plane]))
    return found


def _packed(data: Array) -> list[bytes | memoryview]:
    """Return one stream in its shortest form, as head and bytes."""
    raw = data.data
    has_matches = True
    if len(raw) > _TRIED_BYTES:
        tried = raw[:_TRIED_BYTES]
        has_matches = streams.encode(tried, has_matches=True) != streams.encode(tried)
    kind, stored = streams.encode(raw, has_matches=has_matches)
    return [_STREAM_HEAD.pack(kind, len(stored)), stored]


# --- Reading --------------------------------------------------------------------------------------


class _Class(NamedTuple):
    """A class of a segment, of its head."""

    members: int
    changed: int
    kind: int
    gap_width: int
    planes: int


class _Segment(NamedTuple):
    """A stored segment: its elements, its heads, and the extent of its streams in the blob."""

    start: int
    elements: int
    limits: list[int]
    classes: list[_Class]
    offset: int
    end: int


class SparseStream:
    """A sparse stream, checked as far as its table of segments.

    Streams are checked as they are used: any bytes give changes or a `DeltaError`. Memory: one
    segment, 16 bytes an element at most.

    Args:
        blob: the bytes; they must outlive the stream.
        count: elements of the array.
        dtype: their dtype; bf16 and fp8 are of ml_dtypes.

    Attributes:
        values: what the values are, "difference" or "new".

    Raises:
        DeltaError: the header or the table of segments is damaged (`delta_malformed`).
    """

    def __init__(self, blob: memoryview, count: int, dtype: np.dtype[Any]) -> None:
        self._blob = memoryview(blob).cast("B")
        self._count = count
        self._dtype = np.dtype(dtype)
        self._unsigned = np.dtype(f"<u{self._dtype.itemsize}")
        if len(self._blob) < _HEAD.size:
            _refuse("the stream is too short", 0, f"{_HEAD.size} bytes", len(self._blob))
        elements, width, values, zero = _HEAD.unpack_from(self._blob)
        if not 1 <= elements <= MOST_ELEMENTS:
            _refuse("segments have no valid size", 0, f"1 to {MOST_ELEMENTS} elements", elements)
        if width != self._dtype.itemsize:
            _refuse("the element width differs", 4, self._dtype.itemsize, width)
        if values >= len(_VALUES):
            _refuse("the kind of values is unknown", 5, "0 or 1", values)
        if zero:
            _refuse("the reserved field is set", 6, 0, zero)
        segments = -(-count // elements)
        table_end = _HEAD.size + 4 * segments
        if len(self._blob) < table_end:
            _refuse("the table of segments is cut off", 8, f"{table_end} bytes", len(self._blob))
        self.values: Values = _VALUES[values]
        self._elements = elements
        self._lengths = np.frombuffer(self._blob, "<u4", segments, _HEAD.size)
        end = table_end + int(self._lengths.sum(dtype=np.uint64))
        if end != len(self._blob):
            _refuse("the length of the stream differs", 8, f"{end} bytes", len(self._blob))
        self._table_end = table_end

    @property
    def needs_old(self) -> bool:
        """Return whether positions are found with the old elements: a segment has classes."""
        return self._summary[0] > 1

    @property
    def changed(self) -> int:
        """Return the number of changed elements, of the heads of segments."""
        return self._summary[1]

    @cached_property
    def _summary(self) -> tuple[int, int]:
        """Return the most classes of a segment, and the number of changed elements."""
        classes = changed = 0
        for segment in self._segments():
            classes = max(classes, len(segment.classes))
            changed += sum(one.changed for one in segment.classes)
        return classes, changed

    def apply(self, old: Array, out: Array) -> int:
        """Write the new elements into `out`, and return how many changed.

        After an error, `out` is changed in part.

        Args:
            old: the old elements, (count,), C-contiguous, of the stream's dtype.
            out: as `old`; the same memory (in place), or none of it.
        """
        before, after = _bits(old), _bits(out)
        is_apart = before.ctypes.data != after.ctypes.data
        changed = at = 0
        for segment in self._segments():
            stop = segment.start + segment.elements
            if is_apart:
                np.copyto(after[at:stop], before[at:stop])
                at = stop
            source, target = before[segment.start : stop], after[segment.start : stop]
            for positions, values in self._changes(segment, source):
                is_new = self.values == "new"
                target[positions] = values if is_new else values + source[positions]
                changed += positions.size
        if is_apart:
            np.copyto(after[at:], before[at:])
        return changed

    def changes(self, old: Array | None = None) -> Iterator[Changes]:
        """Yield the changes of each segment in which there are some.

        Positions are those in the array, (changed,) int64, ascending. Values are unsigned integers
        of the elements' width, (changed,): wrapping differences or new bits, see `values`.

        Args:
            old: the old elements, (count,), C-contiguous; None unless `needs_old`.
        """
        before = None if old is None else _bits(old)
        for segment in self._segments():
            stop = segment.start + segment.elements
            source = None if before is None else before[segment.start : stop]
            parts = list(self._changes(segment, source))
            positions, values = _concatenated(parts)
            if len(parts) > 1:
                order = np.argsort(positions, kind="stable")  # merges runs, of which there are few
                positions, values = positions[order], values[order]
            positions += segment.start
            yield positions, values

    def _segments(self) -> Iterator[_Segment]:
        """Yield the segments with changes, their heads checked."""
        offset = self._table_end
        for number in np.flatnonzero(self._lengths).tolist():
            start = number * self._elements
            end = offset + int(self._lengths[number])
            elements = min(self._elements, self._count - start)
            yield self._parse_heads(start, elements, offset, end)
            offset = end

    def _parse_heads(self, start: int, elements: int, offset: int, end: int) -> _Segment:
        blob = self._blob
        classes = blob[offset]
        if not 1 <= classes <= (_MOST_CLASSES if has_classes(self._dtype) else 1):
            _refuse("the number of classes is invalid", offset, "1 to 8, of floats", classes)
        heads = offset + 1 + classes
        body = heads + classes * _CLASS_HEAD.size
        if body > end:
            _refuse("the heads of a segment are cut off", offset, body - offset, end - offset)
        limits = list(blob[offset + 1 : heads])
        if limits[-1] != LAST or any(a >= b for a, b in itertools.pairwise(limits)):
            _refuse("the limits of classes do not rise to 255", offset + 1, "rising", limits)
        found = [_Class(*head) for head in _CLASS_HEAD.iter_unpack(blob[heads:body])]
        if sum(one.members for one in found) != elements:
            members = sum(one.members for one in found)
            _refuse("members are not the segment's elements", heads, elements, members)
        if not any(one.changed for one in found):
            _refuse("a stored segment has no changes", heads, "1 or more", 0)
        for index, one in enumerate(found):
            at = heads + index * _CLASS_HEAD.size
            if one.changed > one.members:
                _refuse("more elements changed than there are", at + 4, one.members, one.changed)
            kinds = _kinds(one)
            if one.kind not in kinds:
                _refuse("the form of positions does not fit", at + 8, kinds, one.kind)
            widths = (1, 2, 4) if one.kind == _GAPS else (0,)
            if one.gap_width not in widths:
                _refuse("the width of gaps is invalid", at + 9, widths, one.gap_width)
            most = self._unsigned.itemsize if one.changed else 0
            if one.planes > most:
                _refuse("there are too many planes of values", at + 10, most, one.planes)
        return _Segment(start, elements, limits, found, body, end)

    def _changes(self, segment: _Segment, source: Array | None) -> Iterator[Changes]:
        """Yield positions in the segment and values of each class that has changes."""
        cursor = _Cursor(self._blob, segment.offset, segment.end)
        every = None
        if len(segment.limits) > 1:
            if source is None:
                raise DeltaError(
                    "the positions of changes are counted with the old elements",
                    reason=DeltaReason.NEEDS_BASE,
                )
            every = members_of(class_bytes(source), segment.limits)
        for one in segment.classes:
            members = None if every is None else next(every)
            if members is not None and members.count != one.members:
                raise DeltaError(
                    "the old elements differ from those of the delta",
                    reason=DeltaReason.BASE,
                    expected=f"{one.members} of a class",
                    found=str(members.count),
                )
            if not one.changed:
                continue
            ranks = _ranks(cursor, one)
            at = cursor.offset
            values = cursor.planes(one.changed, one.planes, self._unsigned)
            if self.values == "difference":
                if not values.all():
                    _refuse("a difference is zero", at, "not zero", 0)
                values = _unzigzag(values)
            yield ranks if members is None else members.positions(ranks), values
        if cursor.offset != segment.end:
            _refuse("bytes are left behind a segment", cursor.offset, segment.end, cursor.offset)


def _kinds(one: _Class) -> tuple[int, ...]:
    """Return the forms in which the positions of a class can be stored."""
    if not one.changed:
        return (_NONE,)
    return (_GAPS, _BITMAP, _ALL) if one.changed == one.members else (_GAPS, _BITMAP)


def _ranks(cursor: _Cursor, one: _Class) -> Array:
    """Return the ranks of a class's changed elements, ascending, int64."""
    at = cursor.offset
    if one.kind == _ALL:
        return np.arange(one.members)
    if one.kind == _BITMAP:
        bits = cursor.stream((one.members + 7) // 8)
        flags = np.unpackbits(bits, bitorder="little").view(bool)
        if flags[one.members :].any():
            _refuse("bits are set behind a bitmap", at, 0, 1)
        ranks = indices_of(flags)
        if ranks.size != one.changed:
            _refuse("a bitmap has another number of bits", at, one.changed, ranks.size)
        return ranks
    gaps = cursor.planes(one.changed, one.gap_width, np.dtype(f"<u{one.gap_width}"))
    ranks = np.cumsum(gaps, dtype=np.int64)
    ranks += np.arange(one.changed)
    if int(ranks[-1]) >= one.members:
        _refuse("gaps go past the end", at, f"less than {one.members}", int(ranks[-1]))
    return ranks


class _Cursor:
    """A place in the streams of a segment."""

    __slots__ = ("_blob", "_end", "offset")

    def __init__(self, blob: memoryview, offset: int, end: int) -> None:
        self._blob, self.offset, self._end = blob, offset, end

    def planes(self, count: int, planes: int, dtype: np.dtype[Any]) -> Array:
        """Return unsigned numbers of their lowest bytes, (count,), from the next streams."""
        if planes == dtype.itemsize == 1:
            return self.stream(count).copy()
        out = np.zeros(count, dtype)
        columns = out.view(np.uint8).reshape(count, -1)
        for plane in range(planes):
            columns[:, plane] = self.stream(count)
        return out

    def stream(self, size: int) -> Array:
        """Return the bytes of the next stream, (size,) uint8, read-only or of its own memory."""
        start = self.offset + _STREAM_HEAD.size
        if start > self._end:
            _refuse("a stream is cut off", self.offset, _STREAM_HEAD.size, self._end - self.offset)
        kind, stored = _STREAM_HEAD.unpack_from(self._blob, self.offset)
        if stored > self._end - start:
            _refuse("a stream is cut off", self.offset + 1, stored, self._end - start)
        self.offset = start + stored
        try:
            data = streams.decode(kind, self._blob[start : self.offset], size, _LIMITS)
        except ZTensorError as error:
            raise malformed(f"{error.message}, in the stream at byte {start}",
                            expected=error.expected, found=error.found) from error  # fmt: skip
        return np.frombuffer(data, np.uint8)


def _refuse(message: str, offset: int, expected: object, found: object) -> NoReturn:
    raise malformed(f"{message}, at byte {offset}", expected=str(expected), found=describe(found))
