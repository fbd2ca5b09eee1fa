"""Shape, dtype and extent of the native tensors of a file: all that NumPy needs for an array.

A dense object is *native* if its decoded bytes are the array in memory. A native raw one is an
array over the map, a copy an array over bytes that were read, a row one offset more. All other
objects are decoded by `values.py`. `Places` holds many places as columns, which a table of objects
already has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ztensor.errors import ZTensorError
from ztensor.io.reading.component import COMPLEX_ALIGNMENT
from ztensor.spec.layout.base import Array
from ztensor.spec.layout.elements import result_dtype
from ztensor.spec.model.dtype import element_count
from ztensor.spec.model.manifest import TensorObject
from ztensor.spec.model.objects import Bools, Ints, Table, TableObjects


class Place(NamedTuple):
    """A native tensor.

    Attributes:
        shape: its shape.
        dtype: its element type.
        offset: its first byte in the file.
        length: its bytes on disk, at least one: an empty tensor may have no map.
        encoding: the encoding of the bytes, such as `raw`.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int
    length: int
    encoding: str

    @property
    def nbytes(self) -> int:
        """Return the bytes of the array."""
        return element_count(self.shape) * self.dtype.itemsize

    def array(self, memory: memoryview, start: int) -> Array | None:
        """Return an array over memory from `start` on; None if NumPy cannot hold the shape."""
        try:
            return np.ndarray(self.shape, self.dtype, memory, start)
        except (ValueError, TypeError):
            return None


_MOST_BYTES = (1 << 63) - 1
_NOWHERE = Place((), np.dtype(np.uint8), 0, 0, "")  # stands for a kind that is not native


def place_of(entry: TensorObject | None, most_rank: int) -> Place | None:
    """Return the place of an object; None if it is not native or its view would be unaligned.

    Args:
        entry: the object's entry of the manifest.
        most_rank: the most dimensions of an array.
    """
    if entry is None or entry.format != "dense" or len(entry.shape) > most_rank:
        return None
    data = entry.components["data"]
    is_unknown = data.type is not None and data.logical is None
    if is_unknown or not data.length or not data.is_native():
        return None
    try:
        dtype = result_dtype(data)
    except ZTensorError:
        return None  # the general path raises it
    # `char`, as NumPy takes a microsecond to make the name of a type.
    if dtype.char == "D" and data.offset % COMPLEX_ALIGNMENT:
        return None
    return Place(entry.shape, dtype, data.offset, data.length, data.encoding)


class Places(NamedTuple):
    """Native tensors as columns: row i of every column describes tensor i.

    Attributes:
        names: names.
        kinds: the different combinations of shape, dtype and encoding, as places without extent.
        kind_of: (count,) index into `kinds`.
        offsets: (count,) int64, first bytes in the file.
        lengths: (count,) int64, bytes on disk.
        digests: digests as the file spells them, or None.
    """

    names: Sequence[str]
    kinds: Sequence[Place]
    kind_of: Ints
    offsets: Ints
    lengths: Ints
    digests: Sequence[str | None]

    @staticmethod
    def of(objects: Mapping[str, TensorObject], most_rank: int) -> Places:
        """Return the places of all native objects."""
        if not isinstance(objects, TableObjects):
            return _of_each(objects, most_rank)
        table = _of_table(objects.table, most_rank)
        if not objects.others:
            return table
        others = _of_each(objects.others, most_rank)
        return Places(
            [*table.names, *others.names],
            [*table.kinds, *others.kinds],
            np.append(table.kind_of, others.kind_of + len(table.kinds)),
            np.append(table.offsets, others.offsets),
            np.append(table.lengths, others.lengths),
            [*table.digests, *others.digests],
        )

    def nbytes(self) -> Ints:
        """Return (count,) int64, the bytes of each array, capped at 2^63 - 1."""
        known = [min(kind.nbytes, _MOST_BYTES) for kind in self.kinds]
        return np.array(known, np.int64)[self.kind_of]

    def widths(self) -> Ints:
        """Return (count,) the bytes of an element of each array, at least 1."""
        return np.array([max(kind.dtype.itemsize, 1) for kind in self.kinds])[self.kind_of]

    def where(self, is_so: Callable[[Place], bool]) -> Bools:
        """Return a mask, (count,) bool, of the tensors whose kind satisfies a predicate."""
        return np.array([is_so(kind) for kind in self.kinds], np.bool_)[self.kind_of]

    def rows(self, chosen: Ints | Bools | slice) -> Places:
        """Return the rows of an index array, mask or slice, in its order."""
        if isinstance(chosen, slice):
            names, digests = self.names[chosen], self.digests[chosen]
        else:
            numbers = np.arange(len(self.names))[chosen].tolist()
            names = [self.names[number] for number in numbers]
            digests = [self.digests[number] for number in numbers]
        columns = self.kind_of[chosen], self.offsets[chosen], self.lengths[chosen]
        return Places(names, self.kinds, *columns, digests)


def place_of_kind(kind: TensorObject, most_rank: int) -> Place:
    """Return the place for a kind of a table, without extent; `_NOWHERE` if it is not native."""
    data = kind.components["data"].at(0, 1, None)
    return place_of(kind._replace(components={"data": data}), most_rank) or _NOWHERE


def place_in(table: Table, row: int, kinds: dict[int, Place], most_rank: int) -> Place | None:
    """Return the place of a table's row; None if it is not native.

    Args:
        table: the table.
        row: the row.
        kinds: cache of the places of the table's kinds, filled on demand.
        most_rank: the most dimensions of an array.
    """
    number, offset = table.kind_of.item(row), table.offsets.item(row)
    length, kind = table.lengths.item(row), kinds.get(number)
    if kind is None:
        kind = kinds[number] = place_of_kind(table.kinds[number], most_rank)
    is_odd = kind.dtype.char == "D" and offset % COMPLEX_ALIGNMENT
    if kind is _NOWHERE or is_odd or not length:
        return None
    return Place(kind.shape, kind.dtype, offset, length, kind.encoding)


def _of_each(objects: Mapping[str, TensorObject], most_rank: int) -> Places:
    """Return the places of objects, examined one by one."""
    every = [(name, entry, place_of(entry, most_rank)) for name, entry in objects.items()]
    native = [(name, entry, place) for name, entry, place in every if place is not None]
    return Places(
        [name for name, _, _ in native],
        [place for _, _, place in native],
        np.arange(len(native)),
        np.array([place.offset for _, _, place in native], np.int64),
        np.array([place.length for _, _, place in native], np.int64),
        [entry.components["data"].digest for _, entry, _ in native],
    )


def _of_table(table: Table, most_rank: int) -> Places:
    """Return the places of the rows of a table."""
    kinds, kind_of = [place_of_kind(kind, most_rank) for kind in table.kinds], table.kind_of
    digits = [len(kind.components["data"].digest or "") for kind in table.kinds]
    ends = table.digests + np.array(digits, np.int64)[kind_of]
    text = table.text.decode("latin-1")  # the digests are ASCII
    extents = zip(table.digests.tolist(), ends.tolist(), strict=True)
    digests = [text[start:end] or None for start, end in extents]
    places = Places(table.names, kinds, kind_of, table.offsets, table.lengths, digests)
    is_odd = places.where(lambda kind: kind.dtype.char == "D")
    is_odd &= table.offsets % COMPLEX_ALIGNMENT != 0
    is_native = places.where(lambda kind: kind is not _NOWHERE) & (table.lengths > 0) & ~is_odd
    return places if is_native.all() else places.rows(is_native)
