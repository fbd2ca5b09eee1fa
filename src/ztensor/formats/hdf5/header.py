"""Object headers: the messages of a group, dataset or stored type."""

from __future__ import annotations

import enum
import struct
import sys
from typing import NamedTuple

from ztensor.formats.hdf5.window import Fields, Window, malformed


class Kind(enum.IntEnum):
    """The kinds of messages that are read, by the format's numbers."""

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
# Kind, length, flags; in a new header that stores the order, the place in it.
_MESSAGE_1, _MESSAGE_2, _ORDERED = map(struct.Struct, ("<HHB3x", "<BHB", "<BHBH"))
_SIGN_2, _SIGN_MORE = b"OHDR", b"OCHK"
# Of the flags of a version 2 header.
_HAS_ORDER, _HAS_PHASES, _HAS_TIMES = 0x04, 0x10, 0x20
_COST = 128  # bytes of memory of a message while its header is read


class Message(NamedTuple):
    """One message of a header.

    Attributes:
        kind: its number, one of `Kind`.
        body: its bytes.
        address: the address of the body.
        is_shared: the body is the address of the message.
        order: place in the order in which attributes were created, or 0.
    """

    kind: int
    body: bytes
    address: int
    is_shared: bool
    order: int


class Header(NamedTuple):
    """The messages of an object.

    Attributes:
        messages: the messages of kinds that are read.
        keeps_order: whether its attributes have an order of creation.
    """

    messages: list[Message]
    keeps_order: bool

    def of(self, kind: Kind) -> Message | None:
        """Return the first message of a kind, or None if there is none."""
        for message in self.messages:
            if message.kind == kind:
                return message
        return None


def read_header(window: Window, address: int) -> Header:
    """Return the header at an address, with the messages of its continuations.

    Raises:
        FormatError: it is damaged.
        LimitError: the budget is used up.
        SourceError: it cannot be read.
    """
    start = window.read(address, 16)
    is_new, keeps_order = start.startswith(_SIGN_2), False
    if is_new:  # the number of messages is not stored; each block has a signature and a checksum
        keeps_order, count = bool(start[5] & _HAS_ORDER), sys.maxsize
        record = _ORDERED if keeps_order else _MESSAGE_2
        prefix = 6 + (16 if start[5] & _HAS_TIMES else 0) + (4 if start[5] & _HAS_PHASES else 0)
        width = 1 << (start[5] & 3)
        length = int.from_bytes(window.read(address + prefix, width), "little")
        blocks = [(address, prefix + width, prefix + width + length + 4)]
    else:
        record = _MESSAGE_1
        version, count, length = _PREFIX_1.unpack(start)
        if version != 1:
            raise malformed("not an object header", 1, version)
        window.take(address, 16)
        blocks = [(address + 16, 0, length)]
    messages: list[Message] = []
    met: set[int] = set()
    for at, position, size in blocks:  # continuations are appended
        data, stop = window.take(at, size), size
        if is_new:
            if at != address and not data.startswith(_SIGN_MORE):
                raise malformed(
                    "wrong signature of a header's continuation", _SIGN_MORE, bytes(data[:4])
                )
            window.require_sum(data)
            stop -= 4
        while count and position + record.size <= stop:
            kind, length, flags, *order = record.unpack_from(data, position)
            begin = position + record.size
            position = begin + length  # noqa: PLW2901
            if position > stop:
                raise malformed("a message reaches beyond its header", stop - begin, length)
            if kind == Kind.CONTINUATION:
                more, length = Fields(window, data[begin:position]).take("OL")
                if more in met:
                    raise malformed("object header continuation loops", None, more)
                met.add(more)
                blocks.append((more, 4 if is_new else 0, length))
            elif kind in _KNOWN:
                body, is_shared = bytes(data[begin:position]), bool(flags & _IS_SHARED)
                messages.append(Message(kind, body, at + begin, is_shared, *(order or (0,))))
                window.budget.charge_bytes(_COST)
            elif flags & _MUST_BE_KNOWN:
                raise malformed("unknown message that must be understood", None, kind)
            window.budget.charge_steps(1)
            count -= 1
    window.budget.release_bytes(_COST * len(messages))
    return Header(messages, keeps_order)
