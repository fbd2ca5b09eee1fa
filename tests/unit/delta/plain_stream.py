"""A slow second implementation of the sparse stream, from its description; nothing of the library.

Elements are unsigned integers. `kind` is "float", "fp8" or "integer": it decides on class bytes.
"""

from __future__ import annotations

import dataclasses
import struct
import sys
from collections.abc import Sequence

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdError, compress, decompress
else:
    import zstandard
    from zstandard import ZstdError as ZstdError

    def compress(data: bytes) -> bytes:
        """Return one frame that declares its content size."""
        return zstandard.ZstdCompressor().compress(data)

    def decompress(data: bytes) -> bytes:
        """Decode one frame."""
        return zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)


def class_byte(bits: int, width: int, kind: str) -> int:
    """Return bits 14..7 of the top 16 bits of a float, or bits 6..0 of fp8."""
    return bits & 0x7F if kind == "fp8" else bits >> (8 * width - 9) & 0xFF


def must(holds: bool, rule: str) -> None:
    """Refuse a stream that breaks a rule."""
    if not holds:
        raise ValueError(rule)


# --- Reading --------------------------------------------------------------------------------------


class Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, count: int) -> bytes:
        """Return the next bytes; there must be as many."""
        must(len(self.data) >= count, "cut off")
        front, self.data = self.data[:count], self.data[count:]
        return front

    def numbers(self, form: str) -> tuple[int, ...]:
        """Return the next little-endian integers."""
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def stream(self, size: int) -> bytes:
        """Return the content of the next stream."""
        stream_kind, stored = self.numbers("BI")
        data = self.take(stored)
        must(stream_kind <= 2, "kind of stream")
        if stream_kind == 1:
            must(content_size(data) == size, "content size")
            data = decompress(data)
        elif stream_kind == 2:
            must(stored == 1, "repeated byte")
            data *= size
        must(len(data) == size, "size of a stream")
        return data

    def planes(self, count: int, planes: int) -> list[int]:
        """Return numbers of their bytes, the lowest first."""
        out = [0] * count
        for plane in range(planes):
            out = [
                number | byte << 8 * plane
                for number, byte in zip(out, self.stream(count), strict=True)
            ]
        return out


def content_size(frame: bytes) -> int:
    """Return the content size in the header of a zstd frame without dictionary (RFC 8878)."""
    must(frame[:4] == b"\x28\xb5\x2f\xfd" and len(frame) > 5, "frame")
    single, flag = frame[4] >> 5 & 1, frame[4] >> 6
    at = 6 - single
    dictionary = (0, 1, 2, 4)[frame[4] & 3]
    must(not any(frame[at : at + dictionary]), "dictionary")
    must(single + flag > 0, "no content size")
    size = int.from_bytes(frame[at + dictionary :][: 1 << flag], "little")
    return size + 256 if flag == 1 else size


def decode(blob: bytes, old: Sequence[int], width: int, kind: str) -> list[int]:
    """Return the new elements; raise `ValueError` or zstd's error if the stream is malformed."""
    source = Bytes(blob)
    elements, stored_width, values, zero = source.numbers("IBBH")
    must(1 <= elements <= 1 << 22 and stored_width == width and values <= 1 and zero == 0, "header")
    lengths = source.numbers(f"{-(-len(old) // elements)}I")
    new: list[int] = []
    for length in lengths:
        part = old[len(new) :][:elements]
        data = Bytes(source.take(length))
        new += decode_segment(data, part, width, kind, is_new=values == 1) if length else part
        must(not data.data, "bytes behind a segment")
    must(not source.data, "bytes behind the stream")
    return new


