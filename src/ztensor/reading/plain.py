"""Plain tensors: dense, and stored as NumPy has them in memory, so that an array is only laid.

`PlainTypes` says of which types that is true. `Views` gives such tensors one at a time with as few
steps as there can be: a look at the table, one question to the system whether the file is still
what it was, and the array. What is not plain it leaves to `file.py`, which knows every rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.digest import ALGORITHMS, crc32c
from ztensor.errors import ZTensorError
from ztensor.layout.elements import is_native, result_dtype
from ztensor.model.manifest import Component, TensorObject
from ztensor.model.table import TableObjects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ztensor.layout.base import Array
    from ztensor.model.table import Ints, Table
    from ztensor.reading.component import Fetching

# What a digest is as a number where it is no crc32c.
NO_CHECK, OTHER_CHECK = -1, -2
CRC32C = ALGORITHMS["crc32c"]
BEFORE_DIGITS = len(CRC32C.spell(""))
# What is longer is read in pieces, each hashed while it is in cache.
_MOST_AT_ONCE = 256 << 10
# Places that are remembered: more are looked up anew.
_MOST_KNOWN = 1 << 16
# Rows of a table that are looked up at once where one is asked for after the other.
_MOST_AHEAD = 512

# Shape, element type, offset and length.
Place = tuple[tuple[int, ...], "np.dtype[Any]", int, int]


class PlainTypes:
    """Remembers which pairs of storage and logical type lie in the file as NumPy has them."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], np.dtype[Any] | None] = {}

    def of(self, tensor_object: TensorObject) -> np.dtype[Any] | None:
        """Return the element type of a plain dense tensor, None for everything else."""
        if tensor_object.format != "dense":
            return None
        component = tensor_object.components["data"]
        if component.encoding != "raw":
            return None
        key = (
            component.dtype,
            component.type,
            component.byte_order,
            component.nonzero_is_true,
            component.is_exact,
        )
        if key not in self._known:
            self._known[key] = self._look_up(component)
        return self._known[key]

    def spelled(
        self, dtype: str, logical: str | None, *, is_exact: bool = False
    ) -> np.dtype[Any] | None:
        """Return the element type of plain dense tensors of a table's spelling, or None."""
        component = Component(dtype, 0, 0, logical, is_exact=is_exact)
        return self.of(TensorObject((), "dense", {"data": component}))

    def _look_up(self, component: Component) -> np.dtype[Any] | None:
        is_known = component.type is None or component.logical is not None
        if not is_known or not is_native(component):
            return None
        try:
            return result_dtype(component)
        except ZTensorError:
            return None  # who reads it says why


def check_of(digest: str | None) -> int:
    """Return a digest as a number: a crc32c, or what stands for none and for another one."""
    if digest is None:
        return NO_CHECK
    if len(digest) != BEFORE_DIGITS + CRC32C.digits or not digest.startswith("crc32c:0x"):
        return OTHER_CHECK
    try:
        return int(digest[BEFORE_DIGITS:], 16)
    except ValueError:
        return OTHER_CHECK


# The value of a hexadecimal digit by its character.
_HEXADECIMAL = np.zeros(256, np.int64)
for _digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEXADECIMAL[list(_digits)] = range(16)


def checks_of(table: Table, rows: slice = slice(None)) -> Ints:
    """Return the digests as numbers: a crc32c, or what stands for none and for another one."""
    starts, lengths = table.digest_starts[rows], table.digest_lengths[rows]
    checks = np.where(lengths == 0, NO_CHECK, OTHER_CHECK)
    some = np.flatnonzero(lengths == BEFORE_DIGITS + CRC32C.digits)
    if len(some):
        characters = np.frombuffer(table.digest_text, np.uint8)
        value = np.zeros(len(some), np.int64)
        for place in range(BEFORE_DIGITS, BEFORE_DIGITS + CRC32C.digits):
            value = value * 16 + _HEXADECIMAL[characters[starts[some] + place]]
        checks[some] = value
    return checks


class _Following:
    """Tells how many rows to look up: more each time one is asked for after the other."""

    __slots__ = ("_count", "_next")

    def __init__(self) -> None:
        self._count = 1
        self._next = 0

    def rows(self, row: int) -> slice:
        """Return the rows to look up where one is asked for that is not known."""
        self._count = min(2 * self._count, _MOST_AHEAD) if row == self._next else 1
        self._next = row + self._count
        return slice(row, self._next)


