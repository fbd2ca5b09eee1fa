"""Shared by formats: encodings that decode in blocks, unreadable components, and gathering."""

from __future__ import annotations

import abc
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import Reason, UnsupportedError
from ztensor.ext import ENCODINGS, Blocks, Encoding, Runs, Stored, empty_array
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


RAW: Mapping[str, Encoding] = {"raw": ENCODINGS["raw"]}
# Bytes of a gathered block. Each block of a transposed array touches every page of the array, so
# small blocks would read a large file very often.
GATHERED_BYTES = 32 << 20
_READ_BYTES = 8 << 20  # of one read
_GAP_BYTES = 16 << 10  # reading a gap up to this length is faster than a second read
_TILE_ELEMENTS = 256  # along a last axis with neighbors in different pages


class Absent(Encoding):
    """The encoding of components that cannot be read here.

    Args:
        name: the encoding's name.
        message: the reason, for the error.
        is_absent: the components are listed as unread in the loss report.
        has_sum: a checksum of the file covers the components.
    """

    def __init__(
        self, name: str, message: str, *, is_absent: bool = True, has_sum: bool = False
    ) -> None:
        self.name = name
        self.has_sum = has_sum
        self._message = message
        self.is_absent = is_absent

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Raise.

        Raises:
            UnsupportedError: always.
        """
        del stored, expected_length, limits
        raise UnsupportedError(self._message, reason=Reason.UNKNOWN_ENCODING)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Raise; see `require_length`."""
        self.require_length(stored, destination.nbytes, limits)


class InBlocks(Encoding):
    """An array that is decoded in independent blocks.

    Args:
        name: the encoding's name.
        blocks: the blocks of the decoded array.
    """

    def __init__(self, name: str, blocks: Blocks) -> None:
        self.name = name
        self._blocks = blocks

    @abc.abstractmethod
    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` with the elements of one block; `place` has its slice of each axis."""

    @abc.abstractmethod
    def _require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Raise if the component cannot decode to this many bytes."""

    def _can_cut(self, stored: Stored) -> bool:
        """Return whether decoding one block is cheaper than decoding the array."""
        return True

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, block by block."""
        self.require_length(stored, destination.nbytes, limits)
        if not self._can_cut(stored):
            self._fill(stored, (), destination, limits)
            return
        for start, stop in itertools.pairwise(self._blocks.ends()):
            self._fill(stored, self._blocks.place(start, stop), destination[start:stop], limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the decoded blocks in order; each is new memory."""
        if expected_length is None or not self._can_cut(stored):
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.require_length(stored, expected_length, limits)
        for start, stop in itertools.pairwise(self._blocks.ends()):
            piece = empty_array((stop - start,)).data
            self._fill(stored, self._blocks.place(start, stop), piece, limits)
            yield piece

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether it decodes block by block."""
        return self._can_cut(stored)

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the blocks, of which a slice decodes some. Their offsets count decoded bytes."""
        self._require_length(stored, expected_length, limits)
        if not self._can_cut(stored):
            return None
        ends = self._blocks.ends()
        return Runs(ends, ends)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` (flat, bytes, writable) with one block, exactly."""
        self._fill(stored, self._blocks.place(start, stop), destination, limits)


def gather_stored(
    stored: Stored,
    dtype: np.dtype[Any],
    strides: Sequence[int],
    place: Sequence[slice],
    target: Array,
) -> None:
    """Copy strided elements of stored bytes into an array, in bounded memory.

    Elements less than 16 KiB apart are read together.

    Args:
        stored: the bytes; the first element of the whole array begins at 0.
        dtype: the type of the stored elements.
        strides: bytes between neighbors along each axis, not negative.
        place: a slice of step 1 of each leading axis; the other axes are whole.
        target: the elements of `place`, of a type of the same width.

    Raises:
        SourceError: the bytes could not be read.
    """
    start = sum(part.start * stride for part, stride in zip(place, strides, strict=False))
    # The axes with the largest strides come first.
    order = sorted(range(target.ndim), key=lambda axis: -strides[axis])
    steps = tuple(strides[axis] for axis in order)
    if target.size:
        _gather_from(stored, dtype, start, steps, target.transpose(order))


def _gather_from(
    stored: Stored, dtype: np.dtype[Any], start: int, steps: tuple[int, ...], target: Array
) -> None:
    spans = [dtype.itemsize]  # bytes from the first to the end of the last element of inner axes
    for length, step in zip(reversed(target.shape), reversed(steps), strict=True):
        spans.append(spans[-1] + (length - 1) * step)
    whole, inner = spans[-1], spans[-2] if len(spans) > 1 else 0
    is_far = bool(steps) and steps[0] - inner > _GAP_BYTES
    if not steps or (whole <= _READ_BYTES and not (is_far and len(target) > 1)):
        elements: Array = np.ndarray(target.shape, dtype, stored.read(start, whole), 0, steps)
        as_written = sorted(range(target.ndim), key=lambda axis: -target.strides[axis])
        gather(elements.transpose(as_written), target.transpose(as_written))
        return
    # As many steps along the first axis as fit into one read; one if the gaps are large.
    count = 1 if is_far else max(1, (_READ_BYTES - inner) // max(steps[0], 1) + 1)
    for first in range(0, len(target), count):
        part = target[first : first + count]
        at = start + first * steps[0]
        if count == 1:
            _gather_from(stored, dtype, at, steps[1:], part[0, ...])
        else:
            _gather_from(stored, dtype, at, steps, part)


def gather(elements: Array, target: Array) -> None:
    """Copy strided elements into an array of the same shape, in C order."""
    if elements.ndim < 2 or elements.strides[-1] == elements.itemsize:
        target[...] = elements
        return
    # In tiles: else each element of a row is in another page, and a page is loaded again for each
    # of its elements; a transposed matrix takes four times as long.
    for start in range(0, elements.shape[-1], _TILE_ELEMENTS):
        tile = np.s_[..., start : start + _TILE_ELEMENTS]
        target[tile] = elements[tile]
