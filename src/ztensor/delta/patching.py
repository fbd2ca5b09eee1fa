"""`patches`: the changes of a delta for an engine that patches tensors in its memory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np

from ztensor import Tensor
from ztensor.delta.changes import Change, Delta, Part, bound
from ztensor.delta.errors import DeltaError, DeltaReason, needs_base, require, wrong_result
from ztensor.delta.opening import open as open_delta
from ztensor.delta.states import State, stored_form, tensor_id
from ztensor.ext import element_count
from ztensor.options import require_choice
from ztensor.typing import Array, Path, Readable, TensorLike

_MOST_INT32 = 1 << 31  # elements


@dataclasses.dataclass(frozen=True)
class Patch:
    """The change of one tensor, or the whole new tensor.

    Attributes:
        name: the tensor's name.
        shape: its shape.
        dtype: the name of its NumPy dtype, which torch has, too: "bfloat16", "float32".
        indices: positions in the flat tensor, (n,), ascending; int64 if the tensor has more than
            2^31 elements. A whole tensor has None.
        values: the new elements there, (n,); or all, (elements,). A view if possible.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    indices: Array | None
    values: Array


def patches(
    path: Delta | Path,
    *,
    base: Readable | Mapping[str, TensorLike] | None = None,
    indices: Literal["int32", "int64"] = "int32",
) -> Iterator[Patch]:
    """Yield new elements and their positions, tensor by tensor; then the tensors that are whole.

    They fit vLLM's `CheckpointWeightPatch`, which takes positions of floats only, and takes a NaN
    for an unchanged element: integers, and tensors with a new NaN, are whole. It takes positions
    and whole tensors in separate calls.

    Args:
        path: a delta of any dialect, or its path.
        base: the state before; not needed for deltas with `values="new"` unless a tensor of
            integers or with a NaN changes.
        indices: the dtype of positions.

    Raises:
        DeltaError: the base is needed (`delta_needs_base`) or another one, a tensor is removed or
            not dense, or the delta is malformed.
        FormatError: a file is damaged.
        SourceError: a file cannot be read.
    """
    require_choice("indices", indices, ("int32", "int64"))
    return _patches(path, base, np.dtype(indices))


def _patches(path: Delta | Path, base: Any, indices: np.dtype[Any]) -> Iterator[Patch]:
    with contextlib.ExitStack() as opened:
        delta = path if isinstance(path, Delta) else opened.enter_context(open_delta(path))
        state = None if base is None else opened.enter_context(State.of(base))
        if state is not None:
            (delta,) = bound([delta], state)
        if delta.removed:
            name = next(iter(delta.removed))
            message = "a patch cannot remove a tensor"
            raise DeltaError(message, reason=DeltaReason.TENSOR, object_name=name, file=delta.name)
        whole = []
        for name, change in delta.items():
            try:
                found = _sparse(change, delta, state)
            except DeltaError as error:
                raise error.locate(file=delta.name, object_name=name) from None
            if found is None:
                whole.append(name)
                continue
            positions, values = found
            dtype = indices if element_count(change.shape) <= _MOST_INT32 else np.dtype(np.int64)
            shape, word = change.shape, values.dtype.name
            yield Patch(name, shape, word, positions.astype(dtype, copy=False), values)
        for name in whole:
            values = _whole(delta[name], delta, state)
            yield Patch(name, delta[name].shape, values.dtype.name, None, values)


def _sparse(change: Change, delta: Delta, state: State | None) -> tuple[Array, Array] | None:
    """Return positions and new elements; None if the tensor must be whole."""
    part = _part(change)
    if change.kind != "changed":
        return None
    element = part.header.stored_dtype
    is_split = element.itemsize * element_count(change.shape) != part.header.nbytes
    if is_split or element.kind not in "fV":  # bits, complex numbers; integers
        return None
    if part.needs_old is None and part.whole is None:
        every = list(part.changes(None))
        positions = np.concatenate([np.empty(0, np.int64), *(at for at, _ in every)])
        bits = np.concatenate([np.empty(0, f"<u{element.itemsize}"), *(new for _, new in every)])
        values = bits.view(element)
    elif part.needs_old is None and state is None:
        return None
    else:
        old, new = (stored_form(each.components["data"]) for each in _new(change, delta, state))
        word = f"<u{element.itemsize}"
        positions = np.flatnonzero(old.view(word) != new.view(word))
        values = new[positions]
    return None if np.isnan(values).any() else (positions, values)


def _whole(change: Change, delta: Delta, state: State | None) -> Array:
    """Return all new elements, flat."""
    part = _part(change)
    if state is None and part.whole is not None:
        return part.header.restored(part.whole)
    return _new(change, delta, state)[1].components["data"].reshape(-1)


def _part(change: Change) -> Part:
    layout, parts = change.layout, change.parts
    require(layout == "dense", "patches are of dense tensors", layout, reason=DeltaReason.DIALECT)
    require("data" in parts, "a dense tensor changes without a difference", [*parts])
    return change.parts["data"]


def _new(change: Change, delta: Delta, state: State | None) -> tuple[Tensor, Tensor]:
    """Return the old tensor (of an added one, the new one) and the new tensor, which is checked."""
    old = None if state is None else state.get(change.name)
    if old is None and change.kind == "changed" and state is None:
        raise needs_base("values of the delta are known with the base only")
    new = change.tensor(old)
    if not change.is_result(new, delta.ids):
        ids, before = str(delta.ids), change.old
        if old is not None and before is not None and tensor_id(old, ids) != before:
            message = "the base is not the one of the delta"
            raise DeltaError(message, reason=DeltaReason.BASE, object_name=change.name)
        raise wrong_result(has_ids=delta.ids is not None, object_name=change.name, file=delta.name)
    return new if old is None else old, new
