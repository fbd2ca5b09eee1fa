from __future__ import annotations

import os

import pytest

from ztensor.errors import EncodingError, Reason
from ztensor.limits import Limits
from ztensor.spec.encoding import raw
from ztensor.spec.encoding.raw import Raw

LIMITS = Limits(decoded_bytes=1)  # raw has no cap


class Memory:
    """Stored bytes that hands out views."""

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.length = len(data)

    def read(self, offset: int, length: int) -> memoryview:
        assert 0 <= offset <= offset + length <= self.length
        return self.data[offset : offset + length]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "PIECE_BYTES", 7)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("length", [0, 1, 6, 7, 8, 14, 20])
def test_decodes_to_the_same_bytes(length: int) -> None:
    data = os.urandom(length)
    destination = bytearray(length)
    Raw().decode_into(Memory(data), memoryview(destination), LIMITS)
    assert destination == data
    for expected in (length, None):
        pieces = [bytes(piece) for piece in Raw().decode_chunks(Memory(data), expected, LIMITS)]
        assert b"".join(pieces) == data
        assert all(len(piece) <= 7 for piece in pieces)


def test_chunks_of_a_mapped_source_are_views() -> None:
    stored = Memory(b"0123456789")
    (piece,) = Raw().decode_chunks(stored, 10, LIMITS)
    assert piece.obj is stored.data.obj


@pytest.mark.parametrize("expected", [0, 9, 11])
def test_another_length_is_refused_before_anything_is_written(expected: int) -> None:
    stored = Memory(b"0123456789")
    destination = bytearray(expected)
    with pytest.raises(EncodingError) as check:
        Raw().require_length(stored, expected, LIMITS)
    with pytest.raises(EncodingError) as into:
        Raw().decode_into(stored, memoryview(destination), LIMITS)
    with pytest.raises(EncodingError) as chunks:
        next(Raw().decode_chunks(stored, expected, LIMITS))
    for caught in (check, into, chunks):
        assert caught.value.reason is Reason.SIZE_MISMATCH
        assert (caught.value.expected, caught.value.found) == (f"{expected} bytes", "10")
    assert destination == bytes(expected)


def test_require_length_passes_the_right_length() -> None:
    Raw().require_length(Memory(b"0123456789"), 10, LIMITS)


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_encoding_yields_the_data_itself(data: bytes) -> None:
    view = memoryview(data)
    assert list(Raw().encode(view, level=3)) == [view]
