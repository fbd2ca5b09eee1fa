"""Rows of a long table in a pickle: a record of two or three short fields, taken in one step.

Half a million chunks of a checkpoint are a million such records, each some twenty instructions of
which nothing but a few numbers differs. What is here leaves the machine as these instructions
would, with the same values in the same places of the memo and the same price; what does not match
is left to them. Values are told by their bytes, so that what is there again is not made again.
"""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from ztensor.errors import ZTensorError
from ztensor.foreign.pt.pickle_machine import (
    CALL,
    DICT,
    FIRST_PAIR,
    NUMBER,
    PAIR,
    PLACE,
    ROUNDED,
    TUPLE,
)
from ztensor.foreign.pt.pickled import Buildable, Items

if TYPE_CHECKING:
    from collections.abc import Callable

    from ztensor.foreign.pt.pickle_machine import Machine

# As the newest picklers write them: a value of the memo, a number, a text, and a call of a value of
# the memo with a tuple of numbers, all of which is remembered: a `torch.Size`.
_GET = rb"(?:h.|j.{4})"
_NUMBER = rb"(?:K.|M..|J.{4}|\x8a\x05.{5})"
_TEXT = rb"\x8c.[^\x94]{0,255}\x94"
_TUPLED = rb"(?:" + _NUMBER + rb"){1,3}[\x85-\x87]\x94\x85\x94R\x94"
_VALUE = rb"|".join((_GET + _TUPLED, _GET, _NUMBER, _TEXT, rb"N"))
_PAIR = rb"(" + _GET + rb")(" + _VALUE + rb")"
_BEGIN, _END = rb"\)\x81\x94\}\x94\(", rb"ub"
_ROW = re.compile(
    rb"(" + _GET + rb")" + _BEGIN + 2 * _PAIR + rb"(?:" + _PAIR + rb")?" + _END, re.DOTALL
)
_NUMBERS = re.compile(_NUMBER, re.DOTALL)
_U16, _U32, _I32 = (struct.Struct(form) for form in ("<H", "<I", "<i"))
_TUPLES = {1: 0x85, 2: 0x86, 3: 0x87}
_MOST_TOLD = 1 << 14  # values that are remembered by their bytes
_MOST_FORMS = 64
_LONG_BYTES = 7  # of a number of more than 32 bits, as it is written
# A class of the memo, its call with nothing, a dict and a mark, all but the mark remembered; then
# the pairs are set, which takes the mark, and the dict is given to the record.
_ROW_COST = 7 * PLACE + 2 * CALL + DICT + FIRST_PAIR
_PAIR_COST = PAIR + 3 * PLACE


class _Told(NamedTuple):
    """What bytes of the pickle stand for.

    Attributes:
        value: it.
        remembered: what goes to the memo on the way.
        cost: its price.
    """

    value: Any
    remembered: tuple[Any, ...]
    cost: int


class _Form(NamedTuple):
    """What rows of one kind have in common.

    Attributes:
        pattern: matches a row; its groups are the values.
        make: makes the record.
        names: the keys, three of them, of which the last may be none.
        cost: the price of a row beside that of its values.
    """

    pattern: re.Pattern[bytes]
    make: Callable[[], object]
    names: tuple[Any, ...]
    cost: int


