"""Rows of a pickle side by side: what is at one place of each is read by one step of NumPy.

A row is a record of a few short fields, as the newest picklers write it. Where each begins is
guessed by the bytes that all rows begin with; which of the guesses follow one another is found out
here, so that a wrong one ends a run of rows and does no more.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Array = NDArray[Any]

BEGIN = b")\x81\x94}\x94("  # an instance of what was got from the memo, a dict and a mark
_TAIL = b"\x85\x94R\x94"  # a tuple of one, and a call with it
_GET, _GET_LONG, _NONE, _MARK, _EMPTY, _TUPLE = b"hjN()t"
_BYTE, _SHORT_INT, _INT, _LONG = b"KMJ\x8a"
_SHORT_TEXT, _TEXT, _MEMOIZE, _SET_ITEMS, _BUILD = b"\x8cX\x94ub"
_MOST_FIELDS, _MOST_AXES = 4, 8
_PAD = 64  # zeros behind the bytes, so that a short look beyond their end finds none
_LONGEST_NUMBER = 8  # bytes of one
_EMPTY_TUPLE_CODE = 0x84  # those behind it make tuples of one, two and three
_FAR = np.iinfo(np.int64).max
# Of an instruction with what follows it; beside that, some tell of more.
_WIDTHS = np.zeros(256, np.int64)
_WIDTHS[[_GET, _BYTE, _LONG, _SHORT_TEXT]] = 2
_WIDTHS[_SHORT_INT] = 3
_WIDTHS[[_GET_LONG, _INT, _TEXT]] = 5


class Kind(enum.IntEnum):
    """What a field of a row has."""

    NONE = 0
    NUMBER = 1
    TEXT = 2  # one that is written there
    REFERENCE = 3  # a place of the memo
    AXES = 4  # a call with a tuple of numbers


_UNKNOWN = 255
_KINDS = np.full(256, _UNKNOWN, np.uint8)
_KINDS[_NONE] = Kind.NONE
_KINDS[[_BYTE, _SHORT_INT, _INT, _LONG]] = Kind.NUMBER
_KINDS[[_SHORT_TEXT, _TEXT]] = Kind.TEXT
_KINDS[[_GET, _GET_LONG]] = Kind.REFERENCE


class Field(NamedTuple):
    """One field of all rows.

    Attributes:
        kinds: of each row.
        values: a number, the number of a text, a place of the memo, or where axes begin.
        counts: how many axes.
        axes: those of all rows.
    """

    kinds: Array
    values: Array
    counts: Array
    axes: Array


class Lanes(NamedTuple):
    """Rows that may follow one another.

    Attributes:
        starts: where each begins.
        ends: where each ends.
        chained: where the next begins right behind it; both are rows.
        kinds: places of the memo of its class and of the names of its fields, (rows, 1 + fields).
        places: before each, how many places of the memo the others take; one more at the end.
        reach: how far behind the first such place a row gets from the memo.
        calls: the least and the most place of what is called with axes.
        fields: the fields.
    """

    starts: Array
    ends: Array
    chained: Array
    kinds: Array
    places: Array
    reach: Array
    calls: tuple[Array, Array]
    fields: list[Field]


def read_lanes(data: bytes, cuts: Sequence[int], number: Callable[[bytes], int]) -> Lanes:
    """Return the rows in a part of a pickle.

    Args:
        data: the part.
        cuts: places in it where an instruction has to begin: something was taken out there.
        number: gives the number of a text by its bytes, -1 where it is none.
    """
    reading = _Reading(data, number)
    while len(reading.fields) < _MOST_FIELDS and reading.read_field():
        pass
    return reading.lanes(cuts)


class _Reading:
    """Rows that are being read, all at once.

    Args:
        data: the part of the pickle.
        number: gives the number of a text.
    """

    def __init__(self, data: bytes, number: Callable[[bytes], int]) -> None:
        self._data = data
        self._number = number
        self._bytes: Array = np.frombuffer(data + bytes(_PAD), np.uint8)
        found = np.flatnonzero(self._bytes[1 : len(data)] == BEGIN[1]) + 1
        for step, byte in enumerate(BEGIN, -1):
            found = found[self._bytes[found + step] == byte]
        count = len(found)
        self._begin = found - 1
        self._at = self._begin + len(BEGIN)
        self._good = np.ones(count, bool)
        self._puts = np.full(count, 2)  # the record and its dict
        self._most = np.zeros(count, np.int64)
        self._calls = np.full(count, _FAR), np.full(count, -1)
        self._names: list[Array] = []
        self.fields: list[Field] = []

    def read_field(self) -> bool:
        """Read one field of each row; return whether any has one."""
        rows = np.flatnonzero(self._good & (self._bytes[self._at] != _SET_ITEMS))
        if not len(rows):
            return False
        count = len(self._at)
        names, values = np.full(count, -1), np.zeros(count, np.int64)
        kinds, counts = np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        rows = self._references(rows, names)
        codes = self._bytes[self._at[rows]]
        kinds[rows] = _KINDS[codes]
        self._at[rows] += codes == _NONE
        rows = self._require(rows, kinds[rows] != _UNKNOWN)
        self._numbers(rows[kinds[rows] == Kind.NUMBER], values)
        self._texts(rows[kinds[rows] == Kind.TEXT], values)
        got = self._references(rows[kinds[rows] == Kind.REFERENCE], values)
        after = self._bytes[self._at[got]]
        called = got[(_KINDS[after] == Kind.NUMBER) | (after == _EMPTY) | (after == _MARK)]
        kinds[called] = Kind.AXES
        axes = self._axes(called, values, counts)
        self._names.append(names)
        self.fields.append(Field(kinds, _narrow(values), counts, _narrow(axes)))
        return True

    def _require(self, rows: Array, right: Array) -> Array:
        """Return the rows of which something is right; the others are none."""
        if right.all():
            return rows
        refused = rows[~right]
        self._good[refused] = False
        self._at[refused] = len(self._data)  # where zeros are
        return rows[right]

    def _step(self, rows: Array, code: bytes) -> Array:
        """Go over instructions that have to be there, and return the rows where they are."""
        for byte in code:
            rows = self._require(rows, self._bytes[self._at[rows]] == byte)
            self._at[rows] += 1
        return rows

    def _integers(self, at: Array, nbytes: int) -> Array:
        value = self._bytes[at].astype(np.int64)
        for byte in range(1, nbytes):
            value |= self._bytes[at + byte].astype(np.int64) << (8 * byte)
        return value

    def _references(self, rows: Array, found: Array) -> Array:
        """Read places of the memo into `found`, and return the rows that have one."""
        code = self._bytes[self._at[rows]]
        rows = self._require(rows, (code == _GET) | (code == _GET_LONG))
        at = self._at[rows]
        long = self._bytes[at] == _GET_LONG
        places = self._bytes[at + 1].astype(np.int64)
        places[long] = self._integers(at[long] + 1, 4)
        found[rows] = places
        self._most[rows] = np.maximum(self._most[rows], places)
        self._at[rows] = at + np.where(long, 5, 2)
        return rows

    def _numbers(self, rows: Array, found: Array) -> Array:
        """Read numbers from 0 on into `found`, and return the rows that have one."""
        at = self._at[rows]
        code = self._bytes[at]
        values = self._bytes[at + 1].astype(np.int64)
        width = _WIDTHS[code].copy()
        right = width > 0
        for one, nbytes in ((_SHORT_INT, 2), (_INT, 4)):
            some = np.flatnonzero(code == one)
            values[some] = self._integers(at[some] + 1, nbytes)
        right &= (code != _INT) | (values < 1 << 31)
        long = np.flatnonzero(code == _LONG)
        if len(long):
            length = values[long]
            right[long] &= length <= _LONGEST_NUMBER
            whole = np.zeros(len(long), np.int64)
            for byte in range(_LONGEST_NUMBER):
                more = np.flatnonzero((length > byte) & (length <= _LONGEST_NUMBER))
                read = self._bytes[at[long[more]] + 2 + byte].astype(np.int64)
                whole[more] |= (read & 0x7F if byte == 7 else read) << (8 * byte)
                last = length[more] == byte + 1  # a negative one is no matter of ours
                right[long[more[last]]] &= read[last] < 0x80
            values[long] = whole
            width[long] = 2 + length
        found[rows] = values
        self._at[rows] = at + width
        return self._require(rows, right)

    def _texts(self, rows: Array, found: Array) -> None:
        """Read texts, all of which are remembered."""
        at = self._at[rows]
        short = self._bytes[at] == _SHORT_TEXT
        length = self._bytes[at + 1].astype(np.int64)
        long = np.flatnonzero(~short)
        length[long] = self._integers(at[long] + 1, 4)
        start = at + np.where(short, 2, 5)
        keep = start + length < len(self._data)
        start, stop = start[keep], (start + length)[keep]
        rows = self._require(rows, keep)
        data, number = self._data, self._number
        numbers = [
            number(data[one:other])
            for one, other in zip(start.tolist(), stop.tolist(), strict=True)
        ]
        found[rows] = numbers
        self._at[rows] = stop
        self._puts[rows] += 1
        self._step(self._require(rows, found[rows] >= 0), bytes((_MEMOIZE,)))

    def _axes(self, rows: Array, values: Array, counts: Array) -> Array:
        """Read calls with numbers, put into `values` where these begin, and return the numbers."""
        least, most = self._calls
        least[rows] = np.minimum(least[rows], values[rows])
        most[rows] = np.maximum(most[rows], values[rows])
        codes = self._bytes[self._at[rows]]
        marked = np.zeros(len(self._at), bool)
        marked[rows] = codes == _MARK
        self._puts[rows] += np.where(codes == _EMPTY, 2, 3)
        self._at[rows] += (codes == _EMPTY) | (codes == _MARK)
        found, some = [], rows[codes != _EMPTY]
        for _ in range(_MOST_AXES):
            some = some[_KINDS[self._bytes[self._at[some]]] == Kind.NUMBER]
            if not len(some):
                break
            one = np.zeros(len(self._at), np.int64)
            some = self._numbers(some, one)
            counts[some] += 1
            found.append(one)
        held = rows[codes != _EMPTY]
        held = self._require(held, (counts[held] > 0) & (marked[held] | (counts[held] < 4)))
        code = np.where(marked[held], _TUPLE, _EMPTY_TUPLE_CODE + counts[held].astype(np.int64))
        held = self._require(held, self._bytes[self._at[held]] == code)
        self._at[held] += 1
        self._step(held, bytes((_MEMOIZE,)))
        rows = self._step(rows[self._good[rows]], _TAIL)
        counts[~self._good] = 0
        values[rows] = (np.cumsum(counts, dtype=np.int64) - counts)[rows]
        if not found:
            return np.zeros(0, np.int64)
        matrix = np.stack(found, axis=1)
        axes: Array = matrix[np.arange(len(found)) < counts[:, None]]
        return axes

    def lanes(self, cuts: Sequence[int]) -> Lanes:
        """Return the rows."""
        begin, seen = self._begin, self._bytes
        rows = self._step(np.flatnonzero(self._good), bytes((_SET_ITEMS, _BUILD)))
        rows = self._require(rows, self._at[rows] <= len(self._data))
        good, ends = self._good, self._at
        if not self.fields:
            good[:] = False
        # Where the class is got: the place may have the byte of the other instruction in it.
        before = np.concatenate(([-1], ends[:-1]))
        short, long = begin - 2, begin - 5
        is_short, is_long = (
            (at >= 0) & (seen[at] == code) for at, code in ((short, _GET), (long, _GET_LONG))
        )
        is_long &= ~(is_short & (before == short))
        good &= is_short | is_long
        starts = np.where(is_long, long, short)
        classes = np.where(is_long, self._integers(long + 1, 4), seen[short + 1])
        for cut in cuts:
            row = int(np.searchsorted(starts, cut, "right")) - 1
            if row >= 0 and good[row] and cut < ends[row]:
                good[row] = _is_between(self._data, int(starts[row]), cut)
        chained = np.zeros(len(begin), bool)
        chained[:-1] = good[:-1] & good[1:] & (ends[:-1] == starts[1:])
        places = np.concatenate(([0], np.cumsum(self._puts)))
        most = np.maximum(self._most, classes)
        kinds = np.stack((np.where(good, classes, -1), *self._names), axis=1)
        return Lanes(
            starts, ends, chained, kinds, places, most - places[:-1], self._calls, self.fields
        )


def _is_between(data: bytes, at: int, goal: int) -> bool:
    """Return whether an instruction of a row begins at a place."""
    while at < goal:
        code = data[at]
        at += int(_WIDTHS[code]) or 1
        if code in (_LONG, _SHORT_TEXT):
            at += data[at - 1]
        elif code == _TEXT:
            at += int.from_bytes(data[at - 4 : at], "little")
    return at == goal


def _narrow(values: Array) -> Array:
    """Return numbers from 0 on in as few bytes as they need."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))
