"""Sparse arrays of SciPy: what their parts must be like, and layouts for those of no layout of 1.2.

| layout | components |
| --- | --- |
| `scipy.sparse_csc` | `values`, `indices`, `indptr`: compressed columns |
| `scipy.sparse_bsr` | the same, of blocks; attribute `values_shape`: (blocks, rows, columns) |
| `scipy.sparse_dia` | `values`, `offsets`: diagonals; `values_shape`: (diagonals, columns) |
| `scipy.sparse_csr` | as `sparse_csr`, of one dimension |

Files of SciPy's are read as what they hold: to make compressed rows of columns is a computation,
and the user's to ask for. A reader that knows no such layout lists the object, and gives its parts.
Offsets may be negative and are kept as they are; the other indices are written as u64.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.errors import LayoutError, Problem, Reason, describe
from ztensor.ext import LAYOUTS, Layout, TensorObject, View, element_count
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Mapping


PREFIX = "scipy.sparse_"
VALUES_SHAPE = "values_shape"
# Which class of SciPy's it was; `_matrix` and `_array` multiply differently.
CLASS = "scipy"

# Values come first, as SciPy's constructors have it.
ROLES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("csr", "csc", "bsr"), ("values", "indices", "indptr")),
    "dia": ("values", "offsets"),
    "coo": ("values", "coords"),
}
_SECTION = "SciPy, sparse arrays"
_ROWS = copy.copy(LAYOUTS["sparse_csr"])  # whose rules most of them share
_ROWS.section = _SECTION
_MOST_RANK = 3  # of values: those of blocks
_LARGEST = (1 << 63) - 1


def do_fit(kind: str, shape: tuple[int, ...], parts: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether parts of some shapes can make a sparse array.

    Args:
        kind: what SciPy calls it: `csr`, `csc`, `bsr`, `dia` or `coo`.
        shape: of the whole.
        parts: role to shape; each of `ROLES[kind]`.
    """
    values = parts["values"]
    if kind == "coo":
        return bool(shape) and len(values) == 1 and parts["coords"] == (len(shape), *values)
    if kind == "dia":
        return len(shape) == 2 and len(values) == 2 and parts["offsets"] == values[:1]
    if len(shape) != 2 and not (kind == "csr" and len(shape) == 1):
        return False
    if kind == "bsr":
        if len(values) != 3 or not all(values[1:]):
            return False
        if any(whole % block for whole, block in zip(shape, values[1:], strict=True)):
            return False
    elif len(values) != 1:
        return False
    lines = _lines(kind, shape, values)
    return parts["indices"] == values[:1] and parts["indptr"] == (lines + 1,)


def shape_of_values(found: object, count: int | None) -> tuple[int, ...] | None:
    """Return an attribute `values_shape`, perhaps None, as a shape of so many elements.

    None where it is no such shape. Any number will do where `count` is None.
    """
    if found is None:
        return (count or 0,)
    if not isinstance(found, (list, tuple)) or len(found) > _MOST_RANK:
        return None
    if not all(isinstance(length, int) and 0 <= length <= _LARGEST for length in found):
        return None
    shape = tuple(found)
    return shape if count is None or element_count(shape) == count else None


def _lines(kind: str, shape: tuple[int, ...], values: tuple[int, ...]) -> int:
    """Return how many rows, columns or rows of blocks the pointers are of."""
    if kind == "csc":
        return shape[1]
    if len(shape) == 1:
        return 1
    return shape[0] // values[1] if kind == "bsr" else shape[0]


def _bound(kind: str, shape: tuple[int, ...], values: tuple[int, ...]) -> int:
    """Return how many columns, rows or columns of blocks an index counts."""
    if kind == "csc":
        return shape[0]
    return shape[-1] // values[2] if kind == "bsr" else shape[-1]


def _rows(
    kind: str, shape: tuple[int, ...], values: tuple[int, ...], parts: Mapping[str, Array]
) -> View:
    """Return pointers and indices as those of compressed rows: their rules are the same."""
    return View((_lines(kind, shape, values), _bound(kind, shape, values)), parts, {})


