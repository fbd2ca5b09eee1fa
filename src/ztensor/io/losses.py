"""Loss reports: content of a file that is neither an object nor an attribute."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.errors import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

# Entries listed one by one; a hostile file may have millions.
MOST_ENTRIES = 200
_MOST_WHERE = 256  # characters of a place
UNREAD = "unread"  # prefix of the kind of an object that is listed but cannot be read
REST = "more of these and other kinds"


@dataclasses.dataclass(frozen=True, slots=True)
class Unrepresented:
    """An entry of a loss report: content that a reader does not give and a copy loses.

    Attributes:
        kind: the word of the format: "graph", "code", "text", "tuple", "bytes".
        where: the place in the file: a path, a member, a key; "" for the file itself.
        count: the number of such items at that place.
        nbytes: their bytes in the file; None if unknown.
    """

    kind: str
    where: str = ""
    count: int = 1
    nbytes: int | None = None

    @property
    def is_unread(self) -> bool:
        """Return whether the entry is an object that is listed but cannot be read."""
        return self.kind.startswith(UNREAD)

    def __str__(self) -> str:
        """Return the entry as part of a sentence: `graph "main", 312 of them, 40,961 bytes`."""
        parts = [f"{self.kind} {describe(self.where)}" if self.where else self.kind]
        if self.count != 1:
            parts.append(f"{self.count:,} of them")
        if self.nbytes is not None:
            parts.append(f"{self.nbytes:,} bytes")
        return ", ".join(parts)


class Tally:
    """Collects a loss report in bounded memory, by kind and place.

    After `MOST_ENTRIES` entries only totals grow. Calling it returns the report.
    """

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], tuple[int, int | None]] = {}

    def add(self, kind: str, where: str = "", count: int = 1, nbytes: int | None = None) -> None:
        """Add content to the report; entries of the same kind and place are summed."""
        key = kind, where if len(where) <= _MOST_WHERE else f"{where[:_MOST_WHERE]}..."
        if key not in self._totals and len(self._totals) >= MOST_ENTRIES:
            key, nbytes = (REST, ""), nbytes or 0
        known, known_nbytes = self._totals.get(key, (0, 0))
        whole = None if nbytes is None or known_nbytes is None else known_nbytes + nbytes
        self._totals[key] = known + count, whole

    def extend(self, entries: Iterable[Unrepresented]) -> None:
        """Add the entries of another report."""
        for entry in entries:
            self.add(entry.kind, entry.where, entry.count, entry.nbytes)

    def __call__(self) -> list[Unrepresented]:
        """Return the report, in the order of first additions."""
        return [Unrepresented(*key, *totals) for key, totals in self._totals.items()]
