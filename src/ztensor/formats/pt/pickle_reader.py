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
from ztensor.formats.pt.pickle_machine import (
    BATCH,
    CALL,
    DICT,
    GLOBAL,
    LIST,
    MARK,
    NUMBER,
    PLACE,
    TUPLE,
    Machine,
)
from ztensor.formats.pt.pickled import Items, Vocabulary
from ztensor.limits import Budget

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Instruction = Callable[[Machine], object]

_STOP = ord(".")
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
    return follow(Machine(data, vocabulary, start, budget), least, INSTRUCTIONS)


def follow(
    machine: Machine, least: int, instructions: Sequence[Instruction | None]
) -> tuple[object, int]:
    """Return the value that a machine's pickle leaves, and where in its bytes the pickle ends.

    Args:
        machine: one at the beginning of its pickle.
        least: as many instructions may be there, where the caps allow fewer.
        instructions: what is done, by code.

    Raises:
        ZTensorError: what `read_pickle` raises.
    """
    data, end = machine.data, len(machine.data)
    most = max(least, machine.budget.limits.manifest_bytes // _BYTES_PER_STEP)
    for _ in range(most):
        position = machine.position
        if position >= end:
            raise machine.cut()
        code = data[position]
        machine.position = position + 1
        if code == _STOP:
            return machine.finished(), machine.position
        instruction = instructions[code]
        if instruction is None:
            raise machine.broken("an instruction is unknown", bytes((code,)))
        instruction(machine)
        machine.cost += _COSTS[code]
        if machine.cost > BATCH:
            machine.settle()
    raise LimitError(
        "the pickle has more instructions than Limits.manifest_bytes allows",
        reason=Reason.LIMIT_MANIFEST,
        expected=f"at most {most}",
    )


_U16, _U32, _U64 = (struct.Struct(form) for form in ("<H", "<I", "<Q"))
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _pushes(make: Callable[[Machine], object]) -> Instruction:
    def instruction(machine: Machine) -> None:
        value = make(machine)  # may give back the stack under a mark
        machine.stack.append(value)

    return instruction


def _long_text(machine: Machine) -> int:
    return machine.decimal(machine.line().removesuffix(b"L"))


# By code: protocol 0 and 1 first, what later ones added below.
_TABLE: Mapping[str, Instruction] = {
    "(": Machine.mark,
    "0": Machine.drop,
    "1": Machine.pop_mark,
    "2": _pushes(Machine.top),
    "F": _pushes(Machine.decimal_float),
    "I": _pushes(Machine.decimal_or_flag),
    "L": _pushes(_long_text),
    "S": _pushes(Machine.quoted),
    "V": _pushes(Machine.escaped),
    "N": lambda m: m.stack.append(None),
    "J": lambda m: m.stack.append(m.number(_I32)),
    "K": lambda m: m.stack.append(m.byte()),
    "M": lambda m: m.stack.append(m.number(_U16)),
    "G": lambda m: m.stack.append(m.number(_F64)),
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
    "}": lambda m: m.stack.append(Items()),
    "l": _pushes(Machine.pop_list),
    "]": lambda m: m.stack.append([]),
    "t": _pushes(lambda m: tuple(m.pop_mark())),
    ")": lambda m: m.stack.append(()),
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
    "\x88": lambda m: m.stack.append(True),
    "\x89": lambda m: m.stack.append(False),
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
INSTRUCTIONS: list[Instruction | None] = [_TABLE.get(chr(code)) for code in range(256)]

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
