"""The pickle `.metadata`, its long runs of records as columns.

What a pickle does is told by the machine of `pt`, an instruction at a time. The newest picklers
write records of few short fields in one form only: those that follow one another are found by a
regular expression, and become one `Block` of what they are put into. What each field says is still
told by the machine, once for all fields of the same bytes.

Nothing else may use a record that is in a block: where the pickle does, or is wrong in any way, it
is to be read again without columns.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from typing import TYPE_CHECKING, Any

from ztensor.formats.dcp.vocabulary import Record
from ztensor.formats.pt.pickle_machine import PLACE, Machine
from ztensor.formats.pt.pickle_reader import INSTRUCTIONS, follow
from ztensor.formats.pt.pickled import Global, Items, Vocabulary
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    Cell = tuple[object, tuple[object, ...]]
    Row = tuple[bytes | None, ...]

_NEW = rb"\)\x81\x94\}\x94\("  # an instance of what was got from the memo, a dict and a mark
_REFERENCE = rb"(?:h.|j.{4})"
_NUMBER = rb"(?:K.|M..|J.{4}|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
# A tuple of numbers, and a call with it.
_AXES = rb"%s(?:\)|\(%s{1,8}t\x94|%s{1,3}[\x85-\x87]\x94)\x85\x94R\x94" % (
    _REFERENCE,
    _NUMBER,
    _NUMBER,
)
# Where one ends is a guess: in UTF-8 the byte may be a part of a letter.
_TEXT = rb"\x8c.[^\x94]{0,255}+\x94"
_FIELD = rb"(%s)((?>N|%s|%s|%s|%s))" % (_REFERENCE, _NUMBER, _TEXT, _AXES, _REFERENCE)
# Or nothing, so that no more than one place is looked at for each.
_ROW = re.compile(
    rb"(%s)%s%s(?:%s(?:%s(?:%s)?)?)?ub|" % (_REFERENCE, _NEW, _FIELD, _FIELD, _FIELD, _FIELD),
    re.DOTALL,
)
_BEGIN = b")\x81\x94}\x94("
_SHORT_TEXT = 0x8C
_LEAST, _MOST = 2, 1 << 11  # rows of a block
_MOST_CELLS = 1 << 13
_CELL_COST, _BLOCK_COST, _ROW_COST = 1000, 2000, 48  # bytes of memory


class IrregularError(Exception):
    """A pickle cannot be read by columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Records of one class that stand for so many values of a list, or keys or values of a dict.

    Attributes:
        kind: the class, without its module.
        columns: the fields of all of them, by name.
        count: how many there are.
    """

    kind: str
    columns: dict[str, list[object]]
    count: int


class _Taken:
    """What the memo has in the place of a record that is in a block."""


_TAKEN = _Taken()


def read_columns(
    data: bytes, vocabulary: Vocabulary, budget: Budget, *, least: int = 0
) -> tuple[object, int]:
    """Return the value of a pickle, and where it ends; see `pickle_reader.read_pickle`.

    Long runs of records are `Block`s, in lists and, of keys and of values, in dicts.

    Raises:
        IrregularError: it has to be read without columns.
        ZTensorError: what `read_pickle` raises; where it is no `LimitError`, that may be since it
            was read by columns.
    """
    return follow(_Machine(data, vocabulary, 0, budget), least)


class _Machine(Machine):
    """A pickle whose runs of records are taken as columns while its memo only grows."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, start: int, budget: Budget) -> None:
        super().__init__(data, vocabulary, start, budget)
        self._open: set[int] = set()  # how deep marks are above which a block was taken
        self._cells: dict[bytes, Cell] = {}
        self._grows = True

    def get(self, place: int) -> None:
        """Take the run that begins with this instruction, or push the value of a place."""
        start = self.position - (2 if place < 1 << 8 else 5)
        if self.data.startswith(_BEGIN, self.position) and self._take_run(start):
            return
        super().get(place)
        if self.stack[-1] is _TAKEN:
            raise IrregularError

    def put(self, place: int) -> None:
        """Remember the topmost value in a place of the memo, which may have another."""
        self._grows = False
        super().put(place)

    def pop_mark(self) -> list[Any]:
        """Take all values above the topmost mark, which go where blocks went that were there."""
        depth = len(self.below)
        if depth in self._open:
            self._open.remove(depth)
            if self.data[self.position - 1] not in b"eu":
                raise IrregularError
        return super().pop_mark()

    def _take_run(self, start: int) -> bool:
        """Put the rows that begin at a place where they belong; return whether there are some."""
        target = self.below[-1][-1] if self.below and self.below[-1] else None
        step = 1 if type(target) is list else 2
        if not (self._grows and isinstance(target, (list, Items))) or len(self.stack) % step:
            return False
        rows, stop = self._rows(start, step)
        records = [self._record(row) for row in rows[:step]]
        if len(rows) < _LEAST or None in records:
            return False
        cells, memo, before = self._cells, self.memo, len(self.memo)
        made: list[list[object]] = []
        for row in rows:
            memo += _TAKEN, _TAKEN  # the record and its dict
            values = []
            for data in row[2::2]:
                if data is None:
                    break
                value, kept = cells.get(data) or self._cell(data)
                values.append(value)
                memo += kept
            made.append(values)
        self.cost += PLACE * (len(self.memo) - before) + step * _BLOCK_COST + _ROW_COST * len(rows)
        blocks = [
            _block(*record, made[number::step])
            for number, record in enumerate(records)
            if record is not None
        ]
        if isinstance(target, list):
            target += [*self.stack, *blocks]
        else:
            target.add([*self.stack, *blocks])
        self.stack.clear()
        self._open.add(len(self.below))
        self.position = stop
        return True

    def _rows(self, start: int, step: int) -> tuple[list[Row], int]:
        """Return the rows of one class, or of two in turn, and where they end."""
        rows: list[Row] = []
        ends = [start]
        kinds: list[object] = []
        for match in itertools.islice(_ROW.finditer(self.data, start), _MOST):
            row = match.groups()
            kind = row[0], row[1::2]
            if len(kinds) < step:
                kinds.append(kind)
            if row[0] is None or kind != kinds[len(rows) % step]:
                break
            rows.append(row)
            ends.append(match.end())
        count = len(rows) // step * step
        return rows[:count], ends[count]

    def _record(self, row: Row) -> tuple[str, Sequence[str]] | None:
        """Return which record a row is, and its fields; None where that is for the machine."""
        words = [self._cell(one)[0] for one in (row[0], *row[1::2]) if one is not None]
        call = self.vocabulary.calls.get(str(words[0])) if type(words[0]) is Global else None
        record = None if call is None or call.most else call.make()
        names = [word for word in words[1:] if type(word) is str]
        is_plain = len(set(names)) == len(words) - 1
        return (record.kind, names) if type(record) is Record and is_plain else None

    def _cell(self, data: bytes) -> Cell:
        """Return what instructions push, and what they remember; nothing else comes of them."""
        if data in self._cells:
            return self._cells[data]
        if data[0] == _SHORT_TEXT and data[1] != len(data) - 3:
            raise IrregularError
        if len(self._cells) >= _MOST_CELLS:
            self.budget.release_bytes(_CELL_COST * len(self._cells))
            self._cells.clear()
        self.budget.charge_bytes(_CELL_COST)
        outside, before = (self.data, self.position), len(self.memo)
        self.data, self.position = data, 0
        while self.position < len(data):
            INSTRUCTIONS[self.byte()](self)
        self.data, self.position = outside
        cell = self.stack.pop(), tuple(self.memo[before:])
        del self.memo[before:]
        if cell[1] and type(cell[0]) not in (str, tuple):  # it may be changed
            raise IrregularError
        self._cells[data] = cell
        return cell


def _block(kind: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Block:
    columns = map(list, zip(*rows, strict=True))
    return Block(kind, dict(zip(names, columns, strict=True)), len(rows))
