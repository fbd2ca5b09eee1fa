"""Seekable zstd frames: read whole, in pieces and in part; the table is checked first."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard

import ztensor
from ztensor.errors import EncodingError
from ztensor.ext import ENCODINGS
from ztensor.limits import DEFAULT_LIMITS
from ztensor.testing.builder_2 import File2, dense, seekable

ENCODING = ENCODINGS["zt.zstd-seekable/1"]
DATA = np.random.default_rng(7).integers(0, 9, 1 << 16, np.uint8).tobytes()


class Counting:
    """Stored bytes that count the bytes read."""

    def __init__(self, data: bytes) -> None:
        self._data = memoryview(data)
        self.length = len(data)
        self.taken = 0

    def read(self, offset: int, length: int) -> memoryview:
        self.taken += length
        assert offset + length <= self.length
        return self._data[offset : offset + length]


def packed(data: bytes, frame: int) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    cuts = [data[start : start + frame] for start in range(0, len(data), frame)]
    return seekable(map(compressor.compress, cuts), map(len, cuts))


@pytest.mark.parametrize("frame", [1, 100, 4096, 1 << 16, 1 << 17])
def test_it_is_read_whole_and_in_pieces(frame: int) -> None:
    data = DATA[: 200 * frame]
    stored = Counting(packed(data, frame))
    target = bytearray(len(data))
    ENCODING.require_length(stored, len(data), DEFAULT_LIMITS)
    ENCODING.decode_into(stored, memoryview(target), DEFAULT_LIMITS)
    assert target == data
    pieces = list(ENCODING.decode_chunks(stored, len(data), DEFAULT_LIMITS))
    assert b"".join(pieces) == data
    assert b"".join(ENCODING.decode_chunks(stored, None, DEFAULT_LIMITS)) == data


@pytest.mark.parametrize(
    "sizes", [(), (0,), (0, 0), (0, 0, 0), (0,) * 31, (0, 4, 0, 4, 0), (0, 0, 3)]
)
def test_empty_frames_are_skipped(sizes: tuple[int, ...]) -> None:
    frames = [zstandard.compress(DATA[:size]) for size in sizes]
    stored = Counting(seekable(frames, sizes))
    data = b"".join(DATA[:size] for size in sizes)
    target = bytearray(len(data))
    ENCODING.require_length(stored, len(data), DEFAULT_LIMITS)
    ENCODING.decode_into(stored, memoryview(target), DEFAULT_LIMITS)
    assert target == data
    assert b"".join(ENCODING.decode_chunks(stored, len(data), DEFAULT_LIMITS)) == data


def test_a_slice_reads_the_table_and_its_own_frames() -> None:
    data = np.random.default_rng(1).integers(0, 256, 1 << 20, np.uint8)
    file = File2()
    part = file.packed(data.tobytes(), packed(data.tobytes(), 1 << 14))
    whole = file.seal({"objects": {"w": dense(part, [1024, 1024])}})
    with ztensor.open(whole) as reader:
        np.testing.assert_array_equal(
            reader.get_slice("w")[500:502], data.reshape(1024, -1)[500:502]
        )
        assert reader.verify().outcome == "ok"
    stored = Counting(packed(data.tobytes(), 1 << 14))
    runs = ENCODING.require_length(stored, len(data), DEFAULT_LIMITS)
    assert runs is not None
    assert stored.taken < 1 << 10
    target = memoryview(bytearray(1 << 14))
    ENCODING.decode_run(stored, runs.stored[3], runs.stored[4], target, DEFAULT_LIMITS)
    assert target == data[3 << 14 : 4 << 14].tobytes()
    assert stored.taken < 40 << 10


@pytest.mark.parametrize("length", [0, 1, 4, 5, 11])
def test_written_frames_are_read(length: int) -> None:
    data = bytes(range(length))
    frames = list(ENCODING.encode(memoryview(data), level=3, frame_bytes=4))
    sizes = [len(data[start : start + 4]) for start in range(0, length, 4)]
    assert len(frames) == len(sizes)
    for frame in frames:
        assert zstandard.get_frame_parameters(frame).has_checksum
    table = ENCODING.end(zip(map(len, frames), sizes, strict=True))
    stored = b"".join(map(bytes, frames)) + table
    assert stored == seekable(map(bytes, frames), sizes)
    assert len(table) == 17 + 8 * len(sizes)
    assert b"".join(ENCODING.decode_chunks(Counting(stored), length, DEFAULT_LIMITS)) == data


def test_every_frame_of_4_kib_can_be_entered() -> None:
    data = DATA[: 5 * 4096]
    stored = packed(data, 4096)
    runs = ENCODING.require_length(Counting(stored), len(data), DEFAULT_LIMITS)
    assert runs is not None
    assert list(runs.decoded) == [0, 4096, 8192, 12288, 16384, 20480]
    assert len(runs.stored) == 6
    short = packed(data, 2048)
    runs = ENCODING.require_length(Counting(short), len(data), DEFAULT_LIMITS)
    assert runs is not None
    assert list(runs.decoded) == [0, 4096, 8192, 12288, 16384, 20480]


def test_a_gap_before_the_table_is_named() -> None:
    frames = [*map(zstandard.compress, (DATA[:50], DATA[50:90]))]
    whole, end = seekable(frames, [50, 40]), sum(map(len, frames))
    stored = Counting(whole[:end] + b"?" + whole[end:])
    with pytest.raises(EncodingError) as caught:
        ENCODING.require_length(stored, 90, DEFAULT_LIMITS)
    assert caught.value.found == f"{end} bytes of frames, the table at {end + 1}"


def test_a_high_ratio_is_accepted_if_the_frame_headers_allow_it() -> None:
    frame = zstandard.compress(bytes(100_000))
    stored = seekable([frame] * 2, [100_000] * 2)
    assert len(stored) * 64 < 200_000
    ENCODING.require_length(Counting(stored), 200_000, DEFAULT_LIMITS)
    target = bytearray(b"a" * 200_000)
    ENCODING.decode_into(Counting(stored), memoryview(target), DEFAULT_LIMITS)
    assert target == bytes(200_000)
