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


@dataclasses.dataclass(frozen=True)
class ApplyReport:
    """What `apply` or `apply_to` did.

    Attributes:
        path: the file or folder that has the new state; words for a mapping.
        base: the id of the state before; None in a dialect without ids.
        result: the id of the state after, likewise.
        deltas: the paths of the deltas, in the order in which they were applied.
        tensors: how many tensors were changed, added, replaced or removed; 0 if the target had the
            result before.
        nbytes: bytes of the file; of a mapping, of its changed tensors.
        verified: the `verify` of the call.
    """

    path: str
    base: str | None
    result: str | None
    deltas: tuple[str, ...]
    tensors: int
    nbytes: int
    verified: str | None
