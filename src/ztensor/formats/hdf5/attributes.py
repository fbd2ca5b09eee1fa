"""Attributes and texts as plain Python values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ztensor.formats.hdf5.header import Header, Kind
from ztensor.formats.hdf5.heaps import GlobalHeaps, dense
from ztensor.formats.hdf5.messages import parse_space
from ztensor.formats.hdf5.types import Elements, Type, Types
from ztensor.formats.hdf5.window import Fields, Window, malformed, unknown
from ztensor.limits import Budget
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MOST_BYTES = 1 << 20  # of a value; a longer one is taken for data
_MOST_RANK = 32
_COST = 300  # bytes of memory of an attribute without its value
_PLACE_COST = 16  # the same of a text in arrays and lists
_NUMBER_COST, _BYTE_COST = 32, 8  # a number in a list; Python keeps one object for each small one
# Records ordered by name or by creation: an identifier of the heap, flags, order, a hash.
_RECORDS = {8: (17, slice(0, 8)), 9: (13, slice(0, 8))}
_IS_SHARED = 0x02  # of the flags of a record
_TYPE_SHARED, _SPACE_SHARED = 0x01, 0x02  # of the flags of an attribute
_NOTHING = object()  # for a value that plain Python does not have


class Attributes:
    """Reads the attributes of one file's objects.

    Args:
        window: the file.
        types: its types.
        leave: adds to the loss report: a kind, the name of an attribute or "", a count.

    Attributes:
        nbytes: bytes of all attributes and texts read so far.
    """

    def __init__(
        self, window: Window, types: Types, leave: Callable[[str, str, int], None]
    ) -> None:
        self.leave = leave
        self._window = window
        self._heaps = GlobalHeaps(window)
        self._types = types
        self.nbytes = 0

    def of(self, header: Header) -> dict[str, object]:
        """Return the attributes of an object that have plain Python values.

        Raises:
            FormatError: an attribute is damaged.
            UnsupportedError: an attribute is shared by objects.
            LimitError: the budget is used up.
            SourceError: they cannot be read.
        """
        budget = self._window.budget
        rows: list[tuple[int, bytes, str, object]] = []
        for order, body in self._bodies(header):
            name, value = self._read(body)
            text = text_of(name, budget)
            if value is _NOTHING or text is None:
                self.leave("attribute", name.decode(errors="replace"), 1)
            else:
                budget.charge_bytes(_COST + len(name))
                rows.append((order, name, text, value))
        rows.sort(key=(lambda row: row[0]) if header.keeps_order else (lambda row: row[1]))
        return {text: value for _, _, text, value in rows}

    def _bodies(self, header: Header) -> Iterator[tuple[int, bytes]]:
        """Yield each attribute's place in order and its message."""
        for message in header.messages:
            if message.kind == Kind.ATTRIBUTE:
                if message.is_shared:
                    raise unknown("shared attributes")
                yield message.order, message.body
        info = header.of(Kind.ATTRIBUTE_INFO)
        if info is None:
            return
        heap, tree = Fields(self._window, info.body, 4 if info.body[1] & 1 else 2).take("OO")
        if not self._window.is_defined(heap):
            return
        for record, body in dense(self._window, heap, tree, _RECORDS):
            if record[8] & _IS_SHARED:
                raise unknown("shared attributes")
            yield int.from_bytes(record[9:13], "little"), body

    def _read(self, body: bytes) -> tuple[bytes, object]:
        """Return an attribute's name, and its value or `_NOTHING`."""
        self.nbytes += len(body)
        fields = Fields(self._window, body)
        version, flags, *lengths = fields.take("BBHHH")
        if not 1 <= version <= 3:
            raise malformed("an attribute's version is unknown", "1 to 3", version)
        fields.skip(1 if version == 3 else 0)  # the encoding of the name
        parts = []
        for length in lengths:
            parts.append(fields.raw(length))
            fields.skip(-length % 8 if version == 1 else 0)
        name, kind_body, space_body = parts
        name, flags = _ended(name), 0 if version == 1 else flags
        if flags & _SPACE_SHARED:
            raise unknown("a shared dataspace")
        kind = self._types.of(kind_body, is_shared=bool(flags & _TYPE_SHARED))
        if kind.names:
            self.leave("names of an enum", name.decode(errors="replace"), 1)
        shape = parse_space(Fields(self._window, space_body)).shape
        return name, self._value(kind, shape, fields)

    def _value(self, kind: Type, shape: tuple[int, ...] | None, fields: Fields) -> object:
        """Return a plain Python value, or `_NOTHING` if there is none."""
        if kind.base is not None:
            kind, shape = kind.base, (*(shape or ()), *kind.shape)
        count, elements = math.prod(shape or ()), kind.elements
        is_plain = elements is not None and elements.numpy.kind in "biufV"
        is_long = count * kind.size > MOST_BYTES or len(shape or ()) > _MOST_RANK
        if is_long or not (is_plain or kind.text is not None):
            return _NOTHING
        if shape is None:
            return None
        data = fields.raw(count * kind.size)
        if kind.is_opaque:
            return _NOTHING if shape else data
        if elements is not None:
            return self._listed(self._numbers(elements, data), shape)
        texts = [
            self.text(kind, data[at : at + kind.size]) for at in range(0, len(data), kind.size)
        ]
        if None in texts:
            return _NOTHING
        array = np.empty(count, object)
        array[:] = texts
        return self._listed(array, shape)

    def _numbers(self, elements: Elements, data: bytes) -> Array:
        stored = np.frombuffer(data, elements.stored)
        cost = _BYTE_COST if elements.numpy.itemsize == 1 else _NUMBER_COST
        self._window.budget.charge_bytes(len(stored) * cost)
        array = elements.converted(stored)
        return (array.astype("<u4") << 16).view("<f4") if elements.is_bfloat16 else array

    def _listed(self, array: Array, shape: tuple[int, ...]) -> object:
        """Return an array as a scalar or as nested lists."""
        if not array.size:  # many empty lists are possible
            self._window.budget.charge_bytes(64 * math.prod(filter(None, shape)))
        value: object = array.reshape(shape).tolist()
        return value

    def text(self, kind: Type, data: bytes) -> str | None:
        """Return the text of one element, or None if it is not UTF-8.

        Raises:
            FormatError: the heap has no such text.
            LimitError: the budget is used up.
        """
        budget = self._window.budget
        budget.charge_steps(1)
        budget.charge_bytes(_PLACE_COST + len(data))
        if not kind.is_variable:
            return text_of(data.rstrip(kind.text) if kind.text else _ended(data), budget)
        length, address, number = self._window.record("IOI").unpack(data)
        self.nbytes += length
        if not length or not address or not self._window.is_defined(address):
            return ""
        stored = self._heaps.read(address, number, length)
        with budget.lent(length):
            return text_of(_ended(stored), budget)


def _ended(data: bytes) -> bytes:
    """Return the bytes before the first NUL."""
    return data.partition(b"\0")[0]


def text_of(raw: bytes, budget: Budget) -> str | None:
    """Return bytes as text, charged to the budget, or None if they are not UTF-8."""
    try:
        return budget.text(raw)
    except UnicodeError:
        return None
