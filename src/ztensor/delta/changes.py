"""`Change`: the difference of one tensor between two states, and `Delta`: those of all tensors.

Every dialect is read into these classes. The difference of a component is a `Part`: the sparse
stream of a delta file, the whole new component, or what another dialect stores.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from ztensor import Tensor
from ztensor.delta.errors import DeltaError, DeltaReason, require
from ztensor.delta.states import Header, State, headers_of, stored_form, tensor_id
from ztensor.errors import describe
from ztensor.ext import LAYOUTS, Blocks, element_count
from ztensor.typing import Array

Kind = Literal["changed", "added", "replaced"]


class Part:
    """The difference of one component.

    Args:
        header: the type and length of the new component.
        nbytes: bytes of the difference in the file.
        changed: the number of elements that change; None if only decoding gives it.
        needs_old: `"values"` if positions are known without the old elements, and the new values
            are not; `"positions"` if neither is; None if the new values are known without them.

    Attributes:
        coding: the word for the difference, such as `"sparse"`, `"raw"` or `"xor"`.
        header: the argument, as the three below.
        whole: all new elements, flat and read-only, if they are stored; None if their changes are.
    """

    coding: str
    whole: Array | None = None

    def __init__(
        self,
        header: Header,
        nbytes: int,
        changed: int | None = None,
        needs_old: Literal["values", "positions"] | None = None,
    ) -> None:
        self.header, self.nbytes = header, nbytes
        self.changed, self.needs_old = changed, needs_old

    def apply(self, old: Array | None, out: Array) -> None:
        """Write the new elements to `out`, which may be `old` itself.

        Args:
            old: stored elements of the base, flat, see `states.stored_form`; None for an added or
                replaced tensor.
            out: writable, of the dtype and length of the header; likewise flat.

        Raises:
            DeltaError: the bytes are malformed.
        """
        if self.whole is not None:
            out.view(np.uint8)[...] = self.whole.view(np.uint8)
            return
        pieces, bits = self._unordered(old), out.view(f"<u{out.itemsize}")
        if old is not None and old is not out:
            out[...] = old
        for positions, values in pieces:
            write_changes(bits, positions, values, is_difference=self.needs_old is not None)

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements in bounded pieces; none of a whole component.

        Each piece is `(positions, values)`: ascending positions in the flat component, int64, and
        unsigned integers of the element's width. They are new bits if `needs_old` is None, else
        wrapping differences of the bit patterns.

        Args:
            old: as for `apply`; only needed if `needs_old` is `"positions"`.

        Raises:
            DeltaError: the bytes are malformed, or `old` is needed.
        """
        del old
        return iter(())

    def _unordered(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the pieces of `changes`, in any order."""
        return self.changes(old)


def write_changes(bits: Array, positions: Array, values: Array, *, is_difference: bool) -> None:
    """Write changed elements.

    Args:
        bits: the elements, (count,) unsigned integers of their width.
        positions: ascending, (changed,) int64; they become scratch memory.
        values: new bits, or wrapping differences, (changed,).
        is_difference: whether they are differences.
    """
    if not positions.size:
        return
    first = int(positions[0])
    reach = slice(first, int(positions[-1]) + 1)
    count = reach.stop - first
    if count > positions.size > count // 8 and is_difference:  # faster than to gather and scatter
        spread = np.zeros(count, bits.dtype)
        positions -= first
        spread[positions] = values
        bits[reach] += spread
        return
    at = reach if count == positions.size else positions
    bits[at] = bits[at] + values if is_difference else values


class Checksum(NamedTuple):
    """The checksum of a dense tensor's stored bytes.

    Attributes:
        hasher: returns a new hasher, with `update` and `hexdigest`.
        digits: as `hexdigest` returns them.
    """

    hasher: Callable[[], Any]
    digits: str

    def is_of(self, tensor: Tensor) -> bool:
        """Return whether a tensor has this checksum."""
        hasher = self.hasher()
        for block in Blocks.of(tensor.components["data"]):
            hasher.update(block)
        return bool(hasher.hexdigest() == self.digits)


@dataclasses.dataclass(frozen=True)
class Change:
    """The difference of one tensor.

    Attributes:
        name: the tensor's name.
        kind: `"changed"`: elements only; `"replaced"`: by another shape, type or layout, or as a
            whole; `"added"`.
        shape: the new shape.
        layout: the new layout.
        attributes: the new object's attributes; a changed tensor keeps those of the base.
        old: the id of the old tensor; None if it is added, or the dialect stores no ids.
        new: the id of the new tensor; None if the dialect stores no ids.
        parts: role to difference; a component without one is unchanged.
        checksum: of the new bytes of the component `data`, in a dialect that has checksums.
    """

    name: str
    kind: Kind
    shape: tuple[int, ...]
    layout: str
    attributes: Mapping[str, Any]
    old: bytes | None
    new: bytes | None
    parts: Mapping[str, Part]
    checksum: Checksum | None = None

    @property
    def stored(self) -> int:
        """Return the bytes of the difference in the file."""
        return sum(part.nbytes for part in self.parts.values())

    @property
    def changed(self) -> int | None:
        """Return the number of changed elements; None if only decoding gives it."""
        counts = [part.changed for part in self.parts.values()]
        return None if None in counts else sum(filter(None, counts))

    def tensor(self, old: Tensor | None) -> Tensor:
        """Return the new tensor; unchanged components share the memory of the old one.

        Args:
            old: the tensor of the base; None for an added or replaced one.

        Raises:
            DeltaError: the base has no such tensor or one of another shape or type, or the delta is
                malformed.
        """
        old = self.required(old) if self.kind == "changed" else None
        arrays: dict[str, Array] = {} if old is None else dict(old.components)
        for role, part in self.parts.items():
            before, out = arrays.get(role), part.header.empty()
            try:
                part.apply(None if before is None else stored_form(before), out)
            except DeltaError as error:
                raise error.locate(object_name=self.name, component=role) from None
            array = part.header.restored(out)
            if before is not None or (self.layout == "dense" and role == "data"):
                shape = self.shape if before is None else before.shape
                array = array[: element_count(shape)].reshape(shape)
            arrays[role] = array
        type_ = self._new_type() if old is None else old.type
        own = self.attributes if old is None else old.attributes
        return Tensor(arrays, shape=self.shape, format=self.layout, type=type_, attributes=own)

    def required(self, old: Tensor | None) -> Tensor:
        """Return the tensor of the base that this change starts from.

        Raises:
            DeltaError: there is none, or it has another shape, layout or type.
        """
        if old is None:
            message = "the delta changes a tensor that the base does not have"
            raise DeltaError(message, reason=DeltaReason.TENSOR, object_name=self.name)
        message = "the base has a tensor of another shape or type than the delta was made from"
        details: dict[str, Any] = {"reason": DeltaReason.SHAPE, "object_name": self.name}
        form, expected = (old.format, *old.shape), (self.layout, *self.shape)
        require(form == expected, message, form, expected=expected, **details)
        headers = headers_of(old)
        for role, part in self.parts.items():
            header, details["component"] = headers.get(role), role
            require(header == part.header, message, header, expected=part.header, **details)
        return old

    def is_result(self, tensor: Tensor, algorithm: str | None) -> bool:
        """Return whether a tensor is the recorded new one; True without a record.

        Args:
            tensor: the tensor.
            algorithm: the algorithm of the delta's ids; None without ids.
        """
        if self.new is not None and algorithm is not None:
            return tensor_id(tensor, algorithm) == self.new
        return self.checksum is None or self.checksum.is_of(tensor)

    def _new_type(self) -> str | None:
        layout = LAYOUTS.get(self.layout)
        main = None if layout is None else self.parts.get(layout.main_role)
        return None if main is None else main.header.type


class Delta(Mapping[str, Change]):
    """The difference of two states: a mapping from names to `Change`s.

    Attributes:
        name: the path.
        dialect: `"zt"`, or the word of another dialect.
        ids: the algorithm of the ids, `"sha256"` or `"xxh3-128"`; None without ids.
        base: the id of the state before, as `algorithm:digits`; None without ids. Dialects with
            numbers have them here, such as `"version:6"`.
        result: the id of the state after, likewise.
        removed: name to id of each removed tensor.
        attributes: key to new value of each changed attribute of the file; None removes it.
        label: the caller's text, such as a step; None without one.
        changed: how many elements differ; None in a dialect that does not record it.
        elements: the number of elements of the state after, likewise.
        nbytes: bytes of all its files.
        is_bound: whether every change has its shape and type; see `bound`.
        is_closed: whether `close` was called; the attributes above remain.
    """

    is_bound = True

    def __init__(
        self,
        name: str,
        changes: Mapping[str, Change],
        *,
        dialect: str = "zt",
        ids: str | None = None,
        base: str | None = None,
        result: str | None = None,
        removed: Mapping[str, bytes] | None = None,
        attributes: Mapping[str, Any] | None = None,
        label: str | None = None,
        changed: int | None = None,
        elements: int | None = None,
        nbytes: int = 0,
        close: Callable[[], None] | None = None,
    ) -> None:
        self.name, self._changes, self.dialect = name, changes, dialect
        self.ids, self.base, self.result = ids, base, result
        self.removed, self.attributes = dict(removed or {}), dict(attributes or {})
        self.label, self.changed, self.elements = label, changed, elements
        self.nbytes, self._close, self.is_closed = nbytes, close, False

    def __getitem__(self, name: str) -> Change:
        """Return the change of a tensor; a KeyError if it is unchanged."""
        return self._changes[name]

    def __contains__(self, name: object) -> bool:
        """Return whether a tensor is changed, added or replaced; its difference is not read."""
        return name in self._changes

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of tensors that are changed, added or replaced."""
        return iter(self._changes)

    def __len__(self) -> int:
        """Return the number of tensors that are changed, added or replaced."""
        return len(self._changes)

    def __enter__(self) -> Self:
        """Return the delta itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close its files."""
        self.close()

    def bound(self, before: Mapping[str, Change | None], base: State) -> Delta:
        """Return the delta with shapes and types: itself, unless its dialect stores none.

        Args:
            before: name to last whole change of each tensor in the state before; None for one of
                the shape and type that it has in `base`.
            base: the state that the first delta starts from.

        Raises:
            DeltaError: a tensor is missing, or the dialect cannot change it.
        """
        del before, base
        return self

    def close(self) -> None:
        """Close its files. May be called again."""
        self.is_closed = True
        if self._close is not None:
            self._close()

    def reopen(self, other: Delta) -> None:
        """Become another delta, which was opened from the same file."""
        vars(self).update(vars(other))

    def __repr__(self) -> str:
        """Return path, dialect and number of changes."""
        return f"<ztensor.delta.Delta {describe(self.name)} {self.dialect}, {len(self)} changes>"


def bound(deltas: Sequence[Delta], base: State) -> list[Delta]:
    """Return deltas in which every change has its shape and type.

    Args:
        deltas: in the order to apply them.
        base: the state before.

    Raises:
        DeltaError: the base has no tensor that a delta changes (`delta_tensor`), or one that the
            dialect cannot change (`delta_shape`).
    """
    if all(delta.is_bound for delta in deltas):
        return list(deltas)
    state: dict[str, Change | None] = dict.fromkeys(base)
    links = []
    for delta in deltas:
        links.append(link := delta.bound(state, base))
        state = {name: last for name, last in state.items() if name not in link.removed}
        state |= {name: change for name, change in link.items() if change.kind != "changed"}
    return links
