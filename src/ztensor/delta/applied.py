"""`Applied`: a state after deltas. Its tensors are computed in blocks when they are read.

The changed tensors of a file become components of an encoding that decodes to the new elements, so
every function that copies or exports the objects of a file also writes an `Applied`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ztensor import Tensor
from ztensor.delta.changes import Change, Delta, Part, write_changes
from ztensor.delta.errors import DeltaError, DeltaReason, malformed, wrong_result
from ztensor.delta.states import ComponentHasher, State, headers_of, id_of_digests, stored_form
from ztensor.errors import describe
from ztensor.ext import (
    Blocks,
    Component,
    Encoding,
    FileObjects,
    Stored,
    TensorObject,
    element_count,
)
from ztensor.limits import Limits
from ztensor.typing import Array

_BLOCK_BYTES = 1 << 20  # copied, changed, hashed and written while they are in the cache


class NewTensor:
    """One tensor after the changes of one or more deltas.

    Args:
        name: its name.
        base: the state before.
        changes: its changes in order; a whole tensor can only be the first.
        ids: the algorithm of the last id; None without ids.
        compares: whether the new tensor is compared with the id or checksum in the delta.

    Attributes:
        name: the argument.
        changes: the argument.
        last: the last change.
        is_whole: whether the tensor is added or replaced: the base does not matter.
    """

    def __init__(
        self, name: str, base: State, changes: Sequence[Change], ids: str | None, *, compares: bool
    ) -> None:
        self.name, self.changes, self.last = name, changes, changes[-1]
        self.is_whole = changes[0].kind != "changed"
        self._base, self._ids, self._compares = base, ids, compares
        self._digests: dict[str, list[object]] = {}

    @property
    def parts(self) -> dict[str, list[Part]]:
        """Return the differences of each role that changes, in order."""
        parts: dict[str, list[Part]] = {}
        for change in self.changes:
            for role, part in change.parts.items():
                parts.setdefault(role, []).append(part)
        return parts

    def old(self) -> Tensor | None:
        """Return the tensor of the base; None if the first change stores a whole one.

        Raises:
            DeltaError: the base has no such tensor, or one of another shape or type; or the changes
                do not fit each other.
        """
        if self.is_whole:
            return None
        old = self._base.get(self.name)
        return self.changes[0].required(old)

    def tensor(self) -> Tensor:
        """Return the tensor, compared with its id or checksum.

        Raises:
            DeltaError: it differs, the delta is malformed, or the base does not fit.
        """
        tensor = self.changes[0].tensor(self.old())
        for change in self.changes[1:]:
            tensor = change.tensor(tensor)
        if self._compares and not self.last.is_result(tensor, self._ids):
            raise self._wrong()
        return tensor

    def check(self) -> None:
        """Compute the tensor in blocks, and compare its id.

        Raises:
            DeltaError: it differs, the delta is malformed, or the base does not fit.
        """
        for role in self.parts:
            for _ in self.blocks(role):
                pass

    def blocks(self, role: str) -> Iterator[memoryview]:
        """Yield the stored bytes of a component in bounded blocks, each valid until the next.

        After the last block of the last component the id is compared.

        Raises:
            DeltaError: it differs, the delta is malformed, or the base does not fit.
        """
        old, last, parts = self.old(), self.last, self.parts[role]
        hasher: Any = None
        if self._compares and self._ids is not None and last.new is not None:
            hasher = ComponentHasher(last.layout, role, parts[-1].header, self._ids)
        elif self._compares and last.checksum is not None:
            hasher = last.checksum.hasher()
        before = None if old is None else stored_form(old.components[role])
        try:
            for block in _new_blocks(before, parts):
                data = block.data.cast("B")
                if hasher is not None:
                    hasher.update(data)
                yield data
        except DeltaError as error:
            raise error.locate(object_name=self.name, component=role) from None
        expected: object = None
        found: object = None
        if isinstance(hasher, ComponentHasher):
            self._digests[role] = hasher.digest()
            if self._digests.keys() >= self.parts.keys():
                expected, found = last.new, self._id(old)
        elif hasher is not None and last.checksum is not None:
            expected, found = last.checksum.digits, hasher.hexdigest()
        if expected != found:
            raise self._wrong(expected=describe(expected), found=describe(found))

    def _id(self, old: Tensor | None) -> bytes:
        """Return the id of the new tensor from the digests of its components."""
        last, ids, digests = self.last, str(self._ids), dict(self._digests)
        for role, header in headers_of(old).items() if old is not None else ():
            if old is not None and role not in digests:
                hasher = ComponentHasher(last.layout, role, header, ids)
                for block in Blocks.of(old.components[role]):
                    hasher.update(block)
                digests[role] = hasher.digest()
        attributes = last.attributes if old is None else old.attributes
        return id_of_digests(last.shape, last.layout, digests, attributes, ids)

    def _wrong(self, **details: str) -> DeltaError:
        has_ids = self._ids is not None
        return wrong_result(has_ids=has_ids, object_name=self.name, **details)


def _new_blocks(old: Array | None, parts: Sequence[Part]) -> Iterator[Array]:
    """Yield the elements after several differences, in blocks.

    Args:
        old: stored elements of the base; None if the first part is a whole component.
        parts: the differences, in order.
    """
    current = old  # None if the elements are not in memory as a whole
    blocks = None if old is None else _cut(old)
    for part in parts:
        if part.whole is not None:
            current, blocks = part.whole, _cut(part.whole)
            continue
        if blocks is None:
            raise malformed("a whole tensor is stored as a difference")
        if current is None and part.needs_old == "positions":
            current = _joined(blocks, part.header.empty())
            blocks = _cut(current)
        changes, is_difference = part.changes(current), part.needs_old is not None
        current, blocks = None, _patched(blocks, changes, is_difference=is_difference)
    yield from blocks or ()


def _cut(array: Array) -> Iterator[Array]:
    """Yield the bits of elements as unsigned integers, in blocks that are views."""
    bits = array.view(f"<u{array.dtype.itemsize}")
    count = max(1, _BLOCK_BYTES // bits.itemsize)
    for start in range(0, bits.size, count):
        yield bits[start : start + count]


def _joined(blocks: Iterator[Array], out: Array) -> Array:
    """Fill an array with blocks, and return it."""
    at = 0
    for block in blocks:
        out.view(block.dtype)[at : at + block.size] = block
        at += block.size
    return out


def _patched(
    blocks: Iterator[Array], changes: Iterator[tuple[Array, Array]], *, is_difference: bool
) -> Iterator[Array]:
    """Yield copies of blocks with changed elements."""
    start, pending = 0, next(changes, None)
    for old in blocks:
        block, stop = old.copy(), start + old.size
        while pending is not None:
            positions, values = pending
            count = int(np.searchsorted(positions, stop))
            at, new = positions[:count] - start, values[:count]
            write_changes(block, at, new, is_difference=is_difference)
            if count < positions.size:
                pending = positions[count:], values[count:]
                break
            pending = next(changes, None)
        yield block
        start = stop
    if pending is not None:
        raise malformed("an element behind the end is changed")


class Applied(State):
    """A state after deltas; a tensor is computed when it is looked up.

    Args:
        base: the state before.
        deltas: the deltas in order.
        compares: whether each new tensor is compared with its id when it has been computed.
        only: the names that are changed if the deltas change them; no tensor is then added or
            removed. All by default.

    Attributes:
        base: the argument.
        deltas: the argument.
        tensors: name to tensor that is changed, added or replaced.
        removed: the tensors of the base that are removed.
        first: name to id before the first change, of the tensors above that have one.
        changed_attributes: key to new value of each changed attribute of the file; None removes it.

    Raises:
        DeltaError: a tensor is missing, or there is one too many.
    """

    def __init__(
        self,
        base: State,
        deltas: Sequence[Delta],
        *,
        compares: bool = True,
        only: Collection[str] | None = None,
    ) -> None:
        self.base, self.deltas = base, deltas
        self.first: dict[str, bytes] = {}
        self.changed_attributes: dict[str, Any] = {}
        changes: dict[str, list[Change]] = {}
        ids: dict[str, str | None] = {}
        gone: set[str] = set()

        def touch(name: str, old: bytes | None, *, is_there: bool) -> None:
            if is_there is not (name in changes or (name in base and name not in gone)):
                wrong = "changes a tensor that the base does not have"
                message = f"the delta {wrong if is_there else 'adds a tensor that the base has'}"
                where = {"object_name": name, "file": base.name}
                raise DeltaError(message, reason=DeltaReason.TENSOR, **where)
            if old is not None and name in base:
                self.first.setdefault(name, old)

        for delta in deltas:
            for name, old in delta.removed.items() if only is None else ():
                touch(name, old, is_there=True)
                changes.pop(name, None)
                gone.add(name)
            for name, change in delta.items():
                if only is not None and (name not in only or change.kind == "added"):
                    continue
                touch(name, change.old, is_there=change.kind != "added")
                if change.kind != "changed":
                    changes[name] = []
                changes.setdefault(name, []).append(change)
                ids[name] = delta.ids
                gone.discard(name)
            self.changed_attributes |= delta.attributes
        self.removed = [name for name in base if name in gone]
        self.tensors = {
            name: NewTensor(name, base, each, ids[name], compares=compares)
            for name, each in changes.items()
        }
        super().__init__(dict.fromkeys([*(n for n in base if n not in gone), *changes], 0))
        self.name, self.has_attributes = base.name, base.has_attributes
        self.attributes = self.attributes_of(base.attributes)
        for name, algorithm in ids.items():
            if name in changes and algorithm is not None and (new := changes[name][-1].new):
                self._ids[algorithm, name] = new  # compared when the tensor is computed

    def __getitem__(self, name: str) -> Tensor:
        """Return a tensor.

        Raises:
            KeyError: there is no tensor of that name.
            DeltaError: a delta does not fit, or is malformed.
        """
        if name not in self:
            raise KeyError(name)
        new = self.tensors.get(name)
        return self.base[name] if new is None else new.tensor()

    def element_count(self, name: str) -> int:
        """Return the number of elements of a tensor."""
        new = self.tensors.get(name)
        return self.base.element_count(name) if new is None else element_count(new.last.shape)

    def ids(
        self, algorithm: str, names: Iterable[str] | None = None, threads: int | None = None
    ) -> dict[str, bytes]:
        """Return the ids of tensors; those of new tensors are the recorded ones, if they are."""
        wanted = list(self if names is None else names)
        same = self.base.ids(algorithm, (n for n in wanted if n not in self.tensors), threads)
        self._ids |= {(algorithm, name): id_ for name, id_ in same.items()}
        return super().ids(algorithm, wanted, threads)

    def over(self, file: FileObjects, names: Iterable[str] | None = None) -> FileObjects:
        """Return the objects of the new state in a file of the base, over the same open file.

        Args:
            file: the base, or one of its files.
            names: the tensors that are new in this file; all by default.
        """
        objects = {name: file.object(name) for name in file.names if name not in self.removed}
        encodings: dict[str, Encoding] = {}
        for name in self.tensors if names is None else names:
            objects[name] = self._entry(self.tensors[name], objects.get(name), encodings)
        known = {**file.encodings, **encodings}
        attributes = self.attributes_of(file.attributes) or None
        return file.changed(known, objects=objects, attributes=attributes)

    def attributes_of(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of a file after the deltas."""
        changed = self.changed_attributes
        kept = {key: value for key, value in attributes.items() if key not in changed}
        return kept | {key: value for key, value in changed.items() if value is not None}

    def _entry(
        self, tensor: NewTensor, old: TensorObject | None, encodings: dict[str, Encoding]
    ) -> TensorObject:
        """Return the entry of a new tensor; equal changes of shared bytes get one encoding."""
        last, ids = tensor.last, [change.new for change in tensor.changes]
        old = None if tensor.is_whole else old
        components = {} if old is None else dict(old.components)
        for role, parts in tensor.parts.items():
            place, header = components.get(role), parts[-1].header
            source = tensor.name if None in ids else place and place._replace(digest=None)
            word = f"{role} of {source} after {ids}"
            encodings.setdefault(word, _NewElements(word, tensor, role))
            components[role] = Component(
                header.dtype, 0, 0, header.type, word, decoded_length=header.nbytes
            )
        if old is not None:
            return old._replace(components=components, entries_once=False)
        return TensorObject(last.shape, last.layout, components, dict(last.attributes) or None)


class _NewElements(Encoding):
    """The encoding of one component that deltas change; it decodes without stored bytes."""

    has_place = True  # the word identifies the bytes
    has_sum = True

    def __init__(self, word: str, tensor: NewTensor, role: str) -> None:
        self.name, self._tensor, self._role = word, tensor, role

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield the new elements in blocks."""
        del stored, expected_length, limits
        yield from self._tensor.blocks(self._role)

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` with the new elements."""
        at = 0
        for block in self.decode_chunks(stored, destination.nbytes, limits):
            destination[at : at + block.nbytes] = block
            at += block.nbytes
