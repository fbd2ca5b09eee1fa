"""The reports of `make`, `fold` and `apply`."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class DeltaReport:
    """What `make` or `fold` wrote.

    Attributes:
        path: the delta.
        base: the id of the state before; None in a dialect without ids.
        result: the id of the state after, likewise.
        tensors: how many tensors are changed, added, replaced or removed.
        changed: how many elements differ.
        nbytes: bytes of the delta.
    """

    path: str
    base: str | None
    result: str | None
    tensors: int
    changed: int
    nbytes: int
