"""The rules of both sparse layouts: index ranges, counts, scatter to dense, 2.x's order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ztensor.buffers import too_large, zeros_array
from ztensor.errors import LayoutError, Problem, Reason
from ztensor.spec.layout.base import Array, Layout, View, broken
from ztensor.spec.model.manifest import Component, TensorObject

CSR_SECTION, COO_SECTION = "1.2 section 3, sparse_csr", "1.2 section 3, sparse_coo"
_SECTIONS = {"indptr": CSR_SECTION, "indices": CSR_SECTION, "coords": COO_SECTION}
_BLOCK = 1 << 20
ANY_NUMBER = 1 << 63  # of indices per axis: `finish` compares it with the number of values


class IndexWatch:
    """A streaming range check of indices: `entries` for the first axis, then for the next.

    Args:
        role: the component of the indices.
        shape: the upper bound of the indices of each axis.
        entries: number of indices per axis.
    """

    def __init__(self, role: str, shape: tuple[int, ...], entries: int) -> None:
        self._role = role
        self._shape = shape
        self._entries = entries
        self._position = 0

    def feed(self, block: Array) -> None:
        """Check the next indices; a block may span several axes."""
        while block.size and self._entries:
            axis, within = divmod(self._position, self._entries)
            if axis >= len(self._shape):
                return  # too many indices: `finish` raises
            part = block[: self._entries - within]
            require_in_range(part, self._shape[axis], self._role, self._position)
            self._position += part.size
            block = block[part.size :]

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check that there is one index per value and axis."""
        expected = len(self._shape) * counts["values"]
        require_count(self._role, counts[self._role], expected)


class PointerWatch:
    """A streaming check of row pointers: rows + 1, ascending from 0 to the number of values."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._position = self._last = 0

    def feed(self, block: Array) -> None:
        """Check the next pointers."""
        if not block.size:
            return
        if self._position == 0 and block[0] != 0:
            raise broken_pointers("0 as the first", block[0])
        require_rising(block, self._last, self._position)
        self._position += block.size
        self._last = int(block[-1])

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check the number of pointers, and that the last is the number of values."""
        require_count("indptr", counts["indptr"], self._rows + 1)
        if self._last != counts["values"]:
            expected = f"{counts['values']}, the number of values, as the last"
            raise broken_pointers(expected, self._last)


def require_rising(pointers: Array, least: int, position: int = 0) -> None:
    """Check that row pointers do not descend.

    Args:
        pointers: consecutive pointers, at least one.
        least: the pointer before them.
        position: index of the first in the component, for the message.

    Raises:
        LayoutError: a pointer is less than the one before it.
    """
    falls = np.flatnonzero(pointers[1:] < pointers[:-1]) + 1
    at = 0 if pointers[0] < least else int(falls[0]) if falls.size else None
    if at is not None:
        least = int(pointers[at - 1]) if at else least
        raise broken_pointers(f"at least {least} at position {position + at}", pointers[at])


def broken_pointers(expected: str, found: object) -> LayoutError:
    """Return the error for invalid row pointers."""
    message = "the row pointers are invalid"
    return broken(Reason.INDEX_POINTERS, message, expected, found, CSR_SECTION, "indptr")


def require_count(role: str, count: int, expected: int) -> None:
    """Check a component's number of elements against the other components.

    Raises:
        LayoutError: it is not `expected`.
    """
    if count != expected:
        message = "the components disagree about the number of entries"
        elements = f"{expected} elements"
        raise broken(Reason.LAYOUT_COUNT, message, elements, count, _SECTIONS[role], role)


def require_in_range(indices: Array, bound: int, role: str, position: int = 0) -> None:
    """Check that every index is in `[0, bound)`.

    Args:
        indices: indices of any integer dtype.
        bound: the exclusive upper bound; it may be beyond the dtype.
        role: the component of the indices, for the message.
        position: index of the first in the component, for the message.

    Raises:
        LayoutError: an index is not; the message gives the first.
    """
    if indices.size == 0 or (indices.min() >= 0 and int(indices.max()) < bound):
        return
    wrong = indices < 0
    if bound <= np.iinfo(indices.dtype).max:  # otherwise only negative indices are wrong
        wrong |= indices >= bound
    at = int(np.argmax(wrong))
    message, expected = "an index points outside the shape", f"0 <= index < {bound}"
    found = f"{indices[at]} at position {position + at}"
    raise broken(Reason.INDEX_RANGE, message, expected, found, _SECTIONS[role], role)


