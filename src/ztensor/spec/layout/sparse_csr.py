"""`sparse_csr`: compressed sparse rows (1.2 section 3, 1.1 part III section 2).

| role | elements |
| --- | --- |
| `indptr` | rows + 1 row pointers |
| `indices` | the column of each value |
| `values` | the values, row by row |
"""

from __future__ import annotations

import numpy as np

from ztensor.errors import Problem, Reason, describe
from ztensor.locks import cached_property
from ztensor.spec.layout.base import (
    Array,
    Indices,
    LazyArray,
    Part,
    Rows,
    View,
    Watch,
    broken,
    check_length,
)
from ztensor.spec.layout.sparse import (
    ANY_NUMBER,
    CSR_SECTION,
    IndexWatch,
    PointerWatch,
    Sparse,
    broken_pointers,
    require_in_range,
    require_rising,
    scatter,
)
from ztensor.spec.model.manifest import TensorObject


class SparseCsr(Sparse):
    """The layout `sparse_csr` (1.2 section 3)."""

    name = "sparse_csr"
    section = CSR_SECTION
    read_order = ("indptr", "indices", "values")
    index_roles = ("indices", "indptr")
    has_streamed_rules = True

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with rank, roles, index types and counts."""
        problems = super().check_object(tensor_object)
        if len(tensor_object.shape) != 2:
            message = f"expected 2 dimensions, found {len(tensor_object.shape)}"
            problems.append(Problem(Reason.LAYOUT_RANK, message, ("shape",), self.section))
        if problems:
            return problems
        components, rows = tensor_object.components, tensor_object.shape[0]
        width = components["indptr"].width
        if width is not None:
            expected, why = (rows + 1) * width, f"the pointers of {describe(rows)} rows"
            problems = check_length("indptr", components["indptr"], expected, why, self.section)
        count = components["indices"].known_count()
        return problems + self.check_counts(tensor_object, "indices", count)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return the length of `indptr` from the shape, of the others from the last pointer."""
        component = tensor_object.components[role]
        width = component.width
        if role == "indptr" and width is not None:
            return (tensor_object.shape[0] + 1) * width
        return self.length_of(component, entries if role in self.read_order else None)

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the last row pointer: the number of values."""
        del count
        return last if role == "indptr" else None

    def watch(self, of: TensorObject | View, role: str, entries: int | None) -> Watch | None:
        """Return the checks of row pointers and of columns."""
        del entries
        if role == "indptr":
            return PointerWatch(of.shape[0])
        if role == "indices":
            return IndexWatch("indices", of.shape[1:], ANY_NUMBER)
        return None

    def rows(self, tensor_object: TensorObject, part: Part) -> Rows:
        """Return the row selection of a matrix."""
        return CsrRows(tensor_object, part)

    def require_valid(self, view: View) -> None:
        """Check rank, pointers, columns and counts."""
        if len(view.shape) != 2:
            message, found = "a sparse_csr tensor is not a matrix", len(view.shape)
            raise broken(Reason.LAYOUT_RANK, message, "2 dimensions", found, self.section)
        super().require_valid(view)

    def to_dense(self, view: View) -> Array:
        """Return the dense matrix; values at the same position are added up."""
        self.require_valid(view)
        pointers, indices, values = (view.arrays[role].reshape(-1) for role in self.read_order)
        pointers = pointers.astype(np.int64)
        counts = pointers[1:] - pointers[:-1]
        return scatter(view.shape, (np.repeat(np.arange(counts.size), counts), indices), values)


class CsrRows(Rows):
    """Row selection on `sparse_csr`: reads pointers, columns and values of the rows only."""

    @cached_property
    def _pointers(self) -> LazyArray:
        return self.part("indptr", (self.shape[0] + 1,))

    @cached_property
    def _entries(self) -> int:
        count = self.object.components["indices"].known_count()
        if count is None:
            count = self.object.components["values"].known_count()
        if count is None:  # both compressed: the last pointer gives the count
            count = int(self._pointers.owned(self.shape[0]))
            if count < 0:
                raise broken_pointers("0 or more as the last", count)
        return count

    @cached_property
    def _parts(self) -> dict[str, LazyArray]:
        count = self._entries
        return {role: self.part(role, (count,), count) for role in ("indices", "values")}

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return columns and values of the selected rows, and new row pointers from 0."""
        place: slice | Array
        if isinstance(rows, range) and (rows.step == 1 or len(rows) < 2):
            stop = rows.start + len(rows)
            pointers = self._pointers.owned(slice(rows.start, stop + 1))
            self._require_pointers(pointers, rows.start, stop)
            first = int(pointers[0])
            place = slice(first, int(pointers[-1]))
            indptr = pointers - pointers[0]
        else:
            unique, order = np.unique(np.asarray(rows, np.intp), return_inverse=True)
            pairs = self._pointers[np.stack((unique, unique + 1), axis=1)]
            self._require_pointers(pairs.reshape(-1), int(unique[0]), int(unique[-1]) + 1)
            begins, ends = pairs.astype(np.int64).T
            lengths = (ends - begins)[order]
            indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
            place = np.arange(indptr[-1]) + np.repeat(begins[order] - indptr[:-1], lengths)
            indptr, first = indptr.astype(np.uint64), 0
        indices = self._parts["indices"][place]
        require_in_range(indices, self.shape[1], "indices", first)
        return {"indices": indices, "indptr": indptr, "values": self._parts["values"][place]}

    def _require_pointers(self, pointers: Array, start: int, stop: int) -> None:
        """Check pointers of rows within `[start, stop)` against each other and the value count."""
        require_rising(pointers, 0, start)
        last, count = int(pointers[-1]), self._entries
        if start == 0 and pointers[0] != 0:
            raise broken_pointers("0 as the first", pointers[0])
        if last > count or (last < count and stop == self.shape[0]):
            raise broken_pointers(f"{count}, the number of values, as the last", last)


SPARSE_CSR = SparseCsr()
