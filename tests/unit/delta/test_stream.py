"""The sparse stream: bit for bit, as a second implementation has it, and refused when damaged."""

from __future__ import annotations

import dataclasses
import struct
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.extent import examples
from tests.refusals import refused
from tests.unit.delta import plain_stream
from tests.unit.delta.plain_stream import Choices
from ztensor.delta.changes import write_changes
from ztensor.delta.errors import DeltaError, DeltaReason
from ztensor.delta.stream import SparseStream, encode, encode_changes

Array = Any
FLOATS = ["float64", "float32", "float16", ml_dtypes.bfloat16]
FP8 = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu]
INTEGERS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
DTYPES = [np.dtype(dtype) for dtype in (*FLOATS, *FP8, *INTEGERS)]
BF16 = np.dtype(ml_dtypes.bfloat16)
PROFILES: list[tuple[Any, Any]] = [("fast", "difference"), ("small", "difference"), ("fast", "new")]
BORDERS = [1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 1_000]


def kind_of(dtype: np.dtype[Any]) -> str:
    return "integer" if dtype in INTEGERS else "fp8" if dtype in FP8 else "float"


def bits_of(array: Array) -> Array:
    return array.view(f"u{array.itemsize}")


def state(dice: np.random.Generator, dtype: np.dtype[Any], count: int, content: str) -> Array:
    """Return an array of weights, of random bits, or of values with many bit patterns."""
    if dtype.kind == "b":
        return dice.integers(0, 2, count).astype(bool)
    if content == "weights" and dtype not in INTEGERS:
        return dice.normal(0, 0.05, count).astype("f4").astype(dtype)
    if content == "special" and dtype not in INTEGERS:
        values = np.array([np.nan, -np.nan, np.inf, 0.0, -0.0, 1e-30], "f4").astype(dtype)
        return dice.choice(values, count)
    return np.frombuffer(dice.bytes(count * dtype.itemsize), dtype)


def changed(dice: np.random.Generator, old: Array, where: Array, by: str) -> Array:
    """Return an array with other bits at some positions."""
    new = bits_of(old).copy()
    if old.dtype.kind == "b" or by == "sign":
        new[where] ^= new.dtype.type(1 if old.dtype.kind == "b" else 1 << 8 * new.itemsize - 1)
    elif by == "unit":
        new[where] += dice.choice(np.array([1, -1]).astype(new.dtype), new[where].size)
    else:
        new[where] = np.frombuffer(dice.bytes(new[where].nbytes), new.dtype)
    return new.view(old.dtype)


@st.composite
def pairs(draw: st.DrawFn, most: int = 3_000) -> tuple[Array, Array]:
    """Draw two arrays of the same dtype and count."""
    dice = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    dtype = draw(st.sampled_from(DTYPES))
    count = draw(st.sampled_from(BORDERS) | st.integers(1, most))
    old = state(dice, dtype, count, draw(st.sampled_from(["weights", "bits", "special"])))
    where = {
        "one": np.arange(count) == dice.integers(count),
        "first": np.arange(count) == 0,
        "last": np.arange(count) == count - 1,
        "all": np.ones(count, bool),
        "few": dice.random(count) < 0.01,
        "some": dice.random(count) < 0.15,
        "most": dice.random(count) < 0.9,
        "half": np.arange(count) * 2 < count,
    }[draw(st.sampled_from(["one", "first", "last", "all", "few", "some", "most", "half"]))]
    return old, changed(dice, old, where, draw(st.sampled_from(["unit", "sign", "bits"])))


def applied(stream: SparseStream, old: Array, out: Array) -> int:
    """Write the new elements to `out`, which may be `old`; return how many changed."""
    if out is not old:
        out[...] = old
    for positions, values in stream.changes(old, is_ordered=False):
        is_difference = stream.values == "difference"
        write_changes(bits_of(out), positions, values, is_difference=is_difference)
    return stream.changed


