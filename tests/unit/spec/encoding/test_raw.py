"""`raw`: stored bytes are decoded bytes, and no cap applies."""

from __future__ import annotations

import os

import numpy as np
import pytest

from tests.refusals import refused
from ztensor.errors import EncodingError, Reason
from ztensor.ext import ENCODINGS, Encoding, Stored
from ztensor.limits import DEFAULT_LIMITS, Limits

RAW = ENCODINGS["raw"]
LIMITS = Limits(decoded_bytes=1)
MIB = 1 << 20


class Memory:
    """Stored bytes that are handed out as views."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.length = len(data)

    def read(self, offset: int, length: int) -> memoryview:
        assert 0 <= offset <= offset + length <= self.length
        return self.data[offset : offset + length]


@pytest.mark.parametrize("length", [0, 1, MIB - 1, MIB, MIB + 1, 2 * MIB + 3])
def test_it_decodes_to_the_same_bytes(length: int) -> None:
    data = os.urandom(length)
    destination = bytearray(length)
    RAW.require_length(Memory(data), length, LIMITS)
    RAW.decode_into(Memory(data), memoryview(destination), LIMITS)
    assert destination == data
    for expected in (length, None):
        stored = Memory(data)
        chunks = list(RAW.decode_chunks(stored, expected, LIMITS))
        assert b"".join(chunks) == data
        assert all(chunk.nbytes == MIB for chunk in chunks[:-1])
        assert all(chunk.nbytes <= MIB and chunk.obj is stored.data.obj for chunk in chunks)


@pytest.mark.parametrize("expected", [0, 9, 11])
def test_another_length_is_refused_before_anything_is_written(expected: int) -> None:
    stored, destination = Memory(b"0123456789"), bytearray(expected)
    for work in (
        lambda: RAW.require_length(stored, expected, LIMITS),
        lambda: RAW.decode_into(stored, memoryview(destination), LIMITS),
        lambda: next(RAW.decode_chunks(stored, expected, LIMITS)),
    ):
        with refused(EncodingError, Reason.SIZE_MISMATCH) as caught:
            work()
        assert (caught.value.expected, caught.value.found) == (f"{expected} bytes", "10")
    assert destination == bytes(expected)


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_encoding_yields_the_data_itself(data: bytes) -> None:
    assert list(RAW.encode(memoryview(data), level=3)) == [memoryview(data)]


class Whole(Encoding):
    """An encoding that only decodes everything, into bytes that ascend."""

    name = "whole"

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        np.frombuffer(destination, np.uint8)[:] = np.arange(destination.nbytes)


@pytest.mark.parametrize("length", [0, 1, 8 * MIB, 16 * MIB + 5])
def test_an_encoding_that_decodes_the_whole_is_cut_into_chunks(length: int) -> None:
    chunks = [*Whole().decode_chunks(Memory(b""), length, DEFAULT_LIMITS)]
    assert max((chunk.nbytes for chunk in chunks), default=0) <= 8 * MIB
    assert b"".join(chunks) == np.arange(length).astype(np.uint8).tobytes()
