"""What a file says that neither its objects nor its attributes do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from ztensor.errors import describe

if TYPE_CHECKING:
    from collections.abc import Iterable

# As many are told one by one: a file of strangers may have millions.
MOST_ENTRIES = 200
_MOST_WHERE = 256  # characters of a place
UNREAD = "unread"  # begins the kind of an object that is listed, and refused when it is read
REST = "more of these and other kinds"


@dataclasses.dataclass(frozen=True, slots=True)
class Unrepresented:
    """Something of a file that a reader of it does not give, and a copy of it would not have.

    Attributes:
        kind: what it is, in the words of its format: "graph", "code", "text", "tuple", "bytes".
        where: its place in the file: a path, a member, a key; or the file itself, "".
        count: how many there are of the kind at that place.
        nbytes: what they take of the file, in bytes; None where that is not known.
    """

    kind: str
    where: str = ""
    count: int = 1
    nbytes: int | None = None

    @property
    def is_unread(self) -> bool:
        """Return whether it is an object that is listed, and refused when it is read."""
        return self.kind.startswith(UNREAD)

    def __str__(self) -> str:
        """Return it as part of a sentence: `graph "main", 312 of them, 40,961 bytes`."""
        parts = [f"{self.kind} {describe(self.where)}" if self.where else self.kind]
        if self.count != 1:
            parts.append(f"{self.count:,} of them")
        if self.nbytes is not None:
            parts.append(f"{self.nbytes:,} bytes")
        return ", ".join(parts)


class Tally:
    """What a reader of a format meets and does not give, counted by kind and place.

    It takes bounded memory whatever the file says: after so many places only numbers grow.
    Called, it gives what was counted.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, int | None]] = {}

    def add(self, kind: str, where: str = "", count: int = 1, nbytes: int | None = None) -> None:
        """Count something that is not given; of the same kind and place it is summed."""
        key = kind, where if len(where) <= _MOST_WHERE else f"{where[:_MOST_WHERE]}..."
        if key not in self._found and len(self._found) >= MOST_ENTRIES:
            key, nbytes = (REST, ""), nbytes or 0
        known, known_nbytes = self._found.get(key, (0, 0))
        whole = None if nbytes is None or known_nbytes is None else known_nbytes + nbytes
        self._found[key] = known + count, whole

    def extend(self, found: Iterable[Unrepresented]) -> None:
        """Count what was found elsewhere."""
        for one in found:
            self.add(one.kind, one.where, one.count, one.nbytes)

    def __call__(self) -> list[Unrepresented]:
        """Return what was counted, in the order in which each was met first."""
        return [Unrepresented(*key, *numbers) for key, numbers in self._found.items()]
