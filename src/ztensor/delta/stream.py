"""The sparse stream: the changed elements of one array, as bytes and back.

```text
u32 segment_elements (1 .. 2^22) | u8 width | u8 values: 0 difference, 1 new bits | u16 0
u32 stored bytes of each segment, ceil(count / segment_elements) of them; 0: nothing changed in it
the segments, see `segment.py`
```

All numbers are little-endian. Neither count nor dtype is stored: both are the array's. Segments are
independent; a call works on one thread, and threads take one array each.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

from ztensor.delta.classes import has_classes, indices_of
from ztensor.delta.segment import (
    Changes,
    Segment,
    encode_positions,
    encode_segment,
    refuse,
    zigzag,
)
from ztensor.typing import Array

Values: TypeAlias = Literal["difference", "new"]
Effort: TypeAlias = Literal["fast", "small"]

MOST_ELEMENTS = 1 << 22  # of a segment
DENSE_ELEMENTS = 1 << 20  # of a segment where more than 5 percent changed: it takes less memory

_HEAD = struct.Struct("<IBBH")
_VALUES: tuple[Values, ...] = ("difference", "new")
_SAMPLES, _SAMPLE_ELEMENTS = 4, 1 << 16


def encode(
    old: Array, new: Array, *, effort: Effort = "fast", values: Values = "difference"
) -> bytes | None:
    """Return the stream that changes `old` into `new`, or None if their bits are equal.

    Equal arguments give equal bytes with one release of the zstd library. Memory: at
    most 64 MiB, and the result.

    Args:
        old: the elements, (count,), C-contiguous; bf16 and fp8 are arrays of ml_dtypes.
        new: as `old`, of the same dtype and count.
        effort: "small" divides floats into classes: half the bytes, a third of the speed.
        values: "new" stores new bits, so that a receiver needs no old elements; without classes.
    """
    before, after = _bits(old), _bits(new)
    is_difference = values == "difference"
    is_classed = effort == "small" and is_difference and has_classes(old.dtype)
    elements = _segment_elements(before, after)
    segments = []
    for start in range(0, before.size, elements):
        part = slice(start, start + elements)
        segments.append(
            encode_segment(
                before[part], after[part], is_difference=is_difference, has_classes=is_classed
            )
        )
    return _joined(segments, elements, before.itemsize, values) if any(segments) else None


def encode_changes(
    pieces: Iterable[Changes],
    count: int,
    dtype: np.dtype[Any],
    *,
    values: Values = "difference",
) -> bytes:
    """Return the stream of changes at known positions, without classes.

    Args:
        pieces: positions, (changed,) int64, ascending over all pieces; and unsigned values of the
            elements' width, (changed,): wrapping differences, never zero, or new bits.
        count: elements of the array.
        dtype: their dtype.
        values: the meaning of the values.
    """
    pending, first = iter(pieces), []
    for piece in pending:
        first.append(piece)
        if piece[0].size and piece[0][-1] >= MOST_ELEMENTS:
            break
    changed = sum(int(np.searchsorted(positions, MOST_ELEMENTS)) for positions, _ in first)
    elements = _elements_for(changed, min(count, MOST_ELEMENTS))
    segments = [b""] * -(-count // elements)
    for number, (positions, bits) in divided(itertools.chain(first, pending), elements):
        start = number * elements
        codes = zigzag(bits) if values == "difference" else bits
        size = min(elements, count - start)
        segments[number] = encode_positions(positions - start, codes, size)
    return _joined(segments, elements, np.dtype(dtype).itemsize, values)


def divided(pieces: Iterable[Changes], elements: int) -> Iterator[tuple[int, Changes]]:
    """Yield the changes of each segment that has some, with the segment's number."""
    number, held = 0, list[Changes]()
    for positions, values in pieces:
        done = 0
        while done < positions.size:
            following = int(positions[done]) // elements
            if held and following != number:
                yield number, _concatenate(held)
                held.clear()
            number, start = following, done
            done = int(np.searchsorted(positions, (number + 1) * elements))
            held.append((positions[start:done], values[start:done]))
    if held:
        yield number, _concatenate(held)


def _concatenate(parts: list[Changes]) -> Changes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([at for at, _ in parts]), np.concatenate([values for _, values in parts])


def _bits(array: Array) -> Array:
    """Return a view of the elements as unsigned integers, little-endian."""
    return array.reshape(-1).view(f"<u{array.dtype.itemsize}")


