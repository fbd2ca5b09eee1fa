"""Tensors put together from their boxes when they are read: whole, block by block, or some rows.

Where the elements of a box lie is found out when the first of them is read: each box is a record in
a file of its own or with others. Whoever reads a tensor from its first element to its last, as
loads, `verify` and conversions do, also compares the CRC-32 that the archives have of each box.
"""

from __future__ import annotations

import itertools
import math
import zlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ztensor.distributed.chunks import boxes as geometry
from ztensor.errors import DigestMismatchError, FormatError, Reason, ZTensorError, counted, describe
from ztensor.ext import (
    Blocks,
    Component,
    Encoding,
    Range,
    Runs,
    Source,
    Stored,
    empty_array,
    require_equal_length,
)
from ztensor.formats.base import InBlocks, gather_stored
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


WORD = "divided"  # how such a component is said to be stored; no file has this word
_RUN_BYTES = 1 << 20  # of a block that a slice reads
_PIECE_BYTES = 2 << 20  # of one that is read in order: some wait while others are written
_SECTION = "zip, APPNOTE"


class Lying(NamedTuple):
    """Where the elements of a box lie.

    Attributes:
        offset: the first of them in the source.
        strides: bytes between neighbours along each axis.
        nbytes: bytes from the first element to the end of the last.
        crc: CRC-32 of these bytes, or None.
    """

    offset: int
    strides: tuple[int, ...]
    nbytes: int
    crc: int | None


class Boxes(NamedTuple):
    """The boxes of a tensor.

    Attributes:
        offsets: (boxes, axes) where each begins.
        sizes: (boxes, axes) how long each is.
        lying: gives where the elements of one lie; raises where nothing tells or that is wrong.
        name: gives what messages call one.
    """

    offsets: Array
    sizes: Array
    lying: Callable[[int], Lying]
    name: Callable[[int], str]


