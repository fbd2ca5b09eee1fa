"""Plain tensors take a short way; what it gives is what the long way gives, or nothing."""

from __future__ import annotations

import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    ArgumentTypeError,
    ClosedError,
    DigestMismatchError,
    LimitError,
    ObjectNotFoundError,
    SourceError,
    ZTensorError,
)
from ztensor.model.table import TableObjects
from ztensor.numpy import load, save, save_file
from ztensor.opening import reader_over
from ztensor.reading.file import FileObjects
from ztensor.testing.builder_2 import File2, dense

if TYPE_CHECKING:
    from ztensor.layout.base import Array

CORPUS = sorted(
    path
    for path in (Path(__file__).parents[2] / "corpus").rglob("*")
    if path.suffix in (".zt", ".safetensors", ".npz", ".npy", ".gguf", ".pt", ".h5", ".onnx")
    and "reject" not in path.parts
)


def some(count: int) -> dict[str, Array]:
    """Tensors of many kinds; as many as it takes for columns, or few."""
    kinds: list[Any] = [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(4, dtype=np.int64),
        np.array(2.5),
        np.zeros((0, 3), np.int16),
        np.arange(4).astype(ml_dtypes.bfloat16),
        np.arange(4).astype(ml_dtypes.float8_e4m3fn),
        np.array([1 + 2j], np.complex64),
        np.array([True, False]),
    ]
    return {f"{index}.{kinds[index % 8].dtype}": kinds[index % 8] for index in range(count)}


def long_way(file: FileObjects, name: str, *, copy: bool) -> Array | type[ZTensorError]:
    tensor_object = file.object(name)
    try:
        array = file.component(name, tensor_object, "data", copy=copy)
        if array.shape == tensor_object.shape:
            return array
        return file.as_tensor(tensor_object, {"data": array}).numpy()
    except ZTensorError as error:
        return type(error)


def require_same(file: FileObjects) -> int:
    """Hold the short way to the long one, and return how often it was taken."""
    taken = 0
    for name in file.names:
        for copy in (False, True):
            try:
                short: Array | type[ZTensorError] | None = file.plain(name, copy=copy)
            except ZTensorError as error:
                short = type(error)
            if short is None:
                continue
            taken += 1
            long = long_way(file, name, copy=copy)
            if isinstance(short, type):
                assert short is long
                continue
            assert isinstance(long, np.ndarray)
            assert (short.shape, short.dtype) == (long.shape, long.dtype)
            assert short.tobytes() == long.tobytes()
            assert short.flags.writeable or not copy
    return taken


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 2000])
@pytest.mark.parametrize("checksum", ["crc32c", "sha256", None])
def test_the_short_way_is_the_long_one(tmp_path: Path, count: int, checksum: str | None) -> None:
    save_file(some(count), tmp_path / "m.zt", checksum=checksum)
    ways: list[dict[str, Any]] = [{}, {"mmap": False}, {"verify": False}, {"verify": True}]
    for options in ways:
        with ztensor.open(tmp_path / "m.zt", **options) as reader:
            taken = require_same(reader.objects.parts()[0])
            full = count // 8 * 7  # but for the empty ones
            views = full if options in ({}, {"verify": False}) else 0
            assert taken == views + full


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_files_of_every_kind(path: Path) -> None:
    try:
        reader = ztensor.open(path)
    except ZTensorError:
        return
    with reader:
        for file in reader.objects.parts():
            require_same(file)


def test_a_flipped_bit_is_found_by_the_long_way(tmp_path: Path) -> None:
    data = bytearray(save(some(8)))
    with ztensor.open(bytes(data)) as reader:
        place = reader.location("0.float32")
    data[place.offset] ^= 1
    with ztensor.open(bytes(data)) as reader:
        with pytest.raises(DigestMismatchError) as caught:
            reader.read_numpy("0.float32", copy=True)
        assert caught.value.object_name == "0.float32"
        assert reader["0.float32"].shape == (2, 3)


def test_names_that_are_none(tmp_path: Path) -> None:
    save_file(some(2000), tmp_path / "m.zt")
    for source in (tmp_path / "m.zt", save(some(8))):
        with ztensor.open(source) as reader:
            odd: Any
            for odd in (3, None, ["0.float32"], b"0.float32"):
                for use in (reader.__getitem__, reader.get_slice):
                    with pytest.raises(ArgumentTypeError):
                        use(odd)
            with pytest.raises(ObjectNotFoundError):
                reader["x"]


