"""What `scipy.sparse.save_npz` wrote: the members of an archive that make one sparse array.

| members beside `format`, `shape`, `data`, perhaps `_is_array` | of the format | become |
| --- | --- | --- |
| `indices`, `indptr` | csr | `sparse_csr` |
| `row`, `col`; or `coords` | coo | `sparse_coo`; two members are one component |
| `indices`, `indptr` | csc, bsr, csr of one dimension | `scipy.sparse_csc` and so on |
| `offsets` | dia | `scipy.sparse_dia` |

SciPy gives it no name: it is called `array`, as the one array of a `.npy` file is, and has SciPy's
class as its attribute `scipy`. An archive that has another member beside these, or whose parts do
not fit one another, stays the arrays it is made of.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import numpy as np

from ztensor.errors import FormatError
from ztensor.ext import (
    LAYOUTS,
    STORAGE_TYPES,
    Component,
    Encoding,
    Range,
    Source,
    Stored,
    TensorObject,
    element_count,
)
from ztensor.formats.npy import Header
from ztensor.formats.npz.members import SUFFIX, Whole, header_of
from ztensor.formats.npz.scipy_layouts import CLASS, PREFIX, ROLES, VALUES_SHAPE, do_fit
from ztensor.formats.zip import Entry
from ztensor.limits import Budget, Limits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping


NAME = "array"
FLAG = "_is_array"

_COMMON = frozenset({"format", "shape", "data"})
# What stands beside those, by SciPy's word.
_BESIDE: Mapping[frozenset[str], tuple[str, ...]] = {
    frozenset({"indices", "indptr"}): ("csr", "csc", "bsr"),
    frozenset({"offsets"}): ("dia",),
    frozenset({"row", "col"}): ("coo",),
    frozenset({"coords"}): ("coo",),
}
_MOST_BYTES = 1024  # of a member that says what the others are
_TEXT = re.compile(r"([<>|=]?)([SU])([0-9]{1,2})")
_COST = 2048


def are_parts(members: Collection[str]) -> bool:
    """Return whether an archive has the members that SciPy writes, by their names, and no more."""
    if len(members) > len(_COMMON) + 3:
        return False
    names = frozenset(name.removesuffix(SUFFIX) for name in members if name.endswith(SUFFIX))
    names -= {FLAG}
    return len(names) + (f"{FLAG}{SUFFIX}" in members) == len(members) and (
        names >= _COMMON and names - _COMMON in _BESIDE
    )


def combined(
    source: Source,
    members: Mapping[str, Entry],
    objects: Mapping[str, TensorObject],
    encodings: dict[str, Encoding],
    budget: Budget,
) -> Mapping[str, TensorObject]:
    """Return the one object that members make; the objects as they were where they make none.

    Args:
        source: the file.
        members: those of an archive of which `are_parts` is true.
        objects: what each is by itself.
        encodings: how they are stored; one is added where two members become one component.
        budget: what it may cost.

    Raises:
        FormatError: a member that says what the others are is damaged.
        SourceError: it cannot be read.
    """
    budget.charge_bytes(_COST)
    said = {name: _small(source, members, name, budget) for name in ("format", "shape", FLAG)}
    kind = _text(said["format"])
    shape = _sizes(said["shape"])
    flag = said[FLAG]
    beside = frozenset(objects) - _COMMON - {FLAG}
    if shape is None or kind not in _BESIDE[beside] or (FLAG in objects and flag is None):
        return objects
    parts = {"values": objects["data"], **{name: objects[name] for name in beside}}
    if beside == {"row", "col"}:
        coordinates = _joined(source, members, objects, encodings, budget)
        if coordinates is None:
            return objects
        parts = {"values": parts["values"], "coords": coordinates}
    shapes = {role: part.shape for role, part in parts.items()}
    are_known = all(
        (storage := STORAGE_TYPES.get(part.components["data"].dtype)) is not None
        and (role == "values" or storage.kind in "iu")
        for role, part in parts.items()
    )
    if not are_known or not do_fit(kind, shape, shapes):
        return objects
    is_array = flag is not None and any(flag[1])
    attributes: dict[str, object] = {CLASS: f"{kind}_{'array' if is_array else 'matrix'}"}
    word = f"sparse_{kind}"
    if kind != "coo" and (kind, len(shape)) != ("csr", 2):
        word = f"{PREFIX}{kind}"
    if len(shapes["values"]) > 1:
        attributes[VALUES_SHAPE] = list(shapes["values"])
    components = {role: parts[role].components["data"] for role in ROLES[kind]}
    made = TensorObject(shape, word, components, attributes)
    return objects if LAYOUTS[word].check_object(made) else {NAME: made}


# --- What the others are --------------------------------------------------------------------


def _small(
    source: Source, members: Mapping[str, Entry], name: str, budget: Budget
) -> tuple[Header, bytes] | None:
    """Return a short member's header and data, checked; None where it is none."""
    member = members.get(f"{name}{SUFFIX}")
    if member is None or member.size > _MOST_BYTES:
        return None
    data = bytearray()
    try:
        found, header, _ = header_of(source, member, budget)
        data = bytearray(found.size - header.length)
        stored = Range(source, found.offset, found.length)
        whole = Whole(name, found, header)
        whole.decode_into(stored, memoryview(data), budget.limits)
    except FormatError as error:
        error.locate(object_name=name)
        raise
    return header, bytes(data)


