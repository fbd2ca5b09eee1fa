"""Indexes: any form of the text, two shards with one object name, digests of shards, sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.refusals import refused
from ztensor import Limits
from ztensor.errors import FormatError, LimitError, Reason
from ztensor.io.shards.index import parse_index
from ztensor.options import parse_size

MAP = {"a": "1.zt", "b": "2.zt", "c": "1.zt"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"metadata": {"total_size": 7}, "weight_map": MAP}, indent=2),
        json.dumps({"weight_map": MAP, "metadata": {"total_size": 7}}),
        '{"metadata": {"total_size": 7}, "weight_map": {"\\u0061": "1.zt", "b": "2.zt", '
        '"c": "1.zt"}}',
        json.dumps({"x": '"weight_map"', "weight_map": MAP, "metadata": {"total_size": 7}}),
    ],
)
def test_an_index_in_any_form(text: str) -> None:
    found = parse_index(text.encode())
    assert found["weight_map"] == MAP
    assert found["metadata"] == {"total_size": 7}
    assert list(found["weight_map"]) == list(MAP)


@pytest.mark.parametrize(
    ("metadata", "names", "limits"),
    [
        ("", 1000, Limits(cost_floor=0, cost_factor=2)),
        ("a" * 100_000, 1, Limits(cost_floor=10_000, cost_factor=5)),
    ],
    ids=["map", "metadata"],
)
def test_an_index_is_charged(metadata: str, names: int, limits: Limits) -> None:
    weight_map = {f"{number}": "1.zt" for number in range(names)}
    text = json.dumps({"metadata": {"x": metadata}, "weight_map": weight_map})
    assert parse_index(text.encode())["weight_map"] == weight_map
    with refused(LimitError, Reason.LIMIT_COST):
        parse_index(text.encode(), limits)


W = np.arange(6.0)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Write two shards that both hold `w`, and each a tensor of its own."""
    paths = [tmp_path / f"model-0000{number}-of-00002.zt" for number in (1, 2)]
    for number, path in enumerate(paths):
        ztensor.numpy.save_file({"w": W + number, f"own.{number}": W}, path)
    return paths


def test_files_that_hold_one_name_are_no_parts_of_one_model(shards: list[Path]) -> None:
    with refused(FormatError, Reason.DUPLICATE_NAME) as caught:
        ztensor.open(list(map(str, shards)))
    assert caught.value.object_name == "w"
    ztensor.numpy.save_file({"x": W, "own.1": W}, shards[1])
    with ztensor.open(list(map(str, shards))) as reader:
        assert sorted(reader) == ["own.0", "own.1", "w", "x"]


@pytest.mark.parametrize("number", [0, 1])
def test_an_index_says_which_of_two_shards_is_meant(
    tmp_path: Path, shards: list[Path], number: int
) -> None:
    homes = {"w": number, "own.0": 0, "own.1": 1}
    weight_map = {name: shards[home].name for name, home in homes.items()}
    index = tmp_path / "model.zt.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    with ztensor.open(index) as reader:
        assert (reader["w"] == W + number).all()
        assert reader.verify().ok


def _converted(folder: Path, target: str, suffix: str, **options: Any) -> None:
    """Convert a file into shards of one tensor each."""
    ztensor.numpy.save_file({name: W + n for n, name in enumerate("abc")}, folder / "whole.zt")
    ztensor.convert(folder / "whole.zt", f"{target}/model{suffix}", max_shard_size=60, **options)


def _index(folder: Path) -> tuple[Path, Any]:
    (index,) = folder.glob("*.index.json")
    return index, json.loads(index.read_text())


@pytest.mark.wing
@pytest.mark.parametrize("is_converted", [True, False])
@pytest.mark.parametrize("suffix", [".safetensors", ".zt"])
def test_an_index_has_digests_of_shards_that_were_converted(
    tmp_path: Path, suffix: str, is_converted: bool
) -> None:
    """Saving does not read the shards again to hash them."""
    if is_converted:
        _converted(tmp_path, str(tmp_path), suffix)
    else:
        tensors = {name: W + number for number, name in enumerate("abc")}
        ztensor.numpy.save_file(tensors, tmp_path / f"model{suffix}", max_shard_size=60)
    index, content = _index(tmp_path)
    assert ("digests" in content["metadata"]) is is_converted
    with ztensor.open(index) as reader:
        assert not reader.verify().problems


@pytest.mark.wing
def test_without_digests_in_the_index_plain_shards_are_unchecked(tmp_path: Path) -> None:
    _converted(tmp_path, str(tmp_path), ".safetensors")
    index, content = _index(tmp_path)
    digests = content["metadata"].pop("digests")
    for some, unchecked in (
        (None, ["a", "b", "c"]),
        (dict(list(digests.items())[1:]), ["a"]),
        (digests, []),
    ):
        metadata = content["metadata"] if some is None else {**content["metadata"], "digests": some}
        index.write_text(json.dumps({**content, "metadata": metadata}))
        with ztensor.open(index) as reader:
            assert sorted(reader.verify().unchecked) == unchecked


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 1),
        ("1", 1),
        ("1B", 1),
        ("1.9", 1),
        (" 2.5kB ", 2500),
        ("1KiB", 1024),
        ("9.5TiB", 19 << 39),
        (f"{(1 << 64) - 2048}", (1 << 64) - 2048),
    ],
)
def test_sizes(size: int | str, expected: int) -> None:
    assert parse_size(size) == expected