def _segment_elements(before: Array, after: Array) -> int:
    """Return the elements of a segment, by the changes in samples of the array."""
    changed, last = 0, before.size - _SAMPLE_ELEMENTS
    if before.size > DENSE_ELEMENTS:
        for number in range(_SAMPLES):
            start = last * number // (_SAMPLES - 1)
            sample = slice(start, start + _SAMPLE_ELEMENTS)
            changed += int(np.count_nonzero(before[sample] != after[sample]))
    return _elements_for(changed * before.size // (_SAMPLES * _SAMPLE_ELEMENTS), before.size)


def _elements_for(changed: int, count: int) -> int:
    is_dense = count <= DENSE_ELEMENTS or changed * 20 > count
    return DENSE_ELEMENTS if is_dense else MOST_ELEMENTS


def _joined(segments: list[bytes], elements: int, width: int, values: Values) -> bytes:
    head = _HEAD.pack(elements, width, _VALUES.index(values), 0)
    table = np.fromiter(map(len, segments), "<u4", len(segments)).tobytes()
    return b"".join([head, table, *segments])


class SparseStream:
    """A sparse stream, checked as far as the heads of its segments.

    The rest is checked when it is used: any bytes give changes or a `DeltaError`. Memory: at most
    16 bytes and 4 elements for each element of a segment.

    Args:
        blob: the bytes; they must outlive the stream.
        count: elements of the array.
        dtype: their dtype; of ml_dtypes for bf16 and fp8.

    Attributes:
        values: "difference" or "new".
        changed: the number of changed elements.
        needs_old: whether positions are counted with the old elements: a segment has classes.

    Raises:
        DeltaError: the header, or the table or a head of segments is damaged (`delta_malformed`).
    """

    def __init__(self, blob: memoryview, count: int, dtype: np.dtype[Any]) -> None:
        self._blob = blob = memoryview(blob).cast("B")
        self._count, self._dtype = count, np.dtype(dtype)
        if len(blob) < _HEAD.size:
            refuse("the header is cut off", 0, f"{_HEAD.size} bytes", len(blob))
        elements, width, values, zero = _HEAD.unpack_from(blob)
        if not 1 <= elements <= MOST_ELEMENTS:
            refuse("segments have no valid size", 0, f"1 to {MOST_ELEMENTS} elements", elements)
        if width != self._dtype.itemsize:
            refuse("the width of elements differs", 4, self._dtype.itemsize, width)
        if values >= len(_VALUES):
            refuse("the kind of values is unknown", 5, "0 or 1", values)
        if zero:
            refuse("the reserved field is set", 6, 0, zero)
        segments = -(-count // elements)
        self._body = _HEAD.size + 4 * segments
        if len(blob) < self._body:
            refuse("the table of segments is cut off", 8, f"{self._body} bytes", len(blob))
        self.values: Values = _VALUES[values]
        self._elements = elements
        self._lengths = np.frombuffer(blob, "<u4", segments, _HEAD.size)
        end = self._body + int(self._lengths.sum(dtype=np.uint64))
        if end != len(blob):
            refuse("the segments have another length", 8, f"{end} bytes", len(blob))
        self.needs_old, self.changed = False, 0
        for _, segment in self._segments():
            self.needs_old |= segment.has_classes
            self.changed += segment.changed

    def changes(self, old: Array | None = None, *, is_ordered: bool = True) -> Iterator[Changes]:
        """Yield the changes of each segment that has some.

        Positions are those in the array, (changed,) int64, ascending. Values are unsigned integers
        of the elements' width, (changed,): wrapping differences or new bits, see `values`.

        Args:
            old: the old elements, (count,), C-contiguous; None unless `needs_old`.
            is_ordered: False yields the classes of a segment one by one, each ascending. A segment
                may be changed when its first class has been yielded.
        """
        before = None if old is None else _bits(old)
        for start, segment in self._segments():
            part = None if before is None else before[start : start + segment.elements]
            changes = segment.changes(part, is_difference=self.values == "difference")
            pieces = [self._merged(segment, changes)] if is_ordered else changes
            for at, values in pieces:
                yield np.add(at, start, out=at), values

    def _merged(self, segment: Segment, changes: Iterator[Changes]) -> Changes:
        """Return the changes of all classes, ascending."""
        if not segment.has_classes:
            (only,) = changes
            return only
        flags = np.zeros(-(-segment.elements // 8) * 8, bool)
        every = np.empty(segment.elements, f"<u{self._dtype.itemsize}")
        for positions, values in changes:
            flags[positions] = True
            every[positions] = values
        merged = indices_of(flags)
        return merged, every[merged]

    def _segments(self) -> Iterator[tuple[int, Segment]]:
        """Yield the segments with changes, and the number of each one's first element."""
        offset = self._body
        for number in self._lengths.nonzero()[0].tolist():
            start = number * self._elements
            end = offset + int(self._lengths[number])
            elements = min(self._elements, self._count - start)
            yield start, Segment(self._blob, offset, end, elements, self._dtype)
            offset = end
