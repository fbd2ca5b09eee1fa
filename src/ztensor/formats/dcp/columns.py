"""Long runs of rows in a pickle as columns: no object of Python is made for a row.

What the rows remember is made when it is asked for; a record or a dict that is asked for is why the
pickle is read again without columns (`IrregularError`). `pickles.py` finds and takes the runs.
"""

from __future__ import annotations

import bisect
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from ztensor.formats.dcp.lanes import Kind
from ztensor.formats.pt.pickle_machine import ROUNDED
from ztensor.formats.pt.pickled import Buildable, Items
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]

_NUMBER_COST = 300  # bytes of memory of a text
_MOST_RANK, _BEYOND = 64, 1 << 63
_NO_GAP = 1 << 32  # behind every place


class IrregularError(Exception):
    """A pickle uses columns as they cannot be used; it is read without them then."""


class Memo:
    """What a pickle remembers, by place, with gaps.

    Args:
        plain: what instructions put there, one behind the other.

    Attributes:
        first: the first place of the first gap.
    """

    def __init__(self, plain: list[Any]) -> None:
        self.first = _NO_GAP
        self._plain = plain
        self._gaps: list[Remembered] = []
        self._begins: list[int] = []
        self._skipped: list[int] = []  # places of gaps up to the end of each

    def __len__(self) -> int:
        return len(self._plain) + (self._skipped[-1] if self._gaps else 0)

    @property
    def has_gaps(self) -> bool:
        """Return whether there are gaps."""
        return bool(self._gaps)

    def add(self, gap: Remembered) -> None:
        """Add places behind the others."""
        count = len(self)
        self.first = min(self.first, count)
        self._begins.append(count)
        self._skipped.append(count - len(self._plain) + len(gap))
        self._gaps.append(gap)

    def get(self, place: int) -> Any:
        """Return the value of a place that is there.

        Raises:
            IrregularError: it was taken as a part of columns, and may change.
        """
        if place < self.first:
            return self._plain[place]
        gap = bisect.bisect_right(self._begins, place) - 1
        number = place - self._begins[gap]
        if number < len(self._gaps[gap]):
            return self._gaps[gap].value(number)
        return self._plain[place - self._skipped[gap]]


class Texts:
    """The texts of rows, each once, by number.

    Args:
        memo: what the pickle remembers.
        budget: what is charged.
    """

    def __init__(self, memo: Memo, budget: Budget) -> None:
        self._budget = budget
        self._memo = memo
        self._numbers: dict[bytes, int] = {}
        self._got: dict[int, object] = {}
        self.texts: list[str] = []

    def number(self, data: bytes) -> int:
        """Return the number of a text by its bytes, -1 where it is none."""
        found = self._numbers.get(data)
        if found is None:
            self._budget.charge_bytes(sys.getsizeof(data) + _NUMBER_COST + ROUNDED)
            try:
                self.texts.append(self._budget.text(data))
                found = len(self.texts) - 1
            except UnicodeDecodeError:
                found = -1
            self._numbers[data] = found
        return found

    def remembered(self, place: int) -> object:
        """Return what the memo has in a place."""
        if place in self._got:
            return self._got[place]
        self._budget.charge_bytes(_NUMBER_COST)
        value = self._got[place] = self._memo.get(place)
        return value


