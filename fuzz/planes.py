"""Stored bytes of planes: seeds, their pieces, and a second implementation to agree with.

A case is a byte for the dtype, two bytes for the number of elements, and the stored bytes.
"""

from __future__ import annotations

import functools
import itertools
import struct
from types import ModuleType

import numpy as np
import zstandard
from pieces import Pieces

import ztensor
from ztensor.ext import ENCODINGS, Component
from ztensor.spec.encoding.base import Held
from ztensor.testing.promise import PromiseBroken

WIDTHS = {"bf16": 2, "f32": 4, "f64": 8, "i64": 8, "u16": 2, "u8": 1}
DTYPES = list(WIDTHS)
MOST_ELEMENTS = 1 << 14
COMPARED_ELEMENTS = 1000  # the second implementation is slow
LIMITS = ztensor.Limits(decoded_bytes=1 << 20)


def slow() -> ModuleType:
    """Return the module of the second implementation."""
    from tests.planes import slow  # `targets` makes `tests` importable

    return slow


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Return stored bytes of each dtype, in one block and in several."""
    dice, made = np.random.default_rng(38), []
    for code, (dtype, width) in enumerate(WIDTHS.items()):
        transforms = (1, 2) if dtype in ("bf16", "f32", "f64") else (1,)
        for transform, count, block in itertools.product(transforms, (1, 50, 700), (16, 300, 2048)):
            elements = dice.normal(0, 0.05, count).astype("<f8").view("u1").reshape(count, 8)
            data = elements[:, -width:].tobytes()
            stored = slow().write(data, transform, width, block)
            made.append(struct.pack("<BH", code, count) + stored)
    return tuple(made)


def decoded(data: bytes) -> bool:
    """Decode in each way, which must all give the same; return whether it was accepted."""
    if len(data) < 3:
        return False
    dtype = DTYPES[data[0] % len(DTYPES)]
    count = int.from_bytes(data[1:3], "little") % MOST_ELEMENTS
    stored, nbytes = Held(memoryview(data)[3:]), count * WIDTHS[dtype]
    encoding = ENCODINGS["pyztensor.planes/1"].for_component(Component(dtype, 0, 0))
    whole = memoryview(bytearray(nbytes))
    error: ztensor.ZTensorError | None = None
    try:
        encoding.decode_into(stored, whole, LIMITS)
    except (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError) as refusal:
        error = refusal
    try:
        chunks = b"".join(encoding.decode_chunks(stored, nbytes, LIMITS))
    except (ztensor.FormatError, ztensor.UnsupportedError, ztensor.LimitError) as refusal:
        if error is None or refusal.reason != error.reason:
            raise PromiseBroken(f"decoded in two ways: {refusal}") from refusal
    else:
        if error is not None or chunks != whole:
            raise PromiseBroken(f"decoded in two ways: {error}")
    if count <= COMPARED_ELEMENTS:
        _compare(bytes(stored.view), nbytes, WIDTHS[dtype], error, bytes(whole))
    if error is not None:
        raise error
    return True


def _compare(
    stored: bytes, nbytes: int, width: int, error: ztensor.ZTensorError | None, data: bytes
) -> None:
    """Check that the second implementation accepts the same bytes, with the same result."""
    try:
        second = slow().read(stored, nbytes, width)
    except (ValueError, zstandard.ZstdError):
        second = None
    of_frame = error is not None and "zstd" in str(error)  # its rules and caps are our own
    if second != (None if error else data) and not of_frame:
        raise PromiseBroken(f"the second implementation differs: {error}")


def cut(data: bytes) -> Pieces | None:
    """Cut stored bytes into streams, entries of the index and fields; None if there is no index."""
    if len(data) < 19:
        return None
    width, count = data[-11], int.from_bytes(data[-8:-4], "little")
    start = len(data) - 16 - 4 * width * count
    if start < 3:
        return None
    parts, at = [data[:1], data[1:3]], 3
    entries = [data[place : place + 4] for place in range(start, len(data) - 16, 4)]
    for entry in entries:
        length = int.from_bytes(entry, "little") & (1 << 30) - 1
        parts.append(data[at : at + length])
        at += length
    fields = [data[-16:-12], data[-12:-11], data[-11:-10], data[-10:-8], data[-8:-4], data[-4:]]
    return Pieces([*parts, *entries, *fields], b"".join, WORDS)


WORDS = (
    *(bytes([byte]) for byte in (0, 1, 2, 3, 4, 8, 127, 128, 255)),
    *(struct.pack("<I", number) for number in (0, 1, 16, 300, 1 << 22, 1 << 30, (1 << 32) - 1)),
    *(struct.pack("<I", 2 << 30 | number) for number in (0, 1, 2)),
    b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00\x01",
)
