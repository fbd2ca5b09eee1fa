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


def checks_of(table: Table) -> Ints:
    """Return the digests as numbers: a crc32c, or what stands for none and for another one."""
    starts, lengths = table.digest_starts, table.digest_lengths
    checks = np.where(lengths == 0, NO_CHECK, OTHER_CHECK)
    some = np.flatnonzero(lengths == BEFORE_DIGITS + CRC32C.digits)
    if len(some):
        characters = np.frombuffer(table.digest_text, np.uint8)
        value = np.zeros(len(some), np.int64)
        for place in range(BEFORE_DIGITS, BEFORE_DIGITS + CRC32C.digits):
            value = value * 16 + _HEXADECIMAL[characters[starts[some] + place]]
        checks[some] = value
    return checks


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
        found = self._find(name)
        if len(self._places) < _MOST_KNOWN:
            self._places[name] = found
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
        check = NO_CHECK
        if self._checks:
            objects = self._objects
            row = objects.row(name) if isinstance(objects, TableObjects) else None
            if isinstance(objects, TableObjects) and row is not None:
                check = check_of(objects.table.digest(row))
            else:
                check = check_of(objects[name].components["data"].digest)
        if len(self._digests) < _MOST_KNOWN:
            self._digests[name] = check
        return check

    def _find(self, name: str) -> Place | None:
        objects = self._objects
        if isinstance(objects, TableObjects):
            row = objects.row(name)
            if row is None:
                return None
            table = objects.table
            kind = table.types.item(row)
            if kind not in self._dtypes:
                self._dtypes[kind] = self._types.spelled(
                    *table.spellings[kind], is_exact=table.is_exact
                )
            dtype = self._dtypes[kind]
            if dtype is None or not table.is_raw[row] or table.ranks.item(row) > self._most_rank:
                return None
            shape, offset, length = (
                table.shape(row),
                table.offsets.item(row),
                table.lengths.item(row),
            )
        else:
            found = objects.get(name)
            dtype = None if found is None else self._types.of(found)
            if found is None or dtype is None or len(found.shape) > self._most_rank:
                return None
            component = found.components["data"]
            shape, offset, length = found.shape, component.offset, component.length
        if not length:  # there may be no map of it
            return None
        return shape, dtype, offset, length
