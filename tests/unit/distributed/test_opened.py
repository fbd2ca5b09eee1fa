from __future__ import annotations

import contextlib
import math
import os
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from tests.unit.distributed.saving import save
from ztensor.distributed import PartWriter, commit, open_divided, read_root, repair
from ztensor.ext import open_file

RANDOM = np.random.default_rng(7)
TENSORS: dict[str, Any] = {
    "f4": RANDOM.standard_normal((9, 10)).astype("f4"),
    "bf16": RANDOM.standard_normal((8, 6)).astype(ml_dtypes.bfloat16),
    "fp4": RANDOM.integers(0, 6, (6, 5)).astype(ml_dtypes.float4_e2m1fn),
    "fp8": RANDOM.standard_normal((6, 4, 3)).astype(ml_dtypes.float8_e4m3fn),
    "c8": (RANDOM.standard_normal((5, 4)) + 1j).astype("c8"),
    "bool": RANDOM.integers(0, 2, (7, 3)).astype(bool),
    "i8": np.arange(12, dtype="i8").reshape(3, 4),
    "0-d": np.float64(2.5),
    "empty": np.zeros((0, 4), "f4"),
}


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_tensors_cut_along_any_axis_come_back_whole(
    tmp_path: Path, axis: int, compression: bool
) -> None:
    save(tmp_path, TENSORS, axis=axis, compression=compression)
    with ztensor.open(tmp_path) as reader:
        assert set(reader) == set(TENSORS)
        for name, value in TENSORS.items():
            expected = np.asarray(value)
            found = reader[name]
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            assert found.tobytes() == expected.tobytes(), name


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_box_is_read_into_memory_of_any_strides(
    tmp_path: Path, axis: int, compression: bool
) -> None:
    save(tmp_path, TENSORS, axis=axis, compression=compression)
    with open_divided(tmp_path) as checkpoint:
        for name, value in TENSORS.items():
            whole = np.asarray(value)
            for _ in range(6):
                starts = [int(RANDOM.integers(0, max(n, 1))) for n in whole.shape]
                sizes = [
                    int(RANDOM.integers(0, n - s + 1))
                    for n, s in zip(whole.shape, starts, strict=True)
                ]
                expected = whole[tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]
                plain = np.empty(sizes, whole.dtype)
                turned = np.empty(sizes[::-1], whole.dtype).T
                wide = np.zeros((*sizes, 2), whole.dtype)[..., 0]
                bits = np.zeros((*sizes, 2), f"u{whole.itemsize}")[..., 0]  # of the same width
                for target in (plain, turned, wide, bits):
                    checkpoint.read_box(name, starts, sizes, target)
                    assert target.tobytes() == expected.tobytes(), name


def test_slices_and_whole_loads_are_those_of_any_file(tmp_path: Path) -> None:
    value = TENSORS["f4"]
    save(tmp_path, {"w": value}, axis=1)
    with ztensor.open(tmp_path / "checkpoint.zt") as reader:
        part = reader.get_slice("w")
        assert (part[2:5, 3:7] == value[2:5, 3:7]).all()
        assert (part[::2, [1, 5, 9]] == value[::2, [1, 5, 9]]).all()
        target = np.empty_like(value)
        reader.read_into("w", target)
        assert (target == value).all()
        assert [*map(bytes, reader.decoded_chunks("w"))] == [value.tobytes()]  # up to 8 MiB
        assert (pickle.loads(pickle.dumps(reader))["w"] == value).all()
    assert (ztensor.numpy.load_file(tmp_path)["w"] == value).all()


def test_objects_of_every_layout_are_kept_with_their_attributes(tmp_path: Path) -> None:
    sparse = ztensor.Tensor.csr(
        values=np.array([1.0, 2.0]),
        indices=np.array([0, 2], "u8"),
        indptr=np.array([0, 1, 2], "u8"),
        shape=(2, 3),
    )
    noted = ztensor.Tensor(np.arange(4.0), attributes={"unit": "m"})
    save(tmp_path, {"sparse": sparse, "noted": noted, "w": TENSORS["f4"]})
    with ztensor.open(tmp_path) as reader:
        assert (reader.read("sparse").to_dense() == sparse.to_dense()).all()
        assert reader.read("noted").attributes == {"unit": "m"}


def test_a_reader_of_plain_files_opens_every_file_of_the_folder(tmp_path: Path) -> None:
    save(tmp_path, {"w": TENSORS["f4"]})
    for path in tmp_path.iterdir():
        with contextlib.closing(open_file(path)) as file:
            for name in file.names:
                file.array(name, copy=True)


def test_chunks_of_one_name_in_one_file_have_names_of_their_own(tmp_path: Path) -> None:
    whole = np.arange(12.0).reshape(4, 3)
    with PartWriter(tmp_path) as part:
        for row in range(4):
            part.add("w", whole[row : row + 1], shape=(4, 3), offsets=(row, 0))
        commit(tmp_path, [part.finish()])
    with ztensor.open(tmp_path) as reader:
        assert (reader["w"] == whole).all()


def test_a_plain_file_of_the_roots_name_stays_one(tmp_path: Path) -> None:
    ztensor.numpy.save_file({"a": np.ones(3)}, tmp_path / "checkpoint.zt")
    with ztensor.open(tmp_path / "checkpoint.zt") as reader:
        assert list(reader) == ["a"]
    with ztensor.open(tmp_path) as reader:
        assert list(reader) == ["a"]


