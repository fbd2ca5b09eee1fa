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

import struct
from typing import TYPE_CHECKING

from ztensor.errors import LimitError, Reason
from ztensor.foreign.pt.pickle_machine import (
    BATCH,
    CALL,
    DICT,
    FIRST_PAIR,
    GLOBAL,
    LIST,
    MARK,
    NUMBER,
    PAIR,
    PLACE,
    SHORT,
    TUPLE,
    Machine,
)
from ztensor.foreign.pt.pickle_rows import Rows
from ztensor.foreign.pt.pickled import Buildable, Items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ztensor.foreign.pt.pickled import Vocabulary
    from ztensor.limits import Budget

_STOP = ord(".")
# Those that a long table has most of.
_MEMOIZE, _GET, _GET_LONG, _BYTE, _SHORT_INT = 0x94, ord("h"), ord("j"), ord("K"), ord("M")
_OPEN, _EMPTY_TUPLE, _EMPTY_DICT, _LONE_TUPLE, _PAIR_TUPLE = *b"()}", 0x85, 0x86
_CALL, _CALL_NEW, _BUILD, _SET_ITEMS = ord("R"), 0x81, ord("b"), ord("u")
_LONGEST = 7  # bytes of one of them, and of two that follow it
_PUTS = frozenset(b"pqr")
_BYTES_PER_STEP = 64  # of Limits.manifest_bytes, for each instruction: 16 million by default