def test_a_file_that_is_not_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file(some(8), path)
    with ztensor.open(path) as reader:
        part = reader.get_slice("0.float32")
        reader["0.float32"]
        os.truncate(path, path.stat().st_size // 2)
        uses: list[Any] = [
            lambda: reader["0.float32"],
            lambda: part[0],
            lambda: reader["1.int64"],
        ]
        for use in uses:
            with pytest.raises(SourceError) as caught:
                use()
            assert caught.value.object_name is not None


def test_a_file_changed_in_place_is_refused_by_every_use(tmp_path: Path) -> None:
    path = tmp_path / "m.zt"
    save_file(some(8), path)
    with ztensor.open(path) as reader:
        part = reader.get_slice("0.float32")
        uses: list[Any] = [
            lambda: reader["0.float32"],
            lambda: reader.read_numpy("1.int64"),
            lambda: part[0],
        ]
        for use in uses:
            use()
        os.utime(path, ns=(1, 1))
        for use in uses * 2:  # what is wrong stays wrong
            with pytest.raises(SourceError, match="changed in place"):
                use()


def test_a_closed_reader(tmp_path: Path) -> None:
    save_file(some(8), tmp_path / "m.zt")
    reader = ztensor.open(tmp_path / "m.zt")
    some_of_it = reader_over(reader.objects.select(["0.float32"]))
    part, array = reader.get_slice("0.float32"), reader["0.float32"]
    assert some_of_it["0.float32"].sum() == 15
    reader.close()
    uses: list[Any] = [
        lambda: reader["0.float32"],
        lambda: part[0],
        lambda: some_of_it["0.float32"],
    ]
    for use in uses:
        with pytest.raises(ClosedError):
            use()
    assert array.sum() == 15


class Name(str):
    __slots__ = ()


def uses_of(reader: ztensor.Reader, name: str) -> list[bytes]:
    one = reader.read_numpy(name, copy=True)
    return [reader[name].tobytes(), one.tobytes(), reader.get_slice(name)[...].tobytes()]


@pytest.mark.parametrize("count", [8, 600])
def test_a_reader_gives_the_same_however_it_came_to_be(tmp_path: Path, count: int) -> None:
    """Used before or not, of one file, of several, of some objects, pickled, by other text."""
    path, tensors = tmp_path / "m.zt", some(count)
    save_file(tensors, path)
    save_file({"more": np.ones(3)}, tmp_path / "n.zt")
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith("int16")}
    wanted = {name: [tensor.tobytes()] * 3 for name, tensor in tensors.items()}
    with ztensor.open(path) as first, ztensor.open([path, tmp_path / "n.zt"]) as of_set:
        for _ in range(2):
            others = [pickle.loads(pickle.dumps(first)), of_set, first]
            others.append(reader_over(first.objects.select(tensors)))
            for reader in others:
                for name, expected in wanted.items():
                    assert uses_of(reader, Name(name)) == expected
        some_of_it = reader_over(first.objects.select(["0.float32"]))
        with pytest.raises(ObjectNotFoundError):
            some_of_it["1.int64"]
        others[0].close()


@pytest.mark.parametrize("count", [64, 2000])
def test_threads_that_use_one_reader(tmp_path: Path, count: int) -> None:
    tensors = {name: one for name, one in some(count).items() if not name.endswith("int16")}
    save_file(tensors, tmp_path / "m.zt")

    def read(seed: int) -> bool:
        names = list(tensors)
        if seed:
            random.Random(seed).shuffle(names)
        return all(uses_of(reader, name) == [tensors[name].tobytes()] * 3 for name in names)

    with ztensor.open(tmp_path / "m.zt") as reader, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))


def test_limits_are_those_of_the_long_way() -> None:
    data = save({"deep": np.zeros((1,) * 9)})
    with ztensor.open(data, limits=ztensor.Limits(rank=8)) as reader:
        with pytest.raises(LimitError):
            reader["deep"]
        with pytest.raises(LimitError):
            reader.get_slice("deep")


@pytest.mark.parametrize("order", ["one after the other", "from the end", "every third", "any"])
def test_in_any_order_each_is_found(order: str) -> None:
    tensors = {
        f"w{i:03}": np.full((i % 5, 2) if i % 3 else (i % 5,), i, "f4" if i % 2 else "i8")
        for i in range(300)
    }
    names = sorted(tensors)
    if order == "from the end":
        names.reverse()
    elif order == "every third":
        names = [names[i * 3 % 300 + i // 100] for i in range(300)]
    elif order == "any":
        random.Random(7).shuffle(names)
    with ztensor.open(save(tensors)) as reader:
        for name in names * 2:
            for copy in (False, True):
                found = reader.read_numpy(name, copy=copy)
                assert found.dtype == tensors[name].dtype
                np.testing.assert_array_equal(found, tensors[name], strict=True)
            np.testing.assert_array_equal(reader.get_slice(name)[1:], tensors[name][1:])


def test_a_digest_that_was_looked_up_ahead_is_that_of_its_own_object() -> None:
    tensors = {name: array.copy() for name, array in some(40).items()}  # else stored once
    data = bytearray(save(tensors))
    with ztensor.open(bytes(data)) as reader:
        data[reader.metadata("20.bfloat16").components["data"].offset] ^= 1
    with ztensor.open(bytes(data)) as reader:
        bad = []
        for name in reader:
            try:
                reader.read_numpy(name, copy=True)
            except ztensor.DigestMismatchError as error:
                bad.append(error.object_name)
        assert bad == ["20.bfloat16"]


def test_a_type_that_is_registered_later() -> None:
    made = ztensor.Tensor({"data": np.zeros(4, np.uint8)}, type="plain_test_type")
    with ztensor.open(save({"w": made})) as reader:
        assert reader["w"].dtype == np.uint8


def test_plain_tensors_beside_others_take_the_short_way() -> None:
    """A few objects, not all of them plain, are in no table."""
    sparse = ztensor.Tensor.csr(values=[1.0], indices=[2], indptr=[0, 1], shape=(1, 3))
    with ztensor.open(save({**some(2), "sparse": sparse})) as reader:
        file = reader.objects.parts()[0]
        assert not isinstance(file.manifest.objects, TableObjects)
        taken = {name for name in file.names if file.plain(name) is not None}
    assert taken == set(some(2))


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
