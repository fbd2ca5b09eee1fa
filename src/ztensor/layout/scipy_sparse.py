"""Sparse arrays of SciPy: what their parts must be like, and those that no layout of ours holds.

| layout | components; all but `values` are indices |
| --- | --- |
| `scipy.sparse_csc` | `values`, `indices`, `indptr`: compressed columns |
| `scipy.sparse_bsr` | the same, of blocks; attribute `values_shape`: (blocks, rows, columns) |
| `scipy.sparse_dia` | `values`, `offsets`: diagonals; `values_shape`: (diagonals, columns) |
| `scipy.sparse_csr` | as `sparse_csr`, of one dimension |

They are no entries of `LAYOUTS`: their components are read and copied as those of any unknown
layout, and only `Tensor.to_scipy` knows what they mean. A transposition or a sum would be needed to
make one of ours of them, and that is the user's to ask for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ztensor.errors import LayoutError, Reason, describe
from ztensor.layout.sparse import ColumnWatch, PointerWatch
from ztensor.model.dtype import element_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.layout.base import Array, View

PREFIX = "scipy.sparse_"
VALUES_SHAPE = "values_shape"
# Which class of SciPy's it was; `_matrix` and `_array` multiply differently.
CLASS = "scipy"

ROLES: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("csr", "csc", "bsr"), ("values", "indices", "indptr")),
    "dia": ("values", "offsets"),
    "coo": ("values", "coords"),
}
_SECTION = "SciPy, sparse arrays"


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
    lines = {"csc": shape[-1], "csr": shape[0] if len(shape) == 2 else 1}.get(kind)
    if kind == "bsr":
        if len(values) != 3 or not all(values[1:]):
            return False
        if any(whole % block for whole, block in zip(shape, values[1:], strict=True)):
            return False
        lines = shape[0] // values[1]
    elif len(values) != 1:
        return False
    return lines is not None and parts["indices"] == values[:1] and parts["indptr"] == (lines + 1,)


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
    values, *indices = (view.arrays[role] for role in roles)
    values_shape = view.attributes.get(VALUES_SHAPE, (values.size,))
    if not (
        isinstance(values_shape, (list, tuple))
        and all(isinstance(length, int) and length >= 0 for length in values_shape)
        and element_count(tuple(values_shape)) == values.size
    ):
        found = describe(values_shape)
        raise _broken(f"{VALUES_SHAPE} is not the values' shape", Reason.LAYOUT_COUNT, found)
    try:
        values = values.reshape(tuple(values_shape))
    except (ValueError, OverflowError) as error:  # none, along more than NumPy counts to
        found = describe(values_shape)
        raise _broken("NumPy has no such shape", Reason.LAYOUT_COUNT, found) from error
    parts = dict(zip(roles, (values, *(one.reshape(-1) for one in indices)), strict=True))
    if not do_fit(kind, shape, {role: part.shape for role, part in parts.items()}):
        found = ", ".join(f"{role} {part.shape}" for role, part in parts.items())
        raise _broken(
            f"the parts do not make a {kind} array of {shape}", Reason.LAYOUT_COUNT, found
        )
    if any(part.dtype.kind not in "iu" for role, part in parts.items() if role != "values"):
        raise _broken("indices are integers", Reason.INDEX_DTYPE, "others")
    if kind == "dia":
        offsets = parts["offsets"]
        low, high = (int(offsets.min()), int(offsets.max())) if offsets.size else (0, 0)
        if low < -shape[0] or high > shape[1]:
            found = f"{low} to {high} of shape {describe(shape)}"
            raise _broken("a diagonal lies outside the shape", Reason.INDEX_RANGE, found)
    else:
        counts = {"values": len(values), "indices": parts["indices"].size}
        counts["indptr"] = parts["indptr"].size
        bound = shape[0] if kind == "csc" else shape[-1] // (values.shape[2:] or (1,))[0]
        pointers = PointerWatch(counts["indptr"] - 1, _SECTION)
        columns = ColumnWatch(bound, _SECTION)
        pointers.feed(parts["indptr"])
        columns.feed(parts["indices"])
        pointers.finish(counts)
        columns.finish(counts)
    return tuple(parts[role] for role in roles)


def _broken(message: str, reason: Reason, found: str) -> LayoutError:
    return LayoutError(message, reason=reason, found=found, section=_SECTION)
