from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

import ztensor
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    ClosedError,
    LimitError,
    Reason,
)
from ztensor.limits import DEFAULT_LIMITS
from ztensor.listing import read_manifest
from ztensor.numpy import save
from ztensor.reader import ManifestReader
from ztensor.source.memory import MemorySource

if TYPE_CHECKING:
    from pathlib import Path

W = np.arange(60, dtype=np.int16).reshape(5, 4, 3)


class Counting:
    """A source that cannot be mapped and counts what is read."""

    def __init__(self, data: bytes) -> None:
        self._inner = MemorySource(data)
        self.name = "<counting>"
        self.path: str | None = None
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read_into(self, offset: int, destination: memoryview) -> None:
        self.reads.append((offset, destination.nbytes))
        self._inner.read_into(offset, destination)

    def view(self) -> memoryview | None:
        return None

    def stored(self) -> memoryview | None:
        return None

    def require_unchanged(self) -> None:
        pass

    def close(self) -> None:
        pass


def counted(data: bytes, *, verify: bool | None = None) -> tuple[ManifestReader, Counting]:
    source = Counting(data)
    _, manifest = read_manifest(source, DEFAULT_LIMITS)
    source.reads.clear()
    return ManifestReader(source, manifest, verify=verify), source


def manners(array: Any) -> list[ManifestReader]:
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
@settings(max_examples=300, deadline=None)
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
    (True, ArgumentTypeError),
    (np.True_, ArgumentTypeError),
    (1.0, ArgumentTypeError),
    ("w", ArgumentTypeError),
    ([0, 1], ArgumentTypeError),
    ((0, [0, 1]), ArgumentTypeError),
    (np.array([0, 1]), ArgumentTypeError),
    (W > 3, ArgumentTypeError),
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
        ((2, slice(1, 2), 0), (2, 3)),
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


@pytest.mark.parametrize("key", [..., (), None, (..., 0), (None, 0)], ids=str)
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
    reader._limits = ztensor.Limits(rank=8)
    with pytest.raises(LimitError) as caught:
        reader.get_slice("w")
    assert caught.value.reason is Reason.LIMIT_RANK
