"""Files of other formats with fields that expand far beyond their bytes, within the budget."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import peak_of, require_listed_in_budget
from tests.attacks.shapes import SHAPES, load
from tests.attacks.shapes.archives import (
    gguf,
    gguf_array,
    gguf_text,
    in_a_zip,
    legacy,
    onnx,
)
from tests.corpus.foreign.make_onnx import block as protobuf
from tests.corpus.foreign.make_onnx import varint
from ztensor.errors import LimitError, Reason, ZTensorError
from ztensor.limits import MIB, Limits

FLOOR = MIB  # less than the default, so that the tests are quick
LENGTH = 80_000
DEAR = [
    (kind, name)
    for kind in ("npy", "npz", "pt zip", "onnx", "gguf", "safetensors")
    for name in load()[kind]
    if name != "deflated pickle"  # it has a test of its own
]


def named(*parts: bytes) -> bytes:
    """Return a tensor of an ONNX graph."""
    return protobuf(5, protobuf(8, b"a") + b"".join(parts))


@pytest.mark.parametrize(("kind", "name"), DEAR, ids=map(" ".join, DEAR))
def test_every_field_is_charged_what_it_takes(kind: str, name: str) -> None:
    """A pickle of 104 kB took 1.6 GB; 8 MB of ONNX took 384 MiB; GGUF took 18 times its length."""
    limits = Limits(cost_floor=FLOOR)
    for length in (1000, LENGTH):  # the first imports the lazy modules
        made: Any = SHAPES[kind][name](length)
        peak, result = peak_of(lambda data=made: list(ztensor.open(data, limits=limits)))  # type: ignore[misc]
        assert isinstance(result, (list, ZTensorError))
    assert peak <= FLOOR + 4 * len(made)


def test_a_deflated_pickle_is_charged_by_its_stored_length() -> None:
    """A thousand bytes deflated to one: the budget grows with the file, not with the pickle."""
    data = in_a_zip(b"\x80\2](" + b"N" * (40 * MIB) + b"e.", deflated=True)
    result = require_listed_in_budget(data)
    assert isinstance(result, LimitError)
    assert result.reason is Reason.LIMIT_COST


def test_a_million_dimensions_of_one_byte_each() -> None:
    result = require_listed_in_budget(onnx(named(protobuf(1, b"\1" * MIB))))
    assert isinstance(result, LimitError)
    assert result.reason is Reason.LIMIT_RANK


@pytest.mark.parametrize("count", [1 << 20, 1 << 60, (1 << 64) - 1])
@pytest.mark.parametrize("kind", [0, 8, 9, 12])
def test_counts_of_gguf_are_compared_with_the_bytes(kind: int, count: int) -> None:
    """An array of 2^60 things in a file of a few bytes."""
    peak, result = peak_of(lambda: ztensor.open(gguf(gguf_array(kind, count, bytes(99)), 1)))
    assert isinstance(result, ZTensorError)
    assert peak < 4 * MIB


# --- Right files that must open --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("make", [in_a_zip, legacy], ids=["zip", "legacy"])
def test_large_pickles_open(make: Callable[[bytes], bytes]) -> None:
    """A list of 300,000 numbers, and a dict of 100,000 texts."""
    numbers = b"".join(b"M" + struct.pack("<H", i % 60_000) for i in range(300_000))
    texts = b"".join(
        b"X\6\0\0\0%06d" % i + b"\x94" + b"K\1" for i in range(100_000)
    )  # fmt: skip
    body = b"\x80\4}(X\1\0\0\0a](" + numbers + b"eX\1\0\0\0b}(" + texts + b"uu."
    reader = ztensor.open(make(body))
    assert len(reader.attributes["a"]) == 300_000
    assert len(reader.attributes["b"]) == 100_000


@pytest.mark.slow
def test_the_largest_vocabularies_open() -> None:
    """256k tokens with scores and types, and 512k merges."""
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


@pytest.mark.parametrize(("kind", "field", "width"), [(7, 7, 8), (13, 11, 8), (6, 5, 4), (3, 5, 1)])
def test_numbers_are_decoded_in_pieces(kind: int, field: int, width: int) -> None:
    """Reading them took six arrays of 8 bytes for each: now the result, and a little."""
    count = 2_000_000
    tensor = protobuf(1, varint(count)) + b"\x10" + varint(kind) + protobuf(field, b"\7" * count)
    reader = ztensor.open(onnx(named(tensor)))
    peak, array = peak_of(lambda: reader["a"])
    assert isinstance(array, np.ndarray)
    assert (array == 7).all()
    assert peak < count * width + 24 * MIB


@pytest.mark.parametrize("lead", [0, 1, 5, 9])
def test_numbers_on_the_border_of_two_pieces(lead: int) -> None:
    """A number of ten bytes that begins in one piece and ends in the next is one number."""
    values = [1] * ((1 << 18) - lead) + [-5, 300, 1 << 40, -(1 << 63)] * 9
    packed = b"".join(varint(value % (1 << 64)) for value in values)
    tensor = protobuf(1, varint(len(values))) + b"\x10\x07" + protobuf(7, packed)
    assert ztensor.open(onnx(named(tensor)))["a"].tolist() == values
