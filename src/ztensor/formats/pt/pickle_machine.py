"""The stack machine of pickles: the effect of each instruction, and its memory.

Nothing is imported or executed: calls are looked up in a closed table of functions.
"""

from __future__ import annotations

import re
import struct
import sys
from typing import Any, TypeVar

from ztensor.errors import FormatError, Reason
from ztensor.formats.pt.pickled import (
    Buildable,
    Call,
    Global,
    Items,
    Vocabulary,
    kind_of,
    misfit,
    refused,
)
from ztensor.limits import Budget

_Long = TypeVar("_Long", str, bytes, int)

_NUMBER_BYTES = 100  # of an integer written as decimal text: int() is quadratic
_MEMO_MOST = 1 << 32
# In bytes of memory: a place on the stack or in a container; a mark; an empty list, tuple and dict;
# the first pair of a dict, and each pair; the result of a call without copies of its arguments.
PLACE, MARK, LIST, TUPLE, DICT = 11, 120, 112, 64, 56
_FIRST_PAIR, _PAIR, CALL, GLOBAL, NUMBER = 64, 96, 112, 64, 32
_PLACE_BEYOND = 192  # a place in the memo after a gap
_MOST_CALLS = 256  # cached calls
BATCH = 1 << 16  # charged at once; shorter values are charged after they are made
_SHORT = 16  # members of a tuple included in the price of a call
_ROUNDED = 8  # bytes by which an allocation may exceed its size
_WORST = 12  # bytes of memory for a byte of text while it is decoded
# Escapes that `repr` of Python 2 writes.
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_NEWEST_PROTOCOL = 5
_U64 = struct.Struct("<Q")


