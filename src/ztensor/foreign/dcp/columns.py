"""Long runs of rows in a pickle as columns: no object of Python is made for a row.

`lanes.py` finds the rows of a part of the pickle. A run of rows is taken where it is all
that is appended to a list, or put into a dict, up to the instruction that does so: nothing else can
have used a row on the stack. What the rows remember is made when it is asked for; a record or a
dict that is asked for is why the pickle is read again without columns (`IrregularError`).
"""

from __future__ import annotations

import bisect
import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from ztensor.foreign.dcp.lanes import BEGIN, Kind, read_lanes
from ztensor.foreign.dcp.memo import IrregularError
from ztensor.foreign.pt.pickle_machine import MARK, PLACE, ROUNDED
from ztensor.foreign.pt.pickled import Buildable, Items

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ztensor.foreign.dcp.lanes import Field, Lanes
    from ztensor.foreign.dcp.memo import Memo
    from ztensor.foreign.pt.pickle_machine import Machine
    from ztensor.limits import Budget

    Array = NDArray[Any]

_PART_BYTES = 1 << 20  # read at a time
_LEAST = 8  # rows that are worth it
_LEAST_FRAME = 1 << 12  # a shorter one is the last
_FRAME_BYTES = 9
_TAIL_BYTES = 1 << 12  # at the end of a part, where a row may be cut
_ROW_COST, _SPARE_COST = 64, 600  # bytes of memory of a row that is kept, and while it is read
_BLOCK_COST, _COLUMN_COST = 1400, 500  # of a run, and of one of its fields
_NUMBER_COST = 300  # of a text
_MOST_RANK, _BEYOND = 64, 1 << 63


class _Texts:
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
            self._budget.charge_bytes(2 * sys.getsizeof(data) + _NUMBER_COST + ROUNDED)
            try:
                self.texts.append(data.decode())
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
    texts: _Texts

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


class _Remembered:
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


class _Part(NamedTuple):
    """Rows of a part of the pickle.

    Attributes:
        start: where it begins in the pickle.
        stop: where it ends.
        frames: where in the pickle frames begin that were left out.
        cuts: where they were, in what is left.
        data: what is left.
        lanes: the rows.
        breaks: rows behind which no other follows.
        changes: of each step, rows behind which one of another kind follows.
    """

    start: int
    stop: int
    frames: list[int]
    cuts: list[int]
    data: bytes
    lanes: Lanes
    breaks: Array
    changes: list[Array]

    def run(self, position: int) -> tuple[int, int] | None:
        """Return the row that begins at a place of the pickle, and the one behind its run."""
        starts = self.lanes.starts
        at = position - self.start - _FRAME_BYTES * bisect.bisect_left(self.frames, position)
        first = int(np.searchsorted(starts, at))
        if first == len(starts) or starts[first] != at:
            return None
        return first, int(self.breaks[np.searchsorted(self.breaks, first)]) + 1

    def is_cut(self, row: int) -> bool:
        """Return whether a run up to a row may go on behind this part."""
        return bool(self.lanes.ends[row - 1] > len(self.data) - _TAIL_BYTES)

    def outside(self, at: int) -> int:
        """Return where in the pickle a place of the data lies, behind frames that were there."""
        return self.start + at + _FRAME_BYTES * bisect.bisect_right(self.cuts, at)