def decode_segment(
    data: Bytes, old: Sequence[int], width: int, kind: str, *, is_new: bool
) -> list[int]:
    """Return the new elements of a segment."""
    (classes,) = data.numbers("B")
    must(1 <= classes <= (1 if kind == "integer" else 8), "K")
    limits = data.numbers(f"{classes}B")
    must(limits[-1] == 255 and list(limits) == sorted(set(limits)), "limits")
    heads = [data.numbers("IIBBB") for _ in limits]
    must(sum(members for members, *_ in heads) == len(old), "members")
    must(any(changed for _, changed, *_ in heads), "nothing changed")
    new, lowest = list(old), 0
    for limit, (members, changed, positions, gap_width, planes) in zip(limits, heads, strict=True):
        must(changed <= members and planes <= width, "head of a class")
        if classes > 1:
            keys = [class_byte(bits, width, kind) for bits in old]
            at = [i for i, key in enumerate(keys) if lowest <= key <= limit]
        else:
            at = list(range(len(old)))
        must(len(at) == members, "members of a class")
        must((positions == 0) == (changed == 0), "form of positions")
        must(gap_width in ((1, 2, 4) if positions == 1 else (0,)), "gap width")
        ranks: list[int] = []
        if positions == 1:
            for gap in data.planes(changed, gap_width):
                ranks.append((ranks[-1] if ranks else -1) + gap + 1)
        elif positions == 2:
            bitmap = int.from_bytes(data.stream(-(-members // 8)), "little")
            ranks = [i for i in range(members + 8) if bitmap >> i & 1]
        elif positions == 3:
            ranks = list(range(members))
        else:
            must(positions == 0 and planes == 0, "form of positions")
        must(len(ranks) == changed and (not ranks or ranks[-1] < members), "ranks")
        for rank, code in zip(ranks, data.planes(changed, planes), strict=True):
            if is_new:
                new[at[rank]] = code
            else:
                must(code != 0, "zero difference")
                difference = -(code + 1) // 2 if code & 1 else code // 2
                new[at[rank]] = (old[at[rank]] + difference) % (1 << 8 * width)
        lowest = limit + 1
    return new


# --- Writing --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Choices:
    """The choices of a writer, all of which a reader must understand.

    Attributes:
        elements: of a segment.
        is_new: values are new bits.
        limits: upper limits of the classes.
        form: 1 gaps, 2 a bitmap, 3 "all" where it fits, else gaps.
        gap_width: at least so many bytes.
        planes: at least so many planes of values.
        stream: 0 raw, 1 a frame; 2 the shortest of the three.
    """

    elements: int = 1 << 20
    is_new: bool = False
    limits: tuple[int, ...] = (255,)
    form: int = 1
    gap_width: int = 1
    planes: int = 0
    stream: int = 2


def encode_stream(data: bytes, choices: Choices) -> bytes:
    """Return a stream with its head."""
    if choices.stream == 2 and len(set(data)) == 1:
        return struct.pack("<BI", 2, 1) + data[:1]
    frame = compress(data)
    if choices.stream == 1 or (choices.stream == 2 and len(frame) < len(data)):
        return struct.pack("<BI", 1, len(frame)) + frame
    return struct.pack("<BI", 0, len(data)) + data


def encode_planes(numbers: Sequence[int], planes: int, choices: Choices) -> bytes:
    """Return the streams of numbers, lowest bytes first."""
    return b"".join(
        encode_stream(bytes(number >> 8 * plane & 0xFF for number in numbers), choices)
        for plane in range(planes)
    )


def encode(
    old: Sequence[int], new: Sequence[int], width: int, kind: str, choices: Choices
) -> bytes:
    """Return the stream that changes `old` into `new`."""
    step = choices.elements
    parts = [(old[at : at + step], new[at : at + step]) for at in range(0, len(old), step)]
    segments = [encode_segment(*part, width, kind, choices) for part in parts]
    head = struct.pack("<IBBH", choices.elements, width, choices.is_new, 0)
    table = struct.pack(f"<{len(segments)}I", *map(len, segments))
    return head + table + b"".join(segments)


def encode_segment(
    old: Sequence[int], new: Sequence[int], width: int, kind: str, choices: Choices
) -> bytes:
    """Return the bytes of a segment; none if nothing changed."""
    if list(old) == list(new):
        return b""
    limits = (255,) if kind == "integer" else choices.limits
    heads, body, lowest, half = b"", b"", 0, 1 << (8 * width - 1)
    for limit in limits:
        keys = [class_byte(bits, width, kind) if len(limits) > 1 else 0 for bits in old]
        at = [i for i, key in enumerate(keys) if lowest <= key <= limit]
        ranks = [rank for rank, i in enumerate(at) if old[i] != new[i]]
        codes = []
        for rank in ranks:
            before, after = old[at[rank]], new[at[rank]]
            signed = (after - before + half) % (2 * half) - half
            code = 2 * signed if signed >= 0 else -2 * signed - 1
            codes.append(after if choices.is_new else code)
        form = 0 if not ranks else choices.form
        form = 1 if form == 3 and len(ranks) < len(at) else form
        gaps = [
            rank - before - 1 for rank, before in zip(ranks, [-1, *ranks[:-1]], strict=bool(ranks))
        ]
        gap_width, planes = 0, 0
        if form == 1:
            needed = 1 if max(gaps) < 1 << 8 else 2 if max(gaps) < 1 << 16 else 4
            gap_width = max(needed, choices.gap_width)
            body += encode_planes(gaps, gap_width, choices)
        elif form == 2:
            bitmap = sum(1 << rank for rank in ranks)
            body += encode_stream(bitmap.to_bytes(-(-len(at) // 8), "little"), choices)
        if ranks:
            planes = max(-(-max(codes).bit_length() // 8), min(choices.planes, width))
            body += encode_planes(codes, planes, choices)
        heads += struct.pack("<IIBBB", len(at), len(ranks), form, gap_width, planes)
        lowest = limit + 1
    return bytes([len(limits), *limits]) + heads + body
