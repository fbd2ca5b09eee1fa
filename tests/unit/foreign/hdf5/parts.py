"""Structures of HDF5 put together byte by byte: what h5py writes seldom, or never."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from ztensor.foreign.hdf5.checksum import lookup3
from ztensor.foreign.hdf5.window import Window
from ztensor.limits import Budget, Limits
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from collections.abc import Mapping

UNDEFINED = 2**64 - 1
NODE_BYTES = 4096


def summed(body: bytes) -> bytes:
    """Return a structure with its checksum behind it."""
    return body + lookup3(body).to_bytes(4, "little")


def window_of(parts: Mapping[int, bytes], size: int = 0, *, limits: Limits | None = None) -> Window:
    """Return the window on a file that has each part at its address, and zeros elsewhere."""
    data = bytearray(max([size, *(place + len(part) for place, part in parts.items())]))
    for place, part in parts.items():
        data[place : place + len(part)] = part
    source = MemorySource(bytes(data))
    return Window(source, 0, Budget(limits or Limits(), source.size), 8, 8)


def tree_2(
    kind: int, width: int, root: int = UNDEFINED, *, depth: int = 0, count: int = 0, total: int = -1
) -> bytes:
    """Return the header of a version 2 tree; without a root it has no record."""
    head = struct.pack("<4sBBIHHBB", b"BTHD", 0, kind, NODE_BYTES, width, depth, 100, 40)
    return summed(head + struct.pack("<QHQ", root, count, count if total < 0 else total))


def leaf_2(kind: int, records: bytes) -> bytes:
    """Return a leaf of a version 2 tree."""
    return summed(struct.pack("<4sBB", b"BTLF", 0, kind) + records)
