"""Digests of chunks whose elements come in blocks, compared once a chunk is whole."""

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
    """The digests of chunks whose elements pass in order, block by block.

    Blocks of a tensor in C's order show each chunk's elements in C's order, too.

    Args:
        located: gives a context in which errors say which chunk they are about.
        stored: gives the way to a chunk's bytes; see `FileObjects.stored`.
    """

    def __init__(
        self,
        located: Callable[[Chunk], AbstractContextManager[object]],
        stored: Callable[[Chunk], Any],
    ) -> None:
        self._located, self._stored = located, stored
        self._running: dict[int, _Running] = {}

    def see(self, chunk: Chunk, common: Overlap, target: Array) -> None:
        """Take what was read of a chunk; raise where all of it was, and it is not right.

        Raises:
            DigestMismatchError: it is not.
        """
        if common.sizes == chunk.sizes:
            return  # it was checked when it was read
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