def require_equal(old: Array, new: Array, blob: bytes) -> None:
    """Check everything a stream gives against the two arrays."""
    differs = np.flatnonzero(bits_of(old) != bits_of(new))
    stream = SparseStream(memoryview(blob), old.size, old.dtype)
    assert stream.changed == differs.size
    out, place = np.empty_like(old), old.copy()
    assert applied(stream, old, out) == differs.size
    assert applied(stream, place, place) == differs.size
    assert out.tobytes() == place.tobytes() == new.tobytes()
    changes = list(stream.changes(old if stream.needs_old else None))
    positions, values = map(np.concatenate, zip(*changes, strict=True))
    assert positions.dtype == np.int64
    assert positions.tolist() == differs.tolist()
    expected = bits_of(new) if stream.values == "new" else bits_of(new) - bits_of(old)
    assert values.dtype == expected.dtype
    assert values.tolist() == expected[differs].tolist()


@settings(max_examples=examples(400), deadline=None)
@given(pairs(), st.sampled_from(PROFILES))
def test_the_new_bits_come_back(pair: tuple[Array, Array], profile: Any) -> None:
    old, new = pair
    effort, values = profile
    blob = encode(old, new, effort=effort, values=values)
    if blob is None:
        assert old.tobytes() == new.tobytes()
        return
    assert encode(old.copy(), new.copy(), effort=effort, values=values) == blob
    require_equal(old, new, blob)
    kind = kind_of(old.dtype)
    plain = plain_stream.decode(blob, bits_of(old).tolist(), old.itemsize, kind)
    assert plain == bits_of(new).tolist()
    if effort == "fast":
        stream = SparseStream(memoryview(blob), old.size, old.dtype)
        assert encode_changes(stream.changes(), old.size, old.dtype, values=values) == blob


@st.composite
def choices(draw: st.DrawFn) -> Choices:
    """Draw choices of a writer."""
    limits = draw(st.sets(st.integers(0, 254), max_size=7))
    return Choices(
        elements=draw(st.sampled_from([1, 5, 8, 100, 1 << 22])),
        is_new=draw(st.booleans()),
        limits=(*sorted(limits), 255),
        form=draw(st.integers(1, 3)),
        gap_width=draw(st.sampled_from([1, 2, 4])),
        planes=draw(st.integers(0, 8)),
        stream=draw(st.integers(0, 2)),
    )


@settings(max_examples=examples(400), deadline=None)
@given(pairs(300), choices())
def test_every_form_that_the_text_allows_is_read(pair: tuple[Array, Array], made: Choices) -> None:
    old, new = pair
    if old.tobytes() != new.tobytes():
        lists = bits_of(old).tolist(), bits_of(new).tolist()
        blob = plain_stream.encode(*lists, old.itemsize, kind_of(old.dtype), made)
        require_equal(old, new, blob)


@pytest.mark.parametrize("effort", ["fast", "small"])
@pytest.mark.parametrize(
    ("log", "share"), [(20, 0.01), (20, 0.07), (20, 0.4), (20, 1), (22, 0), (22, 0.01)]
)
def test_borders_of_segments(log: int, share: float, effort: Any) -> None:
    dice = np.random.default_rng(log)
    for count in ((1 << log) - 1, 1 << log, (1 << log) + 1):
        old = state(dice, np.dtype(ml_dtypes.float8_e4m3fn), count, "weights")
        where = dice.random(count) < share
        where[[0, -1]] = True
        new = changed(dice, old, where, "unit")
        blob = encode(old, new, effort=effort)
        assert blob is not None
        out = np.empty_like(old)
        stream = SparseStream(memoryview(blob), count, old.dtype)
        assert applied(stream, old, out) == stream.changed == np.count_nonzero(where)
        assert out.tobytes() == new.tobytes()