def read_pickle(
    data: bytes,
    vocabulary: Vocabulary,
    budget: Budget,
    *,
    start: int = 0,
    least: int = 0,
    by_columns: bool = False,
) -> tuple[object, int]:
    """Return the value of a pickle, and where in `data` the pickle ends.

    Args:
        data: bytes with the pickle; what follows it is not looked at.
        vocabulary: what it may call.
        budget: what listing the file may cost, and the caps in force.
        start: where the pickle begins.
        least: as many instructions may be there, where the caps allow fewer.
        by_columns: let long runs of records be `Block`s, in lists and, of keys and of values, in
            dicts.

    Returns:
        None, bool, int, float, str, bytes, tuple, list, `Items`, `Global`, or what the vocabulary
        makes. Sets are lists. Text of Python 2 is str where it is UTF-8, else bytes.

    Raises:
        FormatError: it is no pickle; the reason is `truncated` where `data` ends too early.
        UnsupportedError: it calls what the vocabulary does not have.
        LimitError: it has too many instructions, or makes far more than it holds (LIMIT_COST).
        IrregularError: with `by_columns`: it has to be read without.
    """
    most = max(least, budget.limits.manifest_bytes // _BYTES_PER_STEP)
    return _followed(Machine(data, vocabulary, start, budget), most, by_columns=by_columns)


def _followed(machine: Machine, most: int, *, by_columns: bool) -> tuple[object, int]:
    """Follow at most so many instructions.

    A table of half a million chunks is thirty million of them, nearly all in rows of a few
    forms, which are taken as a whole. Frequent ones are done here where nothing is in the way;
    whatever else is the matter of the table below.
    """
    data, end = machine.data, len(machine.data)
    near = end - _LONGEST  # before it an instruction and its number are there as a whole
    memo, beyond, below = machine.memo.plain, machine.memo_beyond, machine.below
    stack, position, cost = machine.stack, machine.position, 0
    rows: Rows | None = Rows(machine)
    columns = None
    if by_columns:
        from ztensor.foreign.dcp.columns import Columns  # few formats have them

        columns = Columns(machine)
    for _ in range(most):
        if cost > BATCH:
            machine.cost, cost = machine.cost + cost, 0
            machine.settle()
        if position < near:
            code = data[position]
            if code == _MEMOIZE and stack and not beyond:
                memo.append(stack[-1])
                position += 1
                cost += PLACE
                continue
            if code in (_GET_LONG, _GET):
                if code == _GET:
                    place, after = data[position + 1], position + 2
                else:
                    place, after = _U32_AT(data, position + 1)[0], position + 5
                if (
                    rows is not None
                    and data[after + 1] == _CALL_NEW
                    and data[after] == _EMPTY_TUPLE
                    and not beyond
                ):
                    if columns is not None and (behind := columns.take(position)) is not None:
                        position = behind
                        stack = machine.stack
                        continue
                    if (row := rows.take(position, after)) is not None:
                        made, position, price = row
                        stack.append(made)
                        cost += price
                        continue
                if place < len(memo) and place < machine.memo.first:
                    stack.append(memo[place])
                    position = after
                    cost += PLACE
                    continue
            elif code == _BYTE:
                stack.append(data[position + 1])
                position += 2
                continue
            elif code == _SHORT_INT:
                stack.append(data[position + 1] | data[position + 2] << 8)
                position += 3
                cost += NUMBER + PLACE
                continue
            elif code == _OPEN:
                below.append(stack)
                stack = machine.stack = []
                position += 1
                cost += MARK
                continue
            elif code in (_CALL_NEW, _CALL):
                if len(stack) > 1 and (made := machine.made_fast(stack[-2], stack[-1])) is not None:
                    stack.pop()
                    stack[-1] = made
                    position += 1
                    cost += CALL + PLACE
                    continue
            elif code == _BUILD:
                if len(stack) > 1 and type(state := stack[-1]) is Items:
                    target = stack[-2]
                    if isinstance(target, Buildable):
                        stack.pop()
                        position += 1
                        cost += PAIR * len(state) + CALL + PLACE
                        target.build(state)
                        continue
            elif code == _SET_ITEMS:
                count = len(stack)
                if count <= SHORT and not count % 2 and below and below[-1]:
                    target = below[-1][-1]
                    if type(target) is Items:
                        position += 1
                        cost += PLACE * count + (0 if len(target) else FIRST_PAIR) - MARK
                        target.add(stack)
                        stack = machine.stack = below.pop()
                        continue
            elif code == _EMPTY_TUPLE:
                stack.append(())
                position += 1
                cost += PLACE
                continue
            elif code == _PAIR_TUPLE and len(stack) > 1:
                second = stack.pop()
                stack[-1] = stack[-1], second
                position += 1
                cost += TUPLE + PLACE
                continue
            elif code == _LONE_TUPLE and stack:
                stack[-1] = (stack[-1],)
                position += 1
                cost += TUPLE + PLACE
                continue
            elif code == _EMPTY_DICT:
                stack.append(Items())
                position += 1
                cost += DICT + PLACE
                continue
        elif position >= end:
            machine.position = position
            raise machine.cut()
        code = data[position]
        machine.position = position + 1
        machine.cost += cost
        cost = 0
        if code == _STOP:
            return machine.finished(), machine.position
        instruction = _INSTRUCTIONS.get(code)
        if instruction is None:
            raise machine.broken("an instruction is unknown", bytes((code,)))
        if code in _PUTS:
            rows = None  # a place of the memo may be given to another value
        instruction(machine)
        stack, position = machine.stack, machine.position
        machine.cost += _COSTS[code]
        if machine.cost > BATCH:
            machine.settle()
    raise LimitError(
        "the pickle has more instructions than Limits.manifest_bytes allows",
        reason=Reason.LIMIT_MANIFEST,
        expected=f"at most {most}",
    )


_U16, _U32, _U64 = (struct.Struct(form) for form in ("<H", "<I", "<Q"))
_U32_AT = _U32.unpack_from
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _pushes(make: Callable[[Machine], object]) -> Callable[[Machine], None]:
    def instruction(machine: Machine) -> None:
        value = make(machine)  # may give back the stack under a mark
        machine.stack.append(value)

    return instruction


def _long_text(machine: Machine) -> int:
    return machine.decimal(machine.line().removesuffix(b"L"))


# By code: protocol 0 and 1 first, what later ones added below.
_TABLE: Mapping[str, Callable[[Machine], object]] = {
    "(": Machine.mark,
    "0": Machine.drop,
    "1": Machine.pop_mark,
    "2": _pushes(Machine.top),
    "F": _pushes(Machine.decimal_float),
    "I": _pushes(Machine.decimal_or_flag),
    "L": _pushes(_long_text),
    "S": _pushes(Machine.quoted),
    "V": _pushes(Machine.escaped),
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
    "R": Machine.reduce,
    "b": Machine.build,
    "c": _pushes(Machine.read_global),
    "i": Machine.make_instance,
    "o": Machine.make_object,
    "a": lambda m: m.append([m.pop()]),
    "e": lambda m: m.append(m.pop_mark()),
    "s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    "u": lambda m: m.set_items(m.pop_mark()),
    "d": Machine.make_dict,
    "}": _pushes(lambda _: Items()),
    "l": _pushes(Machine.pop_list),
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
    "\x80": Machine.protocol,
    "\x81": Machine.reduce,
    "\x82": Machine.extension,
    "\x83": Machine.extension,
    "\x84": Machine.extension,
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
    "\x92": Machine.new_with_names,
    "\x93": Machine.pop_global,
    "\x94": Machine.put_next,
    "\x95": Machine.frame,
    # Protocol 5
    "\x96": _pushes(lambda m: m.plainer("bytearray", m.held(m.take(m.number(_U64))))),
    "\x97": Machine.out_of_band,
    "\x98": Machine.out_of_band,
}
_INSTRUCTIONS = {ord(code): instruction for code, instruction in _TABLE.items()}

# Bytes of memory that each takes, beside what is counted where it is made.
_COSTS = [0] * 256
for _codes, _cost in (
    ("(", MARK),
    ("FJMG", NUMBER + PLACE),
    ("ILNK2h)\x88\x89gjpqr\x94", PLACE),
    ("]\x8f", LIST + PLACE),
    ("}", DICT + PLACE),
    ("d", DICT + PLACE),
    ("t\x85\x86\x87", TUPLE + PLACE),
    ("c\x93", GLOBAL + PLACE),
    ("PQRiob\x81\x92", CALL + PLACE),
):
    for _code in _codes:
        _COSTS[ord(_code)] = _cost
