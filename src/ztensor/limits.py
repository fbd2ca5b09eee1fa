"""The safety caps, one frozen value, and the one budget that whatever parses a file charges."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from ztensor.arguments import require_kind
from ztensor.errors import LimitError, Reason, describe

MIB = 1 << 20
GIB = 1 << 30


class Limits(NamedTuple):
    """Caps on what a file may ask for. Pass a changed one as `open(..., limits=...)`.

    Attributes:
        manifest_bytes: largest manifest, in bytes. 1.1 and 1.2 fix 1 GiB (1.2 section 5, step 4);
            the same is applied to 0.1, whose text names none.
        depth: deepest nesting of CBOR items. Real manifests need 6; Python's own recursion limit
            refuses more than some 450 levels in any case.
        rank: most dimensions of an object that is read as an array. NumPy stops at 64.
        decoded_bytes: largest decoded size of one compressed component, in bytes. Raw components
            need no cap: their bytes are in the file.
        window_log: binary logarithm of the largest zstd window. Level 22 needs 27.
        index_bytes: longest index of a sharded model, in bytes. The largest known ones have 20 MB.
        cost_floor: memory, in bytes, that listing or refusing a file may take however short it is.
        cost_factor: memory, in bytes, that it may take beside that for each byte of the file.
    """

    manifest_bytes: int = GIB
    depth: int = 64
    rank: int = 64
    decoded_bytes: int = 64 * GIB
    window_log: int = 27
    index_bytes: int = 64 * MIB
    cost_floor: int = 64 * MIB
    cost_factor: int = 4


DEFAULT_LIMITS = Limits()


def caps_of(limits: Limits | None) -> Limits:
    """Return the caps in force: those that the caller gave, or the default ones.

    Raises:
        ArgumentTypeError: the caller gave something else.
    """
    if limits is None:
        return DEFAULT_LIMITS
    require_kind("limits", limits, Limits, "a ztensor.Limits")
    return limits


_WIDENED = 6  # bytes of memory for one of UTF-8: a character takes two, then all take four
_TEXT_BYTES = 80  # that a text takes beside its characters
_BYTES_PER_STEP = 64  # of the floor: a million steps, about a second of Python

# Bytes of memory at most for each character that begins or parts values of JSON, as CPython's own
# reader makes them where objects are made of pairs: an array, an object, the value behind a comma,
# a pair with its place in the object and in the reader's table of keys, half of a text.
_JSON_COSTS = {b"[": 96, b"{": 300, b",": 44, b":": 296, b'"': 32}
# A text with all between its quotes. It need not end, so that none is looked for twice.
_JSON_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_SHORT = 64  # a text that holds too little of others' JSON to be looked into
_WIDE = 4  # bytes of every character of a text that has one beyond ASCII


class Budget:
    """What listing or refusing one file may cost, in memory and in steps.

    One is made where a file is opened and handed to each parser that looks at the file: a manifest,
    the zip directory around a pickle, the pickle. A parser charges what it is about to allocate
    before it does, and a step for each item it visits, so that no bytes make it take more than
    `Limits.cost_floor + Limits.cost_factor * length` bytes, or more than linear time. Data that a
    caller asked for is not charged: its shape says how long it is.

    Args:
        limits: the caps in force.
        length: length of the file, in bytes.

    Attributes:
        bytes_left: how many bytes may still be charged.
    """

    __slots__ = ("_most_bytes", "_most_steps", "_steps_left", "bytes_left", "length", "limits")

    def __init__(self, limits: Limits, length: int) -> None:
        self.limits = limits
        self.length = length
        self._most_bytes = self.bytes_left = limits.cost_floor + limits.cost_factor * length
        self._most_steps = self._steps_left = (
            limits.cost_floor // _BYTES_PER_STEP + limits.cost_factor * length
        )

    def lengthen(self, nbytes: int) -> None:
        """Count another file of the same set, whose length was not known before."""
        self.length += nbytes
        for_it = self.limits.cost_factor * nbytes
        self._most_bytes += for_it
        self.bytes_left += for_it
        self._most_steps += for_it
        self._steps_left += for_it

    def charge_bytes(self, nbytes: int) -> None:
        """Take memory from the budget, before it is allocated.

        Raises:
            LimitError: the file would take more than it may (LIMIT_COST).
        """
        self.bytes_left -= nbytes
        if self.bytes_left < 0:
            raise self.exceeded()

    def text(self, data: bytes | bytearray) -> str:
        """Return bytes as text, whose memory is charged before it is taken.

        Raises:
            UnicodeDecodeError: they are not UTF-8.
            LimitError: the file would take more than it may (LIMIT_COST).
        """
        before = self.bytes_left
        self.charge_bytes(_TEXT_BYTES + len(data) * (1 if data.isascii() else _WIDENED))
        try:
            text = data.decode()
        finally:
            self.bytes_left = before
        self.bytes_left -= sys.getsizeof(text)
        return text

    def charge_json(self, data: bytes | bytearray) -> None:
        """Charge what `json.loads` makes of `data`, whatever it holds.

        The characters are counted in the whole, and if that is too much without those inside texts:
        what writers put into metadata is often JSON itself.

        Raises:
            LimitError: the file would take more than it may (LIMIT_COST).
        """
        width = 1 if data.isascii() and b"\\u" not in data else _WIDE
        if b"\\" in data:
            width *= 2  # a text with an escape is put together, and is in memory twice as it grows
        cost = len(data) * width + _structure(data, 0, len(data))
        if cost > self.bytes_left:
            self.charge_steps(len(data))
            for match in re.finditer(_JSON_TEXT, data, re.DOTALL):
                start, stop = match.span()
                if stop - start > _SHORT:
                    cost -= _structure(data, start + 1, stop - 1)
        self.charge_bytes(cost)

    @contextlib.contextmanager
    def lent(self, nbytes: int) -> Iterator[None]:
        """Take memory from the budget within a context.

        Raises:
            LimitError: the file would take more than it may (LIMIT_COST).
        """
        self.charge_bytes(nbytes)
        try:
            yield
        finally:
            self.release_bytes(nbytes)

    def release_bytes(self, nbytes: int) -> None:
        """Give memory back that was charged and is free again."""
        self.bytes_left += nbytes

    def release_to(self, bytes_left: int) -> None:
        """Give back all that was charged since `bytes_left` was this."""
        self.bytes_left = bytes_left

    def charge_steps(self, count: int) -> None:
        """Take items that are about to be visited from the budget.

        Raises:
            LimitError: the file would take more than it may (LIMIT_COST).
        """
        self._steps_left -= count
        if self._steps_left < 0:
            raise self._over("steps", self._most_steps)

    def exceeded(self) -> LimitError:
        """Return the error for a file that would take more memory than it may."""
        return self._over("bytes of memory", self._most_bytes)

    def _over(self, what: str, most: int) -> LimitError:
        error = LimitError(
            "listing the file would cost far more than a file of its length needs",
            reason=Reason.LIMIT_COST,
            expected=f"at most {most} {what} for {describe(self.length)} bytes",
            found="more",
        )
        error.in_python = (
            "if you trust the file, limits=ztensor.Limits(cost_floor=...) or (cost_factor=...) "
            "allows more"
        )
        return error


def _structure(data: bytes | bytearray, start: int, stop: int) -> int:
    return sum(data.count(mark, start, stop) * cost for mark, cost in _JSON_COSTS.items())
