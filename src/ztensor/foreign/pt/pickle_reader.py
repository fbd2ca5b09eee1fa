"""Our own restricted pickle reader: it builds plain values and metadata, and runs nothing.

A pickle is a program for a small stack machine, and Python's `pickle` lets it import and call
anything. Here a name in the file stays a name (`Global`): nothing is imported, and what a pickle
calls is looked up in a closed table of functions of ours. A call that is not in the table is
refused by its name. Protocols 0 to 5 are read.

Time is linear in the bytes of the pickle: every instruction takes at least one of them. Memory is
charged to the file's budget: each instruction has a price, and long values cost what they take. No
value of the file is hashed or compared: a dict is a list of pairs (`Items`), a set is a list.
Values may share parts and contain themselves; who walks them charges what is made of them.
"""

from __future__ import annotations

import re
import struct
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from ztensor.errors import FormatError, LimitError, Reason
from ztensor.foreign.pt.pickled import (
    Buildable,
    Global,
    Items,
    Vocabulary,
    kind_of,
    misfit,
    refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.limits import Budget

_Long = TypeVar("_Long", str, bytes, int)

_STOP = ord(".")
_NUMBER_BYTES = 100  # of an integer written as decimal text: int() is quadratic
_MEMO_MOST = 1 << 32
# In bytes: places on the stack and in what a value is put into; a mark, a list, a tuple, a dict of
# nothing; the first pair of a dict, and each; what a call makes beside copies of what it is given.
_PLACE, _MARK, _LIST, _TUPLE, _DICT = 11, 120, 112, 64, 56
_FIRST_PAIR, _PAIR, _CALL, _GLOBAL, _NUMBER = 64, 96, 112, 64, 32
_PLACE_BEYOND = 192  # in the memo, behind a gap
_BATCH = 1 << 16  # charged at once; values that are shorter are charged when they are there
_SHORT = 16  # places of a tuple that are in the price of a call
_ROUNDED = 8  # what memory is rounded up by
_WORST = 12  # bytes that one of a text takes while it is read
# What `repr` of Python 2 writes.
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_NEWEST_PROTOCOL = 5
_BYTES_PER_STEP = 64  # of Limits.manifest_bytes, for each instruction: 16 million by default


def read_pickle(
    data: bytes, vocabulary: Vocabulary, budget: Budget, *, start: int = 0, least: int = 0
) -> tuple[object, int]:
    """Return the value of a pickle, and where in `data` the pickle ends.

    Args:
        data: bytes with the pickle; what follows it is not looked at.
        vocabulary: what it may call.
        budget: what listing the file may cost, and the caps in force.
        start: where the pickle begins.
        least: as many instructions may be there, where the caps allow fewer.

    Returns:
        None, bool, int, float, str, bytes, tuple, list, `Items`, `Global`, or what the vocabulary
        makes. Sets are lists. Text of Python 2 is str where it is UTF-8, else bytes.

    Raises:
        FormatError: it is no pickle; the reason is `truncated` where `data` ends too early.
        UnsupportedError: it calls what the vocabulary does not have.
        LimitError: it has too many instructions, or makes far more than it holds (LIMIT_COST).
    """
    most = max(least, budget.limits.manifest_bytes // _BYTES_PER_STEP)
    return _Machine(data, vocabulary, start, budget).run(most)


class _Machine:
    def __init__(self, data: bytes, vocabulary: Vocabulary, start: int, budget: Budget) -> None:
        self.data = data
        self.budget = budget
        self.position = self.start = start
        self.vocabulary = vocabulary
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks under the marks
        self.memo: list[Any] = []
        self.memo_beyond: dict[int, Any] = {}  # behind a gap: a pickler of Python 2 begins at 1
        self.cost = 0  # bytes of memory that are yet to be charged

    def run(self, most: int) -> tuple[object, int]:
        data, end = self.data, len(self.data)
        for _ in range(most):
            if self.position >= end:
                raise self.cut()
            code = data[self.position]
            self.position += 1
            if code == _STOP:
                return self.finished(), self.position
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise self.broken("an instruction is unknown", bytes((code,)))
            instruction(self)
            self.cost += _COSTS[code]
            if self.cost > _BATCH:
                self.settle()
        raise LimitError(
            "the pickle has more instructions than Limits.manifest_bytes allows",
            reason=Reason.LIMIT_MANIFEST,
            expected=f"at most {most}",
        )

    def finished(self) -> object:
        if self.below or len(self.stack) != 1:
            raise self.broken("a pickle leaves one value", f"{len(self.stack)} on the stack")
        self.settle()
        self.budget.release_bytes(
            _PLACE * len(self.memo) + (_PLACE + _PLACE_BEYOND) * len(self.memo_beyond)
        )
        return self.stack[0]

    def settle(self) -> None:
        """Charge what the instructions cost since the last time."""
        self.budget.charge_bytes(self.cost)
        self.cost = 0

    def require_room(self, nbytes: int) -> None:
        """Raise unless so much may be taken for a moment.

        Raises:
            LimitError: it may not.
        """
        if nbytes > _BATCH:
            self.budget.charge_bytes(nbytes)
            self.budget.release_bytes(nbytes)

    def counted(self, value: _Long) -> _Long:
        """Return a value whose length is the file's, its memory counted."""
        self.cost += sys.getsizeof(value) + _ROUNDED + _PLACE
        return value

    def broken(self, message: str, found: object) -> FormatError:
        return FormatError(
            f"the pickle is broken: {message}",
            reason=Reason.ENCODING_MALFORMED,
            found=f"{kind_of(found)} before byte {self.position - self.start}",
        )

    def cut(self) -> FormatError:
        return FormatError(
            "the pickle ends too early",
            reason=Reason.TRUNCATED,
            found=f"{len(self.data) - self.start} bytes",
        )

    # --- Reading arguments ------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        if count < 0:
            raise self.broken("a length is negative", count)
        stop = self.position + count
        if stop > len(self.data):
            raise self.cut()
        self.require_room(_WORST * count)
        taken = self.data[self.position : stop]
        self.position = stop
        return taken

    def number(self, record: struct.Struct) -> Any:
        start = self.position
        self.position = stop = start + record.size
        if stop > len(self.data):
            raise self.cut()
        return record.unpack_from(self.data, start)[0]

    def byte(self) -> int:
        position = self.position
        if position >= len(self.data):
            raise self.cut()
        self.position = position + 1
        return self.data[position]

    def line(self) -> bytes:
        stop = self.data.find(b"\n", self.position)
        if stop < 0:
            raise self.cut()
        self.require_room(_WORST * (stop - self.position))
        taken = self.data[self.position : stop]
        self.position = stop + 1
        return taken

    def text(self, data: bytes) -> str:
        try:
            return self.counted(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self.broken("text is not UTF-8", data) from error

    def held(self, data: bytes) -> bytes:
        return self.counted(data)

    def long(self, data: bytes) -> int:
        return self.counted(int.from_bytes(data, "little", signed=True))

    def decimal(self, digits: bytes) -> int:
        try:
            if len(digits) <= _NUMBER_BYTES:
                return self.counted(int(digits))
        except ValueError:
            pass
        raise self.broken("a line is no number", digits)

    # --- The stack --------------------------------------------------------------------------

    def pop(self) -> Any:
        if not self.stack:
            raise self.broken("nothing is on the stack", "an instruction that takes a value")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack:
            raise self.broken("nothing is on the stack", "an instruction that uses a value")
        return self.stack[-1]

    def pop_mark(self) -> list[Any]:
        if not self.below:
            raise self.broken("no mark is on the stack", "an instruction that needs one")
        items, self.stack = self.stack, self.below.pop()
        self.require_room(2 * _PLACE * len(items))  # while they are put elsewhere
        self.cost -= _MARK
        return items

    def pop_list(self) -> list[Any]:
        self.cost += _LIST
        return self.pop_mark()

    def pop_tuple(self) -> tuple[Any, ...]:
        value = self.pop()
        if not isinstance(value, tuple):
            raise self.broken("arguments are a tuple", value)
        return value

    # --- Calls ------------------------------------------------------------------------------

    def charge(self, values: tuple[Any, ...]) -> None:
        """Count what a call may copy: shared values can be passed to very many."""
        cost = 0
        for value in values:
            if isinstance(value, (str, bytes)):
                cost += 2 * sys.getsizeof(value)
            elif isinstance(value, tuple) and len(value) > _SHORT:
                cost += _PLACE * len(value)
            elif isinstance(value, (list, Items)):
                cost += _PAIR * len(value)
        self.cost += cost
        if self.cost > _BATCH:
            self.settle()

    def call(self, target: Any, values: tuple[Any, ...]) -> object:
        found = self.vocabulary.calls.get(str(target)) if isinstance(target, Global) else None
        if found is None:
            raise refused(target)
        if not found.least <= len(values) <= found.most:
            raise misfit(
                f"a call of {target}",
                f"{found.least} to {found.most} arguments",
                len(values),
                is_type=False,
            )
        self.charge(values)
        if found.becomes_plain:
            self.vocabulary.plainer(found.becomes_plain)
        made = found.make(*values)
        if isinstance(made, Items):
            self.cost += _PAIR * len(made)
        return made

    def plainer(self, kind: str, value: object) -> object:
        """Return a value, and tell that it was of a richer kind."""
        self.vocabulary.plainer(kind)
        return value

    def reduce(self) -> None:
        values = self.pop_tuple()
        self.stack.append(self.call(self.pop(), values))

    def new_with_names(self) -> None:
        names, values = self.pop(), self.pop_tuple()
        target = self.pop()
        if not isinstance(names, Items) or names.pairs:
            raise refused(target)  # nothing in our table is called with names
        self.stack.append(self.call(target, values))

    def make_instance(self) -> None:
        target = self.read_global()
        values = tuple(self.pop_mark())
        self.stack.append(self.call(target, values))

    def make_object(self) -> None:
        items = self.pop_mark()
        if not items:
            raise self.broken("no class is on the stack", "an instruction that makes an object")
        self.stack.append(self.call(items[0], tuple(items[1:])))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Buildable):
            raise refused(target)
        self.charge(state if isinstance(state, tuple) and len(state) < 16 else (state,))
        target.build(state)

    def persistent(self, saved_id: object) -> None:
        self.charge(saved_id if isinstance(saved_id, tuple) else (saved_id,))
        self.stack.append(self.vocabulary.persistent(saved_id))

    def read_global(self) -> Global:
        module = self.text(self.line())
        return Global(module, self.text(self.line()))

    def pop_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.broken("a name is text", name if isinstance(module, str) else module)
        self.stack.append(Global(module, name))

    # --- Containers -------------------------------------------------------------------------

    def append(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, list):
            raise self.broken("values are appended to a list", target)
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.top()
        if not isinstance(target, Items):
            raise self.broken("items are set in a dict", target)
        if len(values) % 2:
            raise self.broken("a key has no value", f"{len(values)} values")
        self.cost += _PAIR * len(values) // 2 + (_FIRST_PAIR if not target.pairs else 0)
        self.require_room(self.cost)
        target.add(zip(values[::2], values[1::2], strict=True))

    def make_dict(self) -> None:
        values = self.pop_mark()
        self.stack.append(Items())
        self.set_items(values)

    def make_tuple(self, count: int) -> None:
        stack = self.stack
        if len(stack) < count:
            raise self.broken("too little is on the stack", f"a tuple of {count}")
        stack[-count:] = [tuple(stack[-count:])]

    # --- Texts and numbers ------------------------------------------------------------------

    def old_text(self, data: bytes) -> str | bytes:
        try:
            return self.counted(data.decode("utf-8"))
        except UnicodeDecodeError:
            return self.counted(data)

    def quoted(self) -> str | bytes:
        line = self.line().strip()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise self.broken("a string is not quoted", line)
        return self.old_text(_ESCAPE.sub(_unescaped, line[1:-1]))

    def escaped(self) -> str:
        line = self.line()
        try:
            return self.counted(line.decode("raw-unicode-escape").encode("utf-8").decode("utf-8"))
        except UnicodeError as error:
            raise self.broken("text is not written as it must be", line) from error

    def decimal_or_flag(self) -> int | bool:
        line = self.line()
        return line == b"01" if line in (b"00", b"01") else self.decimal(line)

    def decimal_float(self) -> float:
        line = self.line()
        try:
            return float(line)
        except ValueError as error:
            raise self.broken("a line is no number", line) from error

    # --- The memo and the stack's marks -----------------------------------------------------

    def put(self, place: int) -> None:
        count = len(self.memo)
        if place == count:
            self.memo.append(self.top())
            if self.memo_beyond:
                self.memo_beyond.pop(place, None)
        elif 0 <= place < count:
            self.memo[place] = self.top()
        elif count < place < _MEMO_MOST:
            if place not in self.memo_beyond:
                self.cost += _PLACE_BEYOND
            self.memo_beyond[place] = self.top()
        else:
            raise self.broken("a place in the memo is out of range", place)

    def put_next(self) -> None:
        self.put(len(self.memo) + len(self.memo_beyond))

    def get(self, place: int) -> None:
        if 0 <= place < len(self.memo):
            self.stack.append(self.memo[place])
        elif place in self.memo_beyond:
            self.stack.append(self.memo_beyond[place])
        else:
            raise self.broken("nothing is in that place of the memo", place)

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def drop(self) -> None:
        if not self.stack and self.below:
            self.pop_mark()
        else:
            self.pop()

    def protocol(self) -> None:
        if (number := self.byte()) > _NEWEST_PROTOCOL:
            raise self.broken("the protocol is unknown", number)

    def frame(self) -> None:
        if self.number(_U64) > len(self.data) - self.position:
            raise self.cut()

    def extension(self) -> None:
        raise refused("a code of the extension registry")

    def out_of_band(self) -> None:
        raise refused("a buffer outside the pickle")


_U16, _U32, _U64 = (struct.Struct(form) for form in ("<H", "<I", "<Q"))
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _pushes(make: Callable[[_Machine], object]) -> Callable[[_Machine], None]:
    def instruction(machine: _Machine) -> None:
        value = make(machine)  # may give back the stack under a mark
        machine.stack.append(value)

    return instruction


def _unescaped(match: re.Match[bytes]) -> bytes:
    digits, letter = match.groups()
    return bytes((int(digits, 16),)) if digits else _ESCAPES.get(letter, letter)


def _long_text(machine: _Machine) -> int:
    return machine.decimal(machine.line().removesuffix(b"L"))


# By code: protocol 0 and 1 first, what later ones added below.
_TABLE: Mapping[str, Callable[[_Machine], object]] = {
    "(": _Machine.mark,
    "0": _Machine.drop,
    "1": _Machine.pop_mark,
    "2": _pushes(_Machine.top),
    "F": _pushes(_Machine.decimal_float),
    "I": _pushes(_Machine.decimal_or_flag),
    "L": _pushes(_long_text),
    "S": _pushes(_Machine.quoted),
    "V": _pushes(_Machine.escaped),
    "N": _pushes(lambda _: None),
    "J": _pushes(lambda m: m.number(_I32)),
    "K": _pushes(lambda m: m.byte()),
    "M": _pushes(lambda m: m.number(_U16)),
    "G": _pushes(lambda m: m.number(_F64)),
    "T": _pushes(lambda m: m.old_text(m.take(m.number(_I32)))),
    "U": _pushes(lambda m: m.old_text(m.take(m.byte()))),
    "X": _pushes(lambda m: m.text(m.take(m.number(_U32)))),
    "P": lambda m: m.persistent(m.text(m.line())),
    "Q": lambda m: m.persistent(m.pop()),
    "R": _Machine.reduce,
    "b": _Machine.build,
    "c": _pushes(_Machine.read_global),
    "i": _Machine.make_instance,
    "o": _Machine.make_object,
    "a": lambda m: m.append([m.pop()]),
    "e": lambda m: m.append(m.pop_mark()),
    "s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    "u": lambda m: m.set_items(m.pop_mark()),
    "d": _Machine.make_dict,
    "}": _pushes(lambda _: Items()),
    "l": _pushes(_Machine.pop_list),
    "]": _pushes(lambda _: []),
    "t": _pushes(lambda m: tuple(m.pop_mark())),
    ")": _pushes(lambda _: ()),
    "g": lambda m: m.get(m.decimal(m.line())),
    "h": lambda m: m.get(m.byte()),
    "j": lambda m: m.get(m.number(_U32)),
    "p": lambda m: m.put(m.decimal(m.line())),
    "q": lambda m: m.put(m.byte()),
    "r": lambda m: m.put(m.number(_U32)),
    # Protocol 2
    "\x80": _Machine.protocol,
    "\x81": _Machine.reduce,
    "\x82": _Machine.extension,
    "\x83": _Machine.extension,
    "\x84": _Machine.extension,
    "\x85": lambda m: m.make_tuple(1),
    "\x86": lambda m: m.make_tuple(2),
    "\x87": lambda m: m.make_tuple(3),
    "\x88": _pushes(lambda _: True),
    "\x89": _pushes(lambda _: False),
    "\x8a": _pushes(lambda m: m.long(m.take(m.byte()))),
    "\x8b": _pushes(lambda m: m.long(m.take(m.number(_I32)))),
    # Protocol 3
    "B": _pushes(lambda m: m.held(m.take(m.number(_U32)))),
    "C": _pushes(lambda m: m.held(m.take(m.byte()))),
    # Protocol 4
    "\x8c": _pushes(lambda m: m.text(m.take(m.byte()))),
    "\x8d": _pushes(lambda m: m.text(m.take(m.number(_U64)))),
    "\x8e": _pushes(lambda m: m.held(m.take(m.number(_U64)))),
    "\x8f": _pushes(lambda m: m.plainer("set", [])),
    "\x90": lambda m: m.append(m.pop_mark()),
    "\x91": _pushes(lambda m: m.plainer("set", m.pop_list())),
    "\x92": _Machine.new_with_names,
    "\x93": _Machine.pop_global,
    "\x94": _Machine.put_next,
    "\x95": _Machine.frame,
    # Protocol 5
    "\x96": _pushes(lambda m: m.plainer("bytearray", m.held(m.take(m.number(_U64))))),
    "\x97": _Machine.out_of_band,
    "\x98": _Machine.out_of_band,
}
_INSTRUCTIONS = {ord(code): instruction for code, instruction in _TABLE.items()}

# Bytes of memory that each takes, beside what is counted where it is made.
_COSTS = [0] * 256
for _codes, _cost in (
    ("(", _MARK),
    ("FJMG", _NUMBER + _PLACE),
    ("ILNK2h)\x88\x89gjpqr\x94", _PLACE),
    ("]\x8f", _LIST + _PLACE),
    ("}", _DICT + _PLACE),
    ("d", _DICT + _PLACE),
    ("t\x85\x86\x87", _TUPLE + _PLACE),
    ("c\x93", _GLOBAL + _PLACE),
    ("PQRiob\x81\x92", _CALL + _PLACE),
):
    for _code in _codes:
        _COSTS[ord(_code)] = _cost
