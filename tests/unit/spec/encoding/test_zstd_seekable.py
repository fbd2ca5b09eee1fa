"""Seekable zstd frames: read whole, in pieces and in part, never beyond what the table bears."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard

import ztensor
from tests.refusals import refused
from ztensor.errors import EncodingError, LimitError, Reason
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.encoding import ENCODINGS
from ztensor.testing.builder_2 import File2, dense, seekable

ENCODING = ENCODINGS["zt.zstd-seekable/1"]
DATA = np.random.default_rng(7).integers(0, 9, 1 << 16, np.uint8).tobytes()


class Counting:
    """Stored bytes that say how many of them were read."""

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


def test_no_data_is_a_table_alone() -> None:
    stored = Counting(seekable([], []))
    assert stored.length == 17
    ENCODING.decode_into(stored, memoryview(bytearray()), DEFAULT_LIMITS)
    assert list(ENCODING.decode_chunks(stored, 0, DEFAULT_LIMITS)) == []


@pytest.mark.parametrize("sizes", [(0,), (0, 0), (0, 0, 0), (0,) * 31, (0, 4, 0, 4, 0), (0, 0, 3)])
def test_frames_of_no_data_are_in_nobodys_way(sizes: tuple[int, ...]) -> None:
    frames = [zstandard.compress(DATA[:size]) for size in sizes]
    stored = Counting(seekable(frames, sizes))
    data = b"".join(DATA[:size] for size in sizes)
    target = bytearray(len(data))
    ENCODING.require_length(stored, len(data), DEFAULT_LIMITS)
    ENCODING.decode_into(stored, memoryview(target), DEFAULT_LIMITS)
    assert target == data
    assert b"".join(ENCODING.decode_chunks(stored, len(data), DEFAULT_LIMITS)) == data


def test_a_table_of_nothing_that_claims_data_is_refused() -> None:
    stored = Counting(seekable([zstandard.compress(b"")] * 31, [0] * 31))
    for use in (ENCODING.require_length, lambda *args: list(ENCODING.decode_chunks(*args))):
        with pytest.raises(EncodingError):
            use(stored, 100, DEFAULT_LIMITS)


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


def test_sizes_are_held_to_the_bytes_before_anything_is_allocated() -> None:
    frame = zstandard.ZstdCompressor(write_content_size=False).compress(b"abc")
    claims = seekable([frame] * 4096, [16 << 20] * 4096)
    with refused(EncodingError, Reason.DECODED_SHORT):
        ENCODING.require_length(Counting(claims), 64 << 30, DEFAULT_LIMITS)
    with pytest.raises(LimitError):
        ENCODING.require_length(Counting(claims), 64 << 30, Limits(decoded_bytes=1 << 30))
    file = File2()
    part = file.packed(b"", claims) | {"decoded_length": 64 << 30}
    data = file.seal({"objects": {"w": dense(part, [64 << 30])}})
    with ztensor.open(data) as reader, pytest.raises(EncodingError):
        reader.read("w")


@pytest.mark.parametrize("length", [0, 1, 4, 5, 11])
def test_what_is_written_is_read(length: int) -> None:
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


def test_it_streams() -> None:
    assert ENCODING.is_streamed(Counting(b""))


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


def test_data_that_nearly_vanishes_may_be_all_that_its_frames_can_hold() -> None:
    frame = zstandard.compress(bytes(100_000))
    stored = seekable([frame] * 2, [100_000] * 2)
    assert len(stored) * 64 < 200_000
    ENCODING.require_length(Counting(stored), 200_000, DEFAULT_LIMITS)
    target = bytearray(b"a" * 200_000)
    ENCODING.decode_into(Counting(stored), memoryview(target), DEFAULT_LIMITS)
    assert target == bytes(200_000)


@pytest.mark.parametrize(("claimed", "is_right"), [(0, True), (5, False)])
def test_an_entry_without_stored_bytes_has_no_data(claimed: int, is_right: bool) -> None:
    stored = Counting(seekable([b"", zstandard.compress(DATA[:5])], [claimed, 5]))
    target = memoryview(bytearray(5 + claimed))
    if is_right:
        ENCODING.decode_into(stored, target, DEFAULT_LIMITS)
        assert target == DATA[:5]
        return
    with refused(EncodingError, Reason.DECODED_SHORT, match="too few"):
        ENCODING.decode_into(stored, target, DEFAULT_LIMITS)


def test_a_frame_that_is_cut_is_damage_and_not_the_end_of_the_file() -> None:
    """The table says that it goes on no further: no part of the file is missing."""
    frame = zstandard.compress(DATA[:1000])
    for broken, claimed, reason in (
        (frame[:-5], 1000, Reason.ENCODING_MALFORMED),
        (frame, 1001, Reason.DECODED_SHORT),
        (frame, 999, Reason.DECODED_LONG),
    ):
        stored = Counting(seekable([broken], [claimed]))
        with refused(EncodingError, reason):
            ENCODING.decode_into(stored, memoryview(bytearray(claimed)), DEFAULT_LIMITS)


@pytest.mark.parametrize("expected", [99, 101])
def test_the_length_that_is_asked_for_is_that_of_the_table(expected: int) -> None:
    stored = Counting(packed(DATA[:100], 100))
    reason = Reason.DECODED_LONG if expected < 100 else Reason.DECODED_SHORT
    for use in (ENCODING.require_length, lambda *args: list(ENCODING.decode_chunks(*args))):
        with refused(EncodingError, reason):
            use(stored, expected, DEFAULT_LIMITS)
