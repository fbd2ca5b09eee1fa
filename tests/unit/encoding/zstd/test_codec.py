"""Frames that are decoded together: where they may be entered, and many small ones at a time."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard

from ztensor.encoding.zstd import Zstd
from ztensor.encoding.zstd.held import Held
from ztensor.limits import DEFAULT_LIMITS

DATA = np.random.default_rng(3).integers(0, 9, 1 << 14, np.uint8).tobytes()
WITHOUT_SIZE = zstandard.ZstdCompressor(write_content_size=False)


def runs_of(*sizes: int) -> tuple[list[int], list[int], list[int]]:
    """Return the runs that are found in frames of these sizes, and where each frame ends."""
    frames = [zstandard.compress(DATA[:size]) for size in sizes]
    ends = np.cumsum([0, *map(len, frames)]).tolist()
    held = Held(memoryview(b"".join(frames)))
    found = Zstd().find_runs(held, sum(sizes), DEFAULT_LIMITS)
    assert found is not None
    return list(found.stored), list(found.decoded), ends


def test_a_frame_of_4_kib_is_a_run() -> None:
    stored, decoded, ends = runs_of(4096, 4096, 5000)
    assert stored == ends
    assert decoded == [0, 4096, 8192, 13192]


def test_shorter_frames_are_a_run_together() -> None:
    stored, decoded, ends = runs_of(4095, 1, 100, 200)
    assert stored == [ends[0], ends[2], ends[4]]
    assert decoded == [0, 4096, 4396]


def test_many_small_frames_say_which_of_them_were_decoded() -> None:
    texts = [DATA[:200], bytes(1000), b"ab", DATA[:500]]
    frames = [zstandard.compress(text) for text in texts]
    frames.append(WITHOUT_SIZE.compress(texts[0]))
    claims = [*map(len, texts), 200]
    frames.append(WITHOUT_SIZE.compress(texts[0]))  # holds less than is asked for
    claims.append(201)
    frames.append(zstandard.compress(texts[3])[:-1])
    claims.append(500)
    damaged = bytearray(zstandard.compress(bytes(1000) + DATA[:99], 3))
    damaged[-40:] = bytes(40)
    frames.append(bytes(damaged))
    claims.append(1099)
    lengths = np.array([len(frame) for frame in frames])
    starts = np.cumsum(lengths) - lengths
    targets = [memoryview(bytearray(b"?" * claim)) for claim in claims]
    found = Zstd().decode_small(
        memoryview(b"".join(frames)), starts, lengths, targets, DEFAULT_LIMITS
    )
    assert found.tolist() == [True] * 5 + [False] * 3
    assert [bytes(target) for target in targets[:5]] == [*texts, texts[0]]


@pytest.mark.parametrize(
    ("window", "blocks", "expected"),
    [(0x68, 80, 0), (0x69, 80, 9 << 20), (0x69, 64, 0), (0x69, 65, 65 << 17), (0x69, 0, 0)],
)
def test_a_window_is_much_above_8_mib(window: int, blocks: int, expected: int) -> None:
    """Of a frame that decodes to less than its window, no more than it decodes to."""
    repeated = (128 << 10 << 3 | 1 << 1).to_bytes(3, "little") + b"a"
    last = (1).to_bytes(3, "little")
    frame = bytes.fromhex("28b52ffd00") + bytes([window]) + repeated * blocks + last
    held = Held(memoryview(zstandard.compress(b"first") + frame))
    assert Zstd().window_bytes(held, DEFAULT_LIMITS) == expected