@pytest.mark.parametrize("count", [10, 3 << 20, 9 << 20])
def test_changes_come_in_any_pieces(count: int) -> None:
    dice = np.random.default_rng(5)
    positions = np.unique(dice.integers(0, count, 5_000))
    values = dice.integers(1, 1 << 16, positions.size).astype("u2")
    cuts = np.sort(dice.integers(0, positions.size, 7))
    pieces = zip(np.split(positions, cuts), np.split(values, cuts), strict=True)
    blob = encode_changes(pieces, count, BF16)
    assert encode_changes([(positions, values)], count, BF16) == blob
    found = zip(*SparseStream(memoryview(blob), count, BF16).changes(), strict=True)
    for expected, array in zip((positions, values), found, strict=True):
        assert np.array_equal(np.concatenate(array), expected)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("difference", "00001000 02 00 0000 19000000  01 ff 04000000 01000000 02 00 01"
                       "02 01000000 04  02 01000000 02"),
        ("new", "00001000 02 01 0000 1f000000  01 ff 04000000 01000000 02 00 02"
                "02 01000000 04  02 01000000 41  02 01000000 c0"),
    ],
)  # fmt: skip
def test_the_bytes(values: Any, expected: str) -> None:
    old = np.array([1, 2, -3, 0.5], BF16)
    new = old.copy()
    bits_of(new)[2] += 1
    assert encode(old, new, values=values) == bytes.fromhex(expected)


def test_whole_rows_that_change_take_little_more_than_their_values() -> None:
    dice = np.random.default_rng(7)
    old = state(dice, BF16, 3_000 * 384, "weights")
    where = np.repeat(dice.random(3_000) < 0.1, 384)
    blob = encode(old, changed(dice, old, where, "unit"))
    assert blob is not None
    assert len(blob) < 0.22 * np.count_nonzero(where)


def test_nothing_changed() -> None:
    old = np.full(20, np.nan, "f4")
    for effort, values in PROFILES:
        assert encode(old, old.copy(), effort=effort, values=values) is None
    blob = encode_changes([], 20, old.dtype)
    stream = SparseStream(memoryview(blob), 20, old.dtype)
    assert (stream.changed, stream.needs_old, list(stream.changes())) == (0, False, [])
    out = np.zeros_like(old)
    assert applied(stream, old, out) == 0
    assert out.tobytes() == old.tobytes()


def test_classes_make_updates_of_one_size_shorter() -> None:
    """An update of one size changes small elements: with classes, that costs little."""
    dice = np.random.default_rng(3)
    weights = dice.normal(0, 0.05, 1 << 18).astype("f4")
    old = weights.astype(BF16)
    new = (old.astype("f4") + dice.choice([-3e-6, 3e-6], old.size)).astype(BF16)
    fast, small = encode(old, new), encode(old, new, effort="small")
    assert fast is not None
    assert small is not None
    assert len(small) < 0.5 * len(fast)
    assert SparseStream(memoryview(small), old.size, BF16).needs_old


def test_classes_need_the_right_old_elements() -> None:
    old = np.array([1, 2, 3e-5, 4e-5], "f4")
    bits = bits_of(old).tolist()
    limits = Choices(limits=(120, 255))
    blob = plain_stream.encode(bits, [*bits[:3], bits[3] + 1], 4, "float", limits)
    stream = SparseStream(memoryview(blob), 4, old.dtype)
    assert stream.needs_old
    with refused(DeltaError, DeltaReason.NEEDS_BASE):
        list(stream.changes())
    with refused(DeltaError, DeltaReason.BASE):
        list(stream.changes(np.ones(4, "f4")))


# --- Refused --------------------------------------------------------------------------------------

RAW, FRAME, REPEATED = 0, 1, 2


def stored(data: bytes, kind: int = RAW, length: int | None = None) -> bytes:
    """Return a stream with a head."""
    return struct.pack("<BI", kind, len(data) if length is None else length) + data


def frame(data: bytes, size: int, descriptor: int = 0x20) -> bytes:
    """Return a zstd frame of one raw block that declares a content size."""
    block = (1 | len(data) << 3).to_bytes(3, "little")
    return b"\x28\xb5\x2f\xfd" + bytes([descriptor, size]) + block + data


@dataclasses.dataclass
class Draft:
    """A stream of 8 elements of 2 bytes, of which the first and the last change by one."""

    segment_elements: int = 8
    width: int = 2
    values: int = 0
    zero: int = 0
    lengths: list[int] | None = None
    classes: int = 1
    limits: bytes = b"\xff"
    heads: Sequence[tuple[int, ...]] = dataclasses.field(default_factory=lambda: [(8, 2, 1, 1, 1)])
    positions: bytes = stored(b"\x00\x06")
    codes: bytes = stored(b"\x02\x02")
    tail: bytes = b""

    def build(self) -> bytes:
        heads = b"".join(struct.pack("<IIBBB", *head) for head in self.heads)
        body = bytes([self.classes]) + self.limits + heads + self.positions + self.codes + self.tail
        lengths = [len(body)] if self.lengths is None else self.lengths
        head = struct.pack("<IBBH", self.segment_elements, self.width, self.values, self.zero)
        return head + struct.pack(f"<{len(lengths)}I", *lengths) + body