def _text(said: tuple[Header, bytes] | None) -> str:
    """Return a single text, of bytes or of characters; "" where it is none."""
    match = None if said is None else _TEXT.fullmatch(said[0].dtype)
    if said is None or match is None or element_count(said[0].shape) != 1:
        return ""
    encoding = "ascii"
    if match[2] == "U":
        encoding = "utf-32-be" if match[1] == ">" else "utf-32-le"
    return said[1].decode(encoding, "replace").rstrip("\0")


def _sizes(said: tuple[Header, bytes] | None) -> tuple[int, ...] | None:
    """Return a shape; None where it is none."""
    if said is None or len(said[0].shape) != 1 or said[0].type is not None:
        return None
    storage = STORAGE_TYPES.get(said[0].dtype)
    if storage is None or storage.kind not in "iu":
        return None
    order = ">" if said[0].byte_order == "big" else "<"
    sizes = np.frombuffer(said[1], f"{order}{storage.kind}{storage.width}").tolist()
    return None if any(size < 0 for size in sizes) else tuple(sizes)


# --- Coordinates in two members -------------------------------------------------------------


def _joined(
    source: Source,
    members: Mapping[str, Entry],
    objects: Mapping[str, TensorObject],
    encodings: dict[str, Encoding],
    budget: Budget,
) -> TensorObject | None:
    """Return rows and columns as one array of both; None where they are not alike."""
    both = [objects[name] for name in ("row", "col")]
    data = [one.components["data"] for one in both]
    if (
        both[0].shape != both[1].shape
        or len(both[0].shape) != 1
        or data[0].dtype not in STORAGE_TYPES
        or (data[0].dtype, data[0].byte_order) != (data[1].dtype, data[1].byte_order)
    ):
        return None
    found = [header_of(source, members[f"{name}{SUFFIX}"], budget) for name in ("row", "col")]
    # What lies between them, their own heads at least, is within the range of both.
    start = min(member.offset for member, _, _ in found)
    stop = max(member.offset + member.length for member, _, _ in found)
    axes = []
    for member, header, _ in found:
        length = member.size - header.length
        whole = Whole(member.name, member, header)
        axes.append(_Axis(whole, member.offset - start, member.length, length))
    word = "npz:coords"
    encodings[word] = _Joined(word, axes)
    component = Component(
        data[0].dtype,
        start,
        stop - start,
        encoding=word,
        decoded_length=sum(axis.decoded_length for axis in axes),
        byte_order=data[0].byte_order,
    )
    return TensorObject((2, *both[0].shape), "dense", {"data": component})


class _Axis:
    """One of the members, as stored bytes within those of both.

    Args:
        whole: what decodes it.
        offset: where it begins.
        length: how many bytes are stored.
        decoded_length: how many bytes its elements are.
    """

    def __init__(self, whole: Whole, offset: int, length: int, decoded_length: int) -> None:
        self.whole = whole
        self.decoded_length = decoded_length
        self._offset = offset
        self._length = length

    def stored(self, both: Stored) -> Stored:
        """Return its stored bytes."""
        return _Within(both, self._offset, self._length)


class _Within:
    def __init__(self, stored: Stored, offset: int, length: int) -> None:
        self._stored = stored
        self._offset = offset
        self.length = length

    def read(self, offset: int, length: int) -> memoryview:
        return self._stored.read(self._offset + offset, length)


class _Joined(Encoding):
    """Coordinates of which each axis is a member of its own, as `sparse_coo` has them.

    Args:
        name: the word components have for it.
        axes: the members in the order of the axes.
    """

    has_sum = True  # the archive's CRC-32 of each member

    def __init__(self, name: str, axes: list[_Axis]) -> None:
        self.name = name
        self._axes = axes

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        """Fill `destination` (flat, bytes, writable) with one axis after the other."""
        lengths = (axis.decoded_length for axis in self._axes)
        ends = [0, *itertools.accumulate(lengths)]
        for axis, start, end in zip(self._axes, ends, ends[1:], strict=False):
            axis.whole.decode_into(axis.stored(stored), destination[start:end], limits)

    def decode_chunks(
        self, stored: Stored, expected_length: int | None, limits: Limits
    ) -> Iterator[memoryview]:
        """Yield one axis after the other, without holding any."""
        del expected_length  # the members tell it
        for axis in self._axes:
            pieces = axis.whole.decode_chunks(axis.stored(stored), axis.decoded_length, limits)
            yield from pieces

    def is_streamed(self, stored: Stored) -> bool:
        """Return whether nothing is held: so it is."""
        del stored
        return True
