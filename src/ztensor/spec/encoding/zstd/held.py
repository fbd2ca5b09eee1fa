"""Stored bytes in memory as one buffer, where that costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ztensor.spec.encoding.base import Stored

HELD_BYTES = 1 << 20  # stored bytes that are read once and kept, even where that copies them


class Held:
    """Stored bytes that are in memory as one buffer: the bytes from `start` on."""

    __slots__ = ("length", "start", "view")

    def __init__(self, view: memoryview, start: int = 0) -> None:
        self.view = view
        self.start = start
        self.length = start + len(view)

    def read(self, offset: int, length: int) -> memoryview:
        """Return `length` bytes from `offset`."""
        return self.view[offset - self.start : offset - self.start + length]


def hold(stored: Stored, start: int, stop: int, most: int | None = None) -> Stored:
    """Return a part of `stored` as `Held` where that costs little: short, or a view of a map.

    Args:
        stored: the bytes.
        start: where the part begins.
        stop: where it ends.
        most: bytes that may be copied, 1 MiB by default.
    """
    if isinstance(stored, Held):
        return stored
    if stop - start > (HELD_BYTES if most is None else most):
        # Pieces of one object, as far apart as can be: the source gives views and copies nothing.
        # Not single bytes: those are shared objects in CPython.
        first, last = stored.read(start, 16), stored.read(stop - 16, 16)
        if first.obj is not last.obj:
            return stored
    return Held(stored.read(start, stop - start), start)