class Machine:
    """A pickle that is being read; `pickle_reader.py` executes its instructions."""

    def __init__(self, data: bytes, vocabulary: Vocabulary, start: int, budget: Budget) -> None:
        self.data = data
        self.budget = budget
        self.position = self.start = start
        self.vocabulary = vocabulary
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks below the marks
        self.memo: list[Any] = []
        self.memo_beyond: dict[int, Any] = {}  # after a gap: a pickler of Python 2 begins at 1
        self.calls: dict[int, Call] = {}  # cached, by the `id` of the name
        self.held_globals: list[Global] = []  # these names, so that each `id` stays valid
        self.cost = 0  # bytes of memory to be charged

    def finished(self) -> object:
        """Return the one value on the stack.

        Raises:
            FormatError: there is not exactly one.
        """
        if self.below or len(self.stack) != 1:
            raise self.broken("a pickle leaves one value", f"{len(self.stack)} on the stack")
        self.settle()
        self.budget.release_bytes(
            PLACE * len(self.memo) + (PLACE + _PLACE_BEYOND) * len(self.memo_beyond)
        )
        return self.stack[0]

    def settle(self) -> None:
        """Charge the cost of the instructions since the last call."""
        self.budget.charge_bytes(self.cost)
        self.cost = 0

    def _require_room(self, nbytes: int) -> None:
        """Raise unless the budget allows `nbytes` for a moment.

        Raises:
            LimitError: it does not.
        """
        if nbytes > BATCH:
            self.budget.charge_bytes(nbytes)
            self.budget.release_bytes(nbytes)

    def counted(self, value: _Long) -> _Long:
        """Return a value after adding its memory to the cost."""
        self.cost += sys.getsizeof(value) + _ROUNDED + PLACE
        return value

    def broken(self, message: str, found: object) -> FormatError:
        """Return the error for an invalid pickle."""
        return FormatError(
            f"the pickle is broken: {message}",
            reason=Reason.ENCODING_MALFORMED,
            found=f"{kind_of(found)} before byte {self.position - self.start}",
        )

    def cut(self) -> FormatError:
        """Return the error for a pickle that ends too early."""
        return FormatError(
            "the pickle ends too early",
            reason=Reason.TRUNCATED,
            found=f"{len(self.data) - self.start} bytes",
        )

    # --- Reading arguments ------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes of the pickle."""
        if count < 0:
            raise self.broken("a length is negative", count)
        stop = self.position + count
        if stop > len(self.data):
            raise self.cut()
        self._require_room(_WORST * count)
        taken = self.data[self.position : stop]
        self.position = stop
        return taken

    def number(self, record: struct.Struct) -> Any:
        """Return the next number, by its record."""
        start = self.position
        self.position += record.size
        return record.unpack_from(self.data, start)[0]

    def byte(self) -> int:
        """Return the next byte as a number."""
        self.position += 1
        return self.data[self.position - 1]

    def line(self) -> bytes:
        """Return the bytes up to the end of the line."""
        stop = self.data.find(b"\n", self.position)
        if stop < 0:
            raise self.cut()
        self._require_room(_WORST * (stop - self.position))
        taken = self.data[self.position : stop]
        self.position = stop + 1
        return taken

    def text(self, data: bytes) -> str:
        """Return UTF-8 as text, its memory counted."""
        return self.counted(data.decode("utf-8"))

    def long(self, data: bytes) -> int:
        """Return an integer of little-endian bytes, its memory counted."""
        return self.counted(int.from_bytes(data, "little", signed=True))

    def decimal(self, digits: bytes) -> int:
        """Return an integer in decimal digits."""
        if len(digits) > _NUMBER_BYTES:
            raise self.broken("a number is too long", f"{len(digits)} digits")
        return self.counted(int(digits))

    # --- The stack --------------------------------------------------------------------------

    def push(self, value: object) -> None:
        """Put a value on the current stack, which `pop_mark` replaces."""
        self.stack.append(value)

    def pop_mark(self) -> list[Any]:
        """Pop the topmost mark and all values above it."""
        items, self.stack = self.stack, self.below.pop()
        self._require_room(2 * PLACE * len(items))  # while they are copied
        self.cost -= MARK
        return items

    def pop_list(self) -> list[Any]:
        """Pop the same as a list that is kept."""
        self.cost += LIST
        return self.pop_mark()

    def pop_tuple(self) -> tuple[Any, ...]:
        """Pop the topmost value, which must be a tuple."""
        value = self.stack.pop()
        if not isinstance(value, tuple):
            raise self.broken("arguments are a tuple", value)
        return value

    # --- Calls ------------------------------------------------------------------------------

    def charge(self, values: tuple[Any, ...]) -> None:
        """Add the memory of values that a call may copy: a value may be passed to many calls."""
        cost = 0
        for value in values:
            if isinstance(value, (str, bytes)):
                cost += 2 * sys.getsizeof(value)
            elif isinstance(value, tuple) and len(value) > _SHORT:
                cost += PLACE * len(value)
            elif isinstance(value, (list, Items)):
                cost += _PAIR * len(value)
        self.cost += cost
        if self.cost > BATCH:
            self.settle()

    def call(self, target: Any, values: tuple[Any, ...]) -> object:
        """Return the result of calling a name, which must be in the table."""
        allowed = self.calls.get(id(target))
        if allowed is None:
            allowed = self.vocabulary.calls.get(str(target)) if isinstance(target, Global) else None
            if allowed is None:
                raise refused(target)
            if len(self.calls) < _MOST_CALLS:
                self.held_globals.append(target)
                self.calls[id(target)] = allowed
        if not allowed.least <= len(values) <= allowed.most:
            raise misfit(
                f"a call of {target}",
                f"{allowed.least} to {allowed.most} arguments",
                len(values),
                is_type=False,
            )
        if values:
            self.charge(values)
        if allowed.becomes_plain:
            self.vocabulary.plainer(allowed.becomes_plain)
        made = allowed.make(*values)
        if isinstance(made, Items):
            self.cost += _PAIR * len(made)
        return made

    def plainer(self, kind: str, value: object) -> object:
        """Return a value, and report that the pickle has a richer kind."""
        self.vocabulary.plainer(kind)
        return value

    def reduce(self) -> None:
        """Call the name below a tuple with the members of the tuple."""
        values = self.pop_tuple()
        self.stack.append(self.call(self.stack.pop(), values))

    def new_with_names(self) -> None:
        """Do the same below a dict of keyword arguments, which must be empty."""
        names, values = self.stack.pop(), self.pop_tuple()
        target = self.stack.pop()
        if not isinstance(names, Items) or len(names):
            raise refused(target)  # no call in our table has keyword arguments
        self.stack.append(self.call(target, values))

    def make_instance(self) -> None:
        """Call a name of two lines with the values above the mark."""
        target = self.read_global()
        values = tuple(self.pop_mark())
        self.stack.append(self.call(target, values))

    def make_object(self) -> None:
        """Call the first value above the mark with the others."""
        items = self.pop_mark()
        self.stack.append(self.call(items[0], tuple(items[1:])))

    def build(self) -> None:
        """Set the topmost value as the state of the value below it."""
        state, target = self.stack.pop(), self.stack[-1]
        if not isinstance(target, Buildable):
            raise refused(target)
        self.charge(state if isinstance(state, tuple) and len(state) < 16 else (state,))
        target.build(state)

    def persistent(self, saved_id: object) -> None:
        """Push the object of a persistent id."""
        self.charge(saved_id if isinstance(saved_id, tuple) else (saved_id,))
        self.stack.append(self.vocabulary.persistent(saved_id))

    def read_global(self) -> Global:
        """Return a name of two lines."""
        module = self.text(self.line())
        return Global(module, self.text(self.line()))

    def pop_global(self) -> None:
        """Push the name of the two topmost texts."""
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise self.broken("a name is not text", name if isinstance(module, str) else module)
        self.stack.append(Global(module, name))

    # --- Containers -------------------------------------------------------------------------

    def append(self, values: list[Any]) -> None:
        """Append values to the topmost list."""
        target = self.stack[-1]
        if not isinstance(target, list):
            raise self.broken("values are appended to another type than list", target)
        target.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Set keys and values in turn in the topmost dict."""
        target = self.stack[-1]
        if not isinstance(target, Items):
            raise self.broken("items are set in another type than dict", target)
        if len(values) % 2:
            raise self.broken("a key without a value", f"{len(values)} values")
        self.cost += PLACE * len(values) + (0 if len(target) else _FIRST_PAIR)
        self._require_room(self.cost)
        target.add(values)

    def make_dict(self) -> None:
        """Push a dict of the values above the mark."""
        values = self.pop_mark()
        self.stack.append(Items())
        self.set_items(values)

    def make_tuple(self, count: int) -> None:
        """Push a tuple of the topmost values."""
        stack = self.stack
        if len(stack) < count:
            raise self.broken("too few values on the stack", f"a tuple of {count}")
        stack[-count:] = [tuple(stack[-count:])]

    # --- Texts and numbers ------------------------------------------------------------------

    def old_text(self, data: bytes) -> str | bytes:
        """Return a string of Python 2: text if it is UTF-8, else bytes."""
        try:
            return self.counted(data.decode("utf-8"))
        except UnicodeDecodeError:
            return self.counted(data)

    def quoted(self) -> str | bytes:
        """Return a quoted string of a line."""
        line = self.line().strip()
        if len(line) < 2 or line[:1] not in (b"'", b'"') or line[-1:] != line[:1]:
            raise self.broken("unquoted string", line)
        return self.old_text(_unescaped(line[1:-1]))

    def escaped(self) -> str:
        """Return text with escapes of a line."""
        line = self.line().decode("raw-unicode-escape")
        return self.counted(line.encode("utf-8").decode("utf-8"))  # raises for a lone surrogate

    def decimal_or_flag(self) -> int | bool:
        """Return an integer in digits, or a bool of protocol 1."""
        line = self.line()
        return line == b"01" if line in (b"00", b"01") else self.decimal(line)

    # --- The memo and the stack's marks -----------------------------------------------------

    def put(self, place: int) -> None:
        """Store the topmost value at a place of the memo."""
        count = len(self.memo)
        if place == count:
            self.memo.append(self.stack[-1])
            if self.memo_beyond:
                self.memo_beyond.pop(place, None)
        elif 0 <= place < count:
            self.memo[place] = self.stack[-1]
        elif count < place < _MEMO_MOST:
            if place not in self.memo_beyond:
                self.cost += _PLACE_BEYOND
            self.memo_beyond[place] = self.stack[-1]
        else:
            raise self.broken("place in the memo out of range", place)

    def put_next(self) -> None:
        """Store the topmost value at the next place of the memo."""
        if self.stack and not self.memo_beyond:
            self.memo.append(self.stack[-1])
        else:
            self.put(len(self.memo) + len(self.memo_beyond))

    def get(self, place: int) -> None:
        """Push the value at a place of the memo."""
        if 0 <= place < len(self.memo):
            self.stack.append(self.memo[place])
        else:
            self.stack.append(self.memo_beyond[place])

    def mark(self) -> None:
        """Put a mark on the stack."""
        self.below.append(self.stack)
        self.stack = []

    def drop(self) -> None:
        """Pop the topmost value, or a mark."""
        if not self.stack and self.below:
            self.pop_mark()
        else:
            self.stack.pop()

    def protocol(self) -> None:
        """Require a known protocol."""
        if (number := self.byte()) > _NEWEST_PROTOCOL:
            raise self.broken("unknown protocol", number)

    def frame(self) -> None:
        """Require that a frame is inside the pickle."""
        if self.number(_U64) > len(self.data) - self.position:
            raise self.cut()

    def extension(self) -> None:
        """Refuse a code of the extension registry."""
        raise refused("a code of the extension registry")

    def out_of_band(self) -> None:
        """Refuse a buffer outside the pickle."""
        raise refused("a buffer outside the pickle")


def _unescaped(line: bytes) -> bytes:
    """Return a line without its escapes. `re.sub` would keep an object for each until the end."""
    text, position = bytearray(), 0
    for match in _ESCAPE.finditer(line):
        digits, letter = match.groups()
        text += line[position : match.start()]
        text += bytes((int(digits, 16),)) if digits else _ESCAPES.get(letter, letter)
        position = match.end()
    return bytes(text + line[position:])
