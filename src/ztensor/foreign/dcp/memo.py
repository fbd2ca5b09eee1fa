"""The memo of a pickle with columns: runs of its places have no value until one is asked for."""

from __future__ import annotations

import bisect
from typing import Any, Protocol

_NO_GAP = 1 << 32  # behind every place


class IrregularError(Exception):
    """A pickle uses columns as they cannot be used; it is read without them then."""


class Gap(Protocol):
    """Places of the memo whose values are made when they are asked for."""

    def __len__(self) -> int:
        """Return how many they are."""
        ...

    def value(self, number: int) -> object:
        """Return the value of one.

        Raises:
            IrregularError: it is one that may change.
        """
        ...


class Memo:
    """What a pickle remembers, by place, with gaps.

    Args:
        plain: what instructions put there, one behind the other.

    Attributes:
        first: the first place of the first gap.
    """

    def __init__(self, plain: list[Any]) -> None:
        self.first = _NO_GAP
        self._plain = plain
        self._gaps: list[Gap] = []
        self._begins: list[int] = []
        self._skipped: list[int] = []  # places of gaps up to the end of each

    def __len__(self) -> int:
        return len(self._plain) + (self._skipped[-1] if self._gaps else 0)

    @property
    def has_gaps(self) -> bool:
        """Return whether there are gaps."""
        return bool(self._gaps)

    def add(self, gap: Gap) -> None:
        """Add places behind the others."""
        count = len(self)
        self.first = min(self.first, count)
        self._begins.append(count)
        self._skipped.append(count - len(self._plain) + len(gap))
        self._gaps.append(gap)

    def get(self, place: int) -> Any:
        """Return the value of a place that is there.

        Raises:
            IrregularError: it was taken as a part of columns, and may change.
        """
        if place < self.first:
            return self._plain[place]
        gap = bisect.bisect_right(self._begins, place) - 1
        number = place - self._begins[gap]
        if number < len(self._gaps[gap]):
            return self._gaps[gap].value(number)
        return self._plain[place - self._skipped[gap]]
