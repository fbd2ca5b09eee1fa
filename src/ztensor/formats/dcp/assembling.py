"""Tensors put together from their boxes when they are read: whole, block by block, or some rows.

Where the elements of a box lie is found out when the first of them is read: each box is a record in
a file of its own or with others. Whoever reads a tensor from its first element to its last, as
loads, `verify` and conversions do, also compares the CRC-32 that the archives have of each box.
"""

from __future__ import annotations

import functools
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
    Range,
    Source,
    Stored,
    empty_array,
    require_equal_length,
)
from ztensor.formats.base import InBlocks, gather_stored
from ztensor.formats.dcp.table import Entry
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


class InBoxes(InBlocks):
    """A tensor in several boxes, or one whose box could not be found.

    Args:
        word: how its component is said to be stored.
        entry: the tensor.
        source: what the boxes lie in.
        lying: gives where the elements of one lie; raises where nothing tells or that is wrong.
        name: gives what messages call one.
    """

    def __init__(
        self,
        word: str,
        entry: Entry,
        source: Source,
        lying: Callable[[int], Lying],
        name: Callable[[int], str],
    ) -> None:
        width = entry.element.width
        super().__init__(word, Blocks(entry.size, width, _RUN_BYTES))
        self._pieces = Blocks(entry.size, width, _PIECE_BYTES)
        self._dtype = np.dtype(f"u{width}" if width in (1, 2, 4, 8) else f"V{width}")
        self._entry = entry
        self._source = source
        self._lying = functools.cache(lying)
        self._name = name
        self._is_filled = False

    def is_summed(self, component: Component) -> bool:
        """Return whether each box has a CRC-32; True as well where reading it will fail."""
        del component
        try:
            return all(where.crc is not None for where in self._places())
        except ZTensorError:
            return True

    def _places(self) -> list[Lying]:
        """Return where the elements of all boxes lie.

        Raises:
            FormatError: boxes are missing or overlap.
        """
        if not self._is_filled:
            _require_filled(self._entry, self._name)
            self._is_filled = True
        return [self._lying(box) for box in range(len(self._entry.sizes))]

    def _require_length(self, stored: Stored, expected_length: int, limits: Limits) -> None:
        """Refuse where boxes are missing or overlap, or the tensor has another length."""
        del stored, limits
        message = "the tensor has another number of elements than its shape"
        require_equal_length(expected_length, self._blocks.nbytes, message)
        if self._blocks.nbytes:
            self._places()

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly, and compare the sums of all boxes."""
        self.require_length(stored, destination.nbytes, limits)
        sums = _Sums(self._source)
        for start, stop in itertools.pairwise(self._pieces.ends()):
            self._fill_box(self._pieces.place(start, stop), destination[start:stop], sums)
        self._finish(sums)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the bytes in pieces, each new memory; at the end compare the sums of all boxes."""
        length = self._blocks.nbytes if expected_length is None else expected_length
        self.require_length(stored, length, limits)
        sums = _Sums(self._source)
        for start, stop in itertools.pairwise(self._pieces.ends()):
            piece = empty_array((stop - start,)).data
            self._fill_box(self._pieces.place(start, stop), piece, sums)
            yield piece
        self._finish(sums)

    def _finish(self, sums: _Sums) -> None:
        """Raise where a sum did not match.

        Raises:
            DigestMismatchError: so it is; the message names the chunks and their files.
        """
        if wrong := sums.wrong:
            named = ", ".join(map(self._name, wrong[:3]))
            more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
            raise DigestMismatchError(
                "the CRC-32 that the archive has of a chunk does not match",
                algorithm="crc32",
                expected=f"the bytes of {counted(len(self._entry.sizes), 'chunk')} as saved",
                found=f"others in the {named}{more}",
                section=_SECTION,
            )

    def _fill(
        self, stored: Stored, place: tuple[slice, ...], destination: memoryview, limits: Limits
    ) -> None:
        del stored, limits
        self._fill_box(place, destination, None)

    def _fill_box(
        self, place: tuple[slice, ...], destination: memoryview, sums: _Sums | None
    ) -> None:
        offsets, sizes = self._entry.offsets, self._entry.sizes
        whole = (*place, *(slice(0, length) for length in self._entry.size[len(place) :]))
        starts = [part.start for part in whole]
        lengths = [part.stop - part.start for part in whole]
        target: Array = np.frombuffer(destination, self._dtype).reshape(lengths)
        for box in geometry.touching(offsets, sizes, starts, lengths).tolist():
            size = sizes[box].tolist()
            common = geometry.overlap(offsets[box].tolist(), size, starts, lengths)
            self._copy(box, tuple(size), common.source, target[common.target], sums)

    def _copy(
        self,
        box: int,
        sizes: tuple[int, ...],
        part: tuple[slice, ...],
        target: Array,
        sums: _Sums | None,
    ) -> None:
        """Copy a part of a box."""
        where = self._lying(box)
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

    Attributes:
        wrong: the boxes that have another one.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._running: dict[int, tuple[int, int]] = {}
        self._done: set[int] = set()
        self.wrong: list[int] = []

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
            self.wrong.append(box)


def _require_filled(entry: Entry, name: Callable[[int], str]) -> None:
    """Raise where boxes leave the shape, overlap, or leave elements out.

    Raises:
        FormatError: so it is.
    """
    shape, offsets, sizes = entry.size, entry.offsets, entry.sizes
    lengths: Array = np.array(shape, np.int64)
    inside = (offsets <= lengths) & (sizes <= lengths - offsets)
    if not inside.all():
        box = int(np.flatnonzero(~inside.all(axis=1))[0])
        raise FormatError(
            "a chunk does not lie in its tensor",
            reason=Reason.OUT_OF_BOUNDS,
            expected=f"within shape {describe(shape, 100)}",
            found=name(box),
        )
    tensors = np.zeros(len(offsets), np.intp)
    found = geometry.find_misfit(offsets, sizes, tensors, lengths.reshape(1, -1))
    if found is None:
        return
    if found.boxes:
        raise FormatError(
            "two chunks of a tensor overlap",
            reason=Reason.SHARD_INDEX,
            found=" and ".join(map(name, found.boxes[:2])),
        )
    raise FormatError(
        "the chunks of a tensor do not cover it: some of its elements were never saved, or the "
        "files that have them are not in the folder",
        reason=Reason.SHARD_INDEX,
        expected=f"{math.prod(shape)} elements",
        found=f"{counted(len(offsets), 'chunk')} without the one at {found.element}",
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