def scipy_parts(kind: str, view: View) -> tuple[Array, ...]:
    """Return the components in the order of `ROLES`, values in their shape, all checked.

    SciPy reads out of bounds where indices lie.

    Raises:
        LayoutError: they do not make such an array.
    """
    shape, roles = view.shape, ROLES[kind]
    missing = [role for role in roles if role not in view.arrays]
    if missing:
        raise _broken("a component is missing", Reason.COMPONENT_MISSING, describe(missing[0]))
    parts = {role: view.arrays[role].reshape(-1) for role in roles}
    told = view.attributes.get(VALUES_SHAPE)
    values_shape = shape_of_values(told, parts["values"].size)
    if values_shape is None:
        raise _broken(_NO_SHAPE, Reason.LAYOUT_COUNT, describe(told))
    try:
        parts["values"] = parts["values"].reshape(values_shape)
    except ValueError as error:  # none, along more than NumPy counts to
        raise _broken(_NO_SHAPE, Reason.LAYOUT_COUNT, describe(told)) from error
    if not do_fit(kind, shape, {role: part.shape for role, part in parts.items()}):
        found = ", ".join(f"{role} {part.shape}" for role, part in parts.items())
        raise _broken(f"the parts make no {kind} array of {shape}", Reason.LAYOUT_COUNT, found)
    if any(part.dtype.kind not in "iu" for role, part in parts.items() if role != "values"):
        raise _broken("indices are integers", Reason.INDEX_DTYPE, "others")
    if kind == "dia":
        _DiagonalWatch(shape).feed(parts["offsets"])
    else:
        rows = _rows(kind, shape, values_shape, {**parts, "values": parts["indices"]})
        _ROWS.require_valid(rows)
    return tuple(parts[role] for role in roles)


_NO_SHAPE = f"{VALUES_SHAPE} is not the values' shape"


def _broken(message: str, reason: Reason, found: str) -> LayoutError:
    return LayoutError(message, reason=reason, found=found, section=_SECTION)


class _DiagonalWatch:
    """Every diagonal begins in the array, or at its edge."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape

    def feed(self, block: Array) -> None:
        """Check the next offsets."""
        if not block.size:
            return
        low, high = int(block.min()), int(block.max())
        if low < -self._shape[0] or high > self._shape[1]:
            found = f"{low} to {high} of shape {describe(self._shape)}"
            raise _broken("a diagonal lies outside the shape", Reason.INDEX_RANGE, found)

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check nothing more: the counts are those of the shape."""


