"""Object headers: the messages a group, dataset or stored type consists of."""

from __future__ import annotations

import enum
import struct
import sys
from typing import NamedTuple

from ztensor.formats.hdf5.window import Fields, Window, malformed


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
# Kind, length, flags; in a new header that keeps the order, the place in it.
_MESSAGE_1, _MESSAGE_2, _ORDERED = map(struct.Struct, ("<HHB3x", "<BHB", "<BHBH"))
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
    is_new, keeps_order = start.startswith(_SIGN_2), False
    if is_new:  # as many messages as fit; each block has a sign, and a checksum at its end
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
            raise malformed("no object header is here", 1, version)
        window.take(address, 16)
        blocks = [(address + 16, 0, length)]
    messages: list[Message] = []
    met: set[int] = set()
    for at, position, size in blocks:  # which grows by continuations
        data, stop = window.take(at, size), size
        if is_new:
            if at != address and not data.startswith(_SIGN_MORE):
                raise malformed(
                    "a header's continuation has another sign", _SIGN_MORE, bytes(data[:4])
                )
            window.require_sum(data)
            stop -= 4
        while count and position + record.size <= stop:
            kind, length, flags, *order = record.unpack_from(data, position)
            begin = position + record.size
            position = begin + length  # noqa: PLW2901
            if position > stop:
                raise malformed("a message leads out of its header", stop - begin, length)
            if kind == Kind.CONTINUATION:
                more, length = Fields(window, data[begin:position]).take("OL")
                if more in met:
                    raise malformed("a header goes on where it was before", None, more)
                met.add(more)
                blocks.append((more, 4 if is_new else 0, length))
            elif kind in _KNOWN:
                body, is_shared = bytes(data[begin:position]), bool(flags & _IS_SHARED)
                messages.append(Message(kind, body, at + begin, is_shared, *(order or (0,))))
                window.budget.charge_bytes(_COST)
            elif flags & _MUST_BE_KNOWN:
                raise malformed("a message must be understood, and is not", None, kind)
            window.budget.charge_steps(1)
            count -= 1
    window.budget.release_bytes(_COST * len(messages))
    return Header(messages, keeps_order)
