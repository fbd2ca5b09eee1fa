"""Safety caps as one frozen value, and the budget that every parser of a file charges."""

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
    """Safety caps for one file. Pass changed caps as `open(..., limits=...)`.

    Attributes:
        manifest_bytes: largest manifest, in bytes. 1.1 and 1.2 fix 1 GiB (1.2 section 5, step 4);
            0.1 has no rule, and gets the same.
        depth: deepest nesting of CBOR items. Real manifests need 6. Python's recursion limit allows
            at most about 450.
        rank: most dimensions of an object that is read as an array. NumPy stops at 64.
        decoded_bytes: largest decoded size of one compressed component, in bytes. Raw components
            need no cap: their bytes are in the file.
        window_log: binary logarithm of the largest zstd window. Level 22 needs 27.
        index_bytes: longest index of a sharded model, in bytes. The largest known ones have 20 MB.
        cost_floor: memory, in bytes, that listing or refusing any file may take.
        cost_factor: additional memory, in bytes, per byte of the file.
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
    """Return the caller's caps, or the defaults for None.

    Raises:
        ArgumentTypeError: `limits` is not a `Limits`.
    """
    if limits is None:
        return DEFAULT_LIMITS
    require_kind("limits", limits, Limits, "a ztensor.Limits")
    return limits


_WIDENED = 6  # peak memory per byte of UTF-8: two per character, while all are widened to four
_TEXT_BYTES = 80  # overhead of a string
_BYTES_PER_STEP = 64  # the default floor allows a million steps, about a second of Python

# Upper bounds of CPython's memory per structural character of JSON, with `object_pairs_hook`: an
# array, an object, the value after a comma, a pair with its entries in the object and in the
# parser's key table, half a string.
_JSON_COSTS = {b"[": 96, b"{": 300, b",": 44, b":": 296, b'"': 32}
# A string. The closing quote is optional, so that an unterminated string is scanned once.
_JSON_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?'
_SHORT = 64  # shorter strings are not checked for nested JSON
_WIDE = 4  # bytes per character of a string with a character beyond ASCII


class Budget:
    """The memory and steps that listing or refusing one file may still cost.

    Each open has one budget for all parsers of the file: a manifest, the zip directory around a
    pickle, the pickle. A parser charges memory before it allocates, and a step for each item it
    visits. So no file takes more than `Limits.cost_floor + Limits.cost_factor * length` bytes, or
    more than linear time. Data that a caller requests is not charged: its shape gives its size.

    Args:
        limits: the caps in force.
        length: length of the file, in bytes.

    Attributes:
        bytes_left: the bytes that may still be charged.
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
        """Add the length of another file of the same set."""
        self.length += nbytes
        allowance = self.limits.cost_factor * nbytes
        self._most_bytes += allowance
        self.bytes_left += allowance
        self._most_steps += allowance
        self._steps_left += allowance

    def charge_bytes(self, nbytes: int) -> None:
        """Charge memory before it is allocated.

        Raises:
            LimitError: the budget is spent (LIMIT_COST).
        """
        self.bytes_left -= nbytes
        if self.bytes_left < 0:
            raise self.exceeded()

    def text(self, data: bytes | bytearray) -> str:
        """Decode UTF-8, and charge the memory of the string before it is allocated.

        Raises:
            UnicodeDecodeError: `data` is not UTF-8.
            LimitError: the budget is spent (LIMIT_COST).
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
        """Charge an upper bound of the memory that `json.loads(data)` takes.

        Structural characters are counted everywhere. If that exceeds the budget, those inside
        strings are subtracted: metadata often contains JSON as text.

        Raises:
            LimitError: the budget is spent (LIMIT_COST).
        """
        width = 1 if data.isascii() and b"\\u" not in data else _WIDE
        if b"\\" in data:
            width *= 2  # a string with escapes is joined from parts: both are in memory
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
        """Return a context in which memory is charged.

        Raises:
            LimitError: the budget is spent (LIMIT_COST).
        """
        self.charge_bytes(nbytes)
        try:
            yield
        finally:
            self.release_bytes(nbytes)

    def release_bytes(self, nbytes: int) -> None:
        """Return charged memory that was freed."""
        self.bytes_left += nbytes

    def release_to(self, bytes_left: int) -> None:
        """Return all memory charged since `bytes_left` had this value."""
        self.bytes_left = bytes_left

    def charge_steps(self, count: int) -> None:
        """Charge items before they are visited.

        Raises:
            LimitError: the budget is spent (LIMIT_COST).
        """
        self._steps_left -= count
        if self._steps_left < 0:
            raise self._over("steps", self._most_steps)

    def exceeded(self) -> LimitError:
        """Return the error for a spent memory budget."""
        return self._over("bytes of memory", self._most_bytes)

    def _over(self, unit: str, most: int) -> LimitError:
        error = LimitError(
            "listing the file would cost far more than a file of its length needs",
            reason=Reason.LIMIT_COST,
            expected=f"at most {most} {unit} for {describe(self.length)} bytes",
            found="more",
        )
        error.in_python = (
            "if you trust the file, limits=ztensor.Limits(cost_floor=...) or (cost_factor=...) "
            "allows more"
        )
        return error


def _structure(data: bytes | bytearray, start: int, stop: int) -> int:
    return sum(data.count(mark, start, stop) * cost for mark, cost in _JSON_COSTS.items())
