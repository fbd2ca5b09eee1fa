from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ztensor
from tests.corpus.foreign.make_gguf import blocks_of
from ztensor.cli.spelling import parameters_text
from ztensor.insight.analysis.parameters import parameter_count
from ztensor.io.opening import Reader
from ztensor.io.shards.naming import INDEX_SUFFIX
from ztensor.numpy import save, save_file


def count(reader: Reader) -> int:
    return parameter_count(reader, reader.metadata(list(reader)))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 parameters"),
        (1, "1 parameter"),
        (999, "999 parameters"),
        (1000, "1.0 k parameters"),
        (999_949, "999.9 k parameters"),
        (999_950, "1.0 M parameters"),
        (22_713_728, "22.7 M parameters"),
        (6_738_415_616, "6.7 B parameters"),
        (10**12, "1.0 T parameters"),
        (10**16, "10,000.0 T parameters"),
        (10**18, "over 1,000,000 T parameters"),
        (10**4000, "over 1,000,000 T parameters"),
    ],
)
def test_for_people(number: int, text: str) -> None:
    assert parameters_text(number) == text


@pytest.mark.parametrize("compression", [False, True])
def test_elements_of_every_layout(compression: bool) -> None:
    weight = np.ones((128, 64), np.float32)
    csr = ztensor.Tensor.csr(np.ones(3), [0, 1, 2], [0, 1, 3], (2, 900))
    coo = ztensor.Tensor.coo(np.ones(2, np.float16), [[0, 1], [5, 6]], (2, 900))
    blocks = ztensor.Tensor(
        {"data": blocks_of("q4_k", 6).reshape(-1)}, shape=(3, 512), format="gguf.q4_k"
    )
    quantized = ztensor.Tensor.quantize(weight, bits=4, group_size=32)
    for value, expected in (
        (weight, 8192), (np.float32(3), 1), (np.zeros((0, 5)), 0),
        (csr, 3), (coo, 2), (blocks, 1536), (quantized, 8192),
    ):  # fmt: skip
        with ztensor.open(save({"w": value}, compression=compression)) as reader:
            assert count(reader) == expected


def test_tied_weights_count_once(tmp_path: Path) -> None:
    weight = np.ones((10, 10), np.float32)
    with ztensor.open(save({"a": weight, "b": weight, "c": weight + 1})) as reader:
        assert count(reader) == 200
    names = {name: weight + place for place, name in enumerate("abc")}
    save_file(names, tmp_path / "m.zt", max_shard_size=400)
    with ztensor.open(f"{tmp_path / 'm.zt'}{INDEX_SUFFIX}") as shards:
        assert isinstance(shards, ztensor.io.ShardedReader)
        assert len(shards.files) == 3  # at the same place in each file
        assert count(shards) == 300


def test_equal_bytes_of_other_types_are_no_tied_weights() -> None:
    """A canonical file has equal bytes once, whatever they are of."""
    zeros = {"a": np.zeros(8, np.float32), "b": np.zeros(32, np.uint8), "c": np.zeros(8, np.int32)}
    for names in ("abc", "cba"):
        arrays = {f"{place}": zeros[name] for place, name in enumerate(names)}
        with ztensor.open(save(arrays, version="2.1", canonical=True)) as reader:
            assert count(reader) == 8 + 32 + 8
