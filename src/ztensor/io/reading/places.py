"""Where the plain tensors of a file are: all that NumPy needs to give one.

Plain is a dense object whose decoded bytes are its elements as NumPy has them. If it is raw, too, a
view is an array over the map, a copy the same over memory that was read, a row an offset more.
Every other object is fetched, checked and decoded; `file.py` does that. Of many the places are
columns, which a table of objects gives as it is.
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
    """A plain tensor.

    Attributes:
        shape: its shape.
        dtype: the type of its elements.
        offset: its first byte in the file.
        length: its bytes on disk, at least one: of none there may be no map.
        encoding: how the bytes are stored, such as `raw`.
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
        """Return the array whose bytes begin there in memory; None where NumPy has none such."""
        try:
            return np.ndarray(self.shape, self.dtype, memory, start)
        except (ValueError, TypeError):
            return None


_MOST_BYTES = (1 << 63) - 1
_NOWHERE = Place((), np.dtype(np.uint8), 0, 0, "")  # of a kind that is not plain


def place_of(found: TensorObject | None, most_rank: int) -> Place | None:
    """Return the place of an object; None where it is not plain, or where it may not be a view.

    Args:
        found: the object.
        most_rank: dimensions that an array may have.
    """
    if found is None or found.format != "dense" or len(found.shape) > most_rank:
        return None
    one = found.components["data"]
    is_unknown = one.type is not None and one.logical is None
    if is_unknown or not one.length or not one.is_native():
        return None
    try:
        dtype = result_dtype(one)
    except ZTensorError:
        return None  # reading it says why
    # By its letter: NumPy takes a microsecond to make the name of a type.
    if dtype.char == "D" and one.offset % COMPLEX_ALIGNMENT:
        return None
    return Place(found.shape, dtype, one.offset, one.length, one.encoding)


class Places(NamedTuple):
    """Plain tensors: row i of every column is about the i-th.

    Attributes:
        names: their names.
        kinds: places, of which a row has all but offset and length.
        kind_of: (count,) rows of `kinds`.
        offsets: (count,) int64, their first bytes in the file.
        lengths: (count,) int64, their bytes on disk.
        digests: their digests as the file spells them, or None.
    """

    names: Sequence[str]
    kinds: Sequence[Place]
    kind_of: Ints
    offsets: Ints
    lengths: Ints
    digests: Sequence[str | None]

    @staticmethod
    def of(objects: Mapping[str, TensorObject], most_rank: int) -> Places:
        """Return the places of all objects that are plain."""
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
        """Return (count,) the bytes of each array; no file has as many as int64 can say."""
        known = [min(kind.nbytes, _MOST_BYTES) for kind in self.kinds]
        return np.array(known, np.int64)[self.kind_of]

    def widths(self) -> Ints:
        """Return (count,) the bytes of an element of each array, one at least."""
        return np.array([max(kind.dtype.itemsize, 1) for kind in self.kinds])[self.kind_of]

    def where(self, is_so: Callable[[Place], bool]) -> Bools:
        """Return (count,) whether something is so of each one's kind."""
        return np.array([is_so(kind) for kind in self.kinds], np.bool_)[self.kind_of]

    def rows(self, some: Ints | Bools | slice) -> Places:
        """Return some rows, in this order."""
        if isinstance(some, slice):
            names, digests = self.names[some], self.digests[some]
        else:
            numbers = np.arange(len(self.names))[some].tolist()
            names = [self.names[number] for number in numbers]
            digests = [self.digests[number] for number in numbers]
        columns = self.kind_of[some], self.offsets[some], self.lengths[some]
        return Places(names, self.kinds, *columns, digests)


def place_of_kind(kind: TensorObject, most_rank: int) -> Place:
    """Return a place of a table's kind, `_NOWHERE` where it is not plain."""
    data = kind.components["data"].at(0, 1, None)
    return place_of(kind._replace(components={"data": data}), most_rank) or _NOWHERE


def place_in(table: Table, row: int, kinds: dict[int, Place], most_rank: int) -> Place | None:
    """Return the place of a table's row; None where it is not plain.

    Args:
        table: the table.
        row: the row.
        kinds: places of the table's kinds, filled as they are needed.
        most_rank: dimensions that an array may have.
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
    """Return the places of objects, each looked at by itself."""
    found = [(name, one, place_of(one, most_rank)) for name, one in objects.items()]
    named = [(name, one, place) for name, one, place in found if place is not None]
    return Places(
        [name for name, _, _ in named],
        [place for _, _, place in named],
        np.arange(len(named)),
        np.array([place.offset for _, _, place in named], np.int64),
        np.array([place.length for _, _, place in named], np.int64),
        [one.components["data"].digest for _, one, _ in named],
    )


def _of_table(table: Table, most_rank: int) -> Places:
    """Return the places of the rows of a table."""
    kinds, kind_of = [place_of_kind(one, most_rank) for one in table.kinds], table.kind_of
    digits = [len(kind.components["data"].digest or "") for kind in table.kinds]
    ends = table.digests + np.array(digits, np.int64)[kind_of]
    text = table.text.decode("latin-1")  # digests in it are ASCII
    places = zip(table.digests.tolist(), ends.tolist(), strict=True)
    digests = [text[start:end] or None for start, end in places]
    found = Places(table.names, kinds, kind_of, table.offsets, table.lengths, digests)
    is_odd = found.where(lambda kind: kind.dtype.char == "D")
    is_odd &= table.offsets % COMPLEX_ALIGNMENT != 0
    is_plain = found.where(lambda kind: kind is not _NOWHERE) & (table.lengths > 0) & ~is_odd
    return found if is_plain.all() else found.rows(is_plain)
