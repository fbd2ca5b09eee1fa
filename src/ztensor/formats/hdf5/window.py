"""Checked access to an HDF5 file by its own addresses.

All parsers read the file through a `Window`, which guarantees three rules: nothing outside the file
is read, no structure is parsed twice, and all structures together are at most twice as long as the
file. So parsing takes time linear in the length of the file.
"""

from __future__ import annotations

import functools
import struct
from typing import Any

from ztensor.errors import FormatError, LimitError, Reason, UnsupportedError, describe
from ztensor.ext import Source
from ztensor.formats.hdf5.checksum import lookup3
from ztensor.limits import Budget

# Structures are small and adjacent, so pages are read and cached.
_PAGE_BYTES = 8192
_MOST_PAGES = 256

_LETTERS = {2: "H", 4: "I", 8: "Q"}


def malformed(problem: str, expected: object = None, found: object = None) -> FormatError:
    """Return the error for a structure that breaks a rule of the format."""
    return FormatError(
        f"the HDF5 structure is damaged: {problem}",
        reason=Reason.FIELD_VALUE,
        expected=None if expected is None else describe(expected),
        found=None if found is None else describe(found),
    )


def unknown(feature: str) -> UnsupportedError:
    """Return the error for a feature of the format that h5py never writes."""
    return UnsupportedError(
        "this kind of HDF5 file is not read here; h5py rewrites it",
        reason=Reason.UNKNOWN_LAYOUT,
        found=feature,
    )


class Window:
    """Checked access to one file.

    Args:
        source: the file.
        base: the offset of address 0, after a user block.
        budget: the memory and the steps for opening the file.
        offset_size: bytes of an address in this file: 2, 4 or 8.
        length_size: bytes of a length.

    Attributes:
        undefined: the address that stands for no address.
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
        """Return a little-endian record; `O` stands for an address and `L` for a length.

        Spaces are ignored.
        """
        return _record(fields, _LETTERS[self.offset_size], _LETTERS[self.length_size])

    def is_defined(self, address: int) -> bool:
        """Return whether an address is defined."""
        return address != self.undefined

    def require(self, address: int, length: int) -> None:
        """Raise unless a range is inside the file.

        Raises:
            FormatError: it is not.
        """
        if address > self.size - length:  # Python's numbers do not wrap around
            raise FormatError(
                "an address in the HDF5 file is outside the file",
                reason=Reason.OUT_OF_BOUNDS,
                expected=f"{describe(length)} bytes within {self.size}",
                found=f"offset {describe(address)}",
            )

    def read(self, address: int, length: int) -> bytes | bytearray:
        """Return the bytes at an address.

        Raises:
            FormatError: they are outside the file.
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
        """Return bytes of a structure, counted against twice the length of the file.

        Raises:
            FormatError: they are outside the file, or too many bytes were taken before.
            LimitError: the budget is used up.
            SourceError: they cannot be read.
        """
        data = self.read(address, length)
        self._left -= length
        if self._left < 0:
            raise malformed("structures overlap")
        self.budget.charge_bytes(length)
        self.budget.charge_steps(1)
        return data

    def enter(self, address: int) -> None:
        """Mark the address of a structure as parsed.

        Raises:
            FormatError: it was parsed before.
        """
        if address in self._taken:
            raise malformed("a structure has two references", None, address)
        self._taken.add(address)

    def block(
        self, address: int, sign: bytes, length: int, *, has_sum: bool = True
    ) -> bytes | bytearray:
        """Return a structure that begins with a signature, and may end with a checksum.

        Raises:
            FormatError: the signature or the checksum differs, or it was parsed before.
            LimitError: the budget is used up.
            SourceError: it cannot be read.
        """
        self.enter(address)
        data = self.take(address, length)
        if not data.startswith(sign):
            raise malformed("wrong signature of a structure", sign, bytes(data[: len(sign)]))
        if has_sum:
            self.require_sum(data)
        return data

    def fields(
        self, address: int, sign: bytes, form: str, *, has_sum: bool = True
    ) -> tuple[Any, ...]:
        """Return the fields of a structure after its signature and version; see `block`."""
        record = self.record(f"4xB {form} {'4x' if has_sum else ''}")
        return record.unpack(self.block(address, sign, record.size, has_sum=has_sum))[1:]

    @staticmethod
    def require_sum(data: bytes | bytearray) -> None:
        """Raise unless the last four bytes are the checksum of the others.

        Raises:
            FormatError: they are not.
        """
        expected = int.from_bytes(data[-4:], "little")
        computed = lookup3(data[:-4])
        if expected != computed:
            raise malformed("checksum differs", hex(expected), hex(computed))

    def require_depth(self, depth: int, structures: str) -> None:
        """Raise if `what` are nested deeper than `Limits.depth`.

        Raises:
            LimitError: they are.
        """
        most = self.budget.limits.depth
        if depth > most:
            raise LimitError(
                f"{structures} are nested deeper than Limits.depth",
                reason=Reason.LIMIT_DEPTH,
                expected=f"at most {most}",
            )


class Fields:
    """A reader of a structure's fields, in order.

    Too few bytes raise `struct.error`, which `project` turns into a `FormatError`.

    Args:
        window: the file.
        data: the structure.
        at: the offset of the first field.
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


@functools.lru_cache(maxsize=256)  # bounded, since a file chooses the lengths of tables
def _record(fields: str, offset: str, length: str) -> struct.Struct:
    return struct.Struct("<" + fields.replace(" ", "").replace("O", offset).replace("L", length))
