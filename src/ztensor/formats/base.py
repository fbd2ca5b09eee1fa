"""What modules of formats share: encodings of blocks, of what cannot be read, and gathering."""

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
# Gathered at a time. Each block of a transposed array touches every page of it, so that small
# ones would walk a large file very often.
GATHERED_BYTES = 32 << 20
_READ_BYTES = 8 << 20  # of them at a time
_GAP_BYTES = 16 << 10  # quicker read than jumped over
_TILE_ELEMENTS = 256  # of a last axis whose neighbours lie in other pages


class Absent(Encoding):
    """What cannot be read here.

    Args:
        name: the word for it.
        message: why not.
        is_absent: it is listed only.
        has_sum: what has it was held to a sum all the same.
    """

    def __init__(
        self, name: str, message: str, *, is_absent: bool = True, has_sum: bool = False
    ) -> None:
        self.name = name
        self.has_sum = has_sum
        self._message = message
        self.is_absent = is_absent

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse."""
        del stored, expected_length, limits
        raise UnsupportedError(self._message, reason=Reason.UNKNOWN_ENCODING)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Refuse."""
        self.require_length(stored, destination.nbytes, limits)


class InBlocks(Encoding):
    """An array that is decoded block by block, each without the others.

    Args:
        name: the word components have for it.
        blocks: how it is cut.
    """

    def __init__(self, name: str, blocks: Blocks) -> None:
        self.name = name
        self._blocks = blocks

    @abc.abstractmethod
    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` with the elements at a place."""

    @abc.abstractmethod
    def _require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse what cannot give so many bytes."""

    def _can_cut(self, stored: Stored) -> bool:
        """Return whether a block costs less than the whole."""
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
        """Yield the blocks; each is new memory."""
        if expected_length is None or not self._can_cut(stored):
            yield from super().decode_chunks(stored, expected_length, limits)
            return
        self.require_length(stored, expected_length, limits)
        for start, stop in itertools.pairwise(self._blocks.ends()):
            piece = empty_array((stop - start,)).data
            self._fill(stored, self._blocks.place(start, stop), piece, limits)
            yield piece

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether it gives block by block."""
        return self._can_cut(stored)

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return the blocks: a slice reads those it needs. Offsets are those of decoded bytes."""
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
    """Copy elements that lie in any order in stored bytes into an array.

    What lies close together is read at once, as far as that takes bounded memory.

    Args:
        stored: where they are; the first element of all begins at 0.
        dtype: how they lie there.
        strides: bytes from one to the next along each axis, none of them negative.
        place: which of them, a range of step 1 for each axis; axes left out are whole.
        target: as many elements along each axis, of a type with the same width.

    Raises:
        SourceError: the bytes could not be read.
    """
    start = sum(part.start * stride for part, stride in zip(place, strides, strict=False))
    # The axes along which elements are furthest apart come first.
    order = sorted(range(target.ndim), key=lambda axis: -strides[axis])
    steps = tuple(strides[axis] for axis in order)
    if target.size:
        _gather_from(stored, dtype, start, steps, target.transpose(order))


def _gather_from(
    stored: Stored, dtype: np.dtype[Any], start: int, steps: tuple[int, ...], target: Array
) -> None:
    spans = [dtype.itemsize]  # bytes from the first to behind the last element of inner axes
    for length, step in zip(reversed(target.shape), reversed(steps), strict=True):
        spans.append(spans[-1] + (length - 1) * step)
    whole, inner = spans[-1], spans[-2] if len(spans) > 1 else 0
    is_far = bool(steps) and steps[0] - inner > _GAP_BYTES
    if not steps or (whole <= _READ_BYTES and not (is_far and len(target) > 1)):
        elements: Array = np.ndarray(target.shape, dtype, stored.read(start, whole), 0, steps)
        as_written = sorted(range(target.ndim), key=lambda axis: -target.strides[axis])
        gather(elements.transpose(as_written), target.transpose(as_written))
        return
    # So many steps along the first axis at once as fit, one where what lies between is not needed.
    count = 1 if is_far else max(1, (_READ_BYTES - inner) // max(steps[0], 1) + 1)
    for first in range(0, len(target), count):
        part = target[first : first + count]
        at = start + first * steps[0]
        if count == 1:
            _gather_from(stored, dtype, at, steps[1:], part[0, ...])
        else:
            _gather_from(stored, dtype, at, steps, part)


def gather(elements: Array, target: Array) -> None:
    """Copy elements that lie in any order into an array of the same shape, in C's order."""
    if elements.ndim < 2 or elements.strides[-1] == elements.itemsize:
        target[...] = elements
        return
    # In tiles: else each element of a row comes from another page, long after its neighbours in
    # that page; a transposed matrix takes four times as long.
    for start in range(0, elements.shape[-1], _TILE_ELEMENTS):
        tile = np.s_[..., start : start + _TILE_ELEMENTS]
        target[tile] = elements[tile]
