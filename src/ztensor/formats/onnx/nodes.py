"""Nodes that may hold a tensor or a graph."""

from __future__ import annotations

from ztensor.formats.onnx.protobuf import BYTES, FIXED32, VARINT

# Fields of `AttributeProto`: a tensor, a graph, and lists of them.
ONE_TENSOR, ONE_GRAPH, TENSORS, GRAPHS, ONE_SPARSE, SPARSE = 5, 6, 10, 11, 22, 23
HELD = (ONE_TENSOR, ONE_GRAPH, TENSORS, GRAPHS, ONE_SPARSE, SPARSE)


def may_hold(node: bytes | bytearray) -> bool:
    """Return whether a node may hold a tensor or a graph.

    Most nodes hold none, and parsing them would take 14 times as long. True for unusual fields.

    Args:
        node: all bytes of the node.
    """
    place, stop = 0, len(node)
    try:
        while place < stop:
            tag, length = node[place], node[place + 1]
            place += 2
            if tag & 0x87 != BYTES:
                return True
            if length >= 0x80:
                more = node[place]
                if more >= 0x80:
                    return True
                length += (more - 1) * 0x80
                place += 1
            if tag != 0x2A:
                place += length
                continue
            end = place + length
            while place < end:
                inner = node[place]
                place += 1
                if inner == 0xA0 and node[place] == 1 and node[place + 1] < 0x80:  # the type
                    place += 2
                elif inner >> 3 in HELD:
                    return True
                elif inner & 7 == VARINT and inner < 0x80:
                    while node[place] >= 0x80:
                        place += 1
                    place += 1
                elif inner & 7 == FIXED32 and inner < 0x80:
                    place += 4
                elif inner & 7 == BYTES and inner < 0x80 and node[place] < 0x80:
                    place += 1 + node[place]
                else:
                    return True
            if place != end:
                return True
    except IndexError:
        return True
    return place != stop