GOOD = len(Draft().build()) - 12  # bytes of its segment
HEAD = (8, 2, 1, 1, 1)
# In addition to the streams in `tests/deltas/reject`.
MALFORMED: dict[str, Draft | bytes] = {
    "nothing": b"",
    "half a header": Draft().build()[:7],
    "half a table": Draft().build()[:11],
    "no segment": Draft().build()[:12],
    "a segment longer by one": Draft(lengths=[GOOD + 1]),
    "a segment shorter by one": Draft(lengths=[GOOD - 1]),
    "a segment too many": Draft(lengths=[GOOD, 0]),
    "a byte left in the segment": Draft(tail=b"\x00"),
    "a stream left in the segment": Draft(tail=stored(b"\x00")),
    "nine classes": Draft(
        classes=9, limits=bytes([*range(8), 255]), heads=[HEAD, *[(0, 0, 0, 0, 0)] * 8]
    ),
    "limits that fall": Draft(
        classes=3, limits=b"\x09\x08\xff", heads=[HEAD, *[(0, 0, 0, 0, 0)] * 2]
    ),
    "equal limits": Draft(classes=2, limits=b"\xff\xff", heads=[HEAD, (0, 0, 0, 0, 0)]),
    "heads cut off": Draft(heads=[], positions=b"", codes=b"\x08"),
    "members of 2^32 - 1": Draft(heads=[((1 << 32) - 1, 2, 1, 1, 1)]),
    "members that sum up to 2^32 + 8": Draft(
        classes=2, limits=b"\x7f\xff", heads=[((1 << 32) - 1, 2, 1, 1, 1), (9, 0, 0, 0, 0)]
    ),
    "changed of 2^32 - 1": Draft(heads=[(8, (1 << 32) - 1, 1, 1, 1)]),
    "no positions": Draft(heads=[(8, 2, 0, 0, 1)], positions=b""),
    "all, but two changed": Draft(heads=[(8, 2, 3, 0, 1)], positions=b""),
    "gaps of no bytes": Draft(heads=[(8, 2, 1, 0, 1)], positions=b""),
    "a bitmap with a gap width": Draft(heads=[(8, 2, 2, 1, 1)], positions=stored(b"\x81")),
    "three planes of two": Draft(heads=[(8, 2, 1, 1, 3)], codes=stored(b"\x02\x02") * 3),
    "planes of nothing": Draft(
        classes=2, limits=b"\x7f\xff", heads=[HEAD, (0, 0, 0, 0, 1)], tail=stored(b"")
    ),
    "a gap past the end": Draft(positions=stored(b"\x00\x07")),
    "gaps that sum up to 2^32": Draft(
        heads=[(8, 2, 1, 4, 1)], positions=stored(b"\x00\xff") + stored(b"\xff", REPEATED) * 3
    ),
    "a bit too few": Draft(heads=[(8, 2, 2, 0, 1)], positions=stored(b"\x80")),
    "a bit too many": Draft(heads=[(8, 2, 2, 0, 1)], positions=stored(b"\x83")),
    "zero differences without planes": Draft(heads=[(8, 2, 1, 1, 0)], codes=b""),
    "half the head of a stream": Draft(codes=b"\x00\x02\x00"),
    "a stream cut off": Draft(codes=stored(b"\x02\x02", RAW, 3)),
    "a stream of 2^32 - 1 bytes": Draft(codes=stored(b"\x02\x02", RAW, (1 << 32) - 1)),
    "a raw stream too short": Draft(codes=stored(b"\x02")),
    "a raw stream too long": Draft(codes=stored(b"\x02\x02\x02")),
    "two repeated bytes": Draft(codes=stored(b"\x02\x02", REPEATED)),
    "no repeated byte": Draft(codes=stored(b"", REPEATED)),
    "an empty frame": Draft(codes=stored(b"", FRAME)),
    "no frame": Draft(codes=stored(b"\x02\x02", FRAME)),
    "a frame of more": Draft(codes=stored(frame(b"\x02\x02\x02", 3), FRAME)),
    "a frame of less than it says": Draft(codes=stored(frame(b"\x02", 2), FRAME)),
    "a frame of more than it says": Draft(codes=stored(frame(b"\x02\x02\x02", 2), FRAME)),
    "a frame cut off": Draft(codes=stored(frame(b"\x02\x02", 2)[:-1], FRAME)),
    "a frame with a dictionary": Draft(codes=stored(frame(b"\x02\x02", 7, 0x21), FRAME)),
    "a frame without content size": Draft(codes=stored(frame(b"\x02\x02", 2, 0x00), FRAME)),
    "a frame with a reserved bit": Draft(codes=stored(frame(b"\x02\x02", 2, 0x28), FRAME)),
    "a second frame": Draft(codes=stored(frame(b"\x02\x02", 2) + frame(b"", 0), FRAME)),
    "a skippable frame": Draft(
        codes=stored(frame(b"\x02\x02", 2) + b"\x50\x2a\x4d\x18\x00\x00\x00\x00", FRAME)
    ),
}  # fmt: skip


