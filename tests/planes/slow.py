"""Planes in plain Python, from the text of `docs/specification/planes.md` alone; slow.

It shares nothing with the library. `write` can also store what the text forbids.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import zstandard

RAW, FRAME, REPEATED = 0, 1, 2
BYTES, FLOAT = 1, 2

Stream = tuple[int, bytes]  # kind, stored bytes


def planes_of(block: bytes, transform: int, width: int) -> list[bytes]:
    """Divide a block into `width` planes."""
    planes = [bytearray() for _ in range(width)]
    for at in range(0, len(block), width):
        element = list(reversed(block[at : at + width]))  # the most significant byte first
        if transform == FLOAT:
            top = element[0] << 8 | element[1]
            element[:2] = [top >> 7 & 0xFF, top >> 15 << 7 | top & 0x7F]
        for plane, byte in zip(planes, element, strict=True):
            plane.append(byte)
    return [bytes(plane) for plane in planes]


def block_of(planes: list[bytes], transform: int) -> bytes:
    """Join planes to a block."""
    block = bytearray()
    for row in zip(*planes, strict=True):
        element = list(row)
        if transform == FLOAT:
            exponent, rest = element[:2]
            top = (rest >> 7) << 15 | exponent << 7 | rest & 0x7F
            element[:2] = [top >> 8, top & 0xFF]
        block += bytes(reversed(element))
    return bytes(block)


def stream_of(plane: bytes) -> Stream:
    """Return the shortest kind of a plane."""
    if len(plane) > 1 and len(set(plane)) == 1:
        return REPEATED, plane[:1]
    frame = zstandard.ZstdCompressor(level=9).compress(plane)
    return (FRAME, frame) if len(frame) < len(plane) else (RAW, plane)


def write(
    data: bytes,
    transform: int,
    width: int,
    block_elements: int,
    choose: Callable[[bytes], Stream] = stream_of,
) -> bytes:
    """Return the stored bytes of elements."""
    stored, index, step = b"", b"", block_elements * width
    for at in range(0, len(data), step):
        for plane in planes_of(data[at : at + step], transform, width):
            kind, stream = choose(plane)
            stored += stream
            index += struct.pack("<I", kind << 30 | len(stream))
    return stored + index + trailer(block_elements, transform, width, -(-len(data) // step))


def trailer(
    block_elements: int,
    transform: int,
    width: int,
    count: int,
    zero: int = 0,
    magic: bytes = b"ZPL1",
) -> bytes:
    """Return the last 16 bytes."""
    return struct.pack("<IBBHI", block_elements, transform, width, zero, count) + magic


def read(stored: bytes, nbytes: int) -> bytes:
    """Return the elements of stored bytes, of which all are right."""
    block_elements, transform, width, zero, count = struct.unpack("<IBBHI", stored[-16:-4])
    assert (stored[-4:], zero) == (b"ZPL1", 0)
    start = len(stored) - 16 - 4 * width * count
    index = struct.unpack(f"<{width * count}I", stored[start:-16])
    at, data, elements = 0, b"", nbytes // width
    for block in range(count):
        size = min(block_elements, elements - block * block_elements)
        planes = []
        for entry in index[block * width : (block + 1) * width]:
            kind, length = entry >> 30, entry & (1 << 30) - 1
            stream, at = stored[at : at + length], at + length
            if kind == FRAME:
                assert zstandard.get_frame_parameters(stream).content_size == size
                stream = zstandard.ZstdDecompressor().decompress(stream)
            elif kind == REPEATED:
                stream *= size
            assert len(stream) == size
            planes.append(stream)
        data += block_of(planes, transform)
    assert at == start
    assert len(data) == nbytes
    return data
