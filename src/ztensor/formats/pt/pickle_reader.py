"""A restricted pickle reader: it builds plain values and metadata, and executes nothing.

A pickle is a program for a small stack machine, and Python's `pickle` lets it import and call
anything. Here a name in the file stays a name (`Global`): nothing is imported, and calls are looked
up in a closed table of functions. A call that is not in the table is refused by its name. Protocols
0 to 5 are read.

Time is linear in the length of the pickle, as every instruction has at least one byte. Memory is
charged to the file's budget: each instruction has a price, and long values cost their size. No
value of the file is hashed or compared: a dict is a list of pairs (`Items`), a set is a list.
Values may be shared and contain themselves, so code that walks them charges its results.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ztensor.errors import LimitError, Reason, ZTensorError
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
    from collections.abc import Callable, Mapping

    Instruction = Callable[[Machine], object]

_STOP = ord(".")
_BYTES_PER_STEP = 64  # of Limits.manifest_bytes, for each instruction: 16 million by default


def read_pickle(
    data: bytes, vocabulary: Vocabulary, budget: Budget, *, start: int = 0, least: int = 0
) -> tuple[object, int]:
    """Return the value of a pickle, and the offset of its end in `data`.

    Args:
        data: bytes with the pickle; bytes after it are ignored.
        vocabulary: the calls that are allowed.
        budget: the budget for listing the file, and the caps.
        start: the offset of the pickle.
        least: a number of instructions that is allowed even if the caps are lower.

    Returns:
        None, bool, int, float, str, bytes, tuple, list, `Items`, `Global`, or a value made by the
        vocabulary. Sets are lists. Text of Python 2 is str if it is UTF-8, else bytes.

    Raises:
        FormatError: it is not a pickle; the reason is `truncated` if `data` ends too early.
        UnsupportedError: it calls a name that is not in the vocabulary.
        LimitError: it has too many instructions, or needs far more memory than its length
            (LIMIT_COST).
    """
    return follow(Machine(data, vocabulary, start, budget), least)


def follow(machine: Machine, least: int) -> tuple[object, int]:
    """Run a machine. Return the value of its pickle, and the offset of the pickle's end.

    Args:
        machine: a machine at the beginning of its pickle.
        least: as for `read_pickle`.

    Raises:
        ZTensorError: as `read_pickle`.
    """
    most = max(least, machine.budget.limits.manifest_bytes // _BYTES_PER_STEP)
    try:
        for _ in range(most):
            if (code := machine.byte()) == _STOP:
                return machine.finished(), machine.position
            INSTRUCTIONS[code](machine)
            machine.cost += _COSTS[code]
            if machine.cost > BATCH:
                machine.settle()
    except ZTensorError:
        raise
    except (IndexError, KeyError, ValueError, struct.error) as error:
        if machine.position > len(machine.data):
            raise machine.cut() from error
        raise machine.broken("invalid arguments of an instruction", str(error)) from error
    raise LimitError(
        "the pickle has more instructions than Limits.manifest_bytes allows",
        reason=Reason.LIMIT_MANIFEST,
        expected=f"at most {most}",
    )


_U16, _U32, _U64 = (struct.Struct(form) for form in ("<H", "<I", "<Q"))
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _unknown(machine: Machine) -> None:
    code = machine.data[machine.position - 1 : machine.position]
    raise machine.broken("unknown instruction", code)


# By code: the memory of an instruction in bytes, without the memory that its function counts, and
# the function. First protocols 0 and 1, then the additions of later ones.
_TABLE: Mapping[str, tuple[int, Instruction]] = {
    "(": (MARK, Machine.mark),
    "0": (0, Machine.drop),
    "1": (0, Machine.pop_mark),
    "2": (PLACE, lambda m: m.push(m.stack[-1])),
    "F": (NUMBER + PLACE, lambda m: m.push(float(m.line()))),
    "I": (PLACE, lambda m: m.push(m.decimal_or_flag())),
    "L": (PLACE, lambda m: m.push(m.decimal(m.line().removesuffix(b"L")))),
    "S": (0, lambda m: m.push(m.quoted())),
    "V": (0, lambda m: m.push(m.escaped())),
    "N": (PLACE, lambda m: m.push(None)),
    "J": (NUMBER + PLACE, lambda m: m.push(m.number(_I32))),
    "K": (PLACE, lambda m: m.push(m.byte())),
    "M": (NUMBER + PLACE, lambda m: m.push(m.number(_U16))),
    "G": (NUMBER + PLACE, lambda m: m.push(m.number(_F64))),
    "T": (0, lambda m: m.push(m.old_text(m.take(m.number(_I32))))),
    "U": (0, lambda m: m.push(m.old_text(m.take(m.byte())))),
    "X": (0, lambda m: m.push(m.text(m.take(m.number(_U32))))),
    "P": (CALL + PLACE, lambda m: m.persistent(m.text(m.line()))),
    "Q": (CALL + PLACE, lambda m: m.persistent(m.stack.pop())),
    "R": (CALL + PLACE, Machine.reduce),
    "b": (CALL + PLACE, Machine.build),
    "c": (GLOBAL + PLACE, lambda m: m.push(m.read_global())),
    "i": (CALL + PLACE, Machine.make_instance),
    "o": (CALL + PLACE, Machine.make_object),
    "a": (0, lambda m: m.append([m.stack.pop()])),
    "e": (0, lambda m: m.append(m.pop_mark())),
    "s": (0, lambda m: m.set_items([m.stack.pop(), m.stack.pop()][::-1])),
    "u": (0, lambda m: m.set_items(m.pop_mark())),
    "d": (DICT + PLACE, Machine.make_dict),
    "}": (DICT + PLACE, lambda m: m.push(Items())),
    "l": (0, lambda m: m.push(m.pop_list())),
    "]": (LIST + PLACE, lambda m: m.push([])),
    "t": (TUPLE + PLACE, lambda m: m.push(tuple(m.pop_mark()))),
    ")": (PLACE, lambda m: m.push(())),
    "g": (PLACE, lambda m: m.get(m.decimal(m.line()))),
    "h": (PLACE, lambda m: m.get(m.byte())),
    "j": (PLACE, lambda m: m.get(m.number(_U32))),
    "p": (PLACE, lambda m: m.put(m.decimal(m.line()))),
    "q": (PLACE, lambda m: m.put(m.byte())),
    "r": (PLACE, lambda m: m.put(m.number(_U32))),
    # Protocol 2
    "\x80": (0, Machine.protocol),
    "\x81": (CALL + PLACE, Machine.reduce),
    "\x82": (0, Machine.extension),
    "\x83": (0, Machine.extension),
    "\x84": (0, Machine.extension),
    "\x85": (TUPLE + PLACE, lambda m: m.make_tuple(1)),
    "\x86": (TUPLE + PLACE, lambda m: m.make_tuple(2)),
    "\x87": (TUPLE + PLACE, lambda m: m.make_tuple(3)),
    "\x88": (PLACE, lambda m: m.stack.append(True)),
    "\x89": (PLACE, lambda m: m.stack.append(False)),
    "\x8a": (0, lambda m: m.push(m.long(m.take(m.byte())))),
    "\x8b": (0, lambda m: m.push(m.long(m.take(m.number(_I32))))),
    # Protocol 3
    "B": (0, lambda m: m.push(m.counted(m.take(m.number(_U32))))),
    "C": (0, lambda m: m.push(m.counted(m.take(m.byte())))),
    # Protocol 4
    "\x8c": (0, lambda m: m.push(m.text(m.take(m.byte())))),
    "\x8d": (0, lambda m: m.push(m.text(m.take(m.number(_U64))))),
    "\x8e": (0, lambda m: m.push(m.counted(m.take(m.number(_U64))))),
    "\x8f": (LIST + PLACE, lambda m: m.push(m.plainer("set", []))),
    "\x90": (0, lambda m: m.append(m.pop_mark())),
    "\x91": (0, lambda m: m.push(m.plainer("set", m.pop_list()))),
    "\x92": (CALL + PLACE, Machine.new_with_names),
    "\x93": (GLOBAL + PLACE, Machine.pop_global),
    "\x94": (PLACE, Machine.put_next),
    "\x95": (0, Machine.frame),
    # Protocol 5
    "\x96": (0, lambda m: m.push(m.plainer("bytearray", m.counted(m.take(m.number(_U64)))))),
    "\x97": (0, Machine.out_of_band),
    "\x98": (0, Machine.out_of_band),
}
_EVERY = [_TABLE.get(chr(code), (0, _unknown)) for code in range(256)]
INSTRUCTIONS: list[Instruction] = [instruction for _, instruction in _EVERY]
_COSTS = [cost for cost, _ in _EVERY]