class Views:
    """The plain tensors of one file, one at a time.

    Args:
        objects: what the manifest says.
        shared: the file's bytes, and how they are checked.
    """

    def __init__(self, objects: Mapping[str, TensorObject], shared: Fetching) -> None:
        self._objects = objects
        self._source = shared.source
        self._checks = shared.verify is not False
        self._most_rank = shared.limits.rank
        self._types = PlainTypes()
        self._dtypes: dict[int, np.dtype[Any] | None] = {}  # by the table's types
        self._places: dict[str, Place | None] = {}
        self._digests: dict[str, int] = {}
        self._shapes: dict[tuple[int, int], tuple[int, ...]] = {}  # by place and rank
        self._located, self._checked = _Following(), _Following()
        self._is_viewed = shared.verify is not True  # else every view is checked first
        self._whole: memoryview | None = None

    def place(self, name: str) -> Place | None:
        """Return what a plain tensor is and where it lies; None for everything else.

        Args:
            name: the object's name; anything else is no object's.
        """
        try:
            return self._places[name]
        except KeyError:
            pass
        except TypeError:  # no text
            return None
        if len(self._places) >= _MOST_KNOWN:
            self._places.clear()
        objects = self._objects
        row = objects.row(name) if isinstance(objects, TableObjects) else None
        if isinstance(objects, TableObjects) and row is not None:
            return self._of_rows(objects.table, self._located.rows(row))
        found = self._places[name] = self._of_object(objects.get(name))
        return found

    def view(self, name: str) -> Array | None:
        """Return a plain tensor as a view of the map; None where that takes more.

        Raises:
            SourceError: the file is not what it was.
        """
        try:
            place = self._places.get(name) or self.place(name)
            whole = self._whole or self._map()
            if place is None or whole is None:
                return None
            self._source.require_unchanged()
            return np.ndarray(place[0], place[1], whole, place[2])
        except (ValueError, TypeError):  # more than NumPy can hold, or no name at all
            return None

    def _map(self) -> memoryview | None:
        if self._is_viewed:
            self._whole = self._source.view()
        return self._whole

    def copied(self, name: str) -> Array | None:
        """Return a small plain tensor as new memory, its digest checked; None where it takes more.

        That is so, too, where the digest does not match: who reads it then says so.

        Raises:
            SourceError: the bytes could not be read.
        """
        place = self.place(name)
        if place is None or place[3] > _MOST_AT_ONCE:
            return None
        check = self._digests.get(name)
        if check is None:
            check = self._check(name)
        if check == OTHER_CHECK:
            return None
        shape, dtype, offset, length = place
        memory = np.empty(length, np.uint8)
        self._source.read_into(offset, memory.data)
        if check != NO_CHECK and crc32c()(memory.data, 0) != check:
            return None
        try:
            return np.ndarray(shape, dtype, memory)
        except (ValueError, TypeError):
            return None

    def _check(self, name: str) -> int:
        """Return the digest of a plain tensor as a number; only copies look at it."""
        if not self._checks:
            return NO_CHECK
        if len(self._digests) >= _MOST_KNOWN:
            self._digests.clear()
        objects = self._objects
        row = objects.row(name) if isinstance(objects, TableObjects) else None
        if not isinstance(objects, TableObjects) or row is None:
            check = self._digests[name] = check_of(objects[name].components["data"].digest)
            return check
        rows = self._checked.rows(row)
        checks: list[int] = checks_of(objects.table, rows).tolist()
        self._digests.update(zip(objects.table.names[rows], checks, strict=True))
        return checks[0]

    def _of_object(self, found: TensorObject | None) -> Place | None:
        dtype = None if found is None else self._types.of(found)
        if found is None or dtype is None or len(found.shape) > self._most_rank:
            return None
        component = found.components["data"]
        if not component.length:  # there may be no map of it
            return None
        return found.shape, dtype, component.offset, component.length

    def _of_rows(self, table: Table, rows: slice) -> Place | None:
        """Remember what lies in some rows, and return what lies in the first."""
        columns = (
            table.is_raw, table.types, table.ranks, table.dim_starts, table.offsets, table.lengths
        )  # fmt: skip
        found: list[Place | None] = []
        for is_raw, kind, rank, start, offset, length in zip(
            *[column[rows].tolist() for column in columns], strict=True
        ):
            dtype = self._dtypes.get(kind) or self._dtype(table, kind)
            if dtype is None or not is_raw or not length or rank > self._most_rank:
                found.append(None)
                continue
            shape = self._shapes.get((start, rank))
            if shape is None:
                shape = tuple(table.dims[start : start + rank].tolist())
                self._shapes[start, rank] = shape
            found.append((shape, dtype, offset, length))
        self._places.update(zip(table.names[rows], found, strict=True))
        return found[0]

    def _dtype(self, table: Table, kind: int) -> np.dtype[Any] | None:
        if kind not in self._dtypes:
            spelling = table.spellings[kind]
            self._dtypes[kind] = self._types.spelled(*spelling, is_exact=table.is_exact)
        return self._dtypes[kind]
