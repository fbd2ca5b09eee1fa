"""Planes in plain Python, from the text of `docs/specification/planes.md` alone; slow.

It shares nothing with the library. `write` can also break rules of the text.
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


def read(stored: bytes, nbytes: int, width: int) -> bytes:
    """Return the elements of stored bytes; their storage type has `width` bytes.

    Raises:
        ValueError: a rule of the text is broken.
        zstandard.ZstdError: a frame is damaged.
    """
    require(len(stored) >= 16, "no trailer")
    block_elements, transform, found, zero, count = struct.unpack("<IBBHI", stored[-16:-4])
    require((stored[-4:], zero, found) == (b"ZPL1", 0, width), "a wrong trailer")
    require(transform == BYTES or (transform == FLOAT and width > 1), "an unknown transform")
    require(1 <= block_elements <= 1 << 22, "a wrong size of blocks")
    require(nbytes % width == 0, "part of an element")
    elements = nbytes // width
    require(count == -(-elements // block_elements), "a wrong number of blocks")
    start = len(stored) - 16 - 4 * width * count
    require(start >= 0, "no index")
    index = struct.unpack(f"<{width * count}I", stored[start:-16])
    require(sum(entry & (1 << 30) - 1 for entry in index) == start, "a wrong sum")
    at, data = 0, b""
    for block in range(count):
        size = min(block_elements, elements - block * block_elements)
        planes = []
        for entry in index[block * width : (block + 1) * width]:
            kind, length = entry >> 30, entry & (1 << 30) - 1
            planes.append(plane_of(kind, stored[at : at + length], size))
            at += length
        data += block_of(planes, transform)
    return data


def plane_of(kind: int, stream: bytes, size: int) -> bytes:
    """Return the bytes of a plane."""
    require(kind < 3, "kind 3")
    if kind == FRAME:
        frame = zstandard.get_frame_parameters(stream)
        require((frame.content_size, frame.dict_id) == (size, 0), "a wrong frame")
        decoder = zstandard.ZstdDecompressor().decompressobj()
        stream = decoder.decompress(stream)
        require(decoder.eof and not decoder.unused_data, "not exactly one frame")
    elif kind == REPEATED:
        require(len(stream) == 1, "more than one byte")
        stream *= size
    require(len(stream) == size, "a plane of another length")
    return stream


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
