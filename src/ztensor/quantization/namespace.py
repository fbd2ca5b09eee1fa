"""Operations of an array library that the arithmetic needs, which is written once for all.

Besides the methods of `Namespace` it uses operations that NumPy arrays and PyTorch tensors share:
arithmetic and shifts with Python numbers, also in place, slices, `reshape`, `.T`, and converting
assignment to a slice.
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
    """An array library on one device. `dtype` is always a long name such as `float32`."""

    @property
    def tile(self) -> int:
        """Return the count of elements in a tile."""
        ...

    def asarray(self, array: Array) -> Any:
        """Return a NumPy array of native integers or floats (also bfloat16) as one of this library.

        It may share memory with the argument, and is never written to.
        """
        ...

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a new row-major array.

        Raises:
            LimitError: it does not fit into memory.
        """
        ...

    def scratch(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a row-major array that is valid until the current tile is done."""
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
        """Write `table[codes]` to `out`; codes are uint8 and inside the table.

        The table has one axis, or a second that is kept: the last axis of `out`.
        """
        ...

    def each(self, work: Callable[[slice, slice], None], tiles: Tiles) -> None:
        """Call `work` for every tile, in any order, from as many threads as pay off."""
        ...


class NumpyNamespace:
    """NumPy on several cores: its loops release the interpreter lock.

    Args:
        threads: their number; by default as `ztensor.threads` says.
    """

    # A tile of float32, its integers and intermediate arrays fit a second level cache; for smaller
    # tiles the calls cost more than the work.
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
        """Return memory of this thread that its next tile reuses.

        New memory would be returned to the system after each tile, and zeroed page by page.
        """
        kind = np.dtype(dtype)
        arena, start = getattr(self._own, "arena", None), getattr(self._own, "used", 0)
        end = start + math.prod(shape) * kind.itemsize
        if arena is None or end > arena.size:
            return self.empty(shape, dtype)
        self._own.used = -(-end // 64) * 64
        part: Array = arena[start:end].view(kind).reshape(shape)
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
        """Call `work` for every tile; a few tiles are not worth a thread."""
        count = min(thread_count(self._threads), len(tiles) // 4)
        if count <= 1:
            self._each(work, tiles)
            return
        pool = Pool(count - 1)
        try:
            futures = [
                pool.submit(self._each, work, tiles[first::count]) for first in range(1, count)
            ]
            self._each(work, tiles[::count])
            for future in futures:
                future.result()
        finally:
            pool.close()

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