@pytest.mark.parametrize("compression", [False, True])
@pytest.mark.parametrize("end", ["", "/", "/checkpoint.zt"])
def test_a_store_is_opened_by_prefix_slash_and_root(end: str, compression: bool) -> None:
    store = pytest.importorskip("obstore.store").MemoryStore()
    value, url = TENSORS["f4"], "memory://run/step-1"
    save(url, {"w": value}, axis=1, storage=store, compression=compression)
    with ztensor.open(url + end, storage=store) as reader:
        assert (reader["w"] == value).all()
        assert (reader.get_slice("w")[1:3, 2:9] == value[1:3, 2:9]).all()
        assert reader.verify().ok


def test_opening_notices_a_missing_or_shorter_file(tmp_path: Path) -> None:
    save(tmp_path, {"w": TENSORS["f4"]})
    victim = next(tmp_path.glob("00001-*.zt"))
    data = victim.read_bytes()
    victim.write_bytes(data[:-1])
    with pytest.raises(ztensor.SourceError, match=victim.name):
        ztensor.open(tmp_path)
    victim.unlink()
    with pytest.raises(ztensor.SourceError, match=victim.name):
        ztensor.open(tmp_path)


def test_opening_notices_a_missing_root(tmp_path: Path) -> None:
    save(tmp_path, {"w": TENSORS["f4"]})
    os.unlink(tmp_path / "checkpoint.zt")
    with pytest.raises(ztensor.SourceError, match="root of the distributed checkpoint is missing"):
        ztensor.open(tmp_path)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("compression", [False, True])
def test_one_bit_in_any_chunk_is_found_by_every_whole_read(
    tmp_path: Path, axis: int, compression: bool
) -> None:
    value = np.tile(TENSORS["f4"], (4, 4))
    save(tmp_path, {"w": value}, axis=axis, compression=compression)
    for path in sorted(tmp_path.glob("0*.zt")):
        data = path.read_bytes()
        path.write_bytes(data[:70] + bytes([data[70] ^ 1]) + data[71:])
        with ztensor.open(tmp_path) as reader:
            with pytest.raises(ztensor.FormatError, match=path.name) as caught:
                reader["w"]
            assert caught.value.object_name == "w"
            with pytest.raises(ztensor.FormatError, match=path.name):
                list(reader.decoded_chunks("w"))
        path.write_bytes(data)


@pytest.mark.parametrize(
    ("verify", "part", "whole"), [(None, False, True), (True, True, True), (False, False, False)]
)
def test_damage_of_a_chunk_is_noticed_as_verify_says(
    tmp_path: Path, verify: bool | None, part: bool, whole: bool
) -> None:
    save(tmp_path, {"w": TENSORS["f4"]})
    path = min(tmp_path.glob("0*.zt"))
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes([data[64] ^ 1]) + data[65:])
    with open_divided(tmp_path, verify=verify) as checkpoint:
        for sizes, raises in (((2, 2), part), ((9, 10), whole)):
            target = np.empty(sizes, "f4")
            wrong: Any = pytest.raises(ztensor.DigestMismatchError)
            with wrong if raises else contextlib.nullcontext():
                checkpoint.read_box("w", (0, 0), sizes, target)


@pytest.mark.parametrize("end", ["", "/", "/checkpoint.zt"])
def test_a_file_url_opens_the_folder(tmp_path: Path, end: str) -> None:
    save(tmp_path, {"w": TENSORS["f4"]})
    with ztensor.open(tmp_path.as_uri() + end) as reader:
        assert list(reader) == ["w"]
        assert np.array_equal(reader["w"], TENSORS["f4"])


def test_a_root_lists_its_tensors(tmp_path: Path) -> None:
    save(tmp_path, {"w": np.ones((4, 2), "f4"), "s": np.int64(3)}, processes=2)
    root = read_root(tmp_path)
    assert list(root.names) == ["w", "s"]
    assert list(root.shapes) == [(4, 2), ()]
    assert root.dtypes == ["f32", "i64"]
    assert root.layouts == ["dense", "dense"]
    assert len(root.files) == 2


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("compression", [False, True])
def test_a_lost_root_is_made_of_the_files(tmp_path: Path, axis: int, compression: bool) -> None:
    sparse = ztensor.Tensor.csr([1.0], np.array([1]), np.array([0, 1]), (1, 3))
    save(tmp_path, {**TENSORS, "sparse": sparse}, axis=axis, compression=compression)
    (tmp_path / "checkpoint.zt").unlink()
    report = repair(tmp_path)
    assert report.tensors == len(TENSORS) + 1
    with ztensor.open(tmp_path) as reader:
        for name, value in TENSORS.items():
            assert reader[name].tobytes() == np.asarray(value).tobytes()
        assert (reader.read("sparse").to_dense() == sparse.to_dense()).all()
        assert reader.verify().ok
    assert repair(tmp_path).written is None


@pytest.mark.parametrize("shape", [(3, 300_000), (2, 3, 150_000), (40, 70)])
def test_chunks_of_columns_fill_their_parts_of_rows(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """Parts of rows of more than a mebibyte are read one by one, shorter ones together."""
    value = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
    save(tmp_path, {"w": value}, processes=2, axis=len(shape) - 1)
    with ztensor.open(tmp_path, mmap=False) as reader:
        assert np.array_equal(reader["w"], value)


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="a call of POSIX")
def test_parts_of_rows_are_read_up_to_a_mebibyte_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = np.arange(6 * 150_000, dtype=np.float64).reshape(6, 150_000)
    save(tmp_path, {"w": value}, processes=2, axis=1)
    lengths: list[int] = []
    preadv = os.preadv

    def counted(number: int, buffers: list[memoryview], offset: int) -> int:
        lengths.extend(buffer.nbytes for buffer in buffers)
        return preadv(number, buffers, offset)

    with ztensor.open(tmp_path, mmap=False) as reader:
        monkeypatch.setattr(os, "preadv", counted)
        assert np.array_equal(reader["w"], value)
    assert lengths.count(600_000) == 12
