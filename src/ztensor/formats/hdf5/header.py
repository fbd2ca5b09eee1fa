"""Object headers: the messages a group, dataset or stored type consists of."""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from ztensor.formats.hdf5.window import Window, malformed


class Kind(enum.IntEnum):
    """The messages that are looked at here, by the format's numbers."""

    SPACE = 0x01
    LINK_INFO = 0x02
    TYPE = 0x03
    OLD_FILL = 0x04
    FILL = 0x05
    LINK = 0x06
    EXTERNAL = 0x07
    LAYOUT = 0x08
    FILTERS = 0x0B
    ATTRIBUTE = 0x0C
    CONTINUATION = 0x10
    SYMBOL_TABLE = 0x11
    ATTRIBUTE_INFO = 0x15


_KNOWN = frozenset(map(int, Kind))
_IS_SHARED = 0x02  # of a message's flags
_MUST_BE_KNOWN = 0x80

_PREFIX_1 = struct.Struct("<BxH4xI4x")  # version, count of messages, bytes of the first block
_MESSAGE_1 = struct.Struct("<HHB3x")  # kind, length, flags
_MESSAGE_2 = struct.Struct("<BHB")
_SIGN_2, _SIGN_MORE = b"OHDR", b"OCHK"
# Of the flags of a version 2 header.
_HAS_ORDER, _HAS_PHASES, _HAS_TIMES = 0x04, 0x10, 0x20
_COST = 128  # bytes a message takes in memory while its header is looked at


class Message(NamedTuple):
    """One message of a header.

    Attributes:
        kind: its number, one of `Kind`.
        body: its bytes.
        address: where they lie.
        is_shared: the body only says where the message is.
        order: place in the order in which attributes were made, or 0.
    """

    kind: int
    body: bytes
    address: int
    is_shared: bool
    order: int


class Header(NamedTuple):
    """What an object consists of.

    Attributes:
        messages: those of the kinds that are looked at here.
        keeps_order: whether its attributes are in the order in which they were made.
    """

    messages: list[Message]
    keeps_order: bool

    def of(self, kind: Kind) -> Message | None:
        """Return the first message of a kind, or None."""
        for message in self.messages:
            if message.kind == kind:
                return message
        return None


def read_header(window: Window, address: int) -> Header:
    """Return the messages of the header at an address, those of its continuations among them.

    Raises:
        FormatError: it is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    start = window.read(address, 16)
    header = (
        _read_2(window, address, start[5])
        if start.startswith(_SIGN_2)
        else _read_1(window, address, start)
    )
    window.budget.release_bytes(_COST * len(header.messages))
    return header


def _read_1(window: Window, address: int, start: bytes | bytearray) -> Header:
    version, count, length = _PREFIX_1.unpack(start)
    if version != 1:
        raise malformed("no object header is here", 1, version)
    window.take(address, 16)
    parts = _Blocks(window)
    found: list[Message] = []
    blocks = [(address + 16, length)]
    for at, size in blocks:  # which grows by continuations
        data = window.take(at, size)
        position = 0
        while count and position + 8 <= size:
            kind, body_length, flags = _MESSAGE_1.unpack_from(data, position)
            position += 8
            count -= 1
            end = position + body_length
            if end > size:
                raise malformed("a message leads out of its header", size - position, body_length)
            if kind == Kind.CONTINUATION:
                blocks.append(parts.more(data[position:end]))
            elif kind in _KNOWN:
                body = bytes(data[position:end])
                found.append(Message(kind, body, at + position, bool(flags & _IS_SHARED), 0))
                window.budget.charge_bytes(_COST)
            elif flags & _MUST_BE_KNOWN:
                raise malformed("a message must be understood, and is not", None, kind)
            window.budget.charge_steps(1)
            position = end
    return Header(found, keeps_order=False)


def _read_2(window: Window, address: int, flags: int) -> Header:
    prefix = 6 + (16 if flags & _HAS_TIMES else 0) + (4 if flags & _HAS_PHASES else 0)
    width = 1 << (flags & 3)
    length = int.from_bytes(window.read(address + prefix, width), "little")
    prefix += width
    parts = _Blocks(window)
    has_order = bool(flags & _HAS_ORDER)
    skip = 2 if has_order else 0
    found: list[Message] = []
    blocks = [(address, prefix, prefix + length + 4)]
    for at, position, size in blocks:  # which grows by continuations
        data = window.take(at, size)
        if at != address and not data.startswith(_SIGN_MORE):
            raise malformed("a header's continuation has another sign", _SIGN_MORE, bytes(data[:4]))
        window.require_sum(data)
        size -= 4  # noqa: PLW2901  # the checksum
        while position + 4 + skip <= size:
            kind, body_length, message_flags = _MESSAGE_2.unpack_from(data, position)
            begin = position + 4 + skip
            end = begin + body_length
            if end > size:
                raise malformed("a message leads out of its header", size - begin, body_length)
            if kind == Kind.CONTINUATION:
                more, more_length = parts.more(data[begin:end])
                if more_length < 8:
                    raise malformed("a header's continuation is too short", 8, more_length)
                blocks.append((more, 4, more_length))
            elif kind in _KNOWN:
                order = int.from_bytes(data[begin - skip : begin], "little")
                is_shared = bool(message_flags & _IS_SHARED)
                found.append(Message(kind, bytes(data[begin:end]), at + begin, is_shared, order))
                window.budget.charge_bytes(_COST)
            elif message_flags & _MUST_BE_KNOWN:
                raise malformed("a message must be understood, and is not", None, kind)
            window.budget.charge_steps(1)
            position = end  # noqa: PLW2901
    return Header(found, has_order)


class _Blocks:
    """The parts of a header, to which continuations add; none is met twice."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._place = window.record("OL")
        self._met: set[int] = set()

    def more(self, body: bytes | bytearray) -> tuple[int, int]:
        """Return where a continuation is, and its length."""
        address, length = self._place.unpack_from(body)
        if address in self._met:
            raise malformed("a header goes on where it was before", None, address)
        self._met.add(address)
        return address, length
