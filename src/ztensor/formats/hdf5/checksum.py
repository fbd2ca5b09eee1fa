"""The checksum of HDF5's newer structures: Bob Jenkins' hash "lookup3", begun with zero."""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFF
_TWICE = 0x100000001  # times this, 32 bits stand twice: shifted right by 32 - n, they are rotated


def lookup3(data: bytes | bytearray) -> int:
    """Return the hash of some bytes, a number of 32 bits."""
    a: int
    b: int
    c: int
    a = b = c = (0xDEADBEEF + len(data)) & _MASK
    if not data:
        return c
    whole = (len(data) - 1) // 12 * 12  # the last one to twelve bytes are mixed in another way
    mask, twice = _MASK, _TWICE
    for x, y, z in struct.iter_unpack("<3I", memoryview(data)[:whole]):
        # Only a number that is rotated next is cut to 32 bits: this is the hot loop.
        c = c + z & mask
        a = (a + x - c ^ c * twice >> 28) & mask
        b += y
        c += b
        b = (b - a ^ a * twice >> 26) & mask
        a += c
        c = (c - b ^ b * twice >> 24) & mask
        b += a
        a = (a - c ^ c * twice >> 16) & mask
        c += b
        b = (b - a ^ a * twice >> 13) & mask
        a += c
        c = (c - b ^ b * twice >> 28) & mask
        b += a
    x, y, z = struct.unpack("<3I", bytes(data[whole:]).ljust(12, b"\0"))
    a, b, c = a + x & mask, b + y & mask, c + z & mask
    c = ((c ^ b) - (b * twice >> 18 & mask)) & mask
    a = ((a ^ c) - (c * twice >> 21 & mask)) & mask
    b = ((b ^ a) - (a * twice >> 7 & mask)) & mask
    c = ((c ^ b) - (b * twice >> 16 & mask)) & mask
    a = ((a ^ c) - (c * twice >> 28 & mask)) & mask
    b = ((b ^ a) - (a * twice >> 18 & mask)) & mask
    return ((c ^ b) - (b * twice >> 8 & mask)) & mask