class Sparse(Layout):
    """A layout of values and their indices: both have the same number of entries."""

    main_role = "values"

    def check_counts(
        self, tensor_object: TensorObject, role: str, count: int | None
    ) -> list[Problem]:
        """Return a problem if the manifest gives different entry counts for values and indices.

        Args:
            tensor_object: the object.
            role: the component of the indices.
            count: entries of that component; None if unknown.
        """
        values = tensor_object.components["values"]
        held, logical = values.known_count(), values.logical
        if held is None or count is None or held == count:
            return []
        # Of packed values the last byte may be padded: the indices give the exact count.
        if logical is not None and held - logical.elements_per_storage < count < held:
            return []
        message = (
            f"expected equal numbers of entries, found {held} in 'values', {count} in {role!r}"
        )
        return [Problem(Reason.LAYOUT_COUNT, message, ("components",), self.section)]

    def length_of(self, component: Component, count: int | None, per_entry: int = 1) -> int | None:
        """Return the decoded length of `count` entries; without a count, the manifest's length."""
        storage, logical = component.storage, component.logical
        if count is None or storage is None or count < 0:
            return component.known_decoded_length
        elements = count * per_entry
        return (elements if logical is None else logical.storage_count(elements)) * storage.width


def scatter(shape: tuple[int, ...], axes: tuple[Array, ...], values: Array) -> Array:
    """Return a new array of `shape`, zero except for the values; repeated positions are added up.

    No text gives repeated positions a meaning; SciPy and PyTorch add them up.

    Args:
        shape: the dense shape.
        axes: per axis the indices, (count,) integers.
        values: (count,) values.

    Raises:
        LimitError: the array does not fit into memory.
    """
    result = zeros_array(shape, values.dtype)
    if not values.size:
        return result
    axes = axes or (np.zeros(values.size, np.int64),)  # a scalar has one position
    try:
        numbers = tuple(axis.astype(np.int64, copy=False) for axis in axes)
        flat = np.ravel_multi_index(numbers, shape or (1,))
    except ValueError as error:  # a shape whose flat index does not fit 64 bits
        raise too_large(shape, values.dtype) from error
    target = result.reshape(-1)
    _, first = np.unique(flat, return_index=True)
    target[flat[first]] = values[first]
    if first.size == flat.size:
        return result
    repeated, again = np.delete(flat, first), np.delete(values, first)
    with np.errstate(over="ignore", invalid="ignore"):  # sums may overflow to infinity or NaN
        if target.dtype.kind in "biufc":
            (np.logical_or if target.dtype.kind == "b" else np.add).at(target, repeated, again)
            return result
        for position, value in zip(repeated, again, strict=True):  # add.at lacks bf16 and fp8
            target[position] += value
    return result


# --- 2.x ------------------------------------------------------------------------------------


def require_entries_once(layout: str, view: View) -> None:
    """Check that positions are distinct and, in `sparse_csr`, that columns of a row ascend (2.x).

    Memory: 24 bytes per entry of `sparse_coo`.

    Args:
        layout: `sparse_csr` or `sparse_coo`.
        view: an object that passed `require_valid`.

    Raises:
        LayoutError: a position is repeated, or the columns of a row do not ascend.
    """
    if layout == "sparse_csr":
        _require_rising(view.arrays["indices"].reshape(-1), view.arrays["indptr"].reshape(-1))
    else:
        _require_distinct(view.arrays["coords"].reshape(len(view.shape), -1))


def _require_rising(indices: Array, pointers: Array) -> None:
    for start in range(0, indices.size, _BLOCK):
        block = indices[start : start + _BLOCK + 1]
        falls = np.flatnonzero(block[1:] <= block[:-1]) + (start + 1)
        if not falls.size:
            continue
        # The first column of a row may be anything.
        places = np.searchsorted(pointers, falls.astype(pointers.dtype))
        wrong = falls[pointers[np.minimum(places, pointers.size - 1)] != falls]
        if wrong.size:
            at = int(wrong[0])
            message, section = "the columns of a row do not ascend", "the layout zt.sparse_csr/1"
            expected, reason = f"more than {indices[at - 1]} at position {at}", Reason.INDEX_ORDER
            raise broken(reason, message, expected, indices[at], section, "indices")


def _require_distinct(coords: Array) -> None:
    order = np.lexsort(coords[::-1])
    is_same = np.ones(max(order.size - 1, 0), np.bool_)
    for axis in coords:
        ordered = axis[order]
        is_same &= ordered[1:] == ordered[:-1]
    if is_same.any():
        message, section = "a position is repeated", "the layout zt.sparse_coo/1"
        expected, found = "distinct positions", "a position twice"
        raise broken(Reason.INDEX_ORDER, message, expected, found, section, "coords")
