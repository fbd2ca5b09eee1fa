"""The pickle `.metadata`, its long runs of records as columns.

The machine of `pt` executes a pickle, one instruction at a time. Current picklers write records of
few short fields in a single form: a regular expression finds runs of such records, which become one
`Block` in their list or dict. The machine still executes each field, but once for all fields of the
same bytes.

No other part of the pickle may refer to a record in a block. If one does, or the pickle is wrong in
any way, it has to be read again without columns.
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

_NEW = rb"\)\x81\x94\}\x94\("  # an instance of a class from the memo, a dict and a mark
_REFERENCE = rb"(?:h.|j.{4})"
_NUMBER = rb"(?:K.|M..|J.{4}|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}))"
# A tuple of numbers, and a call with it.
_AXES = rb"%s(?:\)|\(%s{1,8}t\x94|%s{1,3}[\x85-\x87]\x94)\x85\x94R\x94" % (
    _REFERENCE,
    _NUMBER,
    _NUMBER,
)
# The end is a guess: in UTF-8 the byte may be part of a letter. `_cell` checks it.
_TEXT = rb"\x8c.[^\x94]{0,255}+\x94"
_FIELD = rb"(%s)((?>N|%s|%s|%s|%s))" % (_REFERENCE, _NUMBER, _TEXT, _AXES, _REFERENCE)
# The empty alternative makes each search try one position only.
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
    """Consecutive records of one class, in a list or as keys or values of a dict.

    Attributes:
        kind: the class, without its module.
        columns: the values of each field by its name, `count` of them.
        count: number of records.
    """

    kind: str
    columns: dict[str, list[object]]
    count: int


class _Taken:
    """Stands in the memo for a record that is in a block."""


_TAKEN = _Taken()


def read_columns(
    data: bytes, vocabulary: Vocabulary, budget: Budget, *, least: int = 0
) -> tuple[object, int]:
    """Return the value of a pickle and its end; see `pickle_reader.read_pickle`.

    Long runs of records in lists and dicts are `Block`s.

    Raises:
        IrregularError: the pickle has to be read without columns.
        ZTensorError: as `read_pickle` raises; except for a `LimitError`, the columns may be the
            reason.
    """
    return follow(_Machine(data, vocabulary, 0, budget), least)


class _Machine(Machine):
    """Reads runs of records as columns, as long as the memo only grows."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, start: int, budget: Budget) -> None:
        super().__init__(data, vocabulary, start, budget)
        self._open: set[int] = set()  # depths of the marks above which a block was read
        self._cells: dict[bytes, Cell] = {}
        self._grows = True

    def get(self, place: int) -> None:
        """Read the run of records that begins here, or push the value of a memo place."""
        start = self.position - (2 if place < 1 << 8 else 5)
        if self.data.startswith(_BEGIN, self.position) and self._take_run(start):
            return
        super().get(place)
        if self.stack[-1] is _TAKEN:
            raise IrregularError

    def put(self, place: int) -> None:
        """Put the topmost value into a place of the memo, which may hold another."""
        self._grows = False
        super().put(place)

    def pop_mark(self) -> list[Any]:
        """Pop the values above the topmost mark, which belong to the list or dict of its blocks."""
        depth = len(self.below)
        if depth in self._open:
            self._open.remove(depth)
            if self.data[self.position - 1] not in b"eu":
                raise IrregularError
        return super().pop_mark()

    def _take_run(self, start: int) -> bool:
        """Append the run of records at `start` to its list or dict; return whether there is one."""
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
        """Return the rows of one class, or of two classes in turn, and their end."""
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
        """Return class and field names of a row; None if only the machine can read it."""
        words = [self._cell(one)[0] for one in (row[0], *row[1::2]) if one is not None]
        call = self.vocabulary.calls.get(str(words[0])) if type(words[0]) is Global else None
        record = None if call is None or call.most else call.make()
        names = [word for word in words[1:] if type(word) is str]
        is_plain = len(set(names)) == len(words) - 1
        return (record.kind, names) if type(record) is Record and is_plain else None

    def _cell(self, data: bytes) -> Cell:
        """Execute the instructions of one field; return its value and its entries of the memo."""
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
