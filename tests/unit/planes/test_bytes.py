"""The bytes follow the specification: a slow implementation of its text reads and writes them."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planes import slow
from tests.planes.broken import BROKEN, DATA, GOOD
from tests.refusals import refused
from tests.stored import Memory
from ztensor.errors import EncodingError, LimitError, ZTensorError
from ztensor.ext import ENCODINGS, Component, Encoding
from ztensor.limits import DEFAULT_LIMITS, Limits

MIB = 1 << 20
NAME = "pyztensor.planes/1"
DTYPES = ["f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u16", "u8", "bool"]
WIDTHS = {"f64": 8, "i64": 8, "u64": 8, "f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i16": 2, "u16": 2}


def encoding(dtype: str) -> Encoding:
    return ENCODINGS[NAME].for_component(Component(dtype, 0, 0))


def written(data: bytes, dtype: str, block_bytes: int) -> bytes:
    """Encode as a writer does: block by block, then the table."""
    code, pieces, frames = encoding(dtype), b"", []
    for at in range(0, len(data), block_bytes):
        block = memoryview(data)[at : at + block_bytes]
        for number, piece in enumerate(code.encode(block, level=3)):
            pieces += piece
            is_last = number + 1 == WIDTHS.get(dtype, 1)
            frames.append((len(piece), len(block) if is_last else 0))
    return pieces + code.end(frames)


def decoded(stored: bytes, nbytes: int, dtype: str = "u8") -> bytes:
    """Decode in each way there is, and require that all agree."""
    code, source = encoding(dtype), Memory(stored)
    memory = memoryview(bytearray(nbytes))
    code.decode_into(source, memory, DEFAULT_LIMITS)
    chunks = b"".join(code.decode_chunks(source, nbytes, DEFAULT_LIMITS))
    runs = code.require_length(source, nbytes, DEFAULT_LIMITS)
    assert runs is not None
    places = itertools.pairwise(runs.decoded)
    blocks = [memoryview(bytearray(stop - start)) for start, stop in places]
    for number, block in reversed(list(enumerate(blocks))):
        code.decode_numbered(source, runs, number, block, DEFAULT_LIMITS)
    assert memory == chunks == b"".join(blocks)
    return bytes(memory)


@st.composite
def elements(draw: st.DrawFn) -> tuple[bytes, str, int]:
    """Return elements, random or like weights or constant, their dtype and elements of a block."""
    dtype = draw(st.sampled_from(DTYPES))
    count, block = draw(st.integers(1, 700)), draw(st.sampled_from([1, 7, 64, 256, 699, 700, 5000]))
    seed, kind = draw(st.integers(0, 99)), draw(st.sampled_from(["random", "weights", "same"]))
    chance, width = np.random.default_rng(seed), WIDTHS.get(dtype, 1)
    data = chance.bytes(count * width)
    if kind == "same":
        data = chance.bytes(width) * count
    elif kind == "weights" and width > 1:
        weights = chance.normal(0, 0.02, count).astype(f"<f{max(width, 4)}")
        data = weights.tobytes() if width > 2 else weights.view("<u2")[1::2].tobytes()
    return data, dtype, block


@given(elements())
@settings(max_examples=60)
def test_the_slow_reader_reads_what_is_written(case: tuple[bytes, str, int]) -> None:
    data, dtype, block = case
    stored = written(data, dtype, block * WIDTHS.get(dtype, 1))
    assert slow.read(stored, len(data), WIDTHS.get(dtype, 1)) == data
    assert decoded(stored, len(data), dtype) == data
    assert written(data, dtype, block * WIDTHS.get(dtype, 1)) == stored


@given(elements(), st.sampled_from([slow.BYTES, slow.FLOAT]))
@settings(max_examples=60)
def test_what_the_slow_writer_writes_is_read(case: tuple[bytes, str, int], transform: int) -> None:
    data, dtype, block = case
    width = WIDTHS.get(dtype, 1)
    stored = slow.write(data, transform if width > 1 else slow.BYTES, width, block)
    assert decoded(stored, len(data), dtype) == data


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64", "i32", "u8"])
def test_blocks_of_the_usual_size_and_the_border(dtype: str) -> None:
    """A block of the usual size, one element more, and one that is larger than the scratch."""
    width = WIDTHS.get(dtype, 1)
    chance = np.random.default_rng(3)
    weights = chance.normal(0, 0.02, 1 + (1 << 17) * 8 // 4).astype("<f4").tobytes()
    for count in (1 << 17, (1 << 17) + 1, (1 << 17) + 4096):
        data = (weights * width)[: count * width]
        stored = written(data, dtype, (1 << 17) * width)
        assert decoded(stored, len(data), dtype) == data
        assert len(stored) <= 1.001 * len(data)
    data = (weights * width)[: ((1 << 17) + 4096) * width]
    assert decoded(written(data, dtype, len(data)), len(data), dtype) == data


def test_no_elements_are_no_blocks() -> None:
    stored = slow.trailer(1 << 17, slow.FLOAT, 4, 0)
    assert decoded(stored, 0, "f32") == b""


# --- Broken bytes -----------------------------------------------------------------------------


def test_the_bytes_that_are_broken_below_are_good() -> None:
    assert decoded(GOOD, len(DATA), "f32") == slow.read(GOOD, len(DATA), 4) == DATA


@pytest.mark.parametrize("case", BROKEN)
def test_broken_bytes_are_refused(case: str) -> None:
    stored, reason = BROKEN[case]
    code, nbytes = encoding("f32"), len(DATA)
    with refused(ZTensorError, reason):
        code.decode_into(Memory(stored), memoryview(bytearray(nbytes)), DEFAULT_LIMITS)
    with refused(ZTensorError, reason):
        list(code.decode_chunks(Memory(stored), nbytes, DEFAULT_LIMITS))
    with pytest.raises((ValueError, zstandard.ZstdError)):
        slow.read(stored, nbytes, 4)


@pytest.mark.parametrize("nbytes", [0, 3, len(DATA) - 4, len(DATA) + 4, len(DATA) + 1600, 1 << 40])
def test_another_length_is_refused_before_memory_is_allocated(nbytes: int) -> None:
    limits = Limits(decoded_bytes=1 << 50)
    with pytest.raises(EncodingError):
        encoding("f32").require_length(Memory(GOOD), nbytes, limits)


def test_a_length_over_the_cap_is_refused() -> None:
    with pytest.raises(LimitError):
        encoding("f32").require_length(Memory(GOOD), len(DATA), Limits(decoded_bytes=3999))


def test_an_unknown_length_is_refused() -> None:
    with pytest.raises(EncodingError):
        list(encoding("f32").decode_chunks(Memory(GOOD), None, DEFAULT_LIMITS))


def test_the_end_is_read_in_one_piece() -> None:
    """A slice of a remote tensor then takes one request for the index and one for the blocks."""
    data = np.random.default_rng(1).normal(0, 0.02, 1 << 21).astype("<f4").tobytes()
    source = Memory(written(data, "f32", 4 << 17))
    runs = encoding("f32").require_length(source, len(data), DEFAULT_LIMITS)
    assert runs is not None
    assert len(source.reads) == 1
    assert source.reads[0][1] < 2048
    encoding("f32").decode_numbered(source, runs, 3, memoryview(bytearray(4 << 17)), DEFAULT_LIMITS)
    assert len(source.reads) == 2


def test_the_example_of_the_specification() -> None:
    page = Path(__file__).parents[3] / "docs" / "specification" / "planes.md"
    shown = page.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    assert decoded(bytes.fromhex(shown), 4, "bf16") == bytes.fromhex("803f 20c0")


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
def test_the_memory_of_a_thread(dtype: str) -> None:
    """1.5 MiB beside the destination, also while it is written."""
    width, elements = WIDTHS[dtype], 1 << 20
    values = np.random.default_rng(2).normal(0, 0.02, elements).astype("<f8")
    data = memoryview(values.view("u1").reshape(-1, 8)[:, -width:].tobytes())
    stored = written(bytes(data), dtype, width << 17)
    code, source, memory = encoding(dtype), Memory(stored), memoryview(bytearray(len(data)))
    block = data[: width << 17]
    for work, most in (
        (lambda: code.decode_into(source, memory, DEFAULT_LIMITS), 1.5 * MIB),
        (lambda: sum(map(len, code.encode(block, level=0))), 1.5 * MIB),
    ):
        tracemalloc.start()
        try:
            work()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < most
    assert memory == data
