"""What JSON of a stranger becomes is charged before it is read: nothing here reads it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ztensor.limits import Budget

# A text with all between its quotes. It need not end, so that none is looked for twice.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

# Bytes of memory at most for each character that begins or parts values, as CPython's own reader
# makes them where objects are made of pairs: an array, an object, the value behind a comma, a pair
# with its place in the object and in the reader's table of keys, half of a text.
_COSTS = {b"[": 96, b"{": 300, b",": 44, b":": 296, b'"': 32}
_SHORT = 64  # a text that holds too little of others' JSON to be looked into
_WIDE = 4  # bytes of every character of a text that has one beyond ASCII


def charge(data: bytes | bytearray, budget: Budget) -> None:
    """Charge what `json.loads` makes of `data`, whatever it holds.

    The characters are counted in the whole, and if that is too much without those inside texts:
    what writers put into metadata is often JSON itself.

    Raises:
        LimitError: it would take more than the budget has (LIMIT_COST).
    """
    width = 1 if data.isascii() and b"\\u" not in data else _WIDE
    if b"\\" in data:
        width *= 2  # a text with an escape is put together, and is in memory twice where it grows
    cost = len(data) * width + _structure(data, 0, len(data))
    if cost > budget.bytes_left:
        budget.charge_steps(len(data))
        for match in _TEXT.finditer(data):
            start, stop = match.span()
            if stop - start > _SHORT:
                cost -= _structure(data, start + 1, stop - 1)
    budget.charge_bytes(cost)


def _structure(data: bytes | bytearray, start: int, stop: int) -> int:
    return sum(data.count(character, start, stop) * cost for character, cost in _COSTS.items())
