"""Manifests of 1.1 and 1.2 whose objects are plain, read as a table.

Most objects of most files are: dense, one component, no attributes, the fields in the order
released writers and ours put them. Small manifests are cut into pieces (`pieces.py`), large ones
read by columns (`regular.py`).

This is only ever a shortcut: where a file is not of that form, or anything in it breaks a rule of
the schema, `read_root` returns None, and the general decoder reads all and says what is wrong.
"""

from __future__ import annotations

import operator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from ztensor.container.v1.commit import read_commit
from ztensor.container.v1.object import is_1_1, parse_object
from ztensor.container.v1.pieces import read_pieces
from ztensor.errors import LimitError, ManifestError
from ztensor.model.table import PLAIN_DEPTH, IrregularError, Table, TableObjects
from ztensor.wire import cbor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ztensor.container.framing import Frame
    from ztensor.limits import Budget
    from ztensor.model.manifest import TensorObject
    from ztensor.model.problem import Problem


class Reading(Protocol):
    """What was read of the map of objects.

    Attributes:
        order: all names.
        end: where the map ends.
    """

    order: list[str]
    end: int

    @property
    def columns(self) -> dict[str, Any]:
        """Return those of `Table` about the plain objects, but for what all have in common."""
        ...

    @property
    def others(self) -> Sequence[tuple[str, object]]:
        """Return names and values of the other objects."""
        ...


def read_root(
    data: bytes, frame: Frame, budget: Budget, *, by_columns: bool
) -> tuple[dict[str, object], TableObjects] | None:
    """Return the root's fields, with an empty map as `objects`, and the objects.

    Args:
        data: the manifest's bytes.
        frame: where they lay.
        budget: what the file may cost; of its limits, `depth` is used.
        by_columns: whether there are many objects, and some may be other than plain.

    Returns:
        None where the manifest is not of the regular form, or something in it is wrong.
    """
    if budget.limits.depth < PLAIN_DEPTH:
        return None
    before = budget.bytes_left
    try:
        return _read_root(data, frame, budget, by_columns=by_columns)
    except (IrregularError, ManifestError, LimitError):
        budget.release_to(before)
        return None


def _read_root(
    data: bytes, frame: Frame, budget: Budget, *, by_columns: bool
) -> tuple[dict[str, object], TableObjects]:
    root: dict[str, object] = {}
    reading: Reading | None = None
    depth = budget.limits.depth
    pairs, pos = cbor.map_head(data, 0)
    for _ in range(pairs):
        key, pos = cbor.decode_item(data, pos, depth=depth - 1, budget=budget)
        if not isinstance(key, str) or key in root:
            raise IrregularError
        if key == "objects":
            root[key] = {}
            if by_columns:
                from ztensor.container.v1.regular import read_columns  # small files need none of it

                reading = read_columns(data, pos, frame, budget, depth - 2)
            else:
                reading = read_pieces(data, pos, frame, budget)
            pos = reading.end
        else:
            ours = read_commit(data, pos) if key == "commit" else None
            root[key], pos = ours or cbor.decode_item(data, pos, depth=depth - 1, budget=budget)
    if pos != len(data) or reading is None:
        raise IrregularError
    is_of_1_1 = is_1_1(root.get("version"))
    others = _others(reading, frame, budget, is_1_1=is_of_1_1)
    more: dict[str, Any] = {"digest_may_cover_decoded": is_of_1_1, "digest_text": data}
    if by_columns:
        return root, TableObjects(Table(**(more | reading.columns)), others, reading.order)
    found = reading  # the columns of a few are made when they are asked for
    return root, TableObjects(lambda: Table(**(more | found.columns)), others, found.order)


def _others(
    reading: Reading, frame: Frame, budget: Budget, *, is_1_1: bool
) -> dict[str, TensorObject]:
    """Return the objects that are not plain, parsed by `object.py`.

    Raises:
        IrregularError: something is wrong with one of those, or a name comes twice.
    """
    problems: list[Problem] = []
    others = {}
    for name, entry in reading.others:
        tensor_object = parse_object(name, entry, frame, budget, problems, is_1_1=is_1_1)
        if tensor_object is None or name in others:
            raise IrregularError
        others[name] = tensor_object
    # Writers sort names: to see that is four times faster than to hash them.
    order = reading.order
    is_sorted = all(map(operator.lt, order, islice(order, 1, None)))
    if not is_sorted and len(set(order)) < len(order):
        raise IrregularError
    return others
