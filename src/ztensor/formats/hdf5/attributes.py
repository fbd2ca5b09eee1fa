"""Attributes, and texts: values as plain Python has them."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor.formats.hdf5.datatype import Class, Padding, Type, parse
from ztensor.formats.hdf5.elements import elements_of
from ztensor.formats.hdf5.header import Header, Kind
from ztensor.formats.hdf5.heaps import GlobalHeaps, dense
from ztensor.formats.hdf5.messages import parse_space
from ztensor.formats.hdf5.window import Window, malformed, unknown
from ztensor.limits import Budget
from ztensor.typing import Array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


MOST_BYTES = 1 << 20  # of a value; longer ones are data, not a note about it
_MOST_RANK = 32
_COST = 300  # bytes of memory an attribute takes beside its value
_PLACE_COST = 16  # likewise, of a text in arrays and lists
_NUMBER_COST, _BYTE_COST = 32, 8  # a number in a list; Python keeps one object for each small one
# By name and by the order of their making: an identifier of the heap, flags, order, a hash.
_RECORDS = {8: (17, slice(0, 8)), 9: (13, slice(0, 8))}
_IS_SHARED = 0x02  # of the flags of a record
_IN_OBJECT = 2  # where a shared message is
_TYPE_SHARED, _SPACE_SHARED = 0x01, 0x02  # of the flags of an attribute


class Attributes:
    """Reads the attributes of one file's objects.

    Args:
        window: the file.
        heaps: where its texts lie.
        stored_type: returns the type whose header is at an address.
        leave: told of what is not given, by kind and name.

    Attributes:
        nbytes: bytes of all attributes and texts that were read so far.
    """

    def __init__(
        self,
        window: Window,
        heaps: GlobalHeaps,
        stored_type: Callable[[int], Type],
        leave: Callable[[str, str], None],
    ) -> None:
        self._leave = leave
        self._window = window
        self._heaps = heaps
        self._stored_type = stored_type
        self.nbytes = 0

    def of(self, header: Header) -> dict[str, object]:
        """Return the attributes of an object, those with values that plain Python has.

        Raises:
            FormatError: one is damaged.
            UnsupportedError: one is shared by objects.
            LimitError: the budget is used up.
            SourceError: they cannot be read.
        """
        budget = self._window.budget
        found: list[tuple[int, bytes, str, object]] = []
        for order, body in self._bodies(header):
            name, value = self._read(body)
            text = text_of(name, budget)
            if value is _NOTHING or text is None:
                self._leave("attribute", name.decode(errors="replace"))
            else:
                budget.charge_bytes(_COST + len(name))
                found.append((order, name, text, value))
        found.sort(key=(lambda one: one[0]) if header.keeps_order else (lambda one: one[1]))
        return {text: value for _, _, text, value in found}

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
        heap, tree = self._window.record("OO").unpack_from(info.body, 4 if info.body[1] & 1 else 2)
        if not self._window.is_defined(heap):
            return
        for record, body in dense(self._window, heap, tree, _RECORDS):
            if record[8] & _IS_SHARED:
                raise unknown("shared attributes")
            yield int.from_bytes(record[9:13], "little"), body

    def _read(self, body: bytes) -> tuple[bytes, object]:
        """Return an attribute's name, and its value or `_NOTHING`."""
        self.nbytes += len(body)
        version, flags, *lengths = struct.unpack_from("<BBHHH", body)
        if not 1 <= version <= 3:
            raise malformed("an attribute's version is unknown", "1 to 3", version)
        at = 9 if version == 3 else 8
        parts = []
        for length in lengths:
            parts.append(body[at : at + length])
            at += (length + 7) // 8 * 8 if version == 1 else length
        if at > len(body):
            raise malformed("an attribute is cut", at, len(body))
        name, kind_body, space_body = parts
        flags = 0 if version == 1 else flags
        if flags & _SPACE_SHARED:
            raise unknown("a shared dataspace")
        kind = (
            self._stored_type(shared_address(self._window, kind_body))
            if flags & _TYPE_SHARED
            else parse(kind_body)
        )
        if kind.has_names:
            self._leave("names of an enum", name.partition(b"\0")[0].decode(errors="replace"))
        shape = parse_space(self._window, space_body).shape
        return name.partition(b"\0")[0], self.value(kind, shape, body[at:])

    def value(self, kind: Type, shape: tuple[int, ...] | None, data: bytes) -> object:
        """Return a value as plain Python has it, or `_NOTHING` where that has none for it."""
        element = kind
        if kind.kind == Class.ARRAY and kind.base is not None:
            element, shape = kind.base, (*(shape or ()), *kind.shape)
        is_known = element.is_string or (
            (elements := elements_of(element)) is not None and elements.numpy.kind in "biufV"
        )
        count = math.prod(shape or ())
        if not is_known or count * element.size > MOST_BYTES or len(shape or ()) > _MOST_RANK:
            return _NOTHING
        if shape is None:
            return None
        if count * element.size > len(data):
            raise malformed("a value is cut", count * element.size, len(data))
        if element.is_string:
            values: Any = self._texts(element, data, count)
            if values is None:
                return _NOTHING
            array = np.empty(count, object)
            array[:] = values
            return self._listed(array, shape)
        return self._numbers(element, data, count, shape)

    def _numbers(self, kind: Type, data: bytes, count: int, shape: tuple[int, ...]) -> object:
        elements = elements_of(kind)
        if elements is None:
            return _NOTHING
        if kind.kind == Class.OPAQUE:
            return bytes(data[: kind.size]) if not shape else _NOTHING
        self._window.budget.charge_bytes(
            count * (_BYTE_COST if elements.numpy.itemsize == 1 else _NUMBER_COST)
        )
        array = elements.converted(np.frombuffer(data, elements.stored, count))
        if elements.is_bfloat16:
            array = (array.astype("<u4") << 16).view("<f4")
        return self._listed(array, shape)

    def _listed(self, array: Array, shape: tuple[int, ...]) -> object:
        """Return an array as a value, or as lists in lists."""
        if not array.size:  # there may still be very many empty lists
            self._window.budget.charge_bytes(64 * math.prod(filter(None, shape)))
        value: object = array.reshape(shape).tolist()
        return value

    def _texts(self, kind: Type, data: bytes, count: int) -> list[str] | None:
        """Return the texts, or None where one of them is not UTF-8."""
        texts = []
        for at in range(0, count * kind.size, kind.size):
            text = self.text(kind, data[at : at + kind.size])
            if text is None:
                return None
            texts.append(text)
        return texts

    def text(self, kind: Type, data: bytes) -> str | None:
        """Return the text that one element is, or None where it is not UTF-8.

        Raises:
            FormatError: it does not lie where the element says.
            LimitError: the budget is used up.
        """
        budget = self._window.budget
        budget.charge_steps(1)
        budget.charge_bytes(_PLACE_COST + len(data))
        if kind.kind == Class.STRING:
            if kind.padding == Padding.SPACES:
                return text_of(data.rstrip(b" "), budget)
            if kind.padding == Padding.NULLS:
                return text_of(data.rstrip(b"\0"), budget)
            return text_of(data.partition(b"\0")[0], budget)
        length, address, number = self._window.record("IOI").unpack(data)
        self.nbytes += length
        if not length or not address or not self._window.is_defined(address):
            return ""
        stored = self._heaps.read(address, number, length)
        with budget.lent(length):
            return text_of(stored.partition(b"\0")[0], budget)


class _Nothing:
    """The value of what has none here."""


_NOTHING = _Nothing()


def shared_address(window: Window, body: bytes) -> int:
    """Return the address of the header that has the message itself.

    Raises:
        FormatError: the message is damaged.
        UnsupportedError: it is in a heap.
    """
    version, kind = struct.unpack_from("<BB", body)
    if version == 3 and kind != _IN_OBJECT:
        raise unknown("a message shared in a heap")
    if not 1 <= version <= 3:
        raise malformed("a shared message's version is unknown", "1 to 3", version)
    # The first version has reserved bytes, and the address of a group's heap, before it.
    start = 8 + window.length_size if version == 1 else 2
    address: int = window.record("O").unpack_from(body, start)[0]
    return address


def text_of(raw: bytes, budget: Budget | None = None) -> str | None:
    """Return text as it is, or None where it is no UTF-8; charge a budget what it takes."""
    try:
        return raw.decode() if budget is None else budget.text(raw)
    except UnicodeError:
        return None
