"""Sparse streams of deltas: seeds, their pieces, and a second implementation to agree with.

A case is a byte for the dtype, two bytes for the number of elements, and a stream. The old elements
follow from both.
"""

from __future__ import annotations

import functools
import random
import struct
from typing import Any

import ml_dtypes
import numpy as np
from pieces import Pieces

import ztensor
from ztensor.delta.changes import write_changes
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.stream import SparseStream, encode
from ztensor.testing.promise import PromiseBroken

DTYPES = [
    np.dtype(dtype)
    for dtype in (ml_dtypes.bfloat16, "f4", "f8", "f2", ml_dtypes.float8_e4m3fn, "u1", "i2", "i8")
]
MOST_ELEMENTS = 1 << 14
COMPARED_ELEMENTS = 300  # the second implementation is slow
REFUSED = {DeltaReason.MALFORMED, DeltaReason.BASE}


def plain_stream() -> Any:
    """Return the module of the second implementation."""
    from tests.unit.delta import plain_stream  # `targets` makes `tests` importable

    return plain_stream


@functools.lru_cache(maxsize=64)
def old_elements(code: int, count: int) -> Any:
    """Return the old elements of cases with this dtype and count."""
    dtype = DTYPES[code]
    dice = np.random.default_rng(count)
    if dtype.kind in "iu":
        return np.frombuffer(dice.bytes(count * dtype.itemsize), dtype)
    return dice.normal(0, 0.05, count).astype("f4").astype(dtype)


def kind_of(code: int) -> str:
    """Return the word of the second implementation for a dtype."""
    dtype = DTYPES[code]
    return "integer" if dtype.kind in "iu" else "float" if dtype.itemsize > 1 else "fp8"


@functools.cache
def seeds() -> tuple[bytes, ...]:
    """Return streams of each dtype, of the library and of the second implementation."""
    dice, plain, made = random.Random(38), plain_stream(), []
    for code, dtype in enumerate(DTYPES):
        for count, every in ((1, 1), (40, 13), (300, 3), (3_000, 50)):
            old = old_elements(code, count)
            bits = old.view(f"u{dtype.itemsize}")
            new = bits.copy()
            new[::every] += 1
            head = struct.pack("<BH", code, count)
            made += [
                head + (encode(old, new.view(dtype), effort=effort) or b"")
                for effort in ("fast", "small")
            ]
            if count <= COMPARED_ELEMENTS:
                choices = plain.Choices(
                    elements=dice.choice([16, 100, 1 << 22]),
                    is_new=dice.random() < 0.3,
                    limits=dice.choice([(255,), (120, 255), (40, 60, 100, 121, 122, 124, 255)]),
                    form=dice.choice([1, 2, 3]),
                    gap_width=dice.choice([1, 2, 4]),
                    stream=dice.choice([0, 1, 2]),
                )
                lists = bits.tolist(), new.tolist()
                stream = plain.encode(*lists, dtype.itemsize, kind_of(code), choices)
                made.append(head + stream)
    return tuple(made)


def applied(data: bytes) -> bool:
    """Apply a stream in each way, which must all give the same; return whether it was accepted."""
    if len(data) < 3:
        return False
    code, count = data[0] % len(DTYPES), struct.unpack_from("<H", data, 1)[0] % MOST_ELEMENTS
    old, blob = old_elements(code, count), memoryview(data)[3:]
    error = None
    try:
        new = _applied(old, blob)
    except DeltaError as refusal:
        if refusal.reason not in REFUSED or not str(refusal).isprintable():
            raise
        new, error = None, refusal
    if count <= COMPARED_ELEMENTS:
        _compare(code, old, blob, new, error)
    return error is None


def _applied(old: Any, blob: memoryview) -> Any:
    stream = SparseStream(blob, old.size, old.dtype)
    place = old.copy()
    for positions, values in stream.changes(place, is_ordered=False):
        is_difference = stream.values == "difference"
        write_changes(
            place.view(f"u{old.itemsize}"), positions, values, is_difference=is_difference
        )
    changed, bits = 0, old.view(f"u{old.itemsize}").copy()
    for positions, values in stream.changes(old):
        if (np.diff(positions) <= 0).any():
            raise PromiseBroken("positions do not rise")
        bits[positions] = values if stream.values == "new" else bits[positions] + values
        changed += positions.size
    if changed != stream.changed:
        raise PromiseBroken("the number of changes differs")
    if place.tobytes() != bits.tobytes():
        raise PromiseBroken("applied in two ways with different results")
    return bits


def _compare(code: int, old: Any, blob: memoryview, new: Any, error: Exception | None) -> None:
    """Check that the second implementation accepts the same streams, with the same result."""
    plain, bits = plain_stream(), old.view(f"u{old.itemsize}").tolist()
    try:
        second = plain.decode(bytes(blob), bits, old.itemsize, kind_of(code))
    except (ValueError, plain.ZstdError):
        second = None
    has_cap = isinstance(error and error.__cause__, ztensor.LimitError)  # a window, say
    if second != (None if new is None else new.tolist()) and not has_cap:
        raise PromiseBroken(f"the second implementation differs: {error}")


def cut(data: bytes) -> Pieces | None:
    """Cut the only segment of a stream into its heads and streams; None with more segments."""
    start = 3 + 8 + 4
    if len(data) <= start or len(data) - start != int.from_bytes(data[11:15], "little"):
        return None
    classes = data[start]
    body = start + 1 + classes
    parts = [data[start:body]]
    for _ in range(classes):
        head = data[body : body + 11]
        parts += [head[:4], head[4:8], head[8:9], head[9:10], head[10:]]
        body += 11
    while body + 5 <= len(data):
        end = body + 5 + int.from_bytes(data[body + 1 : body + 5], "little")
        parts += [data[body : body + 1], data[body + 1 : body + 5], data[body + 5 : end]]
        body = end

    def join(changed: list[bytes]) -> bytes:
        segment = b"".join(changed)
        return data[:11] + len(segment).to_bytes(4, "little") + segment

    return Pieces(parts, join, WORDS)


WORDS = (
    *(bytes([byte]) for byte in (0, 1, 2, 3, 4, 8, 127, 128, 255)),
    *(struct.pack("<I", number) for number in (0, 1, 8, 300, (1 << 31) - 1, (1 << 32) - 1)),
    b"\x02\x01\x00\x00\x00\x01",
    b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00\x01",
)
