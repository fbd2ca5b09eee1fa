"""zstd against zstandard's own reader: any split into frames, any damage."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from ztensor.errors import FormatError, LimitError, UnsupportedError
from ztensor.limits import Limits
from ztensor.spec.encoding.zstd import codec, libraries
from ztensor.spec.encoding.zstd import frames as headers
from ztensor.testing import strategies
from ztensor.testing.damage import Damage, damaged

zstandard = pytest.importorskip("zstandard", reason="zstandard is the oracle")

ENCODING = codec.Zstd(libraries.bind_zstandard(zstandard))
LIMITS = Limits(decoded_bytes=1 << 20)
REFUSALS = (FormatError, UnsupportedError, LimitError)


@dataclasses.dataclass
class Memory:
    """Stored bytes, as views or as copies."""

    data: bytes
    is_copying: bool

    @property
    def length(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> memoryview:
        assert 0 <= offset <= offset + length <= len(self.data)
        if self.is_copying:
            return memoryview(self.data[offset : offset + length] + b"")
        return memoryview(self.data)[offset : offset + length]


@dataclasses.dataclass
class Sizes:
    """Sizes of the module, made small so that small data takes every path."""

    held: int
    look: int
    chunk: int
    one_pass: int

    @contextlib.contextmanager
    def in_force(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(headers, "HELD_BYTES", self.held)
            patch.setattr(headers, "WALKED_BYTES", self.held)
            patch.setattr(headers, "LOOK_BYTES", self.look)
            patch.setattr(codec, "CHUNK_BYTES", self.chunk)
            patch.setattr(codec, "ONE_PASS_BYTES", self.one_pass)
            yield


sizes = st.builds(
    Sizes,
    held=st.sampled_from([32, 1000, 1 << 20]),
    look=st.sampled_from([18, 64, 4096]),
    chunk=st.sampled_from([1, 7, 1000, 1 << 20]),
    one_pass=st.sampled_from([0, 100, 1 << 20]),
)

contents = st.one_of(
    st.binary(max_size=200),
    st.builds(bytes.__mul__, st.binary(max_size=9), st.integers(0, 3000)),
    st.builds(lambda seed, count: (seed + seed[::-1]) * count, st.binary(max_size=99),
              st.integers(0, 50)),
)  # fmt: skip


def by_hand(content: bytes, cuts: list[int], *, run: bool) -> bytes:
    """Build a frame of raw blocks and, where a piece is one byte repeated, RLE blocks."""
    ends = sorted({min(cut, len(content)) for cut in cuts} | {len(content)})
    frame = b"\x28\xb5\x2f\xfd\x00\x58"  # no content size, a window of 2 MiB
    start = 0
    for end in ends:
        piece = content[start:end]
        kind, payload = (1, piece[:1]) if run and len(set(piece)) == 1 else (0, piece)
        head = (end == len(content)) | kind << 1 | len(piece) << 3
        frame += head.to_bytes(3, "little") + payload
        start = end
    return frame


def by_library(content: bytes, level: int, *, size: bool, checksum: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(
        level=level, write_content_size=size, write_checksum=checksum
    )
    frame: bytes = compressor.compress(content)
    return frame


def skippable(payload: bytes, variant: int) -> bytes:
    return bytes([0x50 + variant]) + b"\x2a\x4d\x18" + len(payload).to_bytes(4, "little") + payload


@st.composite
def frames(draw: st.DrawFn) -> tuple[bytes, bytes]:
    kind = draw(st.sampled_from(["skippable", "hand", "library", "library"]))
    if kind == "skippable":
        return skippable(draw(st.binary(max_size=50)), draw(st.integers(0, 15))), b""
    content = draw(contents)
    if kind == "hand":
        cuts = draw(st.lists(st.integers(0, 3000), max_size=5))
        return by_hand(content, cuts, run=draw(st.booleans())), content
    level = draw(st.sampled_from([-7, 1, 3, 9]))
    flags = draw(st.booleans()), draw(st.booleans())
    return by_library(content, level, size=flags[0], checksum=flags[1]), content


bodies = st.lists(frames(), min_size=1, max_size=6).map(
    lambda parts: (b"".join(part[0] for part in parts), b"".join(part[1] for part in parts))
)


def decode_into(stored: Memory, length: int) -> bytes:
    destination = bytearray(length)
    ENCODING.decode_into(stored, memoryview(destination), LIMITS)
    return bytes(destination)


def decode_chunks(stored: Memory, length: int | None) -> bytes:
    return b"".join(bytes(chunk) for chunk in ENCODING.decode_chunks(stored, length, LIMITS))


@pytest.mark.slow
@settings(max_examples=examples(150), deadline=None)
@given(body=bodies, sizes=sizes, is_copying=st.booleans())
def test_any_frames_decode_to_their_contents(
    body: tuple[bytes, bytes], sizes: Sizes, is_copying: bool
) -> None:
    data, content = body
    stored = Memory(data, is_copying)
    with sizes.in_force():
        ENCODING.require_length(stored, len(content), LIMITS)
        assert decode_into(stored, len(content)) == content
        assert decode_chunks(stored, len(content)) == content
        assert decode_chunks(stored, None) == content
        for wrong in {len(content) + 1, max(len(content) - 1, 0)} - {len(content)}:
            with pytest.raises(FormatError):
                decode_into(stored, wrong)
            with pytest.raises(FormatError):
                decode_chunks(stored, wrong)


def oracle(data: bytes, length: int) -> bytes | None:
    """Return at most `length` + 1 bytes that zstandard decodes; None if it refuses."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << LIMITS.window_log)
    reader = decompressor.stream_reader(data, read_across_frames=True)
    destination = bytearray(length + 1)
    try:
        return bytes(destination[: reader.readinto(destination)])
    except zstandard.ZstdError:
        return None


@pytest.mark.slow
@settings(max_examples=examples(400), deadline=None)
@given(body=bodies, damages=strategies.damages(), sizes=sizes, is_copying=st.booleans())
def test_damage_gives_the_right_bytes_or_a_refusal(
    body: tuple[bytes, bytes], damages: list[Damage], sizes: Sizes, is_copying: bool
) -> None:
    data, length = damaged(body[0], damages), len(body[1])
    stored = Memory(data, is_copying)
    with sizes.in_force():
        try:
            found: bytes | None = decode_into(stored, length)
        except REFUSALS:
            found = None
        try:
            chunks: bytes | None = decode_chunks(stored, length)
        except REFUSALS:
            chunks = None
    assert found == chunks
    if found is not None:
        ENCODING.require_length(stored, length, LIMITS)
        assert found == oracle(data, length)


@settings(max_examples=examples(300), deadline=None)
@given(data=st.one_of(
    st.binary(max_size=60),
    st.builds(bytes.__add__, st.just(b"\x28\xb5\x2f\xfd"), st.binary(max_size=60)),
))  # fmt: skip
def test_any_bytes_walk_to_whole_frames_or_a_refusal(data: bytes) -> None:
    stops = [0]
    try:
        for frame in headers.walk_frames(Memory(data, is_copying=False), LIMITS):
            assert frame.start == stops[-1] < frame.stop
            stops.append(frame.stop)
    except REFUSALS:
        return
    assert stops[-1] == len(data) > 0
