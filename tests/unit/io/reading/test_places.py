"""Plain tensors: names, closed and changed files, threads, and readers of every kind."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
from ztensor.errors import (
    DigestMismatchError,
    ObjectNotFoundError,
)
from ztensor.io.opening import reader_over
from ztensor.numpy import load, save_file
from ztensor.spec.layout.base import Array
from ztensor.testing.builder_2 import File2, dense


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
