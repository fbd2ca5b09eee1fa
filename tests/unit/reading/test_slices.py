from __future__ import annotations

import io
import pickle
import threading
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import ztensor
from tests.extent import examples
from ztensor import Tensor
from ztensor.encoding import ENCODINGS
from ztensor.encoding.zstd import Zstd
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    EncodingError,
    LayoutError,
    LimitError,
    Reason,
    UnsupportedError,
    UsageError,
)
from ztensor.layout.elements import spell, stored_form
from ztensor.limits import DEFAULT_LIMITS
from ztensor.numpy import save
from ztensor.reading import selection
from ztensor.reading.file import FileObjects
from ztensor.reading.listing import read_manifest
from ztensor.reading.reader import ObjectReader
from ztensor.source.base import Range, Source
from ztensor.source.memory import MemorySource
from ztensor.testing.builder import Draft, draft, zstd_frame

if TYPE_CHECKING:
    from pathlib import Path

W = np.arange(60, dtype=np.int16).reshape(5, 4, 3)


class Counting(Source):
    """A source that cannot be mapped and counts what is read."""

    def __init__(self, data: bytes) -> None:
        self._inner = MemorySource(data)
        self.name = "<counting>"
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read_into(self, offset: int, destination: memoryview) -> None:
        self.reads.append((offset, destination.nbytes))
        self._inner.read_into(offset, destination)


def counted(data: bytes, *, verify: bool | None = None) -> tuple[ObjectReader, Counting]:
    source = Counting(data)
    _, manifest = read_manifest(source, DEFAULT_LIMITS)
    source.reads.clear()
    return ObjectReader(FileObjects(source, manifest, verify=verify)), source


def manners(array: Any) -> list[ObjectReader]:
    """Return the four ways data can lie: mapped, read, compressed, and in another byte order."""
    raw, packed = save({"w": array}), save({"w": array}, compression=True)
    return [ztensor.open(raw), counted(raw)[0], ztensor.open(packed), counted(packed)[0]]


