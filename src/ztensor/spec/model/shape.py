"""`Shape`: what users are given as a shape."""

from __future__ import annotations


class Shape(tuple[int, ...]):
    """A tuple of sizes that also equals the list of them, which the 1.2 API gave."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        """Compare with a tuple or a list."""
        return super().__ne__(tuple(other) if isinstance(other, list) else other)

    __hash__ = tuple.__hash__