class _Fitting:
    """A check of one part, and at its end of all counts; values are counted as SciPy does.

    Args:
        kind: what SciPy calls the array.
        of: the array.
        watch: the check.
    """

    def __init__(self, kind: str, of: TensorObject | View, watch: Any) -> None:
        self.feed = watch.feed
        self._kind = kind
        self._object = of
        self._watch = watch

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check that the parts make the array, and what is left to check of the one."""
        told = (self._object.attributes or {}).get(VALUES_SHAPE)
        values_shape = shape_of_values(told, counts["values"])
        parts = {role: (counts[role],) for role in ROLES[self._kind]}
        if values_shape is None or not do_fit(
            self._kind, self._object.shape, {**parts, "values": values_shape}
        ):
            found = ", ".join(f"{counts[role]} {role}" for role in parts)
            message = f"the parts make no {self._kind} array of {describe(self._object.shape)}"
            raise _broken(message, Reason.LAYOUT_COUNT, found)
        self._watch.finish({**counts, "values": values_shape[0]})


class ScipySparse(Layout):
    """A layout `scipy.sparse_*`.

    Args:
        kind: what SciPy calls it: `csr`, `csc`, `bsr` or `dia`.
    """

    main_role = "values"
    section = _SECTION

    def __init__(self, kind: str) -> None:
        self.name = f"{PREFIX}{kind}"
        self.kind = kind
        self.read_order = tuple(reversed(ROLES[kind]))
        self.index_roles = () if kind == "dia" else ("indices", "indptr")

    def check_object(self, tensor_object: TensorObject) -> list[Problem]:
        """Return problems with rank, roles, index types and, as far as they are known, counts."""
        roles, shape = ROLES[self.kind], tensor_object.shape
        problems = super().check_object(tensor_object)
        offsets = tensor_object.components.get("offsets") if self.kind == "dia" else None
        storage = None if offsets is None else offsets.storage
        if offsets is not None and (offsets.type or (storage and storage.kind not in "iu")):
            sentence = f"expected integers, found {describe(offsets.type or offsets.dtype)}"
            path = ("components", "offsets", "dtype")
            problems.append(
                Problem(Reason.INDEX_DTYPE, sentence, path, _SECTION, component="offsets")
            )
        rank = 1 if self.kind == "csr" else 2
        if len(shape) != rank:
            sentence = f"expected dimensions: {rank}, found {len(shape)}"
            problems.append(Problem(Reason.LAYOUT_RANK, sentence, ("shape",), _SECTION))
        if problems:
            return problems
        told = (tensor_object.attributes or {}).get(VALUES_SHAPE)
        counts = {role: tensor_object.components[role].known_count() for role in roles}
        known = {role: (count,) for role, count in counts.items() if count is not None}
        are_known = len(known) == len(roles)
        values_shape = shape_of_values(told, *known.get("values", (None,)))
        if values_shape is None or not (
            do_fit(self.kind, shape, {**known, "values": values_shape})
            if are_known
            else self.kind != "bsr" or (len(values_shape) == _MOST_RANK and all(values_shape[1:]))
        ):
            found = ", ".join(f"{count} {role}" for role, (count,) in known.items())
            problems.append(
                Problem(
                    Reason.LAYOUT_COUNT,
                    f"expected the parts of a {self.kind} array of {describe(shape)}, found "
                    f"{found or 'none'}, {VALUES_SHAPE} {describe(told)}",
                    ("components",),
                    _SECTION,
                )
            )
        return problems

    def _block(self, of: TensorObject | View) -> tuple[int, ...]:
        """Return the shape of a block, which was checked; () where values are single."""
        if self.kind != "bsr":
            return ()
        told: Any = (of.attributes or {}).get(VALUES_SHAPE)
        return tuple(told[1:])

    def expected_length(
        self, tensor_object: TensorObject, role: str, entries: int | None
    ) -> int | None:
        """Return the pointers' length from the shape, the others' from the last pointer."""
        if self.kind == "dia" or role not in self.read_order:
            return super().expected_length(tensor_object, role, entries)
        block = self._block(tensor_object)
        lines = _lines(self.kind, tensor_object.shape, (0, *block))
        if entries is not None and role == "values":
            entries *= element_count(block)
        rows = tensor_object._replace(shape=(lines, 0))
        return _ROWS.expected_length(rows, role, entries)

    def entries_told(self, role: str, count: int, last: int) -> int | None:
        """Return the last pointer, which is the number of values or of blocks."""
        del count
        return last if role == "indptr" else None

    def watch(self, of: TensorObject | View, role: str, entries: int | None) -> _Fitting | None:
        """Return the checks of pointers, of indices and of diagonals."""
        if role not in self.read_order or role == self.main_role:
            return None
        if role == "offsets":
            return _Fitting(self.kind, of, _DiagonalWatch(of.shape))
        rows = _rows(self.kind, of.shape, (0, *self._block(of)), {})
        return _Fitting(self.kind, of, _ROWS.watch(rows, role, entries))

    def require_valid(self, view: View) -> None:
        """Raise unless the parts make an array of the shape."""
        scipy_parts(self.kind, view)

    def to_dense(self, view: View) -> Array:
        """Return the array with zeros filled in; values at one position are added up."""
        values, *indices = scipy_parts(self.kind, view)
        if self.kind == "dia":
            return _diagonals(view.shape, values, indices[0])
        places, pointers = indices[0].astype(np.int64), indices[1].astype(np.int64)
        lines = np.repeat(np.arange(pointers.size - 1), np.diff(pointers))
        if len(view.shape) == 1:
            return _scattered(view.shape, (places,), values)
        if self.kind != "bsr":
            axes = (places, lines) if self.kind == "csc" else (lines, places)
            return _scattered(view.shape, axes, values)
        _, height, width = values.shape
        rows = lines[:, None, None] * height + np.arange(height)[:, None]
        columns = places[:, None, None] * width + np.arange(width)
        both = (np.broadcast_to(axis, values.shape).reshape(-1) for axis in (rows, columns))
        return _scattered(view.shape, tuple(both), values.reshape(-1))


def _scattered(shape: tuple[int, ...], axes: tuple[Array, ...], values: Array) -> Array:
    """Return zeros with the values put in; those at one position are added up."""
    coords = np.stack(axes)
    return LAYOUTS["sparse_coo"].to_dense(View(shape, {"coords": coords, "values": values}, {}))


def _diagonals(shape: tuple[int, ...], values: Array, offsets: Array) -> Array:
    """Return a matrix of diagonals: an element has the column it is in."""
    columns = np.broadcast_to(np.arange(values.shape[1]), values.shape)
    rows = columns - offsets.astype(np.int64)[:, None]
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    return _scattered(shape, (rows[inside], columns[inside]), values[inside])


SCIPY_LAYOUTS = {layout.name: layout for layout in map(ScipySparse, ("csr", "csc", "bsr", "dia"))}
