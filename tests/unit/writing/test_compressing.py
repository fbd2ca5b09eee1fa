"""When frames are kept: by how much they are smaller, and what is known of it when."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from ztensor.encoding import ENCODINGS, Encoding
from ztensor.threads.pool import Crew
from ztensor.writing.compressing import Compression, Compressor, compressed, smaller
from ztensor.writing.frames import Frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ztensor.encoding import Stored
    from ztensor.limits import Limits

MIB = 1 << 20
FRAMES = Frames(MIB, MIB)


@dataclasses.dataclass
class Shortening(Encoding):
    """An encoding that leaves out the last bytes of every frame."""

    saved: int
    name = "shortening"
    is_written = True
    must_shrink = True

    def decode_into(self, stored: Stored, destination: memoryview, limits: Limits) -> None:
        raise NotImplementedError

    def encode(
        self, data: memoryview, *, level: int, frame_bytes: int | None = None
    ) -> Iterator[bytes | memoryview]:
        del level, frame_bytes
        yield data[: len(data) - self.saved]


def kept(
    monkeypatch: pytest.MonkeyPatch,
    pieces: list[int],
    *,
    saved: int,
    total: int | None,
    frames: Frames = FRAMES,
) -> tuple[int, int] | None:
    """Return the decoded and stored length of frames that are kept, or None where none are."""
    monkeypatch.setitem(ENCODINGS, "shortening", Shortening(saved))
    data = [memoryview(bytes(length)) for length in pieces]
    compression = Compression("shortening")
    found = smaller(lambda: data, total, frames, lambda: Compressor(compression, frames))
    if found is None:
        return None
    made = list(found)
    return sum(frame.decoded for frame in made), sum(len(frame.data) for frame in made)


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("saved", [0, 1, 63, 64, 65, 66])
def test_frames_stay_that_are_one_byte_smaller(
    saved: int, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kept(monkeypatch, [1000], saved=saved, total=1000 if is_known else None)
    assert found == ((1000, 1000 - saved) if saved else None)


@pytest.mark.parametrize("last", [0, 1])
def test_of_unknown_length_more_than_8_mib_of_frames_stay(
    last: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = kept(monkeypatch, [MIB] * 8 + [last], saved=0, total=None)
    assert found == ((8 * MIB + 1, 8 * MIB + 1) if last else None)


@pytest.mark.parametrize(("more", "saved"), [(1, 1), (0, 0)])
def test_of_known_length_the_end_tells(
    more: int, saved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so many frames were made that they were not held, and are made again."""
    frames = Frames(8 * MIB + more, 8 * MIB + more)
    total = 8 * MIB + more + 5
    found = kept(monkeypatch, [8 * MIB + more, 5], saved=saved, total=total, frames=frames)
    assert found == ((total, total - 2 * saved) if saved else None)


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("is_lent", [False, True])
@pytest.mark.parametrize("alone_bytes", [0, 100, 1 << 20])
def test_frames_are_the_same_whoever_makes_them(
    count: int, is_lent: bool, alone_bytes: int
) -> None:
    frames = Frames(100, 30)
    whole = bytes(range(256)) * 20
    crew = Crew(count)

    def made(lengths: list[int], threads: Crew | None) -> list[tuple[int, bytes]]:
        compressor = Compressor(
            Compression("zstd"), frames, threads, alone_bytes=alone_bytes, is_lent=is_lent
        )
        starts = [sum(lengths[:place]) for place in range(len(lengths))]
        pieces = [
            memoryview(whole)[start : start + length]
            for start, length in zip(starts, lengths, strict=True)
        ]
        return [
            (frame.decoded, bytes(frame.data)) for frame in compressed(lambda: pieces, compressor)
        ]

    try:
        expected = made([5120], None)
        sizes = [30, 30, 30, 10] * 51 + [20]
        assert [decoded for decoded, _ in expected] == sizes
        for lengths in ([5120], [0, 5120, 0], [100] * 51 + [20], [7] * 731 + [3], [99, 1, 5020]):
            assert made(lengths, crew) == expected
    finally:
        crew.close()
