"""Plain tensors: dense, and stored as NumPy has them in memory, so that an array is only laid.

`PlainTypes` says of which types that is true. `Views` gives such tensors one at a time with as few
steps as there can be: a look at the table, a question to the system whether the file is still what
it was, where that was not asked a moment ago, and the array. What is not plain it leaves to
`file.py`, which knows every rule.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ztensor.buffers import LEAST_BYTES, new_bytes
from ztensor.digest import crc32c, xxh3_function
from ztensor.errors import ClosedError, ZTensorError
from ztensor.layout.elements import is_native, result_dtype
from ztensor.model.manifest import Component, TensorObject
from ztensor.model.table import TableObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from typing_extensions import Buffer

    from ztensor.layout.base import Array
    from ztensor.model.table import Bools, Ints, Table
    from ztensor.reading.component import Fetching

# What a digest is as a number where there is none, and where it is of another kind.
NO_CHECK, OTHER_CHECK = -1, -2
# What is longer is read in pieces, each hashed while it is in cache.
_MOST_AT_ONCE = 256 << 10
# Seconds for which the system's answer counts that a file is what it was. Asking takes longer than
# everything else that makes a view, and no answer holds for the time a view is used.
LOOK_SECONDS = 4e-6
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
        dtype = self.decoded(tensor_object)
        return dtype if dtype and tensor_object.components["data"].encoding == "raw" else None

    def decoded(self, tensor_object: TensorObject) -> np.dtype[Any] | None:
        """Return the element type of a dense tensor that is plain once it is decoded, or None."""
        if tensor_object.format != "dense":
            return None
        component = tensor_object.components["data"]
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


# The value of a hexadecimal digit by its character.
_HEXADECIMAL = np.zeros(256, np.int64)
for _digits in (b"0123456789abcdef", b"0123456789ABCDEF"):
    _HEXADECIMAL[list(_digits)] = range(16)
# From here on numbers of 64 bits are those below zero; the last two stand for something else.
_SIGN, _TAKEN = 1 << 63, (1 << 64) + OTHER_CHECK
_FEW = 32  # rows that take less time one by one
_WIDE = 16  # digits of a number that may be one of those


class Checks(NamedTuple):
    """Digests of one kind as numbers of 64 bits, negative ones among them.

    Attributes:
        before: what the text of a digest begins with.
        digits: how many hexadecimal digits follow.
        computed: gives what computes the digest of bytes, as a number that is not negative; no
            digest of this kind has a number of ours where it would not fit beside `NO_CHECK` and
            `OTHER_CHECK`.
    """

    before: bytes
    digits: int
    computed: Callable[[], Callable[[Buffer], int]]

    def function(self) -> Callable[[Buffer], int]:
        """Return what computes the number of bytes."""
        computed = self.computed()
        return computed if self.digits < _WIDE else lambda data: _signed(computed(data))

    def are_right(self, pieces: Iterable[Buffer], numbers: Ints) -> Bools:
        """Return of which pieces the numbers are, none of which stands for something else."""
        found = np.fromiter(map(self.computed(), pieces), np.uint64, len(numbers))
        return np.equal(found.view(np.int64), numbers)

    def number(self, digest: str | None) -> int:
        """Return a digest as a number, or what stands for none and for one of another kind."""
        if digest is None:
            return NO_CHECK
        text = digest.encode()
        if len(text) != len(self.before) + self.digits or not text.startswith(self.before):
            return OTHER_CHECK
        try:
            number = int(text[len(self.before) :], 16)
        except ValueError:
            return OTHER_CHECK
        return OTHER_CHECK if number >= _TAKEN else _signed(number)

    def numbers(self, table: Table, rows: slice = slice(None)) -> Ints:
        """Return what `number` gives for the objects of a table, or some of them."""
        starts, lengths = table.digest_starts[rows], table.digest_lengths[rows]
        if len(starts) <= _FEW:
            every = range(len(table))[rows]
            return np.array([self.number(table.digest(row)) for row in every], np.int64)
        numbers = np.where(lengths == 0, NO_CHECK, OTHER_CHECK)
        some = np.flatnonzero(lengths == len(self.before) + self.digits)
        characters = np.frombuffer(table.digest_text, np.uint8)
        for place, character in enumerate(self.before):
            some = some[characters[starts[some] + place] == character]
        value = np.zeros(len(some), np.int64)
        for place in range(len(self.before), len(self.before) + self.digits):
            value = value << 4 | _HEXADECIMAL[characters[starts[some] + place]]
        numbers[some] = np.where(value == NO_CHECK, OTHER_CHECK, value)
        return numbers


def _signed(number: int) -> int:
    return number if not _SIGN <= number < _TAKEN else number - 2 * _SIGN


def _crc32c() -> Callable[[Buffer], int]:
    return cast("Callable[[Buffer], int]", crc32c())  # what to continue is 0 by default


_CRC32C = Checks(b"crc32c:0x", 8, _crc32c)
_XXH3 = Checks(b"xxh3:", 16, xxh3_function)


def usual_checks(*, covers_decoded: bool) -> Checks:
    """Return the kind of digest that writers give by default.

    Args:
        covers_decoded: whether digests cover decoded bytes, as those of 2.x do.
    """
    return _XXH3 if covers_decoded else _CRC32C


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
        file: how messages call it.
    """

    def __init__(self, objects: Mapping[str, TensorObject], shared: Fetching, file: str) -> None:
        self._file = file
        self._objects = objects
        self._source = shared.source
        self._checks = shared.verify is not False
        self._most_rank = shared.limits.rank
        self._types = PlainTypes()
        self._dtypes: dict[int, np.dtype[Any] | None] = {}  # by the table's types
        self._places: dict[str, Place | None] = {}
        self._digests: dict[str, int] = {}
        self._located, self._checked = _Following(), _Following()
        self._number: Callable[[Buffer], int] = _CRC32C.function()  # of these; a file has one
        self._is_viewed = shared.verify is not True  # else every view is checked first
        self._look_again = 0.0

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
            whole = self._source.view() if self._is_viewed else None  # None once it is closed
            if place is None or whole is None:
                return None
            now = monotonic()
            if now >= self._look_again:
                self._source.require_unchanged()
                self._look_again = now + LOOK_SECONDS
            return _array(place[0], place[1], whole, place[2])
        except ZTensorError as error:
            self._locate(error, name)
            raise
        except (ValueError, TypeError):  # more than NumPy can hold, or no name at all
            return None

    def copied(self, name: str) -> Array | None:
        """Return a small plain tensor as new memory, its digest checked; None where it takes more.

        That is so, too, where the digest does not match: who reads it then says so.

        Raises:
            SourceError: the bytes could not be read.
        """
        try:
            place = self._places.get(name) or self.place(name)
            if place is None or place[3] > _MOST_AT_ONCE:
                return None
            check = self._digests.get(name)
            if check is None:
                check = self._check(name)
            if check == OTHER_CHECK:
                return None
            shape, dtype, offset, length = place
            memory = new_bytes(length) if length >= LEAST_BYTES else np.empty(length, np.uint8).data
            self._source.read_into(offset, memory)
            if check != NO_CHECK and self._number(memory) != check:
                return None
            return _array(shape, dtype, memory)
        except ZTensorError as error:
            self._locate(error, name)
            raise
        except (ValueError, TypeError):  # as for a view
            return None

    def _locate(self, error: ZTensorError, name: str) -> None:
        if not isinstance(error, ClosedError):  # which is so whatever is asked for
            error.locate(file=self._file, object_name=name)

    def _check(self, name: str) -> int:
        """Return the digest of a plain tensor as a number; only copies look at it."""
        if not self._checks:
            return NO_CHECK
        if len(self._digests) >= _MOST_KNOWN:
            self._digests.clear()
        objects = self._objects
        row = objects.row(name) if isinstance(objects, TableObjects) else None
        if not isinstance(objects, TableObjects) or row is None:
            component = objects[name].components["data"]
            kind = usual_checks(covers_decoded=component.digest_covers_decoded)
            self._number = kind.function()
            check = self._digests[name] = kind.number(component.digest)
            return check
        rows = self._checked.rows(row)
        kind = usual_checks(covers_decoded=objects.table.digest_covers_decoded)
        self._number = kind.function()
        checks: list[int] = kind.numbers(objects.table, rows).tolist()
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
        ranks, lengths, kinds = table.ranks[rows], table.lengths[rows], table.types[rows].tolist()
        dtypes = [self._dtypes.get(kind) or self._dtype(table, kind) for kind in kinds]
        places: Iterable[Any] = zip(
            _shapes(table, rows, self._most_rank),
            dtypes,
            table.offsets[rows].tolist(),
            lengths.tolist(),
            strict=True,
        )
        is_plain = table.is_raw[rows] & (lengths > 0) & (ranks <= self._most_rank)
        if None in dtypes or not is_plain.all():
            both = zip(places, is_plain.tolist(), strict=True)
            places = [one if yes and one[1] is not None else None for one, yes in both]
        found: list[Place | None] = list(places)
        self._places.update(zip(table.names[rows], found, strict=True))
        return found[0]

    def _dtype(self, table: Table, kind: int) -> np.dtype[Any] | None:
        if kind not in self._dtypes:
            spelling = table.spellings[kind]
            self._dtypes[kind] = self._types.spelled(*spelling, is_exact=table.is_exact)
        return self._dtypes[kind]


def _shapes(table: Table, rows: slice, most_rank: int) -> list[tuple[int, ...]]:
    """Return the shapes of some rows, cut at the most dimensions that are looked at."""
    if rows.stop - rows.start == 1:
        return [table.shape(rows.start)]
    ranks, starts = table.ranks[rows], table.dim_starts[rows]
    width = min(int(ranks.max()), most_rank)
    if not width:
        return [()] * len(ranks)
    places = np.minimum(starts[:, None] + np.arange(width), len(table.dims) - 1)
    dims = table.dims[places].tolist()
    return [tuple(some[:rank]) for some, rank in zip(dims, ranks.tolist(), strict=True)]


_array = np.ndarray
