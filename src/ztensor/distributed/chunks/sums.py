"""Compare the digests of chunks that are read block by block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.distributed.chunks.boxes import Overlap
from ztensor.distributed.chunks.table import Chunk
from ztensor.ext import element_count
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class _Running(NamedTuple):
    check: Any
    left: int


class Sums:
    """Running digests of chunks; each is compared when all its elements have been read.

    If the blocks of a tensor come in C's order, so do the elements of each chunk.

    Args:
        located: returns a context that adds the chunk to errors.
        stored: returns the stored component of a chunk; see `FileObjects.stored`.
    """

    def __init__(
        self,
        located: Callable[[Chunk], AbstractContextManager[object]],
        stored: Callable[[Chunk], Any],
    ) -> None:
        self._located, self._stored = located, stored
        self._running: dict[int, _Running] = {}

    def see(self, chunk: Chunk, common: Overlap, target: Array) -> None:
        """Add the part of a chunk that was read; compare the digest if it was the last part.

        Raises:
            DigestMismatchError: the digest does not match.
        """
        if common.sizes == chunk.sizes:
            return  # checked when it was read
        with self._located(chunk):
            stored = self._stored(chunk)
            running = self._running.get(chunk.row) or self._begin(stored, chunk)
            if running is None:
                return
            part = np.ascontiguousarray(target[common.in_target])
            running.check.update(part.reshape(-1).view(np.uint8).data)
            left = running.left - element_count(common.sizes)
            if left:
                self._running[chunk.row] = running._replace(left=left)
                return
            self._running.pop(chunk.row, None)
            running.check.end()

    def _begin(self, stored: Any, chunk: Chunk) -> _Running | None:
        check = stored.new_check()
        if check.is_empty or (stored.component.encoding != "raw" and stored.check()):
            return None
        return _Running(check, element_count(chunk.sizes))
