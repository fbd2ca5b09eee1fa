"""`sparse_csr`: compressed sparse rows (1.2 section 3, 1.1 part III section 2).

| role | elements |
| --- | --- |
| `indptr` | rows + 1 row pointers |
| `indices` | a column for each value |
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
    """The layout `sparse_csr`."""

    name = "sparse_csr"
    section = CSR_SECTION
    read_order = ("indptr", "indices", "values")
    index_roles = ("indices", "indptr")

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
            expected, why = (rows + 1) * width, f"{describe(rows)} rows and one more"
            problems = check_length("indptr", components["indptr"], expected, why, self.section)
        count = components["indices"].known_count()
        return problems + self.check_counts(tensor_object, "indices", count)

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return the row pointers' length from the shape, the others' from the last pointer."""
        component = tensor_object.components[role]
        width = component.width
        if role == "indptr" and width is not None:
            return (tensor_object.shape[0] + 1) * width
        return self.length_of(component, entries if role in self.read_order else None)

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the last row pointer, which is the number of values."""
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
        """Return what cuts rows out of a matrix."""
        return CsrRows(tensor_object, part)

    def require_valid(self, view: View) -> None:
        """Raise unless pointers, columns and values make a matrix of the shape."""
        if len(view.shape) != 2:
            message, found = "compressed sparse rows make a matrix", len(view.shape)
            raise broken(Reason.LAYOUT_RANK, message, "2 dimensions", found, self.section)
        super().require_valid(view)

    def to_dense(self, view: View) -> Array:
        """Return the matrix with zeros filled in; values at one position are added up."""
        self.require_valid(view)
        pointers, indices, values = (view.arrays[role].reshape(-1) for role in self.read_order)
        pointers = pointers.astype(np.int64)
        counts = pointers[1:] - pointers[:-1]
        return scatter(view.shape, (np.repeat(np.arange(counts.size), counts), indices), values)


class CsrRows(Rows):
    """Rows of `sparse_csr`: of the row pointers, columns and values those of the rows are read."""

    @cached_property
    def _pointers(self) -> LazyArray:
        return self.part("indptr", (self.shape[0] + 1,))

    @cached_property
    def _entries(self) -> int:
        count = self.object.components["indices"].known_count()
        if count is None:
            count = self.object.components["values"].known_count()
        if count is None:  # compressed, and nothing but the last pointer tells
            count = int(self._pointers.owned(self.shape[0]))
            if count < 0:
                raise broken_pointers("0 or more as the last", count)
        return count

    @cached_property
    def _parts(self) -> dict[str, LazyArray]:
        count = self._entries
        return {role: self.part(role, (count,), count) for role in ("indices", "values")}

    def cut(self, rows: Indices) -> dict[str, Array]:
        """Return columns and values of some rows, and their row pointers from zero on."""
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
        """Raise unless the pointers of some of the rows from `start` to `stop` can be true."""
        require_rising(pointers, 0, start)
        last, count = int(pointers[-1]), self._entries
        if start == 0 and pointers[0] != 0:
            raise broken_pointers("0 as the first", pointers[0])
        if last > count or (last < count and stop == self.shape[0]):
            raise broken_pointers(f"{count}, the number of values, as the last", last)


SPARSE_CSR = SparseCsr()
