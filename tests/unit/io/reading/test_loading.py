"""Loading all objects gives the same values as reading them one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.unit.io.reading.counted import Far, Near, reader_of
from ztensor import Tensor
from ztensor.errors import DigestMismatchError
from ztensor.ext import load_files, open_file
from ztensor.numpy import load, load_file, save, save_file
from ztensor.spec.model.objects import TableObjects
from ztensor.testing.builder_2 import File2, dense


def require_same(found: dict[str, Any], reader: ztensor.Reader) -> None:
    assert list(found) == list(reader)
    for name in found:
        value: Any = found[name]
        expected: Any = reader[name]
        assert type(value) is type(expected), name
        if isinstance(value, Tensor):
            value, expected = value.to_dense(), expected.to_dense()
        assert (value.shape, value.dtype) == (expected.shape, expected.dtype), name
        assert value.tobytes() == expected.tobytes(), name
        assert value.flags.c_contiguous, name


def some(count: int) -> dict[str, Any]:
    return {f"{i:05}": np.full((4, 16), i, np.float32) for i in range(count)}


def test_sparse_and_shared_objects_among_thousands(tmp_path: Path) -> None:
    tensors = {**some(2000), "00500": Tensor.csr([1.0], [2], [0, 1], (1, 3))}
    tensors["01500"] = tensors["00007"]
    save_file(tensors, tmp_path / "m.zt")
    with ztensor.open(tmp_path / "m.zt") as reader:
        assert isinstance(reader.objects.parts()[0].manifest.objects, TableObjects)
        for copy in (False, True):
            require_same(load_files(reader.objects, copy=copy), reader)


MIB = 1 << 20


def test_a_large_tensor_keeps_no_others_in_memory() -> None:
    """It has memory of its own; small neighbours share theirs."""
    tensors = {"a": np.zeros(5 * MIB, np.uint8)}
    tensors |= {name: np.full(MIB, 7, np.uint8) for name in "bcdefg"}
    found = load(save(tensors))
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    assert not np.may_share_memory(found["a"].base, found["b"].base)
    assert np.may_share_memory(found["b"].base, found["g"].base)


@pytest.mark.parametrize("threads", [1, 3])
def test_a_large_tensor_whose_bytes_are_gone_is_named(tmp_path: Path, threads: int) -> None:
    save_file({"w": np.zeros(5 * MIB, np.uint8)}, tmp_path / "m.zt")
    file = open_file(tmp_path / "m.zt")
    with (tmp_path / "m.zt").open("r+b") as cut:
        cut.truncate(4 * MIB)
    with pytest.raises(ztensor.SourceError) as caught:
        load_files(file, copy=True, threads=threads)
    assert (caught.value.object_name, caught.value.component) == ("w", "data")
    file.close()


@pytest.mark.parametrize("checksum", ["crc32c", "sha256", None])
@pytest.mark.parametrize("length", [8 * MIB, 16 * MIB, 20 * MIB + 3])
def test_a_large_tensor_is_read_in_pieces(length: int, checksum: str | None) -> None:
    value = np.random.default_rng(0).integers(0, 256, length, np.uint8)
    data = bytearray(save({"w": value}, checksum=checksum))
    for threads in (1, 3):
        assert (load(bytes(data), copy=True, threads=threads)["w"] == value).all()
    if checksum is None:
        return
    with ztensor.open(bytes(data)) as reader:
        place = reader.location("w")
    for spot in (0, 8 * MIB - 1, length // 2, length - 1):
        data[place.offset + spot] ^= 1
        with pytest.raises(DigestMismatchError) as caught:
            load(bytes(data), copy=True, threads=3)
        assert caught.value.object_name == "w"
        data[place.offset + spot] ^= 1


@pytest.mark.parametrize(("kind", "piece"), [(Near, MIB), (Far, 8 * MIB)])
def test_pieces_are_longer_where_requests_are_slow(kind: type[Far], piece: int) -> None:
    value = np.arange(20 * MIB + 3, dtype=np.uint8)
    source = kind(save({"w": value}))
    reader = reader_of(source)
    assert np.array_equal(reader.read_numpy("w", copy=True), value)
    lengths = [length for request in source.asked for _, length in request]
    assert lengths == [piece] * (len(value) // piece) + [len(value) % piece]
    assert len(source.asked) == (1 if kind is Far else len(lengths))


@pytest.mark.parametrize("frames", [64, 65])
def test_4_mib_of_decoded_frames_are_kept(frames: int) -> None:
    array = np.random.default_rng(0).integers(
        0, 9, (frames * 16, 4096), np.uint8
    )  # 16 rows: 64 KiB
    source = Near(save({"w": array}, compression=True, chunk_rows=16))
    part = reader_of(source).get_slice("w")
    for row in range(0, len(array), 16):
        assert np.array_equal(part[row], array[row])
    source.asked.clear()
    assert np.array_equal(part[1], array[1])
    assert len(source.asked) == frames - 64


@pytest.mark.wing
@pytest.mark.parametrize("copy", [False, True])
def test_what_cannot_be_read_does_not_hide_the_way_to_the_others(
    tmp_path: Path, *, copy: bool
) -> None:
    np.savez(tmp_path / "a.npz", text=np.array("csr"), w=np.ones(3))
    with pytest.raises(ztensor.UnsupportedError, match=r"'text'.*the other objects by name"):
        load_file(tmp_path / "a.npz", copy=copy)
    with ztensor.open(tmp_path / "a.npz") as reader:
        assert reader["w"].tolist() == [1, 1, 1]
    np.savez(tmp_path / "alone.npz", text=np.array("csr"))
    with pytest.raises(ztensor.UnsupportedError) as caught:
        load_file(tmp_path / "alone.npz", copy=copy)
    assert caught.value.hint is None


@pytest.mark.parametrize("alignment", [4096, 65536])
@pytest.mark.parametrize("is_damaged", [False, True])
def test_tensors_far_apart_do_not_take_the_memory_between(
    tmp_path: Path, alignment: int, is_damaged: bool
) -> None:
    path = tmp_path / "m.zt"
    tensors = {**some(600), "large": np.zeros(1 << 18), "odd": np.arange(3, dtype=np.int8)}
    save_file(tensors, path, version="2.1", alignment=alignment)
    with ztensor.open(path) as reader:
        found = load_files(reader.objects, copy=True)
        require_same(found, reader)
        place = reader.location("00300")
    bases = {id(value.base): value.base.nbytes for value in found.values()}
    assert sum(bases.values()) < 2 * sum(value.nbytes for value in tensors.values())
    with path.open("r+b") as file:
        file.seek(place.offset)
        file.write(b"\xff")
    with pytest.raises(DigestMismatchError, match="00300"):
        load_file(path, copy=True)
    assert load_file(path, copy=True, verify=False)["00301"][0, 0] == 301


@pytest.mark.parametrize("digest", ["fffffffffffffffd", "fffffffffffffffe", "ffffffffffffffff"])
def test_the_largest_digests_are_digests_like_others(digest: str) -> None:
    """As signed numbers they are those that stand for no digest, and for one of another kind."""
    file = File2()
    objects = {str(number): dense(file.part(np.full(3, number)), [3]) for number in range(9)}
    objects["4"]["parts"]["data"]["digest"] = f"xxh3:{digest}"
    data = file.seal({"objects": objects})
    uses: list[Any] = [
        lambda: load(data),
        lambda: ztensor.open(data).read_numpy("4", copy=True),
    ]
    for use in uses:
        with pytest.raises(DigestMismatchError) as caught:
            use()
        assert caught.value.object_name == "4"
    with ztensor.open(data) as reader:
        assert [problem.object_name for problem in reader.verify().problems] == ["4"]
