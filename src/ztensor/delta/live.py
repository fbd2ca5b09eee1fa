"""`apply_to`: change tensors in memory, on the CPU or a device.

Only changed elements are written; they are moved to the device of their tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from ztensor import Tensor
from ztensor.delta.applied import Applied, NewTensor
from ztensor.delta.applying import Chained
from ztensor.delta.chain import Deltas, Found
from ztensor.delta.changes import Part
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.report import ApplyReport
from ztensor.delta.states import State, stored_form
from ztensor.delta.targets import check_all
from ztensor.errors import ArgumentTypeError, ArgumentValueError, describe
from ztensor.ext import FRAMEWORKS
from ztensor.options import require_choice
from ztensor.typing import Array, TensorLike

# Dtypes that torch has, too, by the bytes of an element.
_SIGNED: dict[int, np.dtype[Any]] = {width: np.dtype(f"i{width}") for width in (2, 4, 8)}
_SIGNED[1] = np.dtype(np.uint8)


def apply_to(
    state: Mapping[str, TensorLike],
    deltas: Deltas,
    *,
    to: str | None = None,
    verify: Literal["before"] | None = "before",
    strict: bool = True,
    if_applied: Literal["error", "skip"] = "error",
    threads: int | None = None,
) -> ApplyReport:
    """Change the tensors of a mapping in place.

    Everything is computed and compared first, so an error leaves all tensors as they were. Memory
    that two names share is changed once.

    Args:
        state: names to NumPy arrays, torch tensors on any device, or `ztensor.Tensor`s over arrays;
            such as a `state_dict()`. They must be contiguous and writable.
        deltas: a delta, a folder of them, or several in any order.
        to: the state to stop at, as for `apply`.
        verify: `"before"`: each new tensor must be the one that the delta was made from; None
            compares nothing, and a damaged delta may leave a mixture.
        strict: False ignores tensors of the delta that the mapping does not have, and those that it
            adds or removes; and names that share memory with a changed tensor need not be in it.
        if_applied: `"skip"` accepts a state that already has the result.
        threads: how many compute and compare; None uses the cores, at most four.

    Raises:
        DeltaError: the deltas do not fit the state, or are malformed; no tensor is changed.
        ArgumentTypeError: a value cannot be changed in place, such as an array of JAX.
        ArgumentValueError: a tensor is not contiguous, or read-only.
    """
    require_choice("verify", verify, ("before", None))
    require_choice("if_applied", if_applied, ("error", "skip"))

    def write(applied: Applied) -> int:
        targets = list(_targets(state, applied, strict=strict))
        if verify is not None:
            check_all(applied, threads)
        for target in targets:
            target.change()
        return sum(target.nbytes for target in targets)

    with Found(deltas) as found, State(state) as before:
        names = None if strict else set(state)
        touched = None if verify is None else "touched"
        chain = Chained(found.deltas, before, to, touched, threads, names)
        return chain.run(write, before.name, verify, if_applied)


def _targets(state: Mapping[str, Any], applied: Applied, *, strict: bool) -> Iterator[_Target]:
    """Yield the memory to change, each once.

    Raises:
        DeltaError: a tensor would be added, removed or replaced; or two names share memory, and the
            delta changes them differently.
        ArgumentTypeError: a value cannot be changed in place.
        ArgumentValueError: a tensor is not contiguous, or read-only.
    """
    for name in applied.removed:
        raise _other(name, "the delta removes a tensor, and a state in memory keeps it")
    for name, tensor in applied.tensors.items():
        first = tensor.changes[0]
        if first.kind == "added":
            raise _other(name, "the delta adds a tensor to a state in memory")
        if first.kind == "replaced":
            message = "the delta replaces a tensor by one of another shape or type"
            raise DeltaError(message, reason=DeltaReason.SHAPE, object_name=name)
    groups: dict[_Extent, list[_Target]] = {}
    for name in state:
        for role, value in _arrays(name, state[name], is_changed=name in applied.tensors):
            target = _Target(name, role, value, applied.tensors.get(name))
            groups.setdefault(target.extent, []).append(target)
    reach: list[_Target] = []  # the group with the last end so far
    for extent in sorted(groups):
        group = groups[extent]
        changed = [target for target in group if target.parts]
        wrong = [each for each in group if changed and not _agree(changed[0], each, strict=strict)]
        if reach and extent.is_within(reach[0].extent):
            wrong += group if changed or any(target.parts for target in reach) else []
        if wrong:
            raise _other(wrong[0].name, "it shares memory with a tensor that changes otherwise")
        reach = max(reach or group, group, key=lambda each: each[0].extent[::2])  # device and stop
        for target in changed:
            target.require_writable()
        yield from changed[:1]


def _agree(one: _Target, other: _Target, *, strict: bool) -> bool:
    """Return whether the delta changes two names for the same memory alike."""
    if not (one.parts and other.parts):
        return not strict
    ids = [[change.new for change in each.tensor.changes] for each in (one, other) if each.tensor]
    if None not in ids[0]:
        return ids[0] == ids[1]
    return one.whole() == other.whole()


def _other(name: str, message: str) -> DeltaError:
    return DeltaError(message, reason=DeltaReason.TENSOR, object_name=name)


def _arrays(name: str, value: Any, *, is_changed: bool) -> Iterable[tuple[str, Any]]:
    """Return pairs of role and memory of a value: arrays or torch tensors."""
    if isinstance(value, Tensor):
        return value.components.items()
    if isinstance(value, np.ndarray) or FRAMEWORKS.name_of(value) == "torch":
        return [("data", value)]
    if is_changed:
        message = f"only arrays of NumPy and torch change in place, not {describe(value, 40)}"
        error = ArgumentTypeError(message, object_name=name)
        error.hint = "apply the delta to a file, and load that; arrays of JAX never change"
        raise error
    return []


class _Extent(NamedTuple):
    """The memory of a component: its device, its first address there, and its end."""

    device: str
    start: int
    stop: int

    def is_within(self, other: _Extent) -> bool:
        """Return whether it has bytes, and the first is inside another extent."""
        is_inside = self.device == other.device and other.start <= self.start < other.stop
        return is_inside and self.start < self.stop


class _Target:
    """The memory of one component in memory.

    Attributes:
        name: the tensor's name.
        tensor: the new tensor; None if it does not change.
        parts: the differences of this component.
        extent: its memory.
        nbytes: bytes of the component.
    """

    def __init__(self, name: str, role: str, value: Any, tensor: NewTensor | None) -> None:
        self.name, self.tensor, self._role, self._value = name, tensor, role, value
        self.parts: list[Part] = [] if tensor is None else tensor.parts.get(role, [])
        self._is_array = isinstance(value, np.ndarray)
        start, device, self.nbytes = id(self), "none", 0
        if self._is_array:
            start, device = int(value.__array_interface__["data"][0]), "cpu"
            self.nbytes = int(value.nbytes)
        elif str(getattr(value, "layout", "")) == "torch.strided" and not value.is_meta:
            start, device = value.data_ptr(), str(value.device)
            self.nbytes = value.numel() * value.element_size()
        self.extent = _Extent(device, start, start + self.nbytes)

    def require_writable(self) -> None:
        """Raise unless the memory can be changed in place."""
        value = self._value
        if self._is_array:
            is_flat, is_writable = value.flags.c_contiguous, value.flags.writeable
        else:
            is_flat = self.extent.device != "none" and value.is_contiguous()
            is_writable = is_flat and not (value.is_conj() or value.is_neg())
        if not (is_flat and is_writable):
            found = "read-only" if is_flat else "not contiguous"
            message = f"the tensor cannot be changed in place: it is {found}"
            raise ArgumentValueError(message, object_name=self.name)

    def whole(self) -> bytes:
        """Return all new stored bytes of the component."""
        return b"" if self.tensor is None else b"".join(self.tensor.blocks(self._role))

    def change(self) -> None:
        """Write the new elements."""
        if self._is_array:
            stored = stored_form(self._value)
            if np.shares_memory(stored, self._value) or not self.nbytes:
                for part in self.parts:
                    part.apply(stored, stored)
            else:  # elements of less than a byte, or big-endian ones
                new = self.parts[-1].header.restored(np.frombuffer(self.whole(), np.uint8))
                self._value[...] = new[: self._value.size].reshape(self._value.shape)
            return
        width = self.parts[0].header.stored_dtype.itemsize
        like = self._moved(np.empty(0, _SIGNED[width]))
        bits = self._value.detach().reshape(-1).view(like.dtype)
        for part in self.parts:
            if part.whole is not None:
                bits[...] = self._moved(part.whole.view(f"<u{width}"))
            old = self._stored() if part.needs_old == "positions" else None
            for positions, values in part.changes(old):
                at, moved = self._moved(positions), self._moved(values)
                bits[at] = moved if part.needs_old is None else bits[at] + moved

    def _stored(self) -> Array:
        """Return the present stored elements of a torch tensor, on the CPU."""
        stored = FRAMEWORKS["torch"].loaded().stored(self._value)
        return stored_form(stored.components["data"] if isinstance(stored, Tensor) else stored)

    def _moved(self, array: Array) -> Any:
        """Return an array as a torch tensor on the target's device."""
        signed = array.view(_SIGNED[array.itemsize]) if array.dtype.kind == "u" else array
        adapter = FRAMEWORKS["torch"].loaded()
        return adapter.value_of(Tensor(signed), device=self._value.device)
