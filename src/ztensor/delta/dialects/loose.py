"""Common parts of dialects: differences that take shapes and types from the base."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztensor.delta.changes import Change, Checksum, Delta, Part
from ztensor.delta.comparing import Comparison, Pair
from ztensor.delta.dialects import Target
from ztensor.delta.errors import (
    OTHER_OR_DAMAGED,
    DeltaError,
    DeltaReason,
    malformed,
    needs_base,
    require,
)
from ztensor.delta.file import whole_change
from ztensor.delta.making import in_order
from ztensor.delta.states import Header, State, headers_of, stored_form
from ztensor.errors import ArgumentValueError, Reason, ZTensorError, describe
from ztensor.ext import ENCODINGS, ObjectReader, Range, path_text
from ztensor.limits import Limits
from ztensor.numpy import save_file
from ztensor.typing import Array, Durable, Path

_WITH_BASE = "shapes, types and values of this dialect are known with the base only"
WINDOW = 1 << 20  # elements of a piece of changes, as many as fit a cache


class Adler32:
    """The checksum adler32, as a hasher."""

    def __init__(self) -> None:
        self.value = 1

    def update(self, data: Any) -> None:
        """Take the next bytes."""
        self.value = zlib.adler32(data, self.value)

    def hexdigest(self) -> str:
        """Return eight lower-case digits."""
        return f"{self.value:08x}"


# --- Reading ------------------------------------------------------------------------------------


class LooseDelta(Delta):
    """A delta without shapes and types: its changes are listed, and decode once it is bound.

    Args:
        name: as for `Delta`.
        changes: from `change`.
        is_complete: whether every tensor of the base must have one.
        facts: as for `Delta`.
    """

    is_bound = False

    def __init__(
        self, name: str, changes: Mapping[str, Change], *, is_complete: bool = False, **facts: Any
    ) -> None:
        super().__init__(name, changes, **facts)
        self._is_complete, self._facts = is_complete, facts

    def bound(self, before: Mapping[str, Change | None], base: State) -> Delta:
        """Return the delta with shapes and types; see `Delta`. Missing tensors stay loose."""
        if self._is_complete and before.keys() != self.keys():
            where = {"object_name": min(before.keys() ^ self.keys()), "file": self.name}
            message = "the delta has other tensors than the base"
            raise DeltaError(message, reason=DeltaReason.TENSOR, **where)
        changes = dict(self)
        for name in filter(before.__contains__, self):
            form = before[name] or whole_change(name, base[name])
            if form.layout != "dense":
                message = f"deltas of {self.dialect} change dense tensors"
                where = {"object_name": name, "file": self.name, "found": form.layout}
                raise DeltaError(message, reason=DeltaReason.SHAPE, **where)
            part: Any = self[name].parts["data"]
            parts = {"data": part.of(form.parts["data"].header)}
            checksum = self[name].checksum
            changes[name] = Change(
                name, "changed", form.shape, "dense", {}, None, None, parts, checksum
            )
        return Delta(self.name, changes, **self._facts)


def change(
    name: str,
    nbytes: int,
    coding: str,
    of: Callable[[Header], Part],
    checksum: Checksum | None = None,
) -> Change:
    """Return the change of a dense tensor of unknown shape and type.

    Args:
        name: the tensor's name.
        nbytes: bytes of the difference in the file.
        coding: as `Part.coding`.
        of: returns the difference for the type and length of the tensor.
        checksum: as `Change.checksum`.
    """
    parts = {"data": _LoosePart(nbytes, coding, of)}
    return _LooseChange(name, "changed", (), "dense", {}, None, None, parts, checksum)


def require_known(value: object, known: Iterable[str], subject: str, **details: Any) -> str:
    """Return a word that a dialect stores.

    Raises:
        DeltaError: it is unknown (`delta_dialect`).
    """
    if not (isinstance(value, str) and value in known):
        details |= {"expected": " or ".join(known), "found": describe(value)}
        raise DeltaError(f"unknown {subject}", reason=DeltaReason.DIALECT, **details)
    return value


class _LooseChange(Change):
    """The change of a tensor of unknown shape."""

    def required(self, old: Any) -> Any:
        del old
        raise needs_base(_WITH_BASE)


class _LoosePart(Part):
    """A difference of unknown type."""

    def __init__(self, nbytes: int, coding: str, of: Callable[[Header], Part]) -> None:
        super().__init__(Header("u8", None, 0), nbytes, None, "positions")
        self.coding, self.of = coding, of

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        raise needs_base(_WITH_BASE)


class WholeDelta(Delta):
    """A whole state in the place of a delta: it replaces every tensor of any base.

    Args:
        reader: its tensors; closed with the delta.
        facts: as for `Delta`.
    """

    is_bound = False

    def __init__(self, reader: ObjectReader, **facts: Any) -> None:
        self._facts = {**facts, "close": reader.close, "nbytes": reader.nbytes}
        changes = {name: whole_change(name, reader.read(name)) for name in reader}
        super().__init__(reader.name, changes, **self._facts)

    def bound(self, before: Mapping[str, Change | None], base: State) -> Delta:
        """Return the delta of a base: other tensors are added, and those that it lacks removed."""
        del base
        changes = {
            name: change if name in before else dataclasses.replace(change, kind="added")
            for name, change in self.items()
        }
        gone = {name: b"" for name in before if name not in changes}
        return Delta(self.name, changes, removed=gone, **self._facts)


class _OldPart(Part):
    """A component of which the old elements give the new ones.

    Args:
        header: as for `Part`.
        nbytes: likewise.
        content: returns the decoded difference, for the length of the component.
    """

    def __init__(self, header: Header, nbytes: int, content: Callable[[int], Any]) -> None:
        super().__init__(header, nbytes, None, "positions")
        self._content = content


class XorPart(_OldPart):
    """A component by old bytes XOR new bytes: as long as it, in blocks of whole elements."""

    coding = "xor"

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements; see `Part`."""
        bits, at = _bits_of(old), 0
        for block in self._content(self.header.nbytes):
            mask = np.frombuffer(block, bits.dtype)
            positions = np.flatnonzero(mask)
            if positions.size:
                before = bits[at : at + mask.size][positions]
                yield positions + at, (before ^ mask[positions]) - before
            at += mask.size


