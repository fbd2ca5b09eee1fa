"""An array cut into blocks of bounded size, in the order of its elements."""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING

from ztensor.spec.model.dtype import element_count

if TYPE_CHECKING:
    from collections.abc import Sequence


class Blocks:
    """An array cut into blocks that lie one behind the other in C's order.

    A block is some neighbours along one axis, whole in the axes behind it and single in those
    before: the first axis, or the first whose rows are not too long.

    Args:
        shape: the array's.
        width: bytes of an element.
        most: bytes of a block.
        steps: what no block cuts, along each axis, even where it becomes longer then; () for 1.
    """

    def __init__(
        self, shape: tuple[int, ...], width: int, most: int, steps: Sequence[int] = ()
    ) -> None:
        self.shape = shape
        self.nbytes = element_count(shape) * width
        axis, row = 0, element_count(shape[1:]) * width
        while axis + 1 < len(shape) and row > most and (not steps or steps[axis] == 1):
            axis += 1
            row //= shape[axis]
        step = steps[axis] if steps else 1
        self._axis = axis
        self._row = row
        self._block = max(step, most // max(row, 1) // step * step) * row

    def ends(self) -> array[int]:
        """Return where the blocks end, 0 before them: as many numbers as there are blocks."""
        if not self.nbytes:
            return array("Q", [0])
        slab = self._slab
        return array(
            "Q",
            itertools.chain(
                [0],
                (
                    min(end, start + slab)
                    for start in range(0, self.nbytes, slab)
                    for end in range(start + self._block, start + slab + self._block, self._block)
                ),
            ),
        )

    @property
    def _slab(self) -> int:
        return self._row * self.shape[self._axis] if self.shape else self.nbytes

    def place(self, start: int, stop: int) -> tuple[slice, ...]:
        """Return where in the array the block is whose bytes these are."""
        if not self.shape:
            return ()
        lead, within = divmod(start, self._slab)
        leading = []
        for dimension in reversed(self.shape[: self._axis]):
            lead, at = divmod(lead, dimension)
            leading.append(slice(at, at + 1))
        first = within // self._row
        return (*reversed(leading), slice(first, first + (stop - start) // self._row))
