"""Frames are built by hand from RFC 8878, so that each rule can be broken on its own."""

from __future__ import annotations

import concurrent.futures
import importlib
import io
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.refusals import refused
from tests.stored import Memory as Mapped
from ztensor.errors import (
    EncodingError,
    LimitError,
    MissingDependencyError,
    Reason,
    SourceError,
    ZTensorError,
)
from ztensor.limits import DEFAULT_LIMITS, Limits
from ztensor.spec.encoding.zstd import codec, frames, libraries

Zstd = codec.Zstd
walk_frames = frames.walk_frames
MIB = 1 << 20
MAGIC = bytes.fromhex("28b52ffd")
RAW, RLE, COMPRESSED, RESERVED = range(4)

LOOK = 4 << 10  # bytes of one read of headers

Block = tuple[int, int, bytes]  # type, Block_Size, the bytes behind the block header


# --- Builders -------------------------------------------------------------------------------


def raw(data: bytes) -> Block:
    return RAW, len(data), data


def rle(byte: bytes, count: int) -> Block:
    return RLE, count, byte


def block(kind: int, size: int, payload: bytes, *, is_last: bool) -> bytes:
    return (is_last | kind << 1 | size << 3).to_bytes(3, "little") + payload


def frame(
    *blocks: Block,
    size: int | None = None,
    size_bytes: int = 8,
    window: int | None = 0,
    dictionary: bytes = b"",
    checksum: bytes = b"",
    flags: int = 0,
) -> bytes:
    """Build a frame.

    Args:
        blocks: the last one gets the flag that says so.
        size: declared content size, or None.
        size_bytes: width of its field: 1 (single-segment only), 2, 4 or 8.
        window: the window descriptor's byte (0 is 1 KiB); None makes a single-segment frame.
        dictionary: the dictionary id's field: 0, 1, 2 or 4 bytes.
        checksum: four bytes, or none.
        flags: further bits of the frame header descriptor.
    """
    flags |= {0: 0, 1: 1, 2: 2, 4: 3}[len(dictionary)]
    flags |= 0x04 if checksum else 0
    head = b""
    if window is None:
        flags |= 0x20
    else:
        head += bytes([window])
    head += dictionary
    if size is not None:
        flags |= {1: 0, 2: 1, 4: 2, 8: 3}[size_bytes] << 6
        head += (size - 256 if size_bytes == 2 else size).to_bytes(size_bytes, "little")
    body = b"".join(
        block(*each, is_last=number == len(blocks)) for number, each in enumerate(blocks, 1)
    )
    return MAGIC + bytes([flags]) + head + body + checksum


def skippable(payload: bytes, variant: int = 0) -> bytes:
    return bytes([0x50 + variant, 0x2A, 0x4D, 0x18]) + len(payload).to_bytes(4, "little") + payload


def without_size(one_frame: bytes, window: int = 0x70) -> bytes:
    """Return a frame of the library with another header: 16 MiB of window, no content size."""
    return frame(window=window) + one_frame[_header_length(one_frame) :]


def single_segment(one_frame: bytes, size: int) -> bytes:
    return frame(window=None, size=size) + one_frame[_header_length(one_frame) :]


def _header_length(one_frame: bytes) -> int:
    flags = one_frame[4]
    is_single = flags >> 5 & 1
    return 6 - is_single + (0, 1, 2, 4)[flags & 3] + (is_single, 2, 4, 8)[flags >> 6]


class Copied(Mapped):
    """Stored bytes that are copied by each read, as from a file."""

    def read(self, offset: int, length: int) -> memoryview:
        return memoryview(bytes(super().read(offset, length)))


@pytest.fixture(params=[Mapped, Copied])
def stored_kind(request: pytest.FixtureRequest) -> type[Mapped]:
    kind: type[Mapped] = request.param
    return kind


BINDINGS: dict[str, Callable[[Any], libraries.Binding]] = {
    "zstandard": libraries.bind_zstandard,
    "compression.zstd": libraries.bind_standard_library,
    "backports.zstd": libraries.bind_standard_library,  # the same module for older Pythons
}


