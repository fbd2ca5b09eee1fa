"""What the arithmetic asks of an array library, so that it is written once for all of them.

Beyond the methods of `Namespace` it uses what NumPy arrays and PyTorch tensors write alike:
arithmetic and shifts with plain numbers, in place too, slices, `reshape`, `.T`, and assignment to
a part, which converts.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ztensor.ext import Pool, empty_array, numpy_dtype, thread_count
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Tiles = Sequence[tuple[slice, slice]]


class Namespace(Protocol):
    """An array library, and where its arrays lie. `dtype` is always a long name, as `float32`."""

    @property
    def tile(self) -> int:
        """Return how many elements to work on at once."""
        ...

    def asarray(self, array: Array) -> Any:
        """Return a NumPy array of native integers or floats (bfloat16 too) as one of this library.

        It may share memory with what is given, and is never written to.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new row-major array.

        Raises:
            LimitError: it does not fit into memory.
        """
        ...

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a row-major array that is of use until the tile at work is done."""
        ...

    def view(self, array: Any, dtype: str) -> Any:
        """Return the same memory as elements of another type; the last axis is contiguous."""
        ...

    def mask(self, array: Any, mask: int, out: Any) -> None:
        """Write `array & mask` to an array of the same type."""
        ...

    def shift_right(self, array: Any, bits: int, out: Any) -> None:
        """Write `array >> bits` to an array of the same type."""
        ...

    def shift_left(self, array: Any, bits: int, out: Any) -> None:
        """Write `array << bits` to an array of the same type."""
        ...

    def lookup(self, table: Any, codes: Any, out: Any) -> None:
        """Write `table[codes]` to `out`; codes are uint8, and none is beyond the table.

        The table has one axis, or a second that is kept: the last axis of `out`.
        """
        ...

    def each(self, work: Callable[[slice, slice], None], tiles: Tiles) -> None:
        """Do work on every tile, in any order, by as many threads as pay."""
        ...


class NumpyNamespace:
    """NumPy, on all cores: its loops let other threads run.

    Args:
        threads: how many; by default as `ztensor.threads` says.
    """

    # A tile of float32, its integers and what lies between them stay in a second level cache;
    # with smaller ones the calls cost more than the work.
    tile = 1 << 18

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._own = threading.local()

    def asarray(self, array: Array) -> Array:
        """Return the array itself."""
        return array

    def empty(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return a new row-major array."""
        return empty_array(shape, numpy_dtype(dtype))

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Array:
        """Return memory of this thread that is used again for its next tile.

        New memory would be given back to the system after each tile, and zeroed page by page.
        """
        wanted = np.dtype(dtype)
        arena, start = getattr(self._own, "arena", None), getattr(self._own, "used", 0)
        end = start + math.prod(shape) * wanted.itemsize
        if arena is None or end > arena.size:
            return self.empty(shape, dtype)
        self._own.used = -(-end // 64) * 64
        part: Array = arena[start:end].view(wanted).reshape(shape)
        return part

    def view(self, array: Array, dtype: str) -> Array:
        """Return the same memory as elements of another type."""
        return array.view(dtype)

    def mask(self, array: Array, mask: int, out: Array) -> None:
        """Write `array & mask` to `out`."""
        np.bitwise_and(array, mask, out=out)

    def shift_right(self, array: Array, bits: int, out: Array) -> None:
        """Write `array >> bits` to `out`."""
        np.right_shift(array, bits, out=out)

    def shift_left(self, array: Array, bits: int, out: Array) -> None:
        """Write `array << bits` to `out`."""
        np.left_shift(array, bits, out=out)

    def lookup(self, table: Array, codes: Array, out: Array) -> None:
        """Write `table[codes]` to `out`."""
        indices = self.scratch(codes.shape, "intp")  # NumPy would make them in new memory
        indices[...] = codes
        np.take(table, indices, axis=0, out=out, mode="clip")  # "raise" would write to a copy

    def each(self, work: Callable[[slice, slice], None], tiles: Tiles) -> None:
        """Do work on every tile; a few tiles are not worth a thread."""
        count = min(thread_count(self._threads), len(tiles) // 4)
        if count <= 1:
            self._each(work, tiles)
            return
        crew = Pool(count - 1)
        try:
            others = [
                crew.submit(self._each, work, tiles[first::count]) for first in range(1, count)
            ]
            self._each(work, tiles[::count])
            for other in others:
                other.result()
        finally:
            crew.close()

    def _each(self, work: Callable[[slice, slice], None], tiles: Tiles) -> None:
        own = self._own
        own.arena = np.empty(12 * self.tile, np.uint8)
        try:
            with np.errstate(all="ignore"):  # overflow and NaN are the file's values
                for along, across in tiles:
                    own.used = 0
                    work(along, across)
        finally:
            del own.arena