@st.composite
def indexed(draw: st.DrawFn) -> tuple[tuple[int, ...], Any]:
    shape = draw(npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    key = draw(
        npst.basic_indices(shape, min_dims=0, max_dims=7, allow_newaxis=True, allow_ellipsis=True)
    )
    return shape, key


@given(indexed())
@settings(max_examples=examples(300), deadline=None)
def test_indexing_is_numpys(case: tuple[tuple[int, ...], Any]) -> None:
    shape, key = case
    array = np.arange(np.prod(shape, dtype=int), dtype=np.int16).reshape(shape)
    expected = array[key]
    for reader in manners(array):
        part = reader.get_slice("w")
        assert part.shape == shape
        found = part[key]
        assert type(found) is type(expected)
        assert found.shape == expected.shape
        assert found.tolist() == expected.tolist()
        assert part[key].tolist() == expected.tolist()  # and again


FANCY_KEYS: list[Any] = [
    [3, 1, 1],
    [],
    [-1, 0],
    np.array([[0, 4], [2, 2]]),
    np.array([4], np.uint8),
    np.zeros((0, 2), int),
    [True, False, True, False, True],
    np.zeros(5, bool),
    ([3, 1, 2], slice(None), 2),
    ([3, 1, 2], ..., 2),
    ([3, 1], 0, 2),
    ([3, 1], 0, slice(None, None, -1)),
    ([3, 1], None, slice(1, 3), 0),
    (np.array([False, True, True, False, False]), slice(None, None, 2), 1),
    (slice(1, 4), [0, 3]),
    (slice(None), [0, 3], slice(0, 2)),
    (slice(None), slice(None), [2, 0]),
    ([0, 4], [3, 1]),
    ([0, 4], [3, 1], [0, 2]),
    ([0, 4], slice(None), [0, 2]),
    ([[0], [4]], [3, 1]),
    (0, [3, 1]),
    (..., [2, 0]),
    ([0, 1], ..., [2, 0]),
    W > 3,
    W[:, :, 0] > 3,
    (slice(1, 3), W[0] > 3),
    True,
    np.False_,
    (np.True_, 1),
    (None, [1, 2]),
]


@pytest.mark.parametrize("key", FANCY_KEYS, ids=lambda value: str(value)[:40])
def test_arrays_as_indices_are_numpys_too(key: Any) -> None:
    expected = W[key]
    for reader in manners(W):
        found = reader.get_slice("w")[key]
        assert type(found) is type(expected)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tolist() == expected.tolist()


BAD_KEYS: list[tuple[Any, type[Exception]]] = [
    (5, ArgumentValueError),
    (-6, ArgumentValueError),
    (2**70, ArgumentValueError),
    ((0, 4), ArgumentValueError),
    ((0, 0, 0, 0), ArgumentValueError),
    ((..., ...), ArgumentValueError),
    (slice(None, None, 0), ArgumentValueError),
    ((0, slice(None, None, 0)), ArgumentValueError),
    (slice("a", None), ArgumentTypeError),
    ((0, slice(0.5)), ArgumentTypeError),
    (1.0, ArgumentTypeError),
    ("w", ArgumentTypeError),
    ([0.0, 1.0], ArgumentTypeError),
    (np.array(["a"]), ArgumentTypeError),
    ([[0, 1], [2]], ArgumentTypeError),
    ([0, 5], ArgumentValueError),
    ([-6, 0], ArgumentValueError),
    ((0, [0, 4]), ArgumentValueError),
    (np.ones(4, bool), ArgumentValueError),
    (W[:, 1:] > 3, ArgumentValueError),
    (([0, 1], [0, 1, 2]), ArgumentValueError),
    ([[[[0]]], 0, 0, 0], ArgumentTypeError),
]


@pytest.mark.parametrize(("key", "kind"), BAD_KEYS, ids=lambda value: str(value)[:30])
def test_other_indices_are_refused_alike(key: Any, kind: type[Exception]) -> None:
    for reader in manners(W):
        with pytest.raises(kind) as caught:
            reader.get_slice("w")[key]
        assert caught.value.object_name == "w"  # type: ignore[attr-defined]


def test_numpy_integers_are_integers() -> None:
    for reader in manners(W):
        part = reader.get_slice("w")
        assert part[np.int64(2), np.uint8(1)].tolist() == W[2, 1].tolist()
        assert part[np.int8(1) : np.int8(3)].shape == (2, 4, 3)
        assert part[np.array(1)].tolist() == W[1].tolist()  # a 0-d array of integers is one too


ROW = 4 * 3 * 2


@pytest.mark.parametrize(
    ("key", "rows"),
    [
        (0, (0, 1)),
        (-1, (4, 5)),
        (slice(1, 3), (1, 3)),
        (slice(None, None, 2), (0, 5)),
        (slice(None, None, -1), (0, 5)),
        (slice(3, 0, -2), (1, 4)),
        (slice(1, 4, 5), (1, 2)),
        (slice(2, 2), None),
        (slice(9, None), None),
    ],
    ids=str,
)
def test_only_the_rows_that_are_asked_for_are_read(key: Any, rows: tuple[int, int] | None) -> None:
    data = save({"v": np.zeros(99), "w": W})
    reader, source = counted(data)
    start = reader.location("w").offset
    found = reader.get_slice("w")[key]
    assert found.tolist() == W[key].tolist()
    reads = [(offset, length) for offset, length in source.reads if length]
    expected = [] if rows is None else [(start + rows[0] * ROW, (rows[1] - rows[0]) * ROW)]
    assert reads == expected


@pytest.mark.parametrize("key", [..., (), None, (..., slice(None)), slice(None)], ids=str)
def test_what_needs_all_rows_reads_them_once(key: Any) -> None:
    reader, source = counted(save({"w": W}))
    assert reader.get_slice("w")[key].tolist() == W[key].tolist()
    assert source.reads == [(reader.location("w").offset, W.nbytes)]


def test_compressed_data_is_decoded_once() -> None:
    reader, source = counted(save({"w": W}, compression=True))
    part = reader.get_slice("w")
    assert source.reads == []  # nothing before it is indexed
    part[0]
    reads = len(source.reads)
    assert reads > 0
    part[1:3]
    assert len(source.reads) == reads


def test_with_verify_the_whole_is_checked_before_a_part_is_given() -> None:
    data = bytearray(save({"w": W}))
    reader, _ = counted(bytes(data))
    where = reader.location("w")
    data[where.offset + where.length - 1] ^= 1
    assert counted(bytes(data))[0].get_slice("w")[0].tolist() == W[0].tolist()
    for verify in (counted(bytes(data), verify=True)[0], ztensor.open(bytes(data), verify=True)):
        with pytest.raises(ztensor.DigestMismatchError):
            verify.get_slice("w")[0]


def test_what_the_caller_writes_stays_his(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(save({"w": W}))
    for reader in [*manners(W)[1:], ztensor.open(tmp_path / "m.zt", mmap=False)]:
        part = reader.get_slice("w")
        whole, row = part[...], part[1]
        whole[...] = -1
        row[...] = -1
        assert part[...].tolist() == W.tolist()
        assert part[1].tolist() == W[1].tolist()


def test_a_mapped_slice_is_a_view(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(save({"w": W}))
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert np.shares_memory(reader.get_slice("w")[1:3], reader["w"])


def test_what_a_slice_says_of_itself() -> None:
    for reader in manners(W):
        part = reader.get_slice("w")
        assert (part.shape, part.ndim, part.size, part.nbytes) == ((5, 4, 3), 3, 60, 120)
        assert (part.dtype, len(part)) == (W.dtype, 5)
        assert (part.get_shape(), part.get_dtype()) == ([5, 4, 3], "int16")
        assert "'w'" in repr(part)
        assert np.asarray(part).tolist() == W.tolist()
        assert np.asarray(part, np.float64).dtype == np.float64
        assert part.__array__(copy=True).flags.owndata


@pytest.mark.parametrize(
    "dtype", ["complex64", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float4_e2m1fn]
)
def test_slices_have_the_element_type_of_the_object(dtype: Any) -> None:
    array = (np.arange(15) % 6).reshape(5, 3).astype(dtype)
    for reader in manners(array):
        part = reader.get_slice("w")
        assert part.dtype == array.dtype
        for key in (1, slice(1, 4), (slice(None, None, -2), 1), ...):
            assert part[key].dtype == array.dtype
            assert part[key].tobytes() == array[key].tobytes()


def test_a_scalar() -> None:
    for reader in manners(np.array(7)):
        part = reader.get_slice("w")
        assert part[()] == part[...] == 7
        assert part[...].shape == ()
        with pytest.raises(ArgumentTypeError):
            len(part)
        with pytest.raises(ArgumentValueError):
            part[0]


def test_a_closed_reader() -> None:
    for reader in manners(W):
        part = reader.get_slice("w")
        part[0]
        reader.close()
        with pytest.raises(ClosedError):
            part[0]


def test_more_dimensions_than_there_may_be() -> None:
    reader, _ = counted(save({"w": np.zeros((1,) * 9)}))
    reader.objects.parts()[0].fetching.limits = ztensor.Limits(rank=8)
    with pytest.raises(LimitError) as caught:
        reader.get_slice("w")
    assert caught.value.reason is Reason.LIMIT_RANK


def test_iterating_gives_rows() -> None:
    for reader in manners(W):
        assert [row.tolist() for row in reader.get_slice("w")] == W.tolist()
        assert [tuple(row.shape) for row in reader.get_slice("w")] == [(4, 3)] * 5
    with pytest.raises(ArgumentTypeError):
        iter(ztensor.open(save({"w": np.array(7)})).get_slice("w"))


def test_a_slice_is_pickled_by_its_reader(tmp_path: Path) -> None:
    (tmp_path / "m.zt").write_bytes(save({"w": W}, compression=True))
    with ztensor.open(tmp_path / "m.zt") as reader:
        part = reader.get_slice("w")
        part[0]  # decodes all, which does not travel
        data = pickle.dumps(part)
        assert len(data) < 1000
        again = pickle.loads(data)
        assert again[1].tolist() == W[1].tolist()
        again._file.close()


def test_an_unknown_layout_has_no_rows() -> None:
    tensor = Tensor({"x": np.zeros(3)}, shape=(3,), format="of_tomorrow")
    with pytest.raises(UsageError) as caught:
        ztensor.open(save({"w": tensor})).get_slice("w")
    assert "'of_tomorrow'" in str(caught.value)
    assert "read(name)" in str(caught.value)


UNKNOWN: dict[str, tuple[dict[str, Any], bytes, Reason]] = {
    "encoding": ({"dtype": "u8", "encoding": "lz5"}, bytes(6), Reason.UNKNOWN_ENCODING),
    "dtype": ({"dtype": "u7"}, bytes(6), Reason.UNKNOWN_DTYPE),
    "packed type": ({"dtype": "u8", "type": "i4"}, bytes(3), Reason.UNKNOWN_TYPE),
    "packed type in a frame": (
        {"dtype": "u8", "type": "i4", "encoding": "zstd"},
        zstd_frame(bytes(3)),
        Reason.UNKNOWN_TYPE,
    ),
}


@pytest.mark.parametrize("kind", UNKNOWN)
def test_what_is_unknown(kind: str) -> None:
    component, data, reason = UNKNOWN[kind]
    made = blank()
    made.add("w", [2, 3], {"data": (component, data)})
    for reader in (ztensor.open(made.to_bytes()), counted(made.to_bytes())[0]):
        with pytest.raises(UnsupportedError) as caught:
            reader.get_slice("w")[1]
        assert caught.value.reason is reason
        assert caught.value.object_name == "w"


def test_an_unknown_type_of_plain_elements_gives_these() -> None:
    made = blank()
    made.add("w", [2, 3], {"data": ({"dtype": "u8", "type": "odd"}, bytes(range(6)))})
    for reader in (ztensor.open(made.to_bytes()), counted(made.to_bytes())[0]):
        assert reader.get_slice("w")[1].tolist() == [3, 4, 5]


def test_a_shape_numpy_cannot_hold() -> None:
    made = blank()
    made.add("w", [0, 1 << 62, 1 << 62], {"data": ({"dtype": "u8"}, b"")})
    for reader in (ztensor.open(made.to_bytes()), counted(made.to_bytes())[0]):
        with pytest.raises(LimitError):
            reader.get_slice("w")[...]


# --- Bytes that are read ------------------------------------------------------------------------


def blank(version: str = "1.2.0") -> Draft:
    """Return a file without objects."""
    made = draft(version)
    made.objects.clear()
    made.blobs.clear()
    return made


@pytest.mark.parametrize(
    ("key", "most"),
    [
        ((slice(None), slice(10, 20)), 50 * 10),
        ((slice(10, 20), 5), 10),
        ((3, slice(None, None, 10_000)), 2),
        ([1, 30, 2], 3 * 20_000),
        ((np.arange(50) % 10 == 0, slice(5)), 5 * 5),
        ((slice(None, None, 25), ..., -1), 2),
    ],
    ids=str,
)
def test_only_the_ranges_that_are_asked_for_are_read(key: Any, most: int) -> None:
    array = np.arange(50 * 20_000, dtype=np.float64).reshape(50, 20_000)  # rows of 160 kB
    reader, source = counted(save({"w": array}))
    found = reader.get_slice("w")[key]
    assert found.tolist() == array[key].tolist()
    assert sum(length for _, length in source.reads) == 8 * most


def test_ranges_with_small_gaps_are_read_as_one() -> None:
    array = np.arange(1000 * 1000, dtype=np.float32).reshape(1000, 1000)
    reader, source = counted(save({"w": array}))
    part = reader.get_slice("w")
    assert part[:, 10:20].tolist() == array[:, 10:20].tolist()
    assert len(source.reads) == 1
    source.reads.clear()
    rows = [0, 5, 100, 999]
    assert part[rows].tolist() == array[rows].tolist()
    assert [length for _, length in source.reads] == [6 * 4000, 4000, 4000]


def test_odd_elements_are_read_in_whole_bytes() -> None:
    array = (np.arange(1000) % 6).astype(ml_dtypes.float4_e2m1fn)
    reader, source = counted(save({"w": array}))
    start = reader.location("w").offset
    for low, high, first, last in [(3, 8, 1, 4), (4, 9, 2, 5), (999, 1000, 499, 500)]:
        source.reads.clear()
        found = reader.get_slice("w")[low:high]
        assert found.dtype == array.dtype
        assert found.tobytes() == array[low:high].tobytes()
        assert source.reads == [(start + first, last - first)]


def old_file(dtype: str, shape: list[int], data: bytes, **fields: Any) -> bytes:
    made = blank("0.1.0")
    made.add("w", shape, {"data": ({"dtype": dtype}, data)}, **fields)
    return made.to_bytes()


def test_big_endian_data_is_swapped_where_it_is_read() -> None:
    array = np.arange(12, dtype=np.int32).reshape(4, 3)
    data = old_file("i32", [4, 3], array.astype(">i4").tobytes(), data_endianness="big")
    reader, source = counted(data)
    for opened in (reader, ztensor.open(data)):
        part = opened.get_slice("w")
        for key in (1, (slice(None, None, 2), 1), ..., [2, 0]):
            found = part[key]
            assert found.dtype.isnative
            assert found.tolist() == array[key].tolist()
    source.reads.clear()
    reader.get_slice("w")[1]
    assert source.reads == [(reader.location("w").offset + 12, 12)]


def test_any_true_byte_of_0_1_is_true() -> None:
    data = old_file("bool", [5], b"\x00\x02\x01\xff\x00")
    for reader in (counted(data)[0], ztensor.open(data)):
        found = reader.get_slice("w")[1:4]
        assert found.dtype == np.bool_
        assert found.view(np.uint8).tolist() == [1, 1, 1]


def test_a_part_of_a_file_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    path.write_bytes(save({"w": np.arange(100_000)}))
    with ztensor.open(path, mmap=False) as reader:
        part = reader.get_slice("w")
        assert part[99_999] == 99_999
        path.write_bytes(path.read_bytes()[:4096])
        with pytest.raises(ztensor.SourceError) as caught:
            part[99_999]
        assert caught.value.reason is Reason.SOURCE_CHANGED


# --- Frames -------------------------------------------------------------------------------------


def framed(array: Any, frames: bytes, **fields: Any) -> bytes:
    """Return a file of one object `w`, whose stored bytes are `frames`."""
    dtype, type_ = spell(array.dtype)
    component: dict[str, Any] = {"dtype": dtype, "encoding": "zstd"}
    component.update({} if type_ is None else {"type": type_})
    component["uncompressed_length"] = stored_form(array).nbytes
    made = blank()
    made.add("w", list(array.shape), {"data": ({**component, **fields}, frames)})
    return made.to_bytes()


def small_frames(array: Any, size: int) -> bytes:
    data = stored_form(array).tobytes()
    return b"".join(zstd_frame(data[i : i + size]) for i in range(0, len(data), size))


@pytest.fixture
def _every_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find small frames one by one, too."""
    monkeypatch.setattr("ztensor.encoding.base.RUN_BYTES", 1)


@pytest.mark.usefixtures("_every_frame")
@pytest.mark.parametrize("size", [1, 7, 24, 255])
def test_indexing_frames_of_any_size(size: int) -> None:
    data = framed(W, small_frames(W, size))
    for reader in (counted(data)[0], ztensor.open(data), ztensor.open(data, verify=True)):
        part = reader.get_slice("w")
        for key in (0, -1, slice(1, 3), (slice(None), 2), [4, 0], (W > 30), (..., slice(1)), ...):
            assert part[key].tolist() == W[key].tolist()


@pytest.mark.usefixtures("_every_frame")
def test_only_the_frames_that_are_needed_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode = Zstd.decode_run

    def counting(self: Any, stored: Any, start: int, stop: int, *rest: Any) -> None:
        decoded.append(start)
        decode(self, stored, start, stop, *rest)

    monkeypatch.setattr(Zstd, "decode_run", counting)
    monkeypatch.setattr(selection, "GAP_BYTES", 1)
    size = len(zstd_frame(bytes(24)))
    part = ztensor.open(framed(W, small_frames(W, 24))).get_slice("w")  # a frame for each row
    key: Any
    for key, frames in [
        ((slice(1, 3), 0), [1, 2]),
        (2, []),  # what was decoded last is still there
        ((3, 0), [3]),
        ((slice(None, None, -4), 0), [0, 4]),
        (slice(2, 2), []),
    ]:
        decoded.clear()
        part[key]
        assert decoded == [frame * size for frame in frames]


def test_small_frames_are_found_together() -> None:
    array = np.zeros(1000 * 250, np.uint8)
    stored = MemorySource(small_frames(array, 250))
    together = -(-4096 // 250)
    runs = Zstd().find_runs(Range(stored, 0, stored.size), array.nbytes, DEFAULT_LIMITS)
    assert runs is not None
    assert len(runs.decoded) == len(runs.stored) == -(-1000 // together) + 1
    assert (runs.decoded[-1], runs.stored[-1]) == (array.nbytes, stored.size)


def test_only_the_frames_that_are_needed_are_read() -> None:
    array = np.random.default_rng(0).integers(0, 190, (256, 1 << 16), np.uint8)
    array[:, ::8] = 0
    data = save({"w": array}, compression=1, chunk_rows=64)  # a frame takes 3.9 MB
    reader, source = counted(data)
    part = reader.get_slice("w")
    assert part[80:96].tobytes() == array[80:96].tobytes()
    frame = reader.location("w").length / 4
    read = sum(length for _, length in source.reads)
    assert frame < read < 1.2 * frame  # the headers of 128 blocks cost 4 KiB each
    source.reads.clear()
    assert part[112, 9] == array[112, 9]
    assert reader.get_slice("w")[113].tobytes() == array[113].tobytes()
    assert source.reads == []  # the same frame, and nobody looks for it again
    part[240]
    assert sum(length for _, length in source.reads) < 1.05 * frame


def lying(declared: int, content: bytes) -> bytes:
    """Return a frame that declares another content size than it has."""
    frame = bytearray(zstd_frame(content))
    frame[5] = declared
    return bytes(frame)


DAMAGED_FRAMES: dict[str, tuple[bytes, Reason]] = {
    "declares more than its blocks": (lying(40, bytes(30)), Reason.DECODED_SHORT),
    "declares less than its blocks": (lying(30, bytes(40)), Reason.DECODED_LONG),
    "all declare too much": (zstd_frame(bytes(31)), Reason.DECODED_LONG),
    "all declare too little": (zstd_frame(bytes(29)), Reason.DECODED_SHORT),
    "cut": (zstd_frame(bytes(30))[:-1], Reason.ENCODING_TRUNCATED),
    "no frame": (b"nothing", Reason.ENCODING_MALFORMED),
    "a block of no kind": (zstd_frame(bytes(30), block_type=3), Reason.ENCODING_MALFORMED),
}


@pytest.mark.usefixtures("_every_frame")
@pytest.mark.parametrize("kind", DAMAGED_FRAMES)
def test_damaged_frames(kind: str) -> None:
    frame, reason = DAMAGED_FRAMES[kind]
    array = np.zeros((3, 30), np.uint8)
    data = framed(array, zstd_frame(bytes(30)) + frame + zstd_frame(bytes(30)))
    reader = ztensor.open(data, verify=False)
    with pytest.raises(EncodingError) as caught:
        reader.get_slice("w")[1]
    assert caught.value.object_name == "w"
    assert caught.value.component == "data"
    assert caught.value.reason in (reason, Reason.ENCODING_MALFORMED)


@pytest.mark.usefixtures("_every_frame")
def test_a_lying_frame_is_refused_whatever_follows_it() -> None:
    """Declared sizes add up, and the frame before the damage is good."""
    frames = zstd_frame(bytes(30)) + lying(20, bytes(30)) + lying(40, bytes(30))
    part = ztensor.open(framed(np.zeros((3, 30), np.uint8), frames), verify=False).get_slice("w")
    for key in (1, 2, (slice(None), 0), 0):
        with pytest.raises(EncodingError):
            part[key]


@pytest.mark.usefixtures("_every_frame")
def test_messages_tell_where_the_damaged_frame_is() -> None:
    good = zstd_frame(bytes(30))
    bad = bytearray(ENCODINGS_FRAME)
    bad[-3:] = b"\xff\xff\xff"
    size = len(zstd_frame(bytes(30)))
    data = framed(np.zeros((3, 30), np.uint8), good + bytes(bad) + good)
    with pytest.raises(EncodingError) as caught:
        ztensor.open(data, verify=False).get_slice("w")[1]
    assert f"at stored byte {size}" in str(caught.value)


# A compressed frame of 30 bytes.
ENCODINGS_FRAME = b"".join(ENCODINGS["zstd"].encode(memoryview(b"ab" * 13 + b"wxyz"), level=1))


def silent_frame(content: bytes) -> bytes:
    """Return a frame with a window of 1 KiB that does not declare its content size."""
    block = (1 | len(content) << 3).to_bytes(3, "little") + content
    return b"\x28\xb5\x2f\xfd\x00\x00" + block


def test_frames_that_do_not_tell_their_size_are_decoded_whole() -> None:
    silent = silent_frame(bytes(range(30)))
    array = np.concatenate([np.arange(30, dtype=np.uint8)] * 2).reshape(2, 30)
    part = ztensor.open(framed(array, silent + zstd_frame(bytes(range(30))))).get_slice("w")
    assert part[1].tolist() == array[1].tolist()
    assert part[0, 5] == 5


@pytest.mark.parametrize("length", [59, 61])
def test_another_length_than_the_shape_needs(length: int) -> None:
    array = np.zeros((2, 30), np.uint8)
    frames = small_frames(array, 30)
    with pytest.raises(ztensor.FormatError) as caught:
        ztensor.open(framed(array, frames, uncompressed_length=length)).get_slice("w")[0]
    assert caught.value.reason is Reason.SIZE_MISMATCH


def test_a_part_of_frames_over_the_cap() -> None:
    array = np.zeros((2, 100), np.uint8)
    data = framed(array, small_frames(array, 100))
    reader = ztensor.open(data, limits=ztensor.Limits(decoded_bytes=199))
    with pytest.raises(LimitError) as caught:
        reader.get_slice("w")[0]
    assert caught.value.reason is Reason.LIMIT_DECODED


@pytest.mark.usefixtures("_every_frame")
def test_digests_and_parts_of_frames() -> None:
    array = np.arange(200, dtype=np.uint8).reshape(2, 100)
    data = bytearray(framed(array, small_frames(array, 100)))
    where = ztensor.open(bytes(data)).location("w")
    data[where.offset + where.length - 1] ^= 1  # the last element; frames have no checksum
    part = ztensor.open(bytes(data)).get_slice("w")
    assert part[0].tolist() == array[0].tolist()  # unchecked, and right
    with pytest.raises(ztensor.DigestMismatchError):
        part[...]  # the whole is checked
    with pytest.raises(ztensor.DigestMismatchError):
        ztensor.open(bytes(data), verify=True).get_slice("w")[0]


def test_a_digest_of_1_1_that_covers_the_decoded_bytes() -> None:
    from ztensor.digest import ALGORITHMS, digest_of

    array = np.arange(200, dtype=np.uint8).reshape(2, 100)
    made = blank("1.1.0")
    digest = digest_of(ALGORITHMS["crc32c"], [array.tobytes()])
    component = {"dtype": "u8", "encoding": "zstd", "digest": digest}
    made.add("w", [2, 100], {"data": (component, small_frames(array, 100))})
    for verify in (None, True):
        part = ztensor.open(made.to_bytes(), verify=verify).get_slice("w")
        assert part[1].tolist() == array[1].tolist()


@pytest.mark.usefixtures("_every_frame")
@pytest.mark.parametrize("make", [0, 1, 2, 3, 4])
def test_threads_share_a_slice(make: int, tmp_path: Path) -> None:
    array = np.arange(64 * 50, dtype=np.int32).reshape(64, 50)
    reader = [*manners(array), ztensor.open(framed(array, small_frames(array, 100)))][make]
    part = reader.get_slice("w")
    wrong: list[int] = []

    def read(start: int) -> None:
        rows = [row % 64 for row in range(start, 64 * 5, 7)]
        wrong.extend(row for row in rows if part[row].tolist() != array[row].tolist())

    threads = [threading.Thread(target=read, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- Sparse -------------------------------------------------------------------------------------

# Rows of 2, 0, 3, 1, 0 and 2 values; columns in any order, one of them twice.
CSR = Tensor.csr(
    np.array([1.5, -2, 3, 4, 5, 6, 7, 8], np.float32),
    [0, 3, 2, 2, 0, 1, 4, 3],
    [0, 2, 2, 5, 6, 6, 8],
    (6, 5),
    attributes={"unit": "m"},
)
# In no order, one position twice.
COO = Tensor.coo(
    np.array([10, 20, 30, 40, 50, 60], np.int64),
    [[5, 0, 2, 2, 5, 3], [1, 0, 3, 3, 2, 0], [0, 1, 1, 1, 0, 1]],
    (6, 4, 2),
)
ROW_KEYS: list[Any] = [
    0,
    -1,
    4,
    slice(1, 3),
    slice(0, 2),
    slice(2, None),
    slice(None),
    ...,
    (slice(2, 5), ...),
    (slice(2, 5), slice(None)),
    slice(3, 3),
    slice(9, None),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(4, 0, -3),
    [5, 0, 2],
    [2, 2, -1],
    [],
    np.array([True, False, True, False, False, True]),
]


def rows_of(array: Any, key: Any) -> Any:
    """Return the rows of a dense array, an integer as one row."""
    key = key[0] if isinstance(key, tuple) else key
    return array[[key]] if isinstance(key, int) else array[key]


@pytest.mark.parametrize("key", ROW_KEYS, ids=str)
@pytest.mark.parametrize("tensor", [CSR, COO], ids=["csr", "coo"])
def test_rows_of_sparse_objects(tensor: Tensor, key: Any) -> None:
    expected = rows_of(tensor.to_dense(), key)
    for reader in manners(tensor):
        part: Any = reader.get_slice("w")
        found: Any = part[key]
        found.require_valid()
        assert (found.format, found.shape) == (tensor.format, expected.shape)
        assert found.components["values"].dtype == tensor.components["values"].dtype
        assert found.attributes == tensor.attributes
        assert found.to_dense().tolist() == expected.tolist()
        assert part[key].to_dense().tolist() == expected.tolist()  # and again


@pytest.mark.parametrize("tensor", [CSR, COO], ids=["csr", "coo"])
def test_what_a_sparse_slice_says_of_itself(tensor: Tensor) -> None:
    for reader in manners(tensor):
        part = reader.get_slice("w")
        assert (part.shape, part.ndim) == (tensor.shape, len(tensor.shape))
        assert (part.get_dtype(), len(part)) == (tensor.components["values"].dtype.name, 6)
        assert "'w'" in repr(part)
        assert [row.shape for row in part] == [(1, *tensor.shape[1:])] * 6
        with pytest.raises(BufferError, match=r"use to_dense\(\)"):
            np.asarray(part)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (6, ArgumentValueError),
        ([0, 6], ArgumentValueError),
        ((0, 1), ArgumentValueError),
        ((slice(None), slice(1)), ArgumentValueError),
        (None, ArgumentValueError),
        (True, ArgumentValueError),
        (1.5, ArgumentTypeError),
        ("w", ArgumentTypeError),
    ],
    ids=str,
)
@pytest.mark.parametrize("tensor", [CSR, COO], ids=["csr", "coo"])
def test_only_rows_of_sparse_objects_can_be_selected(
    tensor: Tensor, key: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        counted(save({"w": tensor}))[0].get_slice("w")[key]
    assert caught.value.object_name == "w"  # type: ignore[attr-defined]


def test_a_closed_reader_of_sparse_objects() -> None:
    for reader in manners(CSR):
        part = reader.get_slice("w")
        reader.close()
        with pytest.raises(ClosedError):
            part[0]


def places(source: Counting, reader: ObjectReader, role: str) -> list[tuple[int, int]]:
    """Return the elements of 8 bytes of a component that were read, as half-open ranges."""
    where = reader.location("w", role)
    return [
        ((offset - where.offset) // 8, (offset - where.offset + length) // 8)
        for offset, length in source.reads
        if where.offset <= offset < where.offset + where.length
    ]


def wide_csr() -> Tensor:
    counts = np.arange(20_000) % 7
    indptr = np.concatenate(([0], np.cumsum(counts)))
    count = int(indptr[-1])
    return Tensor.csr(np.arange(count) * 1.0, np.arange(count) % 100, indptr, (20_000, 100))


def test_rows_of_csr_read_their_pointers_columns_and_values_only() -> None:
    tensor = wide_csr()
    reader, source = counted(save({"w": tensor}))
    found: Any = reader.get_slice("w")[5000:5010]
    indptr = tensor.components["indptr"]
    low, high = int(indptr[5000]), int(indptr[5010])
    assert found.to_dense().tolist() == tensor.to_dense()[5000:5010].tolist()
    assert places(source, reader, "indptr") == [(5000, 5011)]
    assert places(source, reader, "indices") == [(low, high)]
    assert places(source, reader, "values") == [(low, high)]
    assert len(source.reads) == 3
    source.reads.clear()
    found = reader.get_slice("w")[[10, 19_000]]
    assert found.to_dense().tolist() == tensor.to_dense()[[10, 19_000]].tolist()
    assert places(source, reader, "indptr") == [(10, 12), (19_000, 19_002)]
    assert sum(stop - start for start, stop in places(source, reader, "values")) == 3 + 2


def test_rows_of_mapped_csr_are_views() -> None:
    with ztensor.open(save({"w": CSR})) as reader:
        whole = reader.read("w")
        part: Any = reader.get_slice("w")[2:4]
        for role in ("indices", "values"):
            assert np.shares_memory(whole.components[role], part.components[role])


def test_rows_of_sorted_coo_read_one_run_of_each_axis() -> None:
    count = 50_000
    axes = [np.arange(count) // 50, np.arange(count) % 50, np.arange(count) % 3]
    tensor = Tensor.coo(np.arange(count), axes, (1000, 50, 3))
    reader, source = counted(save({"w": tensor}))
    found: Any = reader.get_slice("w")[500:510]
    assert found.components["values"].tolist() == list(range(25_000, 25_500))
    assert found.to_dense().tolist() == tensor.to_dense()[500:510].tolist()
    assert places(source, reader, "values") == [(25_000, 25_500)]
    assert places(source, reader, "coords") == [
        (0, count),
        (count + 25_000, count + 25_500),
        (2 * count + 25_000, 2 * count + 25_500),
    ]


def stored_sparse(
    tensor: Tensor, part: dict[str, list[int]], version: str = "1.2.0", **fields: Any
) -> bytes:
    """Return a file of a sparse object, some components replaced by other i64 elements."""
    parts: dict[str, Any] = {}
    for role, array in tensor.components.items():
        elements = np.array(part[role], np.int64) if role in part else array
        dtype, data = spell(elements.dtype)[0], elements.tobytes()
        if fields.get("encoding") == "zstd":
            data = zstd_frame(data)
        parts[role] = ({"dtype": dtype, **fields}, data)
    made = blank(version)
    made.add("w", list(tensor.shape), parts, format=tensor.format)
    return made.to_bytes()


@pytest.mark.parametrize(
    ("indptr", "key"),
    [
        ([0, 2, 1, 5, 6, 6, 8], slice(1, 3)),
        ([0, 2, 1, 5, 6, 6, 8], slice(0, 4)),
        ([1, 2, 2, 5, 6, 6, 8], 0),
        ([-1, 2, 2, 5, 6, 6, 8], 0),
        ([0, -5, -4, 5, 6, 6, 8], 1),
        ([0, 2, 2, 5, 6, 6, 9], 5),
        ([0, 2, 2, 5, 6, 6, 7], 5),
        ([0, 2, 2, 1 << 62, 1 << 62, 6, 8], slice(2, 4)),
        ([0, 8, 0, 8, 0, 8, 8], slice(None, None, 2)),
        ([0, 8, 0, 8, 0, 8, 8], [0, 2]),
        ([0, 2, 2, 5, 6, 6, 9], [0, 5]),
    ],
    ids=str,
)
def test_row_pointers_that_cannot_be(indptr: list[int], key: Any) -> None:
    data = stored_sparse(CSR, {"indptr": indptr})
    for reader in (counted(data)[0], ztensor.open(data)):
        with pytest.raises(LayoutError) as caught:
            reader.get_slice("w")[key]
        assert caught.value.reason is Reason.INDEX_POINTERS
        assert caught.value.component == "indptr"
        assert caught.value.object_name == "w"


def test_pointers_of_other_rows_are_not_looked_at() -> None:
    data = stored_sparse(CSR, {"indptr": [0, 9, 2, 5, 6, -6, 8]})
    found: Any = counted(data)[0].get_slice("w")[2:4]
    assert found.to_dense().tolist() == CSR.to_dense()[2:4].tolist()


@pytest.mark.parametrize("key", [slice(2, 3), [2], slice(2, 6, 3)], ids=str)
def test_columns_outside_the_shape(key: Any) -> None:
    data = stored_sparse(CSR, {"indices": [0, 3, 2, 5, 0, 1, 4, 3]})
    part = counted(data)[0].get_slice("w")
    with pytest.raises(LayoutError) as caught:
        part[key]
    assert caught.value.reason is Reason.INDEX_RANGE
    part[3]  # other rows are fine


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("wrong", [-1, 6, 1 << 40])
def test_coordinates_outside_the_shape(axis: int, wrong: int) -> None:
    coords = COO.components["coords"].tolist()
    coords[axis * 6 + 2] = wrong
    part = counted(stored_sparse(COO, {"coords": coords}))[0].get_slice("w")
    with pytest.raises(LayoutError) as caught:
        part[2:4]
    assert caught.value.reason is Reason.INDEX_RANGE
    assert caught.value.component == "coords"


@pytest.mark.parametrize("tensor", [CSR, COO], ids=["csr", "coo"])
@pytest.mark.parametrize("key", [2, slice(1, 4), [5, 2]], ids=str)
def test_compressed_parts_whose_length_nothing_tells(tensor: Tensor, key: Any) -> None:
    """1.1 has no `uncompressed_length`: the last row pointer tells, or decoding."""
    part: Any = ztensor.open(stored_sparse(tensor, {}, "1.1.0", encoding="zstd")).get_slice("w")
    assert part[key].to_dense().tolist() == rows_of(tensor.to_dense(), key).tolist()


@pytest.mark.parametrize("last", [-1, 7, 9, 1 << 60])
def test_a_last_row_pointer_that_lies_about_compressed_parts(last: int) -> None:
    data = stored_sparse(CSR, {"indptr": [0, 2, 2, 5, 6, 6, last]}, "1.1.0", encoding="zstd")
    with pytest.raises(ztensor.ZTensorError) as caught:
        ztensor.open(data).get_slice("w")[0]
    assert isinstance(caught.value, (ztensor.FormatError, LimitError))


def test_a_sparse_axis_longer_than_any_array() -> None:
    made = blank()
    u64 = {"dtype": "u64"}
    coords = np.array([0, (1 << 64) - 2, 7, 0, 1, 2], np.uint64)
    made.add(
        "w",
        [(1 << 64) - 1, 3],
        {"coords": (u64, coords.tobytes()), "values": (u64, np.arange(3, dtype="u8").tobytes())},
        format="sparse_coo",
    )
    part: Any = ztensor.open(made.to_bytes()).get_slice("w")
    found: Any = part[5:]
    assert found.shape == ((1 << 64) - 6, 3)
    assert found.components["coords"].tolist() == [(1 << 64) - 7, 2, 1, 2]
    found = part[::-1]
    assert found.components["coords"].tolist() == [(1 << 64) - 2, 0, (1 << 64) - 9, 0, 1, 2]
    assert part[-1].components["values"].tolist() == [1]
    with pytest.raises(LimitError):
        len(part)


def test_a_sparse_scalar_has_no_rows() -> None:
    tensor = Tensor.coo([7], [], ())
    part: Any = ztensor.open(save({"w": tensor})).get_slice("w")
    assert part[()].to_dense() == part[...].to_dense() == 7
    with pytest.raises(ArgumentValueError):
        part[0]


# --- Quantized ----------------------------------------------------------------------------------

WEIGHTS = np.random.default_rng(5).normal(size=(100, 24)).astype(np.float32)
SCHEMES: dict[str, tuple[dict[str, Any], int]] = {
    "gptq": ({"group_size": 16}, 16),
    "groups smaller than words": ({"group_size": 4}, 8),
    "words across the columns": ({"group_size": 16, "pack_axis": 1}, 16),
    "any rows": ({"group_size": 8, "pack_axis": 1, "group_axis": 1}, 1),
    "words of rows": ({"group_size": 8, "group_axis": 1}, 8),
    "three bits": ({"bits": 3, "group_size": 10}, 160),
    "packed zeros": ({"group_size": 16, "zeros": "packed"}, 16),
    "packed zeros of rows": (
        {"group_size": 8, "pack_axis": 1, "group_axis": 1, "zeros": "packed"},
        8,
    ),
    "integer zeros": ({"group_size": 16, "zeros": "integer"}, 16),
    "one group": ({"group_size": -1}, 100),
    "a group of more than all rows": ({"group_size": 500}, 100),
    "one group of columns": ({"group_size": -1, "group_axis": 1, "pack_axis": 1}, 1),
}


@pytest.mark.parametrize("kind", SCHEMES)
def test_rows_of_quantized_objects(kind: str) -> None:
    scheme, unit = SCHEMES[kind]
    tensor = Tensor.quantize(WEIGHTS, **scheme)
    expected = tensor.dequantize()
    for reader in manners(tensor):
        part: Any = reader.get_slice("w")
        starts = range(0, 100, unit)
        for start, stop in [(0, unit), (starts[-1], 100), (starts[len(starts) // 2], 100), (0, 0)]:
            found: Any = part[start:stop]
            assert (found.format, found.attributes) == ("quantized_group", tensor.attributes)
            assert found.shape == (min(stop, 100) - start, 24)
            assert found.dequantize().tobytes() == expected[start:stop].tobytes()
        assert part[...].dequantize().tobytes() == expected.tobytes()
        if unit > 1:
            with pytest.raises(ArgumentValueError):
                part[1:unit]
            with pytest.raises(ArgumentValueError):
                part[:-1]
        else:
            assert part[-1].dequantize().tobytes() == expected[-1:].tobytes()


def test_rows_that_cut_a_group_name_those_that_do_not() -> None:
    part = ztensor.open(save({"w": Tensor.quantize(WEIGHTS, group_size=16)})).get_slice("w")
    with pytest.raises(ArgumentValueError) as caught:
        part[20:33]
    assert caught.value.object_name == "w"
    assert "multiples of 16; [16:48] holds these rows" in str(caught.value)
    with pytest.raises(ArgumentValueError, match=r"\[96:100\]"):
        part[97:]


@pytest.mark.parametrize("key", [[0, 16], slice(None, None, 2), slice(32, None, -1)], ids=str)
def test_rows_of_quantized_objects_are_consecutive(key: Any) -> None:
    part = ztensor.open(save({"w": Tensor.quantize(WEIGHTS, group_size=16)})).get_slice("w")
    with pytest.raises(ArgumentValueError, match="dequantize"):
        part[key]


def test_quantized_rows_read_their_parts_only() -> None:
    tensor = Tensor.quantize(WEIGHTS, group_size=16, scale_dtype="float32")
    reader, source = counted(save({"w": tensor}))
    reader.get_slice("w")[32:64]
    ranges = [(reader.location("w", role).offset, 24 * 4) for role in ("scales", "zeros")]
    words = reader.location("w", "packed_weight").offset
    assert source.reads == [
        (words + 4 * ranges[0][1], 4 * 24 * 4),
        *((offset + 2 * row, 2 * row) for offset, row in ranges),
    ]


def with_groups(groups: Any, **scheme: Any) -> Tensor:
    tensor = Tensor.quantize(WEIGHTS, group_size=16, **scheme)
    return Tensor(
        {**tensor.components, "g_idx": np.array(groups, np.int32)},
        shape=tensor.shape,
        format=tensor.format,
        attributes=tensor.attributes,
    )


def test_groups_of_neighbours_may_be_listed() -> None:
    tensor = with_groups(np.arange(100) // 16)
    for reader in manners(tensor):
        found: Any = reader.get_slice("w")[32:64]
        assert found.components["g_idx"].tolist() == [0] * 16 + [1] * 16
        assert found.dequantize().tobytes() == tensor.dequantize()[32:64].tobytes()


def test_scattered_groups_cannot_be_cut() -> None:
    part = ztensor.open(save({"w": with_groups(np.arange(100) % 7)})).get_slice("w")
    with pytest.raises(ArgumentValueError, match="g_idx"):
        part[32:64]
    assert part[:].shape == (100, 24)


def test_scattered_groups_of_columns_do_not_matter_to_rows() -> None:
    tensor = with_groups(np.arange(24) % 2, group_axis=1, pack_axis=1)
    found: Any = ztensor.open(save({"w": tensor})).get_slice("w")[3:7]
    assert found.dequantize().tobytes() == tensor.dequantize()[3:7].tobytes()


QUANTIZED = Tensor.quantize(WEIGHTS, group_size=16)
BAD_PARTS: list[tuple[str, Any]] = [
    ("scales", np.zeros(3, np.float16)),
    ("zeros", np.zeros(3, np.float16)),
    ("packed_weight", np.zeros(5, np.int32)),
    ("scales", np.zeros(7 * 24, np.int16)),
]


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize(("role", "array"), BAD_PARTS)
def test_quantized_parts_of_a_wrong_size(role: str, array: Any, compression: bool) -> None:
    broken = Tensor(
        {**QUANTIZED.components, role: array},
        shape=QUANTIZED.shape,
        format="quantized_group",
        attributes=QUANTIZED.attributes,
    )
    with pytest.raises(LayoutError) as caught:
        ztensor.open(save({"w": broken}, compression=compression)).get_slice("w")[:16]
    assert caught.value.reason is Reason.QUANTIZATION


@pytest.mark.parametrize(
    "frame", [zstd_frame(bytes(7)), silent_frame(bytes(7))], ids=["declared", "not declared"]
)
def test_quantized_parts_that_decode_to_another_size(frame: bytes) -> None:
    made = blank("1.1.0")
    parts = {
        "packed_weight": ({"dtype": "u8", "encoding": "zstd"}, frame),
        "scales": ({"dtype": "f32"}, bytes(16)),
        "zeros": ({"dtype": "f32"}, bytes(16)),
    }
    scheme = {"bits": 4, "group_size": 2, "packing": "2_per_u8"}
    made.add("w", [8, 1], parts, format="quantized_group", attributes=scheme)
    with pytest.raises(ztensor.FormatError) as caught:
        ztensor.open(made.to_bytes()).get_slice("w")[:2]
    assert caught.value.reason in (Reason.DECODED_LONG, Reason.LAYOUT_COUNT)


def test_a_scheme_nobody_knows() -> None:
    tensor = Tensor(
        dict(QUANTIZED.components),
        shape=QUANTIZED.shape,
        format="quantized_group",
        attributes={**QUANTIZED.attributes, "order": "backwards"},
    )
    with pytest.raises(UnsupportedError):
        ztensor.open(save({"w": tensor})).get_slice("w")[:16]


# --- Small sizes, all paths ---------------------------------------------------------------------


def test_gaps_are_a_setting_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "GAP_BYTES", 1)
    reader, source = counted(save({"w": W}))
    found = reader.get_slice("w")[::2, 1]
    assert found.tolist() == W[::2, 1].tolist()
    assert [length for _, length in source.reads] == [6, 6, 6]


class CountingFile(io.BytesIO):
    """A file that counts the bytes that are read of it."""

    nbytes = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.nbytes += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        self.nbytes += count
        return count


@pytest.mark.parametrize("version", ["1.2", "2.1"])
@pytest.mark.parametrize("chunk_rows", [None, 100, 1000], ids=["frames of 64 KiB", "200", "2000"])
@pytest.mark.parametrize("rows", [1200, 3000])
def test_the_first_slice_reads_heads_of_frames_and_the_frame_it_needs(
    version: Any, chunk_rows: int | None, rows: int
) -> None:
    noise = np.random.default_rng(0).integers(0, 1 << 12, (rows, 500), np.uint16)
    data = save({"w": noise.astype(np.float32)}, compression=True, chunk_rows=chunk_rows,
                version=version)  # fmt: skip
    file = CountingFile(data)
    with ztensor.open(file) as reader:
        part = reader.get_slice("w")
        file.nbytes = 0
        assert np.array_equal(part[0], noise[0])
        # A KiB for each frame and each block of 128 KiB, and the frame that has the row.
        frame = len(data) * (chunk_rows or 33) // rows
        blocks = 4 * noise.size // (64 << 10) + rows // (chunk_rows or 33) + 4
        assert frame / 2 < file.nbytes < 2 * frame + (blocks << 10)
        file.nbytes = 0
        assert np.array_equal(part[rows - 1], noise[rows - 1])
        assert file.nbytes < 2 * frame