def installed(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True


@pytest.fixture(params=[name for name in BINDINGS if installed(name)])
def binding(request: pytest.FixtureRequest) -> libraries.Binding:
    return BINDINGS[request.param](importlib.import_module(request.param))


@pytest.fixture
def encoding(binding: libraries.Binding) -> Zstd:
    return Zstd(binding)


def decode(encoding: Zstd, stored: Mapped, length: int, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Decode in every way the contract has; they must agree."""
    encoding.require_length(stored, length, limits)
    guard = bytearray(b"\xee" * (length + 16))
    with memoryview(guard) as view:
        encoding.decode_into(stored, view[:length], limits)
    assert guard[length:] == b"\xee" * 16
    for expected in (length, None):
        chunks = [bytes(chunk) for chunk in encoding.decode_chunks(stored, expected, limits)]
        assert b"".join(chunks) == guard[:length]
        assert all(0 < len(chunk) <= codec.CHUNK_BYTES for chunk in chunks)
    return bytes(guard[:length])


def refusals(
    encoding: Zstd, stored: Mapped, length: int, limits: Limits = DEFAULT_LIMITS
) -> dict[str, ZTensorError]:
    """Return the error of each way to decode; `check` is absent if only decoding finds it."""
    errors = {}
    try:
        encoding.require_length(stored, length, limits)
    except ZTensorError as error:
        errors["check"] = error
    with pytest.raises(ZTensorError) as into:
        encoding.decode_into(stored, memoryview(bytearray(length)), limits)
    with pytest.raises(ZTensorError) as chunks:
        for _ in encoding.decode_chunks(stored, length, limits):
            pass
    return errors | {"into": into.value, "chunks": chunks.value}


def text_like(length: int, seed: int = 1) -> bytes:
    words = [b"alpha ", b"beta ", b"gamma ", b"delta ", b"epsilon "]
    return b"".join(random.Random(seed).choices(words, k=length // 4))[:length].ljust(length)


def noise(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)


def encoded(data: bytes, level: int = 3) -> bytes:
    return b"".join(Zstd().encode(memoryview(data), level=level, frame_bytes=16 * MIB))


# --- The walker -----------------------------------------------------------------------------

Z = b"zTensor"
Z_CHECKSUM = bytes.fromhex("9ef67bc2")  # low half of XXH64 of those seven bytes

WALKED = {
    "size-1": (frame(raw(Z), size=7, size_bytes=1, window=None), (7, 7, 7)),
    "size-2": (frame(raw(bytes(300)), size=300, size_bytes=2, window=None), (300, 300, 300)),
    "size-4": (frame(raw(Z), size=7, size_bytes=4, window=None), (7, 7, 7)),
    "size-8": (frame(raw(Z), size=7, size_bytes=8, window=None), (7, 7, 7)),
    "size-and-window": (frame(raw(Z), size=7), (7, 1024, 7)),
    "no-size": (frame(raw(Z)), (None, 1024, 7)),
    "window-mantissa": (frame(raw(Z), window=3 << 3 | 5), (None, 13312, 7)),
    "window-largest-allowed": (frame(raw(Z), window=17 << 3), (None, 128 * MIB, 7)),
    "checksum": (frame(raw(Z), checksum=Z_CHECKSUM), (None, 1024, 7)),
    "dictionary-0": (frame(raw(Z), dictionary=bytes(4)), (None, 1024, 7)),
    "unused-bit": (frame(raw(Z), flags=0x10), (None, 1024, 7)),
    "empty": (frame(raw(b"")), (None, 1024, 0)),
    "empty-with-size": (frame(raw(b""), size=0, size_bytes=1, window=None), (0, 0, 0)),
    "rle": (frame(rle(b"a", 900), raw(Z)), (None, 1024, 907)),
}

# From headers only: the blocks are not decoded.
BOUNDS = {
    "compressed-by-window": (frame((COMPRESSED, 4, bytes(4)), window=0), 1024),
    "compressed-by-block": (frame((COMPRESSED, 4, bytes(4)), window=17 << 3), 128 << 10),
    "compressed-by-size": (frame((COMPRESSED, 4, bytes(4)), window=None, size=50), 50),
    "mixed": (frame(raw(Z), (COMPRESSED, 4, bytes(4)), rle(b"a", 5)), 7 + 1024 + 5),
}


@pytest.mark.parametrize(("data", "facts"), WALKED.values(), ids=WALKED)
def test_walk_reads_the_header(
    data: bytes, facts: tuple[object, ...], stored_kind: type[Mapped], encoding: Zstd
) -> None:
    (found,) = walk_frames(stored_kind(data), DEFAULT_LIMITS)
    assert found[:3] == (0, len(data), False)
    assert found[3:] == facts
    assert len(decode(encoding, stored_kind(data), found.most_length)) == found.most_length


@pytest.mark.parametrize(("data", "bound"), BOUNDS.values(), ids=BOUNDS)
def test_a_walk_bounds_the_decoded_length(data: bytes, bound: int) -> None:
    (found,) = walk_frames(Mapped(data), DEFAULT_LIMITS)
    assert found.most_length == bound


LONG = frame(*[raw(bytes(128 << 10))] * 100, window=60)
READS: dict[str, tuple[type[Mapped], bytes, int, int]] = {  # at most so many reads, and bytes each
    "headers of long blocks": (Copied, LONG, 101, LOOK),
    "headers of tiny blocks": (Copied, frame(*[raw(b"a")] * 100_000), 101, LOOK),
    "a copying source with equal ends": (Copied, skippable(bytes(5 * MIB)), 3, LOOK),
    "a mapped source is one view": (Mapped, LONG, 3, len(LONG)),
}


@pytest.mark.parametrize("case", READS)
def test_a_walk_reads_headers_only(case: str) -> None:
    kind, data, count, length = READS[case]
    stored = kind(data)
    (found,) = walk_frames(stored, DEFAULT_LIMITS)
    assert found.stop == len(data)
    assert len(stored.reads) <= count + 2
    assert max(length for _, length in stored.reads) <= length


GOOD = frame(raw(Z), size=7, size_bytes=1, window=None, checksum=Z_CHECKSUM)

FAULTS = {
    "no-bytes": (b"", Reason.ENCODING_TRUNCATED),
    "not-zstd": (b"PK\x03\x04 is a zip", Reason.ENCODING_MALFORMED),
    "trailing-garbage": (GOOD + b"garbage", Reason.ENCODING_MALFORMED),
    "trailing-magic": (GOOD + MAGIC, Reason.ENCODING_TRUNCATED),
    "short-skippable": (GOOD + skippable(b"1234")[:-1], Reason.ENCODING_TRUNCATED),
    "skippable-4-gib": (GOOD + skippable(b"")[:4] + b"\xff" * 4, Reason.ENCODING_TRUNCATED),
    "reserved-bit": (frame(raw(Z), flags=0x08), Reason.ENCODING_MALFORMED),
    "reserved-block": (frame((RESERVED, 7, Z)), Reason.ENCODING_MALFORMED),
    "no-last-block": (
        frame(raw(Z))[:-10] + block(*raw(Z), is_last=False),
        Reason.ENCODING_TRUNCATED,
    ),
    "block-goes-on": (frame((RAW, 1024, Z)), Reason.ENCODING_TRUNCATED),
    "compressed-1": (frame((COMPRESSED, 1, b"a"), raw(Z)), Reason.ENCODING_MALFORMED),
    "raw-over-window": (frame(raw(bytes(1025))), Reason.ENCODING_MALFORMED),
    "rle-over-window": (frame(rle(b"a", 1025)), Reason.ENCODING_MALFORMED),
    "rle-over-size": (frame(rle(b"a", 8), size=7, window=None), Reason.ENCODING_MALFORMED),
    "block-over-128-kib": (frame(rle(b"a", (128 << 10) + 1), window=60), Reason.ENCODING_MALFORMED),
    "dictionary-1": (frame(raw(Z), dictionary=b"\x99"), Reason.UNKNOWN_ENCODING),
    "dictionary-second": (frame(raw(Z)) + frame(dictionary=b"\x99"), Reason.UNKNOWN_ENCODING),
    "window-just-over": (frame(raw(Z), window=17 << 3 | 1), Reason.LIMIT_WINDOW),
    "window-with-size": (frame(raw(Z), size=7, window=0xFF), Reason.LIMIT_WINDOW),
}


@pytest.mark.parametrize(("data", "reason"), FAULTS.values(), ids=FAULTS)
def test_structural_faults(
    data: bytes, reason: Reason, stored_kind: type[Mapped], encoding: Zstd
) -> None:
    with pytest.raises(ZTensorError) as walked:
        list(walk_frames(stored_kind(data), DEFAULT_LIMITS))
    errors = refusals(encoding, stored_kind(data), 7)
    assert set(errors) == {"check", "into", "chunks"}
    for error in [walked.value, *errors.values()]:
        assert error.reason is reason
        if reason is Reason.LIMIT_WINDOW:
            assert "Limits.window_log" in str(error)


def test_every_cut_is_a_truncation(stored_kind: type[Mapped], encoding: Zstd) -> None:
    parts = [skippable(b"note"), GOOD, frame(rle(b"a", 9), raw(Z), size=16, dictionary=b"\0")]
    data = b"".join(parts)
    ends = {len(parts[0]), len(parts[0] + parts[1])}  # a cut between frames is only too short
    for cut in range(len(data)):
        wanted = Reason.DECODED_SHORT if cut in ends else Reason.ENCODING_TRUNCATED
        errors = refusals(encoding, stored_kind(data[:cut]), 23)
        assert {error.reason for error in errors.values()} == {wanted}, cut


def test_a_raised_window_cap_lets_the_frame_in(encoding: Zstd) -> None:
    data = frame(raw(Z), window=18 << 3)
    assert decode(encoding, Mapped(data), 7, Limits(window_log=28)) == Z
    assert refusals(encoding, Mapped(data), 7)["check"].reason is Reason.LIMIT_WINDOW


# --- require_length -------------------------------------------------------------------------

LENGTHS = {
    "declared": (frame(raw(Z), size=7), 7, 7),
    "declared-twice": (frame(raw(Z), size=7) * 2, 14, 14),
    "raw": (frame(raw(Z), rle(b"a", 3)), 0, 10),
    "compressed": (frame((COMPRESSED, 4, bytes(4)), window=17 << 3), 0, 128 << 10),
    "one-declared": (frame(raw(Z), size=7) + frame(rle(b"a", 3)), 7, 10),
    "skippable": (skippable(bytes(100)), 0, 0),
}


@pytest.mark.parametrize(("data", "least", "most"), LENGTHS.values(), ids=LENGTHS)
def test_require_length(data: bytes, least: int, most: int) -> None:
    Zstd().require_length(Mapped(data), least, DEFAULT_LIMITS)
    Zstd().require_length(Mapped(data), most, DEFAULT_LIMITS)
    with refused(EncodingError, Reason.DECODED_SHORT):
        Zstd().require_length(Mapped(data), most + 1, DEFAULT_LIMITS)
    with refused(EncodingError, Reason.DECODED_LONG):
        Zstd().require_length(Mapped(data), least - 1, DEFAULT_LIMITS)


@pytest.mark.parametrize("claim", [17 << 30, 1 << 42, (1 << 64) - 1])
def test_a_claim_of_terabytes_over_few_bytes_fails_first(claim: int) -> None:
    for data in (encoded(bytes(96)), frame((COMPRESSED, 4, bytes(4)), size=claim, window=None)):
        with refused(EncodingError, Reason.DECODED_SHORT):
            Zstd().require_length(Mapped(data), claim, DEFAULT_LIMITS)


def test_the_decoded_cap() -> None:
    limits = Limits(decoded_bytes=6)
    errors = refusals(Zstd(), Mapped(frame(raw(Z))), 7, limits)
    assert len(errors) == 3
    for error in errors.values():
        assert isinstance(error, LimitError)
        assert error.reason is Reason.LIMIT_DECODED
        assert "Limits.decoded_bytes" in str(error)


# --- Decoding -------------------------------------------------------------------------------

CONTENTS = {
    "empty": b"",
    "one": b"a",
    "zeros": bytes(90_000),
    "text": text_like(90_000),
    "noise": noise(90_000),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("level", [-(1 << 17), -5, 1, 3, 8, 19, 22])
def test_encoded_data_decodes(
    content: bytes, level: int, stored_kind: type[Mapped], encoding: Zstd
) -> None:
    data = b"".join(encoding.encode(memoryview(content), level=level))
    assert data == b"".join(Zstd().encode(memoryview(content), level=level))  # deterministic
    assert decode(encoding, stored_kind(data), len(content)) == content
    streamed = without_size(data)
    assert decode(encoding, stored_kind(streamed), len(content)) == content


def test_frames_of_every_kind_in_one_component(stored_kind: type[Mapped], encoding: Zstd) -> None:
    text, random_bytes = text_like(5000), noise(2000)
    parts: list[tuple[bytes, bytes]] = [
        (skippable(b"note"), b""),
        (frame(raw(b"")), b""),
        (encoded(text), text),
        (frame(raw(b""), size=0, size_bytes=1, window=None), b""),
        (GOOD, Z),
        (without_size(encoded(random_bytes)), random_bytes),
        (skippable(b"", 15), b""),
        (frame(rle(b"q", 1000), raw(b""), rle(b"r", 1)), b"q" * 1000 + b"r"),
        (single_segment(encoded(text), len(text)), text),
        (frame(raw(b""), raw(b"")), b""),
        (skippable(bytes(3000), 7), b""),
    ]
    data = b"".join(stored for stored, _ in parts)
    content = b"".join(decoded for _, decoded in parts)
    assert decode(encoding, stored_kind(data), len(content)) == content


@pytest.mark.parametrize("off", [-1, 1, -5000, 5000])
@pytest.mark.parametrize("is_declared", [True, False])
def test_another_length_is_refused(
    off: int, is_declared: bool, stored_kind: type[Mapped], encoding: Zstd
) -> None:
    data = encoded(text_like(5000))
    data = data if is_declared else without_size(data)
    wanted = Reason.DECODED_LONG if off < 0 else Reason.DECODED_SHORT
    errors = refusals(encoding, stored_kind(data), 5000 + off)
    assert ("check" in errors) == is_declared
    assert {error.reason for error in errors.values()} == {wanted}


DAMAGED = {
    "checksum": frame(raw(Z), size=7, checksum=b"\0\0\0\0"),
    "checksum-no-size": frame(raw(Z), checksum=b"\0\0\0\0"),
    "second-checksum": frame(raw(b"")) + frame(raw(Z), checksum=b"\0\0\0\0"),
    "last-checksum": frame(raw(Z)) + frame(raw(b""), checksum=b"\0\0\0\0"),
    "compressed-block": frame((COMPRESSED, 7, b"\xff" * 7)),
    "declares-more": frame(rle(b"a", 5), (COMPRESSED, 4, bytes(4)), size=7),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damage_inside_a_frame(data: bytes, stored_kind: type[Mapped], encoding: Zstd) -> None:
    errors = refusals(encoding, stored_kind(data), 7)
    assert "check" not in errors
    for error in errors.values():
        assert isinstance(error, EncodingError)
        assert error.reason is Reason.ENCODING_MALFORMED
        assert error.__cause__ is not None
        assert str(error.__cause__) in str(error)  # the library's own words


def test_a_failed_call_does_not_spoil_the_next(encoding: Zstd) -> None:
    for data in DAMAGED.values():
        refusals(encoding, Mapped(data), 7)
        assert decode(encoding, Mapped(GOOD), 7) == Z


def test_a_failing_source_passes_through(encoding: Zstd) -> None:
    class Failing(Copied):
        def read(self, offset: int, length: int) -> memoryview:
            if length > 100_000:
                raise SourceError("the disk is gone")
            return super().read(offset, length)

    data = encoded(noise(3 * MIB))
    with pytest.raises(SourceError, match="the disk is gone"):
        encoding.decode_into(Failing(data), memoryview(bytearray(3 * MIB)), DEFAULT_LIMITS)
    with pytest.raises(SourceError, match="the disk is gone"):
        list(encoding.decode_chunks(Failing(data), 3 * MIB, DEFAULT_LIMITS))


def test_a_single_segment_frame_over_the_window_cap_is_read_in_one_pass(
    stored_kind: type[Mapped], encoding: Zstd
) -> None:
    content = noise(2 * MIB)
    data = single_segment(encoded(content), len(content))
    limits = Limits(window_log=20)
    encoding.require_length(stored_kind(data), len(content), limits)
    destination = bytearray(len(content))
    encoding.decode_into(stored_kind(data), memoryview(destination), limits)
    assert destination == content
    with refused(LimitError, Reason.LIMIT_WINDOW):  # in pieces it takes a window of its whole size
        next(encoding.decode_chunks(stored_kind(data), len(content), limits))


@pytest.mark.slow  # three million blocks: fewer would fit into the memory that may be held
def test_a_single_segment_frame_mostly_of_empty_blocks_is_not_held_whole(encoding: Zstd) -> None:
    stored = Copied(frame(*[raw(b"")] * (3 * MIB), raw(bytes(2000)), window=None, size=2000))
    limits = Limits(window_log=10)
    assert refusals(encoding, stored, 2000, limits)["into"].reason is Reason.LIMIT_WINDOW
    assert max(length for _, length in stored.reads) <= codec.CHUNK_BYTES


def test_a_long_frame_of_a_copying_source_is_read_in_pieces(encoding: Zstd) -> None:
    content = noise(10 * MIB)
    stored = Copied(
        frame(
            *[raw(content[at : at + 65536]) for at in range(0, len(content), 65536)], window=6 << 3
        )
    )
    destination = bytearray(len(content))
    encoding.decode_into(stored, memoryview(destination), DEFAULT_LIMITS)
    assert destination == content
    assert max(length for _, length in stored.reads) <= codec.CHUNK_BYTES


# --- Bombs ----------------------------------------------------------------------------------

ROW = rle(b"\0", 128 << 10)

BOMBS = {  # 1 GiB each
    "declared": frame(*[ROW] * 8192, size=1 << 30, window=None),
    "streamed": frame(*[ROW] * 8192, window=17 << 3),
    "frames": frame(*[ROW] * 8, window=17 << 3) * 1024,
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size from /proc")
def test_a_bomb_stops_at_the_end_of_the_destination(
    stored_kind: type[Mapped], encoding: Zstd
) -> None:
    def peak_kib() -> int:
        with open("/proc/self/status", encoding="ascii") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))

    before = peak_kib()
    for data in BOMBS.values():
        errors = refusals(encoding, stored_kind(data), 96)
        assert {error.reason for error in errors.values()} == {Reason.DECODED_LONG}
    assert peak_kib() - before < 32 << 10


def test_chunks_without_an_expected_length_stop_at_the_cap(encoding: Zstd) -> None:
    limits = Limits(decoded_bytes=3 * MIB + 5)
    for name, data in BOMBS.items():
        chunks = encoding.decode_chunks(Mapped(data), None, limits)
        whole = 0 if name == "declared" else 3
        assert [len(next(chunks)) for _ in range(whole)] == [MIB] * whole
        with refused(LimitError, Reason.LIMIT_DECODED) as caught:
            assert sum(map(len, chunks)) <= 5
        assert "Limits.decoded_bytes" in str(caught.value)


# --- Contexts and threads -------------------------------------------------------------------


class Counting:
    """Counts the contexts a binding makes."""

    def __init__(self, inner: libraries.Binding) -> None:
        self.inner = inner
        self.binding = inner._replace(decoder=self.decoder, encoder=self.encoder)
        self.decoders = 0
        self.encoders = 0

    def decoder(self) -> libraries.Decoder:
        self.decoders += 1
        return self.inner.decoder()

    def encoder(self, level: int, has_checksum: bool, has_matches: bool) -> libraries.Encoder:
        self.encoders += 1
        return self.inner.encoder(level, has_checksum, has_matches)


def test_contexts_are_reused(binding: libraries.Binding) -> None:
    counting = Counting(binding)
    encoding = Zstd(counting.binding)
    for _ in range(5):
        assert decode(encoding, Mapped(GOOD), 7) == Z
        for level in (1, 3):
            list(encoding.encode(memoryview(bytes(9 * MIB)), level=level))
    assert (counting.decoders, counting.encoders) == (1, 2)


def test_contexts_that_hold_much_memory_are_not_kept(binding: libraries.Binding) -> None:
    counting = Counting(binding)
    encoding = Zstd(counting.binding)
    for _ in range(3):
        list(encoding.decode_chunks(Mapped(frame(raw(Z), window=17 << 3)), len(Z), DEFAULT_LIMITS))
        list(encoding.encode(memoryview(Z), level=19))
    assert (counting.decoders, counting.encoders) == (3, 3)


def test_an_unfinished_reading_has_its_own_context(encoding: Zstd) -> None:
    contents = [text_like(MIB, seed) * 3 for seed in range(3)]
    stored = [Mapped(without_size(encoded(content))) for content in contents]
    running = [encoding.decode_chunks(each, 3 * MIB, DEFAULT_LIMITS) for each in stored]
    results = [b"", b"", b""]
    for _ in range(3):
        for number, chunks in enumerate(running):
            results[number] += bytes(next(chunks))
            assert decode(encoding, Mapped(GOOD), 7) == Z
    assert results == contents
    assert [list(chunks) for chunks in running] == [[], [], []]


# --- Encoding -------------------------------------------------------------------------------


def test_frames_are_independent_and_declare_their_size(encoding: Zstd) -> None:
    content = text_like(MIB) * 9
    parts = list(encoding.encode(memoryview(content), level=1, frame_bytes=4 * MIB))
    tail = encoding.encode(memoryview(content)[8 * MIB :], level=1, frame_bytes=4 * MIB)
    assert list(tail) == parts[2:]  # slices at frame ends give the same bytes
    found = list(walk_frames(Mapped(b"".join(parts)), DEFAULT_LIMITS))
    assert [each.content_length for each in found] == [4 * MIB, 4 * MIB, 1 * MIB]
    position = 0
    for part, each in zip(parts, found, strict=True):
        assert not part[4] & 0x04  # no checksum
        assert each.content_length is not None
        wanted = content[position : position + each.content_length]
        assert decode(encoding, Mapped(part), each.content_length) == wanted
        position += each.content_length


def hide_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("zstandard", "compression", "compression.zstd"):
        monkeypatch.setitem(sys.modules, name, None)  # importing it raises ImportError


def test_the_standard_library_serves_without_zstandard(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in ("compression.zstd", "backports.zstd") if installed(name)]
    if not names:
        pytest.skip("neither compression.zstd nor backports.zstd is installed")
    module = importlib.import_module(names[0])
    hide_libraries(monkeypatch)
    monkeypatch.setitem(sys.modules, "compression.zstd", module)
    assert libraries.find_binding().error is module.ZstdError
    encoding = Zstd()
    data = b"".join(encoding.encode(memoryview(Z), level=3))
    assert decode(encoding, Mapped(data), 7) == Z


def test_without_any_library_the_error_names_one_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide_libraries(monkeypatch)
    encoding = Zstd()
    encoding.require_length(Mapped(GOOD), 7, DEFAULT_LIMITS)  # headers need no library
    with refused(MissingDependencyError, Reason.MISSING_DEPENDENCY, match="pip install zstandard"):
        encoding.decode_into(Mapped(GOOD), memoryview(bytearray(7)), DEFAULT_LIMITS)
    with pytest.raises(MissingDependencyError):
        next(encoding.encode(memoryview(Z), level=3))
    with pytest.raises(MissingDependencyError):
        next(encoding.decode_chunks(Mapped(GOOD), 7, DEFAULT_LIMITS))
    monkeypatch.undo()  # installed meanwhile
    assert decode(encoding, Mapped(GOOD), 7) == Z


# --- Libraries that check little ------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "blocks", "expected"),
    [(0x68, 80, 0), (0x69, 80, 9 << 20), (0x69, 64, 0), (0x69, 65, 65 << 17), (0x69, 0, 0)],
)
def test_a_window_over_8_mib_is_reported(window: int, blocks: int, expected: int) -> None:
    """At most the bytes that the frame decodes to."""
    data = frame(*[rle(b"a", 128 << 10)] * blocks, raw(b""), window=window)
    stored = Mapped(encoded(b"first") + data)
    assert Zstd().window_bytes(stored, DEFAULT_LIMITS) == expected


class Careless:
    """A decoder of raw and repeated blocks that does not compare the declared sizes."""

    def __init__(self, span: libraries.Span) -> None:
        data = b""
        while piece := span.read(1 << 20):
            data += piece
        decoded = b""
        while data:
            data, is_last = data[_header_length(data) :], False
            while not is_last:
                head = int.from_bytes(data[:3], "little")
                is_last, kind, count = bool(head & 1), head >> 1 & 3, head >> 3
                length = 1 if kind == RLE else count
                decoded += data[3 : 3 + length] * (count if kind == RLE else 1)
                data = data[3 + length :]
        self._decoded = io.BytesIO(decoded)

    def readinto(self, destination: memoryview | bytearray) -> int:
        return self._decoded.readinto(destination)

    @classmethod
    def whole(cls, data: memoryview, most: int) -> bytes:
        target = bytearray(most + 1)
        stored = Mapped(bytes(data))
        return bytes(target[: cls(libraries.Span(stored, 0, len(data), 1)).readinto(target)])


DATA = noise(1100)


def raw_frame(size: int | None, *blocks: bytes) -> bytes:
    return frame(*map(raw, blocks), size=size, size_bytes=4, window=6 << 3)


OTHER_LENGTHS = {
    "declares nothing": ([raw_frame(None, DATA[:600], DATA[600:1001])], 1000),
    "declares nothing, behind another": (
        [raw_frame(500, DATA[:500]), raw_frame(None, DATA[:501])],
        1000,
    ),
    "declares less": ([raw_frame(1000, DATA[:1001], b"")], 1000),
    "declares less, before another": ([raw_frame(9, DATA[:10]), raw_frame(7, DATA[:7])], 16),
    "declares more, before another": ([raw_frame(9, DATA[:8]), raw_frame(7, DATA[:7])], 16),
    "declares more": ([raw_frame(1001, DATA[:600], DATA[600:1000])], 1001),
}


@pytest.mark.parametrize("case", OTHER_LENGTHS)
def test_a_frame_of_another_length_is_refused_if_the_library_does_not_check(case: str) -> None:
    def unused(*_: object) -> Any:
        raise AssertionError

    decoder = libraries.Decoder(Careless, Careless.whole)
    encoding = Zstd(libraries.Binding(ValueError, lambda: decoder, unused))
    right = raw_frame(None, DATA[:600], DATA[600:1000]) + raw_frame(3, b"abc")
    assert decode(encoding, Mapped(right), 1003) == DATA[:1000] + b"abc"
    parts, length = OTHER_LENGTHS[case]
    errors = refusals(encoding, Mapped(b"".join(parts)), length)
    assert {error.reason for error in errors.values()} <= {
        Reason.DECODED_LONG,
        Reason.DECODED_SHORT,
        Reason.ENCODING_MALFORMED,
    }


def test_without_matches_numbers_take_less(encoding: Zstd) -> None:
    chance = random.Random(5)
    data = bytes(min(int(chance.expovariate(0.5)), 255) for _ in range(100_000))
    frames = [
        next(encoding.encode(memoryview(data), level=1, frame_bytes=len(data), has_matches=with_))
        for with_ in (True, False)
    ]
    assert len(frames[1]) < len(frames[0])
    assert encoding.decode_frame(memoryview(frames[1]), len(data), DEFAULT_LIMITS) == data


# --- Threads --------------------------------------------------------------------------------


class Meeting(Copied):
    """Stored bytes of which each read waits for one of another thread."""

    def __init__(self, data: bytes, timeout: float) -> None:
        super().__init__(data)
        self.barrier = threading.Barrier(2, timeout=timeout)

    def read(self, offset: int, length: int) -> memoryview:
        self.barrier.wait()
        return super().read(offset, length)


@pytest.mark.parametrize(("window", "is_apart"), [(8 * MIB, False), (16 * MIB, True)])
def test_only_large_windows_wait_for_one_another(window: int, is_apart: bool) -> None:
    """Of 24 MiB in one frame without its size: it is decoded with its window."""
    code = window.bit_length() - 11 << 3
    data = frame(*[raw(bytes(128 << 10))] * 192, window=code)
    stored = Meeting(data, timeout=0.5 if is_apart else 20)

    def decode(_: int) -> None:
        codec.ZSTD.decode_into(stored, memoryview(bytearray(24 * MIB)), DEFAULT_LIMITS)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        if is_apart:
            with pytest.raises(threading.BrokenBarrierError):
                list(pool.map(decode, range(2)))
        else:
            list(pool.map(decode, range(2)))
