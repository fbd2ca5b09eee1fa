"""The pickle `.metadata`, its long runs of records as columns.

What a pickle does is told by the machine of `pt`; here it takes a run where one begins.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ztensor.foreign.dcp.columns import Columns
from ztensor.foreign.dcp.memo import IrregularError, Memo
from ztensor.foreign.pt.pickle_machine import Machine
from ztensor.foreign.pt.pickle_reader import INSTRUCTIONS, follow

if TYPE_CHECKING:
    from ztensor.foreign.pt.pickled import Vocabulary
    from ztensor.limits import Budget

_U32 = struct.Struct("<I")
_GET, _GET_LONG = ord("h"), ord("j")
_NEW = b")\x81"  # makes an instance of the class that was got


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
    return follow(machine, least, instructions)


class _Machine(Machine):
    """A pickle whose runs of records are taken as columns while its memo only grows."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, budget: Budget) -> None:
        super().__init__(data, vocabulary, 0, budget)
        self._places = Memo(self.memo)
        self._columns: Columns | None = Columns(self, self._places)

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
