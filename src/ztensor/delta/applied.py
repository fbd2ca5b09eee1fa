"""`Applied`: a state after deltas. Its tensors are computed in blocks when they are read.

The changed tensors of a file become components of an encoding that decodes to the new elements, so
every function that copies or exports the objects of a file also writes an `Applied`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ztensor import Tensor
from ztensor.delta.changes import Change, Delta, Part
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.states import ComponentHasher, State, headers_of, id_of_digests, stored_form
from ztensor.errors import counted, describe
from ztensor.ext import (
    Blocks,
    Component,
    Encoding,
    FileObjects,
    Stored,
    TensorObject,
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
    """

    def __init__(
        self, name: str, base: State, changes: Sequence[Change], ids: str | None, *, compares: bool
    ) -> None:
        self.name, self.changes = name, changes
        self._base, self._ids, self._compares = base, ids, compares
        self._digests: dict[str, list[object]] = {}

    @property
    def last(self) -> Change:
        """Return the last change."""
        return self.changes[-1]

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
        first = self.changes[0]
        if first.kind != "changed":
            return None
        if self.name not in self._base:
            return first.required(None)
        return first.required(self._base[self.name])

    def tensor(self) -> Tensor:
        """Return the new tensor in memory; it is not checked."""
        tensor = self.old()
        for change in self.changes:
            tensor = change.tensor(tensor)
        if tensor is None:
            raise TypeError("no changes")
        return tensor

    def check(self) -> None:
        """Compute the tensor, and compare its id.

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
        hasher = None
        old, last = self.old(), self.last
        parts = self.parts[role]
        if self._compares and self._ids is not None and last.new is not None:
            hasher = ComponentHasher(last.layout, role, parts[-1].header, self._ids)
        check = last.checksum.hasher() if self._compares and last.checksum is not None else None
        before = None if old is None else stored_form(old.components[role])
        try:
            for block in _new_blocks(before, parts):
                data = block.data.cast("B")
                if check is not None:
                    check.update(data)
                if hasher is not None:
                    hasher.update(data)
                yield data
        except DeltaError as error:
            raise error.locate(object_name=self.name, component=role) from None
        if hasher is not None:
            self._digests[role] = hasher.digest()
            if self._digests.keys() >= self.parts.keys():
                self._compare(old)
        elif check is not None and last.checksum is not None:
            self._require(check.hexdigest() == last.checksum.digits)

    def _compare(self, old: Tensor | None) -> None:
        digests, attributes = dict(self._digests), self.last.attributes
        if old is not None:
            attributes = old.attributes
            for role, header in headers_of(old).items():
                if role not in digests:
                    hasher = ComponentHasher(self.last.layout, role, header, str(self._ids))
                    for block in Blocks.of(old.components[role]):
                        hasher.update(block)
                    digests[role] = hasher.digest()
        last = self.last
        found = id_of_digests(last.shape, last.layout, digests, attributes, str(self._ids))
        self._require(found == last.new, found)

    def _require(self, is_result: bool, found: bytes | None = None) -> None:  # noqa: FBT001
        if not is_result:
            raise DeltaError(
                "the new tensor is not the one that the delta was made from",
                reason=DeltaReason.RESULT,
                object_name=self.name,
                expected=None if self.last.new is None else self.last.new.hex(),
                found=None if found is None else found.hex(),
            )


def _new_blocks(old: Array | None, parts: Sequence[Part]) -> Iterator[Array]:
    """Yield the elements after several differences, in blocks.

    Args:
        old: stored elements of the base; None if the first part is a whole component.
        parts: the differences, in order.
    """
    current, pending = old, list[tuple[Part, Iterator[tuple[Array, Array]]]]()
    for part in parts:
        if pending and part.needs_old == "positions":
            current, pending = _joined(current, pending), []
        pieces = part.changes(current)
        if pieces is None:
            if pending:
                current, pending = _joined(current, pending), []
            current = part.whole(current)
        elif current is None:
            raise DeltaError(
                "a whole tensor is stored as a difference", reason=DeltaReason.MALFORMED
            )
        else:
            pending.append((part, pieces))
    if current is not None:
        yield from _patched(current, pending)


def _joined(current: Array | None, pending: list[Any]) -> Array:
    if current is None:
        raise TypeError("no elements")
    out = np.empty(current.size, current.dtype)
    at = 0
    for block in _patched(current, pending):
        out.view(block.dtype)[at : at + block.size] = block
        at += block.size
    return out


def _patched(
    current: Array, pending: Sequence[tuple[Part, Iterator[tuple[Array, Array]]]]
) -> Iterator[Array]:
    """Yield elements with changes applied, as unsigned integers, in blocks."""
    bits = current.view(f"<u{current.dtype.itemsize}")
    count = max(1, _BLOCK_BYTES // bits.itemsize)
    cursors = [(part.needs_old is not None, _Cursor(pieces)) for part, pieces in pending]
    for start in range(0, bits.size, count):
        block = bits[start : start + count]
        if cursors:
            block = block.copy()
        for is_difference, cursor in cursors:
            for positions, values in cursor.until(start + block.size):
                at = positions - start
                block[at] = block[at] + values if is_difference else values
        yield block
    for _, cursor in cursors:
        cursor.end()


class _Cursor:
    """Changed elements in order of position, taken up to a position at a time."""

    def __init__(self, pieces: Iterator[tuple[Array, Array]]) -> None:
        self._pieces = pieces
        self._next: tuple[Array, Array] | None = next(pieces, None)

    def until(self, stop: int) -> Iterator[tuple[Array, Array]]:
        """Yield the elements before a position that were not yielded before."""
        while self._next is not None:
            positions, values = self._next
            count = int(np.searchsorted(positions, stop))
            if count:
                yield positions[:count], values[:count]
            if count < positions.size:
                self._next = positions[count:], values[count:]
                return
            self._next = next(self._pieces, None)

    def end(self) -> None:
        """Raise if an element is behind the end of the component."""
        if self._next is not None:
            raise DeltaError("an element behind the end is changed", reason=DeltaReason.MALFORMED)


class Applied:
    """A state after deltas.

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
        attributes: key to new value of each changed attribute of the file; None removes it.

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
        self.attributes: dict[str, Any] = {}
        changes: dict[str, list[Change]] = {}
        ids: dict[str, str | None] = {}
        gone: set[str] = set()
        for delta in deltas:
            for name, old in delta.removed.items() if only is None else ():
                self._require(name, is_there=self._has(name, changes, gone), expected=True)
                self._note(name, old)
                changes.pop(name, None)
                gone.add(name)
            for name, change in delta.items():
                if only is not None and (name not in only or change.kind == "added"):
                    continue
                is_there = self._has(name, changes, gone)
                self._require(name, is_there=is_there, expected=change.kind != "added")
                self._note(name, change.old)
                if change.kind != "changed":
                    changes[name] = []
                changes.setdefault(name, []).append(change)
                ids[name] = delta.ids
                gone.discard(name)
            self.attributes |= delta.attributes
        self.removed = [name for name in base if name in gone]
        self.tensors = {
            name: NewTensor(name, base, each, ids[name], compares=compares)
            for name, each in changes.items()
        }

    def _has(self, name: str, changes: Mapping[str, object], gone: set[str]) -> bool:
        return name in changes or (name in self.base and name not in gone)

    def _note(self, name: str, old: bytes | None) -> None:
        if old is not None and name in self.base:
            self.first.setdefault(name, old)

    def _require(self, name: str, *, is_there: bool, expected: bool) -> None:
        if is_there is not expected:
            raise DeltaError(
                "the delta needs a tensor that the base does not have"
                if expected
                else "the delta adds a tensor that the base has",
                reason=DeltaReason.TENSOR,
                object_name=name,
                file=self.base.name,
            )

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
        return file.changed(
            known, objects=objects, attributes=self.changed_attributes(file.attributes) or None
        )

    def changed_attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the attributes of a file after the deltas."""
        changed = {key: value for key, value in attributes.items() if key not in self.attributes}
        return changed | {k: value for k, value in self.attributes.items() if value is not None}

    def _entry(
        self, tensor: NewTensor, old: TensorObject | None, encodings: dict[str, Encoding]
    ) -> TensorObject:
        """Return the entry of a new tensor; equal changes of shared bytes get one encoding."""
        last, components = tensor.last, dict[str, Component]()
        is_changed = old is not None and tensor.changes[0].kind == "changed"
        if old is not None and is_changed:
            components.update(old.components)
        for role, parts in tensor.parts.items():
            header, place = parts[-1].header, components.get(role)
            word = f"{tensor.name} after deltas"
            if None not in (news := [change.new for change in tensor.changes]):
                word = f"{news} after {place and place._replace(digest=None)}"
            word = f"{role} of {word}"
            encodings.setdefault(word, _NewElements(word, tensor, role))
            components[role] = Component(
                header.dtype, 0, 0, header.type, word, decoded_length=header.nbytes
            )
        if old is not None and is_changed:
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


# --- Why deltas do not fit ------------------------------------------------------------------------


def is_applied(base: State, deltas: Sequence[Delta], only: Collection[str] | None = None) -> bool:
    """Return whether a state already has the result of deltas, as far as they know it.

    Args:
        base: the state.
        deltas: the deltas in order.
        only: as for `Applied`.
    """
    final: dict[str, tuple[Change, str | None] | None] = {}
    for delta in deltas:
        final.update(dict.fromkeys(delta.removed))
        final.update({name: (change, delta.ids) for name, change in delta.items()})
    if only is not None:
        final = {name: last for name, last in final.items() if last and name in only}
    for name, last in final.items():
        if (last is not None) is not (name in base):
            return False
        if last is None:
            continue
        change, ids = last
        is_known = change.checksum is not None or (change.new is not None and ids is not None)
        if not is_known or not change.is_result(base[name], ids):
            return False
    return bool(final)


def require_old(applied: Applied, names: Iterable[str], threads: int | None = None) -> None:
    """Require that tensors of the base are those that the deltas start from.

    Raises:
        DeltaError: one differs.
    """
    deltas = applied.deltas
    ids = deltas[0].ids if deltas else None
    wanted = [name for name in names if name in applied.first]
    if ids is None or not wanted:
        return
    found = applied.base.ids(ids, wanted, threads)
    differing = [name for name in wanted if found[name] != applied.first[name]]
    if differing:
        first = differing[0]
        names_shown = ", ".join(map(describe, differing[:5])) + (", ..." * (len(differing) > 5))
        error = DeltaError(
            f"{counted(len(differing), 'tensor')} of the base differ from those that the delta "
            f"starts from: {names_shown}",
            reason=DeltaReason.BASE,
            file=applied.base.name,
            object_name=first,
            expected=applied.first[first].hex(),
            found=found[first].hex(),
        )
        error.hint = f"the delta starts from the state {deltas[0].base}"
        raise error


def explained(
    error: DeltaError,
    base: State,
    deltas: Sequence[Delta],
    applied: Applied | None,
    only: Collection[str] | None = None,
) -> DeltaError:
    """Return the error that says why deltas do not fit: wrong base, applied before, or damaged.

    Args:
        error: the first difference.
        base: the state before.
        deltas: the deltas in order.
        applied: the state after; None if the deltas did not get so far.
        only: as for `Applied`.
    """
    if error.reason is DeltaReason.APPLIED:
        return error
    if is_applied(base, deltas, only):
        found = DeltaError(
            "the base already has the result of the delta",
            reason=DeltaReason.APPLIED,
            file=base.name,
            found=deltas[-1].result,
        )
        found.hint = "if_applied='skip' (`--skip-applied`) accepts that"
        return found
    if applied is not None and error.reason in (DeltaReason.RESULT, DeltaReason.MALFORMED):
        try:
            require_old(applied, applied.first)
        except DeltaError as wrong:
            return wrong
    return error