class BytesPart(_OldPart):
    """A component by the ascending positions of changed bytes, and the new bytes."""

    coding = "overwrite"

    def changes(self, old: Array | None) -> Iterator[tuple[Array, Array]]:
        """Yield the changed elements; see `Part`."""
        bits = _bits_of(old)
        positions, values = self._content(self.header.nbytes)
        width = bits.itemsize
        borders = np.arange(0, bits.size + WINDOW, WINDOW, dtype=np.int64) * width
        cuts = np.searchsorted(positions, borders).tolist()
        for start, stop in itertools.pairwise(cuts):
            at, within = np.divmod(positions[start:stop].astype(np.int64), width)
            is_first = np.diff(at, prepend=-1) > 0
            changed = at[is_first]
            before = bits[changed]
            after = before.copy()
            place = (np.cumsum(is_first) - 1) * width + within
            after.view(np.uint8)[place] = values[start:stop]
            if changed.size:
                yield changed, after - before


def _bits_of(old: Array | None) -> Array:
    if old is None:
        raise needs_base(_WITH_BASE)
    return old.view(f"<u{old.itemsize}")


def require_rising(positions: Array, last: int, count: int, **details: Any) -> None:
    """Require that positions rise, from above `last`, and are below `count`.

    Raises:
        DeltaError: they do not.
    """
    if not positions.size:
        return
    is_rising = int(positions[0]) > last and bool(np.all(positions[:-1] < positions[1:]))
    is_within = int(positions[-1]) < count
    if not (is_rising and is_within):
        wrong = f"are behind the end: {OTHER_OR_DAMAGED}" if is_rising else "do not rise"
        details |= {"expected": f"below {count:,}", "found": describe(positions[-3:].tolist())}
        raise malformed(f"positions of changes {wrong}", **details)


def stored_of(reader: ObjectReader, name: str) -> Range:
    """Return the bytes that a safetensors file stores for a name.

    Raises:
        DeltaError: they are not a vector of bytes.
    """
    described, part = reader.metadata(name), reader.objects.part(name)
    form = described.dtype, described.type, len(described.shape), part.format
    is_vector = form == ("uint8", None, 1, "safetensors")
    message = "a difference is not a vector of bytes in a safetensors file"
    require(is_vector, message, form, object_name=name)
    component = part.object(name).components["data"]
    return Range(part.source, component.offset, component.length)


def checksum_of(
    reader: ObjectReader, name: str, hasher: Callable[[], Any], pattern: str
) -> Checksum:
    """Return the checksum of a tensor, from the metadata of its file.

    Args:
        reader: the open files.
        name: the tensor's name.
        hasher: as in `Checksum`.
        pattern: a regular expression for the digits.

    Raises:
        DeltaError: there is none, or it is malformed.
    """
    value = reader.objects.part(name).attributes.get(name)
    is_valid = isinstance(value, str) and re.fullmatch(pattern, value) is not None
    require(is_valid, "the checksum of a tensor is malformed", value, object_name=name)
    return Checksum(hasher, str(value))


