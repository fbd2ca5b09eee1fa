"""GGUF files whose header makes far more than it is long, and vocabularies that must not."""

from __future__ import annotations

import struct

import pytest

import ztensor
from tests.attacks.peaks import peak_of
from tests.attacks.shapes.archives import gguf, gguf_array, gguf_text
from ztensor.errors import LimitError, Reason, ZTensorError
from ztensor.limits import MIB, Limits

FLOOR = 2 * MIB  # less than by default, so that the tests are quick
COUNT = 60_000

DEAR = {
    "short texts": gguf_array(8, COUNT, gguf_text("äß€".encode()) * COUNT),
    "texts that are no UTF-8": gguf_array(8, COUNT, gguf_text(b"\xff\xfe\xfd") * COUNT),
    "a wide text among many": gguf_array(
        8, COUNT + 1, gguf_text("🎈".encode() + b"a" * MIB) + gguf_text(b"abc") * COUNT
    ),
    "numbers": gguf_array(2, 4 * COUNT, b"\xff\x7f" * 4 * COUNT),
    "small numbers": gguf_array(1, 4 * COUNT, b"\x80" * 4 * COUNT),
    "floats": gguf_array(6, 4 * COUNT, b"\1\2\3\4" * 4 * COUNT),
    "arrays": gguf_array(9, COUNT, struct.pack("<IQ", 0, 0) * COUNT),
    "arrays of one": gguf_array(9, COUNT, struct.pack("<IQH", 2, 1, 999) * COUNT),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DEAR)
def test_arrays_are_charged_what_they_take(name: str) -> None:
    """Arrays of short strings and small numbers took 18 times the length of the file."""
    data = gguf(DEAR[name], 1)
    limits = Limits(cost_floor=FLOOR)
    peak, result = peak_of(lambda: list(ztensor.open(data, limits=limits)))
    assert peak <= FLOOR + 4 * len(data)
    if isinstance(result, ZTensorError):
        assert result.reason is Reason.LIMIT_COST


@pytest.mark.parametrize("kind", ["keys", "tensors"])
def test_keys_and_tensors_are_charged(kind: str) -> None:
    """Keys of 17 bytes and tensors of 28 make objects of a thousand."""
    if kind == "keys":
        each = (gguf_text(b"%05x" % i) + b"\0\0\0\0\1" for i in range(10_000))
        data = gguf(b"".join(each), 10_000)
    else:
        each = (gguf_text(b"%05x" % i) + struct.pack("<IIQ", 0, 0, 0) for i in range(10_000))
        data = gguf(b"", 0, b"".join(each), 10_000)
    limits = Limits(cost_floor=FLOOR)
    peak, result = peak_of(lambda: list(ztensor.open(data, limits=limits)))
    assert isinstance(result, LimitError)
    assert peak <= FLOOR + 4 * len(data)


@pytest.mark.slow
def test_the_largest_vocabularies_open() -> None:
    """The other way round: 256k tokens with scores and types, and 512k merges, are read."""
    tokens = b"".join(gguf_text(b"tok%05x" % i) for i in range(256_000))
    merges = b"".join(gguf_text(b"to %05x k" % i) for i in range(512_000))

    def entry(key: bytes, kind: int, count: int, data: bytes) -> bytes:
        return gguf_text(key) + struct.pack("<IIQ", 9, kind, count) + data

    metadata = (
        entry(b"tokenizer.ggml.tokens", 8, 256_000, tokens)
        + entry(b"tokenizer.ggml.scores", 6, 256_000, struct.pack("<f", 0.1) * 256_000)
        + entry(b"tokenizer.ggml.token_type", 5, 256_000, struct.pack("<i", 1) * 256_000)
        + entry(b"tokenizer.ggml.merges", 8, 512_000, merges)
    )
    tensor = gguf_text(b"t") + struct.pack("<IQIQ", 1, 8, 0, 0)
    data = gguf(metadata, 4, tensor, 1)
    data += bytes(-len(data) % 32 + 32)
    assert list(ztensor.open(data)) == ["t"]


@pytest.mark.parametrize("count", [1 << 20, 1 << 60, (1 << 64) - 1])
@pytest.mark.parametrize("kind", [0, 8, 9, 12])
def test_counts_are_held_to_the_bytes_there_are(kind: int, count: int) -> None:
    """An array of 2^60 things in a file of a few bytes."""
    peak, result = peak_of(lambda: ztensor.open(gguf(gguf_array(kind, count, bytes(99)), 1)))
    assert isinstance(result, ZTensorError)
    assert peak < 4 * MIB
