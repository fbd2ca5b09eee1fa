"""What both sparse layouts share: index rules, counts, and values put into zeros."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.buffers import too_large, zeros_array
from ztensor.errors import LayoutError, Problem, Reason, describe
from ztensor.spec.layout.base import Array, View, component_problem, width_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from ztensor.spec.model.manifest import Component, TensorObject

_BLOCK = 1 << 20


ANY_NUMBER = 1 << 63  # of indices of one axis: the values tell how many there are


class IndexWatch:
    """Indices of one axis after another, `entries` of each, all inside the shape.

    Args:
        role: their component.
        shape: the dimensions they count along.
        entries: how many there are along each.
        section: the specification's section.
    """

    def __init__(self, role: str, shape: tuple[int, ...], entries: int, section: str) -> None:
        self._role = role
        self._shape = shape
        self._entries = entries
        self._section = section
        self._position = 0

    def feed(self, block: Array) -> None:
        """Check the next indices, which may run from one axis into the next."""
        while block.size and self._entries:
            axis, within = divmod(self._position, self._entries)
            if axis >= len(self._shape):
                return  # too many: finish() says so
            part = block[: self._entries - within]
            require_in_range(part, self._shape[axis], self._role, self._section, self._position)
            self._position += part.size
            block = block[part.size :]

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check that every value has an index along each axis."""
        expected = len(self._shape) * counts["values"]
        require_count(self._role, counts[self._role], expected, self._section)


class PointerWatch:
    """Row pointers: one more than rows, from 0, never falling, up to the number of values."""

    def __init__(self, rows: int, section: str) -> None:
        self._rows = rows
        self._section = section
        self._position = 0
        self._last = 0

    def feed(self, block: Array) -> None:
        """Check the next pointers."""
        if not block.size:
            return
        if self._position == 0 and block[0] != 0:
            raise self._broken("0 as the first", str(block[0]))
        if int(block[0]) < self._last:
            raise self._broken(f"at least {self._last} at position {self._position}", str(block[0]))
        for start in range(0, block.size - 1, _BLOCK):
            part = block[start : start + _BLOCK + 1]
            falls = np.flatnonzero(part[1:] < part[:-1])
            if falls.size:
                at = int(falls[0])
                position = self._position + start + at + 1
                raise self._broken(f"at least {part[at]} at position {position}", str(part[at + 1]))
        self._position += block.size
        self._last = int(block[-1])

    def finish(self, counts: Mapping[str, int]) -> None:
        """Check the number of pointers, and that the last is the number of values."""
        require_count("indptr", counts["indptr"], self._rows + 1, self._section)
        if self._last != counts["values"]:
            raise self._broken(
                f"{counts['values']}, the number of values, as the last", str(self._last)
            )

    def _broken(self, expected: str, found: str) -> LayoutError:
        return LayoutError(
            "the row pointers are broken",
            reason=Reason.INDEX_POINTERS,
            component="indptr",
            expected=expected,
            found=found,
            section=self._section,
        )


def require_count(role: str, count: int, expected: int, section: str) -> None:
    """Raise unless a component has the number of elements the others ask for.

    Raises:
        LayoutError: it has not.
    """
    if count != expected:
        raise LayoutError(
            "the components disagree about the number of entries",
            reason=Reason.LAYOUT_COUNT,
            component=role,
            expected=f"{expected} elements",
            found=str(count),
            section=section,
        )


def require_in_range(
    indices: NDArray[Any], bound: int, role: str, section: str, position: int = 0
) -> None:
    """Raise unless every index lies in `[0, bound)`.

    Args:
        indices: the indices, of any integer type.
        bound: the first value that is too large.
        role: the component they belong to.
        section: the specification's section.
        position: where in the component they begin, for the message.

    Raises:
        LayoutError: one does not; the message gives the first.
    """
    if indices.size == 0 or (indices.min() >= 0 and int(indices.max()) < bound):
        return
    for start in range(0, indices.size, _BLOCK):
        block = indices[start : start + _BLOCK]
        # `bound` may be beyond the index type; then only negative ones are wrong.
        wrong = block < 0
        if bound <= np.iinfo(block.dtype).max:
            wrong |= block >= bound
        at = np.flatnonzero(wrong)
        if at.size:
            raise LayoutError(
                "an index points outside the shape",
                reason=Reason.INDEX_RANGE,
                component=role,
                expected=f"0 <= index < {bound}",
                found=f"{block[at[0]]} at position {position + start + int(at[0])}",
                section=section,
            )