def zstd_blocks(stored: Range, length: int) -> Iterator[memoryview]:
    """Yield the bytes of zstd frames in blocks of whole elements; exactly `length` of them.

    Raises:
        DeltaError: there are more or fewer.
        FormatError: a frame is damaged.
    """
    try:
        yield from ENCODINGS["zstd"].decode_chunks(stored, length, Limits())
    except ZTensorError as error:
        if error.reason in (Reason.DECODED_LONG, Reason.DECODED_SHORT):
            raise other_length(stored, length) from error
        raise error.locate(file=stored.source.name) from None


def other_length(stored: Range, length: int) -> DeltaError:
    """Return the error for a difference that is not of a component of so many bytes."""
    message = f"the difference is not of {length:,} bytes: {OTHER_OR_DAMAGED}"
    return DeltaError(message, reason=DeltaReason.SHAPE, file=stored.source.name)


# --- Writing ------------------------------------------------------------------------------------


def file_name(path: Path) -> str:
    """Return the path of a new safetensors file as text.

    Raises:
        ArgumentValueError: it has another suffix.
    """
    name = path_text(path)
    if not name.endswith(".safetensors"):
        raise ArgumentValueError(f"the file must end with .safetensors, not {describe(name)}")
    return name


class Coded(NamedTuple):
    """The difference of one tensor as a dialect stores it.

    Attributes:
        arrays: name in the file to array.
        notes: key to text of the file's metadata.
        changed: how many elements differ.
    """

    arrays: Mapping[str, Array]
    notes: Mapping[str, str]
    changed: int


def _bytes_of(pair: Pair, dialect: str) -> tuple[Array, Array]:
    """Return the stored bytes of a changed dense tensor, old and new: both (bytes,) uint8.

    Raises:
        DeltaError: the tensor is added or replaced, or not dense.
    """
    old, new = pair.old, pair.new
    if old is None or pair.kind != "changed":
        message = f"a delta of {dialect} cannot add a tensor, or change its shape or type"
        reason = DeltaReason.TENSOR if old is None else DeltaReason.SHAPE
        raise DeltaError(message, reason=reason, object_name=pair.name)
    if new.format != "dense":
        message = f"a delta of {dialect} changes dense tensors, not {describe(new.format)}"
        raise DeltaError(message, reason=DeltaReason.DIALECT, object_name=pair.name)
    before, after = (stored_form(each.components["data"]) for each in (old, new))
    return before.view(np.uint8), after.view(np.uint8)


def framed(data: Array, level: int) -> Array:
    """Return bytes as one zstd frame that declares its content size; (stored bytes,) uint8."""
    size = max(data.nbytes, 1)
    (frame,) = ENCODINGS["zstd"].encode(data.data, level=level, frame_bytes=size)
    return np.frombuffer(frame, np.uint8)


def changed_elements(pair: Pair, old: Array, new: Array) -> Array:
    """Return the positions of changed elements, (n,) int64, from the bytes of both tensors."""
    element = headers_of(pair.new)["data"].stored_dtype
    dtype = f"<u{min(element.itemsize, 8)}"
    return np.flatnonzero(old.view(dtype) != new.view(dtype))


def coded(
    target: Target,
    both: Comparison,
    pairs: Iterable[Pair],
    work: Callable[[Pair, Array, Array], Coded],
    dialect: str,
) -> list[Coded]:
    """Return the differences of tensors, computed on threads.

    Args:
        target: the new file or folder.
        both: the states.
        pairs: the tensors that are stored.
        work: returns the difference of one tensor, from its stored bytes, old and new.
        dialect: its word.

    Raises:
        DeltaError: the dialect cannot store a change.
    """
    for name in both.removed:
        message = f"a delta of {dialect} cannot remove a tensor"
        raise DeltaError(message, reason=DeltaReason.TENSOR, object_name=name)
    done = list[Coded]()

    def one(pair: Pair) -> Coded:
        return work(pair, *_bytes_of(pair, dialect))

    for each in in_order(one, pairs, target.threads):
        done.append(each)
        if target.progress is not None:
            target.progress(len(done), max(len(both.names), len(done)))
    return done


def save(
    differences: Sequence[Coded],
    path: str,
    durable: Durable,
    notes: Mapping[str, str] | None = None,
) -> int:
    """Write differences as a safetensors file, and return its length.

    Raises:
        SourceError: the file cannot be written.
    """
    arrays = {name: array for each in differences for name, array in each.arrays.items()}
    digits = {name: text for each in differences for name, text in each.notes.items()}
    save_file(arrays, path, {**(notes or {}), **digits}, durable=durable)
    return os.path.getsize(path)
