"""`sparse_coo`: coordinates and values, any number of dimensions (1.2 section 3).

| role | elements |
| --- | --- |
| `coords` | `ndim * nnz` indices, structure of arrays: all of axis 0, then all of axis 1, ... |
| `values` | `nnz` values |
"""

from __future__ import annotations

import numpy as np

from ztensor.errors import Problem, Reason
from ztensor.locks import cached_property
from ztensor.spec.layout.base import (
    Array,
    Indices,
    LazyArray,
    Part,
    Rows,
    View,
    Watch,
    component_problem,
    row_count,
)
from ztensor.spec.layout.sparse import (
    COO_SECTION,
    IndexWatch,
    Sparse,
    require_in_range,
    scatter,
)
from ztensor.spec.model.manifest import TensorObject


class SparseCoo(Sparse):
    """The layout `sparse_coo` (1.2 section 3)."""

    name = "sparse_coo"
    section = COO_SECTION
    read_order = ("values", "coords")
    index_roles = ("coords",)

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with roles, index types and counts."""
        if problems := super().check_object(tensor_object):
            return problems
        rank, coords = len(tensor_object.shape), tensor_object.components["coords"]
        coordinates = coords.known_count()
        if coordinates is not None and rank and coordinates % rank:
            message = f"expected a multiple of {rank} coordinates, found {coordinates}"
            return [component_problem(Reason.LAYOUT_COUNT, "coords", message, self.section)]
        # A scalar has no coordinates.
        count = coords.known_count(rank) if rank else -1 if coordinates else None
        return self.check_counts(tensor_object, "coords", count)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return the length from the other component's count, if either is known."""
        rank = len(tensor_object.shape)
        if role not in self.read_order:
            return super().expected_length(tensor_object, role, entries)
        if entries is None:
            entries = tensor_object.components["values"].known_count()
        if entries is None and rank:
            entries = tensor_object.components["coords"].known_count(rank)
        component = tensor_object.components[role]
        return self.length_of(component, entries, rank if role == "coords" else 1)

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the number of values, which `coords` has per axis."""
        del last
        return count if role == "values" else None

    def watch(self, of: TensorObject | View, role: str, entries: int | None) -> Watch | None:
        """Return the range check of the coordinates, axis by axis."""
        if role != "coords" or entries is None:
            return None
        return IndexWatch("coords", of.shape, entries)

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return the row selection of an object."""
        return CooRows(tensor_object, part)

    def to_dense(self, view: View) -> Array:
        """Return the dense array; values at the same position are added up."""
        self.require_valid(view)
        values, coords = (view.arrays[role].reshape(-1) for role in self.read_order)
        return scatter(view.shape, tuple(coords.reshape(len(view.shape), values.size)), values)


class CooRows(Rows):
    """Row selection on `sparse_coo`: reads all coordinates of axis 0, and the selected entries.

    Entries keep their order.
    """

    @cached_property
    def _parts(self) -> tuple[LazyArray, LazyArray]:
        rank = len(self.shape)
        count = self.object.components["coords"].known_count(rank)
        if count is None:
            count = self.object.components["values"].known_count()
        values = self.part("values", None if count is None else (count,), count)
        (count,) = values.shape  # both compressed: known after decoding only
        return self.part("coords", (rank, count), count), values

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return coordinates and values of the selected rows."""
        coords, values = self._parts
        along = coords.owned(0)
        require_in_range(along, self.shape[0], "coords")
        place, new = _selected(along, rows)
        where: slice | Array = place
        if place.size and (np.diff(place) == 1).all():
            where = slice(int(place[0]), int(place[-1]) + 1)
        others = coords.owned((slice(1, None), where))
        for axis, (part, length) in enumerate(zip(others, self.shape[1:], strict=True), 1):
            position = axis * coords.shape[1] + (int(place[0]) if place.size else 0)
            require_in_range(part, length, "coords", position)
        all_axes = np.concatenate((new, others.astype(np.uint64).reshape(-1)))
        return {"coords": all_axes, "values": values[where]}


def _selected(along: Array, rows: Indices) -> tuple[Array, Array]:
    """Return the entries in the selected rows, and the new row of each.

    Args:
        along: (entries,) row of each entry.
        rows: the selection; a row that is selected twice repeats its entries.

    Returns:
        Indices of entries, ascending, and indices into `rows`, uint64: both (selected,).
    """
    if isinstance(rows, range):  # an axis may be longer than int64
        low, high = sorted((rows[0], rows[-1])) if rows else (1, 0)
        place = np.flatnonzero((along >= low) & (along <= high))
        step = np.uint64(min(abs(rows.step), max(high - low, 1)))
        new = along[place].astype(np.uint64) - np.uint64(low)
        place, new = place[new % step == 0], new[new % step == 0] // step
        return place, new if rows.step > 0 else np.uint64(max(row_count(rows), 1) - 1) - new
    along = along.astype(np.intp)
    order = np.argsort(rows, kind="stable")
    first, last = (np.searchsorted(rows[order], along, side) for side in ("left", "right"))
    counts = last - first  # a row may be selected more than once
    place = np.repeat(np.arange(along.size), counts)
    within = np.arange(place.size) - np.repeat(np.cumsum(counts) - counts, counts)
    return place, order[np.repeat(first, counts) + within].astype(np.uint64)


SPARSE_COO = SparseCoo()