class Column(NamedTuple):
    """One field of the rows of a run.

    Attributes:
        kinds: what it is, of each row.
        values: a number, that of a text, a place of the memo, or where the axes begin.
        counts: how many axes.
        axes: those of these rows and of others.
        texts: the texts, and what the memo has.
    """

    kinds: Array
    values: Array
    counts: Array
    axes: Array
    texts: Texts

    def every(self, step: int, first: int) -> Column:
        """Return every so many rows, from one on."""
        kinds, values, counts = (one[first::step] for one in self[:3])
        return Column(kinds, values, counts, self.axes, self.texts)

    def is_none(self) -> bool:
        """Return whether no row has a value."""
        return not self.kinds.any()

    def numbers(self) -> Array | None:
        """Return int64 numbers; None where some are something else."""
        if (self.kinds != Kind.NUMBER).any():
            return None
        return self.values.astype(np.int64)

    def strings(self) -> tuple[Array, list[str]] | None:
        """Return the number of the text of each row, and the texts; None where some are none."""
        if ((self.kinds != Kind.TEXT) & (self.kinds != Kind.REFERENCE)).any():
            return None
        numbers = self.values.astype(np.int64)
        got = self.kinds == Kind.REFERENCE
        if got.any():
            places, which = np.unique(numbers[got], return_inverse=True)
            found = []
            for place in places.tolist():
                value = self.texts.remembered(place)
                if not isinstance(value, str):
                    return None
                found.append(self.texts.number(value.encode("utf-8", "surrogatepass")))
            numbers[got] = np.array(found, np.int64)[which]
            if min(found) < 0:
                return None
        return numbers, self.texts.texts

    def tuples(self) -> tuple[Array, Array] | None:
        """Return tuples of numbers: how long each is, -1 for none, and all numbers in a row.

        None where a row has something else.
        """
        kinds = self.kinds
        if ((kinds == Kind.NUMBER) | (kinds == Kind.TEXT)).any():
            return None
        counts, starts = self.counts.astype(np.int64), self.values.astype(np.int64)
        axes = self.axes
        got = kinds == Kind.REFERENCE
        if got.any():
            places, which = np.unique(starts[got], return_inverse=True)
            flat: list[int] = []
            begins, lengths = [], []
            for place in places.tolist():
                value = self.texts.remembered(place)
                if not _is_axes(value):
                    return None
                begins.append(len(axes) + len(flat))
                lengths.append(len(value))
                flat += value
            axes = np.concatenate((axes.astype(np.int64), np.array(flat, np.int64)))
            starts[got], counts[got] = np.array(begins)[which], np.array(lengths)[which]
        ends = np.cumsum(counts)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)
        found = axes[np.repeat(starts, counts) + within].astype(np.int64)
        counts[kinds == Kind.NONE] = -1
        return counts, found

    def value(self, row: int) -> object:
        """Return the value of one row."""
        kind, value = self.kinds[row], int(self.values[row])
        if kind == Kind.NONE:
            return None
        if kind == Kind.NUMBER:
            return value
        if kind == Kind.TEXT:
            return self.texts.texts[value]
        if kind == Kind.REFERENCE:
            return self.texts.remembered(value)
        return tuple(self.axes[value : value + int(self.counts[row])].tolist())


class Block:
    """Records of one class that stand for so many values of a list, or keys or values of a dict.

    Args:
        columns: the fields by name, as many as there are.
        make: makes such a record.
        count: how many rows.

    Attributes:
        columns: the fields by name.
        like: a record of the class, without fields.
    """

    __slots__ = ("_count", "_make", "columns", "like")

    def __init__(
        self, columns: dict[str, Column], make: Callable[[], Buildable], count: int
    ) -> None:
        self.columns = columns
        self.like = make()
        self._make = make
        self._count = count

    def __len__(self) -> int:
        return self._count

    def records(self) -> Iterator[Buildable]:
        """Yield the records, each new."""
        for row in range(self._count):
            record = self._make()
            flat: list[object] = []
            for name, column in self.columns.items():
                flat += name, column.value(row)
            record.build(Items(flat))
            yield record


class Remembered:
    """What the rows of a run put into the memo.

    Args:
        columns: the fields of all of them.
        places: before each row, how many places the others take; one more at the end.
    """

    def __init__(self, columns: list[Column], places: Array) -> None:
        self._columns = columns
        self._places = places

    def __len__(self) -> int:
        return int(self._places[-1] - self._places[0])

    def value(self, number: int) -> object:
        """Return the value of one place.

        Raises:
            IrregularError: it is a record or its dict.
        """
        at = number + int(self._places[0])
        row = int(np.searchsorted(self._places, at, "right")) - 1
        left = at - int(self._places[row]) - 2
        if left < 0:
            raise IrregularError
        for column in self._columns:
            kind = column.kinds[row]
            if kind == Kind.TEXT:
                if left == 0:
                    return column.value(row)
                left -= 1
            elif kind == Kind.AXES:
                axes = column.value(row)
                made = (axes, (axes,), axes) if axes else ((axes,), axes)
                if left < len(made):
                    return made[left]
                left -= len(made)
        raise IrregularError


def _is_axes(value: object) -> TypeGuard[tuple[int, ...]]:
    return (
        type(value) is tuple
        and len(value) <= _MOST_RANK
        and all(type(one) is int and 0 <= one < _BEYOND for one in value)
    )