def test_what_the_malformed_ones_are_made_of_is_good() -> None:
    old = np.arange(8, dtype="f2")
    for draft in (Draft(), Draft(codes=stored(frame(b"\x02\x02", 2), FRAME))):
        out = np.empty_like(old)
        assert applied(SparseStream(memoryview(draft.build()), 8, old.dtype), old, out) == 2
        assert (bits_of(out) - bits_of(old)).tolist() == [1, 0, 0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_streams_are_refused(case: str) -> None:
    draft = MALFORMED[case]
    blob = draft if isinstance(draft, bytes) else draft.build()
    old = np.zeros(8, "f2")
    calls: list[Callable[[SparseStream], object]] = [
        lambda stream: list(stream.changes(old)),
        lambda stream: applied(stream, old, np.empty_like(old)),
        lambda stream: applied(stream, old.copy(), old.copy()),
    ]
    for call in calls:
        with refused(DeltaError, DeltaReason.MALFORMED):
            call(SparseStream(memoryview(blob), 8, old.dtype))
    with pytest.raises((ValueError, plain_stream.ZstdError)):
        plain_stream.decode(blob, [0] * 8, 2, "float")


def test_integers_have_one_class() -> None:
    two = Draft(classes=2, limits=b"\x7f\xff", heads=[HEAD, (0, 0, 0, 0, 0)])
    stream = SparseStream(memoryview(two.build()), 8, np.dtype("f2"))
    applied(stream, np.zeros(8, "f2"), np.zeros(8, "f2"))
    with refused(DeltaError, DeltaReason.MALFORMED):
        SparseStream(memoryview(two.build()), 8, np.dtype("u2")).changed  # noqa: B018


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16])
def test_a_short_stream_of_many_changes_takes_bounded_memory(dtype: Any) -> None:
    """64 MiB and four times the stream and the destination."""
    count = 1 << 22
    old = state(np.random.default_rng(1), np.dtype(dtype), count, "bits")
    keys = bits_of(old) >> max(8 * old.itemsize - 9, 0) & 0xFF
    below = int(np.count_nonzero((keys & 0x7F if old.itemsize == 1 else keys) < 9))
    heads = [(below, below, 3, 0, old.itemsize), (count - below, count - below, 3, 0, old.itemsize)]
    one = stored(b"\x01", REPEATED) * old.itemsize
    blob = Draft(count, old.itemsize, classes=2, limits=b"\x08\xff", heads=heads,
                 positions=one, codes=one).build()  # fmt: skip
    out = np.empty_like(old)
    stream = SparseStream(memoryview(blob), count, old.dtype)
    for call in (lambda: applied(stream, old, out), lambda: list(stream.changes(old))):
        tracemalloc.start()
        call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= (64 << 20) + 4 * (len(blob) + old.nbytes)
