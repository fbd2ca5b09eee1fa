"""The pickle `.metadata`, its long runs of records as columns.

What a pickle does is told by the machine of `pt`; here it takes a run of rows where one begins.
`lanes.py` finds the rows of a part of the pickle. A run is taken where it is all that is appended
to a list, or put into a dict, up to the instruction that does so: nothing else can have used a row
on the stack.
"""

from __future__ import annotations

import bisect
import struct
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ztensor.formats.dcp.columns import Block, Column, IrregularError, Memo, Remembered, Texts
from ztensor.formats.dcp.lanes import BEGIN, Field, Lanes, read_lanes
from ztensor.formats.pt.pickle_machine import MARK, PLACE, Machine
from ztensor.formats.pt.pickle_reader import INSTRUCTIONS, follow
from ztensor.formats.pt.pickled import Buildable, Items, Vocabulary
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]

_U32 = struct.Struct("<I")
_GET, _GET_LONG = ord("h"), ord("j")
_NEW = b")\x81"  # makes an instance of the class that was got
_PART_BYTES = 1 << 20  # read at a time
_LEAST = 8  # rows that are worth it
_LEAST_FRAME = 1 << 12  # a shorter one is the last
_FRAME_BYTES = 9
_TAIL_BYTES = 1 << 12  # at the end of a part, where a row may be cut
_ROW_COST, _SPARE_COST = 64, 600  # bytes of memory of a row that is kept, and while it is read
_BLOCK_COST, _COLUMN_COST = 1400, 500  # of a run, and of one of its fields


def read_columns(
    data: bytes, vocabulary: Vocabulary, budget: Budget, *, least: int = 0
) -> tuple[object, int]:
    """Return the value of a pickle, and where it ends; see `pickle_reader.read_pickle`.

    Long runs of records are `Block`s, in lists and, of keys and of values, in dicts.

    Raises:
        IrregularError: it has to be read without columns.
        ZTensorError: what `read_pickle` raises.
    """
    machine = _Machine(data, vocabulary, budget)
    instructions = list(INSTRUCTIONS)
    instructions[_GET] = lambda _: machine.get_short()
    instructions[_GET_LONG] = lambda _: machine.get_long()
    try:
        return follow(machine, least, instructions)
    finally:
        machine.end()


class _Machine(Machine):
    """A pickle whose runs of records are taken as columns while its memo only grows."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, budget: Budget) -> None:
        super().__init__(data, vocabulary, 0, budget)
        self._places = Memo(self.memo)
        self._columns: _Columns | None = _Columns(self, self._places)

    def end(self) -> None:
        """Let go of the columns, which have the machine: its memory is free at once."""
        self._columns = None

    def _take(self, after: int) -> bool:
        """Take the run that begins with this instruction; return whether one does.

        Args:
            after: where the instruction ends.
        """
        if self._columns is None or not self.data.startswith(_NEW, after):
            return False
        behind = self._columns.take(self.position - 1)
        if behind is None:
            return False
        self.position = behind
        return True

    def get_short(self) -> None:
        """Take a run, or push the value of a place of one byte."""
        if not self._take(self.position + 1):
            self.get(self.byte())

    def get_long(self) -> None:
        """Take a run, or push the value of a place of four bytes."""
        if not self._take(self.position + 4):
            self.get(self.number(_U32))

    def get(self, place: int) -> None:
        """Push the value of a place in the memo."""
        if self._places.first <= place < len(self._places):
            self.stack.append(self._places.get(place))
        else:
            super().get(place)

    def put(self, place: int) -> None:
        """Remember the topmost value in a place of the memo."""
        self._columns = None  # a place may be given to another value
        if not self._places.has_gaps:
            super().put(place)
        elif place == len(self._places):
            self.put_next()
        else:
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


class _Columns:
    """Takes runs of rows of a pickle whose memo only grows.

    Args:
        machine: the pickle that is being read.
        memo: what it remembers.
    """

    def __init__(self, machine: Machine, memo: Memo) -> None:
        self._machine = machine
        self._memo = memo
        self._texts = Texts(memo, machine.budget)
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
        self._memo.add(Remembered(columns, part.lanes.places[first : stop + 1].copy()))
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