class Columns:
    """Takes runs of rows of a pickle whose memo only grows.

    Args:
        machine: the pickle that is being read.
        memo: what it remembers.
    """

    def __init__(self, machine: Machine, memo: Memo) -> None:
        self._machine = machine
        self._memo = memo
        self._texts = _Texts(memo, machine.budget)
        self._frames = _frames(machine.data, machine.start)
        machine.budget.charge_bytes(8 * len(self._frames))
        self._part: _Part | None = None
        self._before = 0  # where it is not tried again
        self._kinds: dict[tuple[int, ...], _Made | None] = {}

    def take(self, position: int) -> int | None:
        """Put the rows that begin at a place where they belong, and return the place behind that.

        None where they are none, or few, or something else is to be done with them.

        Args:
            position: where the class of the first is got from the memo.

        Raises:
            LimitError: they take more memory than they may.
        """
        machine = self._machine
        if position < self._before or not machine.below or not machine.below[-1]:
            return None
        target, stack = machine.below[-1][-1], machine.stack
        step = 1 if type(target) is list else 2 if type(target) is Items else 0
        if not step or (step == 2 and len(stack) % 2):
            return None
        found = self._run(position)
        if found is None:
            return None
        part, first, stop = found
        columns = [self._column(field, slice(first, stop)) for field in part.lanes.fields]
        blocks = self._blocks(part, first, stop, step, columns)
        end = int(part.lanes.ends[stop - 1])
        closing = part.data[end : end + 1]
        if blocks is None or closing != (b"e" if step == 1 else b"u"):
            self._before = part.outside(end)
            return None
        self._memo.add(_Remembered(columns, part.lanes.places[first : stop + 1].copy()))
        machine.cost += (
            _BLOCK_COST + step * len(columns) * _COLUMN_COST + PLACE * (len(stack) + step) - MARK
        )
        if type(target) is list:
            target += [*stack, *blocks]
        else:
            target.add([*stack, *blocks])
        machine.stack = machine.below.pop()
        return part.outside(end + 1)

    def _run(self, position: int) -> tuple[_Part, int, int] | None:
        """Return in which part rows begin at a place, the first, and which follows the last."""
        part = self._part
        if part is None or not part.start <= position < part.stop:
            part = self._part = self._read(position)
        found = part.run(position)
        goes_on = part.start < position and part.stop < len(self._machine.data)
        if found is not None and goes_on and part.is_cut(found[1]):
            part = self._part = self._read(position)
            found = part.run(position)
        if found is None:
            return None
        first, stop = found
        if stop - first < _LEAST:
            self._before = part.outside(int(part.lanes.ends[stop - 1]))
            return None
        return part, first, stop

    def _read(self, position: int) -> _Part:
        """Read the rows of the part of the pickle that begins at a place."""
        whole, budget = self._machine.data, self._machine.budget
        stop = min(len(whole), position + _PART_BYTES)
        pieces: list[bytes] = []
        frames: list[int] = []
        cuts: list[int] = []
        at = position
        for number in range(bisect.bisect_left(self._frames, position), len(self._frames)):
            frame = self._frames[number]
            if frame >= stop:
                break
            pieces.append(whole[at:frame])
            frames.append(frame)
            cuts.append(frame - position - _FRAME_BYTES * len(cuts))
            at = frame + _FRAME_BYTES
        pieces.append(whole[at:stop])
        data = b"".join(pieces)
        most = data.count(BEGIN)
        budget.charge_bytes(most * _SPARE_COST)
        lanes = read_lanes(data, cuts, self._texts.number)
        budget.release_bytes(most * (_SPARE_COST - _ROW_COST))
        kinds = lanes.kinds
        changes = [
            np.append(np.flatnonzero((kinds[step:] != kinds[:-step]).any(axis=1)), len(kinds))
            for step in (1, 2)
        ]
        breaks = np.flatnonzero(~lanes.chained)
        return _Part(position, max(stop, at), frames, cuts, data, lanes, breaks, changes)

    def _blocks(
        self, part: _Part, first: int, stop: int, step: int, columns: list[Column]
    ) -> list[Block] | None:
        """Return the rows of a run as blocks; None where they are not all of one kind."""
        lanes, memo = part.lanes, self._memo
        changes = part.changes[step - 1]
        if (stop - first) % step or changes[np.searchsorted(changes, first)] < stop - step:
            return None
        if lanes.reach[first:stop].max() >= len(memo) - int(lanes.places[first]):
            return None  # who follows the instructions is told what is not there
        least, most = (
            int(one) for one in (lanes.calls[0][first:stop].min(), lanes.calls[1][first:stop].max())
        )
        if most >= 0 and not (least == most and self._is_shape(most)):
            return None
        blocks = []
        for start in range(first, first + step):
            kind = tuple(lanes.kinds[start].tolist())
            if kind not in self._kinds:
                self._kinds[kind] = self._made(kind)
            made = self._kinds[kind]
            if made is None:
                return None
            own = columns[: len(made.names)]
            if step > 1:
                own = [column.every(step, start - first) for column in own]
            count = (stop - first) // step
            blocks.append(Block(dict(zip(made.names, own, strict=True)), made.make, count))
        return blocks

    def _column(self, field: Field, rows: slice) -> Column:
        return Column(
            field.kinds[rows], field.values[rows], field.counts[rows], field.axes, self._texts
        )

    def _is_shape(self, place: int) -> bool:
        call = self._machine.calls.get(id(self._memo.get(place)))
        return call is not None and call.is_shape

    def _made(self, kind: tuple[int, ...]) -> _Made | None:
        """Return what rows of a kind become; None where that is not to be done at once."""
        memo, place = self._memo, kind[0]
        call = self._machine.calls.get(id(memo.get(place)))
        if call is None or call.becomes_plain or call.least:
            return None
        names = [memo.get(name) for name in kind[1:] if name >= 0]
        made = call.make()
        if type(made) is Items or not isinstance(made, Buildable):
            return None
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            return None
        return _Made(call.make, names)


class _Made(NamedTuple):
    """What rows of one kind become.

    Attributes:
        make: makes such a record.
        names: of its fields.
    """

    make: Callable[[], Any]
    names: list[str]


def _frames(data: bytes, start: int) -> array[int]:
    """Return where the frames of a pickle begin that follow one another."""
    found, at = array("q"), start + 2
    while data[at : at + 1] == b"\x95":
        length = int.from_bytes(data[at + 1 : at + _FRAME_BYTES], "little")
        if length > len(data) - at - _FRAME_BYTES:
            break
        found.append(at)
        if length < _LEAST_FRAME:
            break
        at += _FRAME_BYTES + length
    return found


def _is_axes(value: object) -> TypeGuard[tuple[int, ...]]:
    return (
        type(value) is tuple
        and len(value) <= _MOST_RANK
        and all(type(one) is int and 0 <= one < _BEYOND for one in value)
    )