def check_index_dtype(
    tensor_object: TensorObject, roles: Iterable[str], section: str
) -> list[Problem]:
    """Return problems of index components that are no integers.

    1.2 orders u64, 1.1 allows any integer; any integer is read.
    """
    problems = []
    for role in roles:
        component = tensor_object.components.get(role)
        storage = None if component is None else component.storage
        if component is not None and (
            component.type is not None or (storage is not None and storage.kind not in "iu")
        ):
            word = describe(component.type or component.dtype)
            message = f"expected an integer dtype for indices, found {word}"
            problems.append(component_problem(Reason.INDEX_DTYPE, role, message, section, "dtype"))
    return problems


def require_roles(view: View, roles: Iterable[str], section: str) -> None:
    """Raise unless every role has an array.

    Raises:
        LayoutError: one has none.
    """
    if any(role not in view.arrays for role in roles):
        raise LayoutError(
            "a component is missing",
            reason=Reason.COMPONENT_MISSING,
            expected=", ".join(roles),
            found=", ".join(map(describe, list(view.arrays)[:8])) or "none",
            section=section,
        )


def check_counts(counts: Mapping[str, int | None], section: str) -> list[Problem]:
    """Return a problem where components disagree about the number of entries."""
    known = {role: count for role, count in counts.items() if count is not None}
    if len(set(known.values())) < 2:
        return []
    found = ", ".join(f"{count} by {role!r}" for role, count in known.items())
    return [
        Problem(
            Reason.LAYOUT_COUNT,
            f"expected one number of entries, found {found}",
            ("components",),
            section,
        )
    ]


def without_padding(
    component: Component, counts: Mapping[str, int | None]
) -> dict[str, int | None]:
    """Return how many entries components hold, values that share bytes counted by the others.

    Args:
        component: the values.
        counts: what each component holds, the values as `values`.
    """
    logical, held = component.logical, counts["values"]
    found = dict(counts)
    for count in counts.values():
        if logical is None or held is None or count is None:
            continue
        if held - logical.elements_per_storage < count < held:
            found["values"] = count
    return found


def sparse_length(component: Component, count: int | None, per_entry: int) -> int | None:
    """Return the decoded length of `count` entries; what the manifest gives without a count."""
    width = width_of(component)
    if count is None or width is None or count < 0:
        return component.known_decoded_length
    logical = component.logical
    elements = count * per_entry
    return (elements if logical is None else logical.storage_count(elements)) * width


def scatter(shape: tuple[int, ...], axes: tuple[Array, ...], values: Array) -> Array:
    """Return zeros of `shape` with the values put in; equal positions are added up.

    No text gives repeated positions a meaning; adding is what SciPy and PyTorch do.

    Raises:
        LimitError: the array does not fit into memory.
    """
    result = zeros_array(shape, values.dtype)
    if not shape:
        axes = (np.zeros(values.size, np.int64),)
        flat_shape: tuple[int, ...] = (1,)
    else:
        flat_shape = shape
    if not values.size:
        return result
    try:
        flat = np.ravel_multi_index(
            tuple(axis.astype(np.int64, copy=False) for axis in axes), flat_shape
        )
    except ValueError as error:  # a shape whose flat index does not fit 64 bits
        raise too_large(shape, values.dtype) from error
    target = result.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    target[ordered[first]] = values[order][first]
    if first.all():
        return result
    repeated, again = ordered[~first], values[order][~first]
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs are values like others
        if target.dtype.kind in "biufc":
            (np.logical_or if target.dtype.kind == "b" else np.add).at(target, repeated, again)
            return result
        for position, value in zip(repeated, again, strict=True):  # add.at lacks bf16 and fp8
            target[position] += value
    return result
