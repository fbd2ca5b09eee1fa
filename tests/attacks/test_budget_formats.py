"""Files of other formats with fields that expand far beyond their bytes, within the budget."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

import ztensor
from tests.attacks.peaks import peak_of, require_listed_in_budget
from tests.attacks.shapes.archives import (
    PICKLES,
    gguf,
    gguf_array,
    gguf_text,
    in_a_zip,
    legacy,
    onnx,
    protobuf,
    varint,
)
from ztensor.errors import LimitError, Reason, ZTensorError
from ztensor.limits import MIB, Limits

FLOOR = MIB  # less than the default, so that the tests are quick
COUNT = 60_000
N = 1 << 16


def named(*parts: bytes) -> bytes:
    """Return a tensor of an ONNX graph."""
    return protobuf(5, protobuf(8, b"a") + b"".join(parts))


def keys(count: int) -> bytes:
    return gguf(b"".join(gguf_text(b"%05x" % i) + b"\0\0\0\0\1" for i in range(count)), count)


def tensors(count: int) -> bytes:
    each = (gguf_text(b"%05x" % i) + struct.pack("<IIQ", 0, 0, 0) for i in range(count))
    return gguf(b"", 0, b"".join(each), count)


# What each instruction of a pickle makes, over and over: more than the floor of the budget.
OF_PICKLES = {
    "lists": b"](" + b"]" * 56_250 + b"e.",
    "lists appended to": b"](" + b"]Na" * 37_500 + b"e.",
    "dicts": b"](" + b"}" * 93_750 + b"e.",
    "dicts of one": b"](" + b"}NNs" * 31_250 + b"e.",
    "marks": b"(" * 56_250 + b".",
    "tuples": b"N" + b"\x85" * 75_000 + b".",
    "names": b"](" + b"ca\nb\n" * 31_250 + b"e.",
    "calls": b"ccollections\nOrderedDict\nq\0](" + b"h\0)R" * 31_250 + b"e.",
    "numbers": b"](" + b"J\0\0\0\1" * 93_750 + b"e.",
    "floats": b"](" + b"G\1\2\3\4\5\6\7\10" * 93_750 + b"e.",
    "long numbers": b"](" + (b"\x8a\xff" + b"\1" * 255) * 30_000 + b"e.",
    "long decimals": b"](" + (b"L" + b"9" * 90 + b"\n") * 75_000 + b"e.",
    "bytes": b"](" + b"C\2ab" * 125_000 + b"e.",
    "texts": b"](" + b"\x8c\2ab" * 125_000 + b"e.",
    "wide texts": b"](" + (b"X\x10\0\0\0" + "🎈".encode() + b"a" * 12) * 43_750 + b"e.",
    "escaped texts": b"V" + b"\\u1234" * 187_500 + b"\n.",
    "quoted strings": b"S'" + b"\\x41a" * 187_500 + b"'\n.",
    "one wide text": b"X" + struct.pack("<I", MIB) + "🎈".encode()
                     + b"a" * (MIB - 4) + b".",
    "memo": b"N" + b"\x94" * 600_000 + b".",
    "memo with gaps": b"N" + b"".join(b"r%c%c%c\x7f" % (i & 255, i >> 8 & 255, i >> 16)
                                      for i in range(25_000)) + b".",
    "memo in a tuple": b"Nq\0(" + b"h\0" * 312_500 + b"t.",
    "calls that copy": b"](" + b"N" * 4000 + b"eq\0cbuiltins\nset\nq\1"
                       + b"h\1h\0\x85R0" * 4000 + b"N.",
    "calls that copy text": b"X\0\0\4\0" + b"a" * (1 << 18) + b"q\0c_codecs\nencode\nq\1("
                            + b"h\1h\0\x85R" * 100 + b"t.",
    "copies of a dict": b"}(" + b"NN" * 4000 + b"uq\0ccollections\nOrderedDict\nq\1("
                        + b"h\1h\0\x85R" * 2000 + b"t.",
    "states of a dict": b"}(" + b"NN" * 4000 + b"uq\0(" + b"}h\0b" * 2000 + b"t.",
}  # fmt: skip
OF_ONNX = {
    "packed dimensions": named(protobuf(1, b"\1" * N)),
    "dimensions one by one": named(b"\x08\x01" * N),
    "dimensions of nothing": named(protobuf(1, b"") * (N // 2)),
    "external data": named(
        b"\x70\x01", *(protobuf(13, protobuf(1, b"%x" % i)) for i in range(12_000))
    ),
    "initializers": b"".join(
        protobuf(5, b"\x08\x00\x10\x03" + protobuf(8, b"%x" % i)) for i in range(5_000)
    ),
    "strings": named(b"\x10\x08", b"\x32\x00" * (N // 2)),
    "outputs of a node": protobuf(1, protobuf(4, b"Constant") + protobuf(2, b"ab") * N),
    "tensors of a node": protobuf(
        1, protobuf(4, b"Constant") + protobuf(5, protobuf(5, b"") * 20_000) + protobuf(2, b"a")
    ),
    "nodes": protobuf(1, protobuf(4, b"Constant")) * 5_000,
    "sparse initializers": protobuf(15, b"\x18\x01" * N),
    "a wide name": protobuf(2, "🎈".encode() + b"a" * MIB),
}  # fmt: skip
OF_GGUF = {
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
DEAR: dict[str, bytes] = {
    **{f"pt: {name}": in_a_zip(b"\x80\x02" + data) for name, data in OF_PICKLES.items()},
    **{f"onnx: {name}": onnx(data) for name, data in OF_ONNX.items()},
    **{f"gguf: {name}": gguf(data, 1) for name, data in OF_GGUF.items()},
    "gguf: keys": keys(10_000),
    "gguf: tensors": tensors(10_000),
}
# Those that may be opened: they stay within the budget, which grows with their length.
OPENED = ("pt: long numbers", "pt: long decimals")


@pytest.mark.parametrize("name", DEAR)
def test_every_field_is_charged_what_it_takes(name: str) -> None:
    """A pickle of 104 kB took 1.6 GB; 8 MB of ONNX took 384 MiB; GGUF took 18 times its length."""
    data, limits = DEAR[name], Limits(cost_floor=FLOOR)
    peak, result = peak_of(lambda: list(ztensor.open(data, limits=limits)))
    assert peak <= FLOOR + 4 * len(data)
    if isinstance(result, ZTensorError):
        assert result.reason is Reason.LIMIT_COST or name.startswith("onnx")
    else:
        assert name in OPENED or not name.startswith("pt")


@pytest.mark.slow
@pytest.mark.parametrize("name", PICKLES)
def test_the_worst_pickles_stay_in_the_budget(name: str) -> None:
    """The shapes of `make suite SUITE=budget`, at a length that is quick."""
    result = require_listed_in_budget(legacy(PICKLES[name](20_000)))
    assert isinstance(result, (list, ZTensorError))


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