class Rows:
    """Takes rows of a pickle whose memo only grows.

    Args:
        machine: the pickle that is being read.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._told: dict[bytes, _Told] = {}
        self._forms: dict[bytes, _Form] = {}

    def take(self, position: int, after: int) -> tuple[object, int, int] | None:
        """Return the record that begins at a place, where that ends, and its price.

        None where it is none of these, and the instructions are followed one by one.

        Args:
            position: where its class is got from the memo.
            after: where that instruction ends.

        Raises:
            ZTensorError: what following the instructions raises.
        """
        data, told = self._machine.data, self._told
        kind = data[position:after]
        form = self._forms.get(kind)
        match = None if form is None else form.pattern.match(data, after)
        if form is None or match is None:
            form = self._form(position, kind)
            match = None if form is None else form.pattern.match(data, after)
            if form is None or match is None:
                return None
        flat: list[Any] = []
        remembered: list[Any] = []
        cost = form.cost
        for name, part in zip(form.names, match.groups(), strict=True):
            found = told.get(part) or self._tell(part)
            if found is None:
                return None
            flat += (name, found.value)
            remembered += found.remembered
            cost += found.cost
        record = form.make()
        if type(record) is Items or not isinstance(record, Buildable):
            return None
        items = Items(flat)
        record.build(items)
        self._machine.memo.plain += (record, items, *remembered)
        return record, match.end(), cost

    def _form(self, position: int, kind: bytes) -> _Form | None:
        """Return how rows are that begin as one does; None where it is no such row."""
        machine = self._machine
        match = _ROW.match(machine.data, position)
        if match is None or len(self._forms) >= _MOST_FORMS:
            return None
        target = self._tell(kind)
        call = None if target is None else machine.calls.get(id(target.value))
        if call is None or call.becomes_plain or call.least:
            return None
        parts = [part for part in match.groups()[1:] if part is not None]
        names = [self._tell(name) for name in parts[::2]]
        if None in names:
            return None
        pattern = b"".join(
            re.escape(name) + b"(" + _like(value) + b")"
            for name, value in zip(parts[::2], parts[1::2], strict=True)
        )
        form = self._forms[kind] = _Form(
            re.compile(_BEGIN + pattern + _END, re.DOTALL),
            call.make,
            tuple(name.value for name in names if name is not None),
            _ROW_COST + len(names) * _PAIR_COST,
        )
        return form

    def _tell(self, part: bytes) -> _Told | None:
        """Return what bytes stand for; None where the instructions tell."""
        found = self._made(part)
        if found is not None:
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told[part] = found
        return found

    def _made(self, part: bytes) -> _Told | None:
        machine, code = self._machine, part[:1]
        if code == b"N":
            return _Told(None, (), PLACE)
        if code == b"\x8c":
            if part[1] != len(part) - 3:
                return None
            try:
                text = part[2:-1].decode()
            except UnicodeDecodeError:
                return None  # who follows the instructions is told where
            return _Told(text, (text,), sys.getsizeof(text) + ROUNDED + 2 * PLACE)
        if code not in b"hj":
            return _Told(_number(part), (), _number_cost(part))
        place, after = (part[1], 2) if code == b"h" else (_U32.unpack_from(part, 1)[0], 5)
        if place >= machine.memo.count:
            return None
        value = machine.memo.get(place)
        if len(part) == after:
            return _Told(value, (), PLACE)
        call = machine.calls.get(id(value))
        numbers = _NUMBERS.findall(part, after, len(part) - 6)
        if (
            call is None
            or call.becomes_plain
            or not call.least <= 1 <= call.most
            or part[-6] != _TUPLES[len(numbers)]
        ):
            return None
        given = tuple(map(_number, numbers))
        try:
            made = call.make(given)
        except ZTensorError:
            return None
        if not isinstance(made, tuple):
            return None
        cost = 7 * PLACE + 2 * TUPLE + CALL + sum(map(_number_cost, numbers))
        return _Told(made, (given, (given,), made), cost)


def _like(value: bytes) -> bytes:
    """Return a pattern for a value of the same sort: as narrow as it can be is found sooner."""
    code = value[:1]
    if code == b"\x8c":
        return _TEXT
    if code not in b"hj":
        return rb"N" if code == b"N" else _NUMBER
    after = 2 if code == b"h" else 5
    return _GET if len(value) == after else re.escape(value[:after]) + _TUPLED


def _number(part: bytes) -> int:
    code = part[0]
    if code == ord("K"):
        return part[1]
    if code == ord("M"):
        return int(_U16.unpack_from(part, 1)[0])
    if code == ord("J"):
        return int(_I32.unpack_from(part, 1)[0])
    return int.from_bytes(part[2:], "little", signed=True)


def _number_cost(part: bytes) -> int:
    if part[0] == ord("K"):
        return PLACE
    return (NUMBER if len(part) < _LONG_BYTES else sys.getsizeof(1 << 32) + ROUNDED) + PLACE