class Divided(Encoding):
    """The tensors of a checkpoint that are put together; a component's offset tells which it is.

    Args:
        first: the offset of the first of them.
        make: makes what reads one, by its number.
    """

    def __init__(self, first: int, make: Callable[[int], InBoxes]) -> None:
        self.name = WORD
        self._first = first
        self._make = make
        self._made: dict[int, InBoxes] = {}

    def _at(self, offset: int) -> InBoxes:
        number = offset - self._first
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = self._make(number)
        return found

    def _of(self, stored: Stored) -> InBoxes:
        return self._at(stored.offset)  # type: ignore[attr-defined]  # all of a reader have one

    def is_summed(self, component: Component) -> bool:
        """Return whether each box of a tensor has a sum; True where reading it will fail."""
        return self._at(component.offset).has_sums()

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse where boxes are missing or overlap, or the tensor has another length."""
        self._of(stored).require_length(stored, expected_length, limits)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, and compare the sums of all boxes."""
        self._of(stored).decode_into(stored, destination, limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the bytes in pieces, each new memory; at the end compare the sums of all boxes."""
        return self._of(stored).decode_chunks(stored, expected_length, limits)

    def is_streamed(self, stored: Stored) -> bool:
        """Return True: pieces are read one by one."""
        del stored
        return True

    def find_runs(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Return blocks of rows: a slice reads those it needs. Offsets are those of the tensor."""
        return self._of(stored).find_runs(stored, expected_length, limits)

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` (flat, bytes, writable) with one block, exactly."""
        self._of(stored).decode_run(stored, start, stop, destination, limits)


class InBoxes(InBlocks):
    """A tensor in several boxes, or one whose box could not be found.

    Args:
        shape: the tensor's, in elements of `width` bytes.
        width: bytes of an element.
        source: what the boxes lie in.
        boxes: gives the boxes; it raises where the tensor cannot be read.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        width: int,
        source: Source,
        boxes: Callable[[], Boxes],
    ) -> None:
        super().__init__(WORD, Blocks(shape, width, _RUN_BYTES))
        self._pieces = Blocks(shape, width, _PIECE_BYTES)
        self._shape = shape
        self._dtype = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
        self._source = source
        self._make = boxes
        self._made: Boxes | None = None
        self._lying: dict[int, Lying] = {}

    def has_sums(self) -> bool:
        """Return whether each box has a CRC-32; True as well where reading it will fail."""
        try:
            boxes = self._boxes
            return all(self._where(box).crc is not None for box in range(len(boxes.offsets)))
        except ZTensorError:
            return True

    @property
    def _boxes(self) -> Boxes:
        if self._made is None:
            made = self._make()
            _require_filled(self._shape, made)
            self._made = made
        return self._made

    def _where(self, box: int) -> Lying:
        found = self._lying.get(box)
        if found is None:
            found = self._lying[box] = self._boxes.lying(box)
        return found

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse where boxes are missing or overlap, or the tensor has another length."""
        del stored, limits
        message = "the tensor has another number of elements than its shape"
        require_equal_length(expected_length, self._blocks.nbytes, message)
        if self._blocks.nbytes:
            boxes = self._boxes
            for box in range(len(boxes.offsets)):
                self._where(box)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, and compare the sums of all boxes."""
        self.require_length(stored, destination.nbytes, limits)
        sums = _Sums(self._source, self._boxes) if self._blocks.nbytes else None
        for start, stop in itertools.pairwise(self._pieces.ends()):
            self._fill_box(self._pieces.place(start, stop), destination[start:stop], sums)
        if sums is not None:
            sums.finish()

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the bytes in pieces, each new memory; at the end compare the sums of all boxes."""
        length = self._blocks.nbytes if expected_length is None else expected_length
        self.require_length(stored, length, limits)
        sums = _Sums(self._source, self._boxes) if length else None
        for start, stop in itertools.pairwise(self._pieces.ends()):
            piece = empty_array((stop - start,)).data
            self._fill_box(self._pieces.place(start, stop), piece, sums)
            yield piece
        if sums is not None:
            sums.finish()

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del stored, limits
        self._fill_box(place, destination, None)

    def _fill_box(
        self, place: tuple[slice, ...], destination: memoryview, sums: _Sums | None
    ) -> None:
        boxes = self._boxes
        whole = (*place, *(slice(0, length) for length in self._shape[len(place) :]))
        starts = [part.start for part in whole]
        lengths = [part.stop - part.start for part in whole]
        target: Array = np.frombuffer(destination, self._dtype).reshape(lengths)
        for box in geometry.touching(boxes.offsets, boxes.sizes, starts, lengths).tolist():
            sizes = boxes.sizes[box].tolist()
            common = geometry.overlap(boxes.offsets[box].tolist(), sizes, starts, lengths)
            self._copy(box, tuple(sizes), common.source, target[common.target], sums)

    def _copy(
        self,
        box: int,
        sizes: tuple[int, ...],
        part: tuple[slice, ...],
        target: Array,
        sums: _Sums | None,
    ) -> None:
        """Copy a part of a box."""
        where = self._where(box)
        if not (_is_in_order(where.strides, sizes, self._dtype.itemsize) and _is_run(part, sizes)):
            if sums is not None:
                sums.take_whole(box, where)
            stored = Range(self._source, where.offset, where.nbytes)
            gather_stored(stored, self._dtype, where.strides, part, target)
            return
        at = sum(one.start * stride for one, stride in zip(part, where.strides, strict=True))
        if target.flags.c_contiguous:
            memory = target.reshape(-1).view(np.uint8).data
            self._source.read_into(where.offset + at, memory)
        else:
            staged = empty_array(target.shape, self._dtype)
            memory = staged.reshape(-1).view(np.uint8).data
            self._source.read_into(where.offset + at, memory)
            target[...] = staged
        if sums is not None:
            sums.take(box, where, at, memory)


class _Sums:
    """The CRC-32 of boxes whose bytes pass in order.

    Blocks of a tensor in C's order show the bytes of each box in their order, too.

    Args:
        source: what the boxes lie in.
        boxes: the boxes.
    """

    def __init__(self, source: Source, boxes: Boxes) -> None:
        self._source = source
        self._boxes = boxes
        self._running: dict[int, tuple[int, int]] = {}
        self._done: set[int] = set()
        self._wrong: list[int] = []

    def take(self, box: int, where: Lying, at: int, memory: memoryview) -> None:
        """Take bytes of a box, which begin at `at` in it."""
        if where.crc is None or box in self._done:
            return
        before, value = self._running.get(box, (0, 0))
        if before != at:
            self.take_whole(box, where)
            return
        value, stop = zlib.crc32(memory, value), at + memory.nbytes
        self._running[box] = stop, value
        if stop == where.nbytes:
            self._end(box, where, value)

    def take_whole(self, box: int, where: Lying) -> None:
        """Read all bytes of a box that do not pass in order."""
        if where.crc is None or box in self._done:
            return
        value = 0
        for piece in Range(self._source, where.offset, where.nbytes).pieces():
            value = zlib.crc32(piece, value)
        self._end(box, where, value)

    def _end(self, box: int, where: Lying, value: int) -> None:
        self._running.pop(box, None)
        self._done.add(box)
        if value != where.crc:
            self._wrong.append(box)

    def finish(self) -> None:
        """Raise where a sum did not match.

        Raises:
            DigestMismatchError: so it is; the message names the chunks and their files.
        """
        if self._wrong:
            named = ", ".join(map(self._boxes.name, self._wrong[:3]))
            more = f" and {len(self._wrong) - 3} more" if len(self._wrong) > 3 else ""
            raise DigestMismatchError(
                "the CRC-32 that the archive has of a chunk does not match",
                algorithm="crc32",
                expected=f"the bytes of {counted(len(self._boxes.offsets), 'chunk')} as saved",
                found=f"others in the {named}{more}",
                section=_SECTION,
            )


def _require_filled(shape: tuple[int, ...], boxes: Boxes) -> None:
    """Raise where boxes leave the shape, overlap, or leave elements out.

    Raises:
        FormatError: so it is.
    """
    lengths: Array = np.array(shape, np.int64)
    inside = (boxes.offsets <= lengths) & (boxes.sizes <= lengths - boxes.offsets)
    if not inside.all():
        box = int(np.flatnonzero(~inside.all(axis=1))[0])
        raise FormatError(
            "a chunk does not lie in its tensor",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"within shape {describe(shape, 100)}",
            found=boxes.name(box),
        )
    tensors = np.zeros(len(boxes.offsets), np.intp)
    found = geometry.find_misfit(boxes.offsets, boxes.sizes, tensors, lengths.reshape(1, -1))
    if found is None:
        return
    if found.boxes:
        raise FormatError(
            "two chunks of a tensor overlap",
            reason=Reason.SHARD_INDEX,
            found=" and ".join(map(boxes.name, found.boxes[:2])),
        )
    raise FormatError(
        "the chunks of a tensor do not cover it: some of its elements were never saved, or the "
        "files that have them are not in the folder",
        reason=Reason.SHARD_INDEX,
        expected=f"{math.prod(shape)} elements",
        found=f"{counted(len(boxes.offsets), 'chunk')} without the one at {found.element}",
    )


def _is_in_order(strides: tuple[int, ...], sizes: tuple[int, ...], width: int) -> bool:
    """Return whether elements follow one another in C's order, without gaps."""
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != width:
            return False
        width *= size
    return True


def _is_run(part: tuple[slice, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether a part of a box is one run of its elements."""
    is_cut = False
    for one, size in zip(reversed(part), reversed(sizes), strict=True):
        count = one.stop - one.start
        if is_cut and count != 1:
            return False
        is_cut = is_cut or count != size
    return True
