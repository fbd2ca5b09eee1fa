"""The bytes of an HDF5 file by its own addresses: each read is checked, each structure is met once.

Everything that parses the file reads through a `Window`, so that three rules hold wherever it goes:
nothing outside the file is asked for, no structure is parsed twice, and all structures together are
no longer than twice the file. So no bytes make the parser run for longer than they are many.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError, describe
from ztensor.ext import Source
from ztensor.formats.hdf5.checksum import lookup3
from ztensor.limits import Budget

# Structures are small and lie side by side: a page at a time costs fewer calls.
_PAGE_BYTES = 8192
_MOST_PAGES = 256

_LETTERS = {2: "H", 4: "I", 8: "Q"}


def malformed(what: str, expected: object = None, found: object = None) -> FormatError:
    """Return the error for a structure that breaks a rule of the format."""
    return FormatError(
        f"the HDF5 structure is damaged: {what}",
        reason=Reason.FIELD_VALUE,
        expected=None if expected is None else describe(expected),
        found=None if found is None else describe(found),
    )


def unknown(what: str) -> UnsupportedError:
    """Return the error for what the format allows, and no file of h5py's has."""
    return UnsupportedError(
        "this kind of HDF5 file is not read here; h5py rewrites it",
        reason=Reason.UNKNOWN_LAYOUT,
        found=what,
    )


class Window:
    """Checked access to one file.

    Args:
        source: the file.
        base: where address 0 lies in it; before it is a user block.
        budget: what opening the file may cost.
        offset_size: bytes of an address in this file: 2, 4 or 8.
        length_size: bytes of a length.

    Attributes:
        undefined: the address that means none.
    """

    def __init__(
        self, source: Source, base: int, budget: Budget, offset_size: int, length_size: int
    ) -> None:
        if offset_size not in _LETTERS or length_size not in _LETTERS:
            raise malformed("addresses are 2, 4 or 8 bytes", (2, 4, 8), (offset_size, length_size))
        self.source = source
        self.base = base
        self.budget = budget
        self.size = source.size - base
        self.offset_size = offset_size
        self.length_size = length_size
        self.undefined = (1 << 8 * offset_size) - 1
        # A stored type is read as one and, where a group names it, as an object.
        self._left = 2 * source.size
        self._taken: set[int] = set()
        self._pages: dict[int, bytes | bytearray] = {}

    def record(self, fields: str) -> struct.Struct:
        """Return a little-endian record; besides struct's letters `O` is an address, `L` a length.

        Spaces are left out.
        """
        return _record(fields, _LETTERS[self.offset_size], _LETTERS[self.length_size])

    def is_defined(self, address: int) -> bool:
        """Return whether an address leads somewhere."""
        return address != self.undefined

    def require(self, address: int, length: int) -> None:
        """Raise where a range does not lie in the file.

        Raises:
            FormatError: it does not.
        """
        if address > self.size - length:  # Python's numbers do not wrap around
            raise FormatError(
                "an address of the HDF5 file leads out of it",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"{describe(length)} bytes within {self.size}",
                found=f"offset {describe(address)}",
            )

    def read(self, address: int, length: int) -> bytes | bytearray:
        """Return the bytes at an address.

        Raises:
            FormatError: they do not lie in the file.
            SourceError: they cannot be read.
        """
        self.require(address, length)
        start = self.base + address
        number, at = divmod(start, _PAGE_BYTES)
        if at + length > _PAGE_BYTES:
            return self.source.read(start, length)
        page = self._pages.get(number)
        if page is None:
            if len(self._pages) >= _MOST_PAGES:
                self._pages.clear()
            first = number * _PAGE_BYTES
            page = bytes(self.source.read(first, min(_PAGE_BYTES, self.source.size - first)))
            self._pages[number] = page
        return page[at : at + length]

    def take(self, address: int, length: int) -> bytes | bytearray:
        """Return the bytes of a part of the structure, which are then used up.

        Raises:
            FormatError: they do not lie in the file, or too much was taken before.
            LimitError: the budget is used up.
            SourceError: they cannot be read.
        """
        data = self.read(address, length)
        self._left -= length
        if self._left < 0:
            raise malformed("structures lie in one another")
        self.budget.charge_bytes(length)
        self.budget.charge_steps(1)
        return data

    def enter(self, address: int) -> None:
        """Note that a structure begins here; no other may.

        Raises:
            FormatError: one was met here before.
        """
        if address in self._taken:
            raise malformed("two addresses lead to one structure", None, address)
        self._taken.add(address)

    def block(
        self, address: int, sign: bytes, length: int, *, has_sum: bool = True
    ) -> bytes | bytearray:
        """Return a structure that begins with a sign, and may end with a checksum.

        Raises:
            FormatError: it does not, or is met a second time.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        self.enter(address)
        data = self.take(address, length)
        if not data.startswith(sign):
            raise malformed("a structure has another sign", sign, bytes(data[: len(sign)]))
        if has_sum:
            self.require_sum(data)
        return data

    def fields(
        self, address: int, sign: bytes, form: str, *, has_sum: bool = True
    ) -> tuple[Any, ...]:
        """Return the fields of a structure behind its sign and version; see `block`."""
        record = self.record(f"4xB {form} {'4x' if has_sum else ''}")
        return record.unpack(self.block(address, sign, record.size, has_sum=has_sum))[1:]

    @staticmethod
    def require_sum(data: bytes | bytearray) -> None:
        """Raise where the last four bytes are not the checksum of those before.

        Raises:
            FormatError: they are not.
        """
        expected = int.from_bytes(data[-4:], "little")
        found = lookup3(data[:-4])
        if expected != found:
            raise malformed("a checksum differs", hex(expected), hex(found))

    def require_depth(self, depth: int, what: str) -> None:
        """Raise where something is nested too deeply.

        Raises:
            LimitError: it is.
        """
        most = self.budget.limits.depth
        if depth > most:
            raise LimitError(
                f"{what} are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {most}",
            )


class Fields:
    """A place in the bytes of a structure, whose fields are taken one after the other.

    Too few bytes raise `struct.error`, which `project` turns into a `FormatError`.

    Args:
        window: the file.
        data: the bytes.
        at: where the first field begins.
    """

    __slots__ = ("at", "data", "window")

    def __init__(self, window: Window, data: bytes | bytearray, at: int = 0) -> None:
        self.window, self.data, self.at = window, data, at

    def take(self, form: str) -> tuple[Any, ...]:
        """Return the next fields; see `Window.record`."""
        record = self.window.record(form)
        self.at += record.size
        return record.unpack_from(self.data, self.at - record.size)

    def one(self, form: str) -> Any:
        """Return the next field."""
        return self.take(form)[0]

    def raw(self, length: int) -> bytes:
        """Return the next bytes."""
        self.at += length
        if self.at > len(self.data):
            raise struct.error("too few bytes")
        return bytes(self.data[self.at - length : self.at])

    def number(self, width: int) -> int:
        """Return the next number, of any width."""
        return int.from_bytes(self.raw(width), "little")

    def skip(self, length: int) -> None:
        """Pass over bytes."""
        self.at += length


@functools.lru_cache(maxsize=256)  # lengths of tables are a file's
def _record(fields: str, offset: str, length: str) -> struct.Struct:
    return struct.Struct("<" + fields.replace(" ", "").replace("O", offset).replace("L", length))
