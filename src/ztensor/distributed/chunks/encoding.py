"""The encoding of components in several chunks: decodes them as wholes, in blocks or in boxes."""

from __future__ import annotations

import itertools
from collections import ChainMap
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.distributed.chunks.assembling import WORD, Assembler
from ztensor.distributed.chunks.staging import BLOCK_BYTES
from ztensor.distributed.chunks.sums import Sums
from ztensor.ext import (
    Blocks,
    Component,
    Encoding,
    Runs,
    Stored,
    empty_array,
    result_dtype,
)
from ztensor.limits import Limits
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


def with_divided(assembler: Assembler) -> Mapping[str, Any]:
    """Return the encodings of the assembler's objects by name, the one of chunks included."""
    return ChainMap({WORD: DividedEncoding(assembler)}, assembler.encodings)


class DividedEncoding(Encoding):
    """The encoding of components in several chunks; see `ztensor.spec.encoding`.

    Args:
        assembler: reads the chunks.
    """

    name = WORD

    def __init__(self, assembler: Assembler) -> None:
        self._assembler = assembler

    def is_summed(self, component: Component) -> bool:
        """Return whether decoding all of a component compares the digests of all its chunks."""
        return self._assembler.is_summed(self._assembler.number_at(component.offset))

    def require_length(self, stored: Stored, expected_length: int, limits: Limits) -> Runs | None:
        """Raise if the length is wrong; return blocks of rows, for slices."""
        number = self._number(stored)
        self._assembler.require_length(number, expected_length, limits)
        if not self.is_streamed(stored):
            return None
        ends = self._blocks(number).ends()
        return Runs(ends, ends)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) exactly."""
        number = self._number(stored)
        self._assembler.require_length(number, destination.nbytes, limits)
        table = self._assembler.table
        shape, component = table.shapes[number], table.kind_of(number).component
        dtype = result_dtype(component)
        flat = np.frombuffer(destination, np.uint8)
        if component.is_native():
            target = flat.view(dtype).reshape(shape)
        else:
            target = empty_array(shape, dtype)
        self._assembler.fill(number, (0,) * len(shape), shape, target)
        if not component.is_native():
            flat[:] = Blocks.whole(target).view(np.uint8)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the bytes in blocks, each in new memory; compare each chunk with its digest."""
        number = self._number(stored)
        length = self._assembler.table.nbytes(number) or 0
        if expected_length is not None:
            length = expected_length
        self._assembler.require_length(number, length, limits)
        if not self.is_streamed(stored):
            whole = empty_array((length,)).data
            self.decode_into(stored, whole, limits)
            yield from (whole[at : at + BLOCK_BYTES] for at in range(0, length, BLOCK_BYTES))
            return
        blocks, assembler = self._blocks(number), self._assembler
        sums = Sums(assembler.located, assembler.stored) if assembler.checks(whole=True) else None
        for start, stop in itertools.pairwise(blocks.ends()):
            piece = empty_array((stop - start,)).data
            self._fill_block(number, blocks.place(start, stop), piece, sums)
            yield piece

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether `decode_chunks` holds little more memory than the block it yields."""
        component = self._assembler.table.kind_of(self._number(stored)).component
        return component.is_native()

    def decode_run(
        self, stored: Stored, start: int, stop: int, destination: memoryview, limits: Limits
    ) -> None:
        """Fill `destination` (flat, bytes, writable) with one block, exactly."""
        del limits
        number = self._number(stored)
        self._fill_block(number, self._blocks(number).place(start, stop), destination, None)

    def read_box(
        self, stored: Stored, offsets: Sequence[int], sizes: Sequence[int], target: Array
    ) -> bool:
        """Fill an array of the tensor's element type with a box of it."""
        number = self._number(stored)
        self._assembler.require_located(number)
        self._assembler.fill(number, offsets, sizes, target)
        return True

    def _number(self, stored: Stored) -> int:
        return self._assembler.number_at(stored.offset)  # type: ignore[attr-defined]

    def _blocks(self, number: int) -> Blocks:
        table = self._assembler.table
        dtype = result_dtype(table.kind_of(number).component)
        return Blocks(table.shapes[number], dtype.itemsize, BLOCK_BYTES)

    def _fill_block(
        self,
        number: int,
        place: tuple[slice, ...],
        destination: memoryview,
        sums: Sums | None,
    ) -> None:
        table = self._assembler.table
        shape, dtype = table.shapes[number], result_dtype(table.kind_of(number).component)
        whole = (*place, *(slice(0, length) for length in shape[len(place) :]))
        offsets = tuple(part.start for part in whole)
        sizes = tuple(part.stop - part.start for part in whole)
        target = np.frombuffer(destination, dtype).reshape(sizes)
        see = None if sums is None else sums.see
        self._assembler.fill(number, offsets, sizes, target, see)
