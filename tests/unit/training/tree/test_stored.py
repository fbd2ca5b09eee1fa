"""A file holds one tree, whatever verb makes it of others: none is lost or changed in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import FormatError, LimitError, UnsupportedError, UsageError

ONE: dict[str, Any] = {"model": {"w": np.arange(6.0), "b": np.ones(2)}, "step": 1}
OTHER: dict[str, Any] = {"optimizer": {"m": np.zeros(6)}, "step": 2}
VERSIONS = ["1.2.0", "2.1"]


def same(found: Any, expected: Any) -> None:
    assert repr(found) == repr(expected)


@pytest.fixture(params=VERSIONS)
def files(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    one, other = tmp_path / "one.zt", tmp_path / "other.zt"
    ztensor.save_tree(ONE, one, version=request.param)
    ztensor.save_tree(OTHER, other, version=request.param)
    return one, other


@pytest.mark.parametrize("on_conflict", ["error", "first", "last"])
def test_two_trees_are_not_merged_into_one_of_them(
    files: tuple[Path, Path], tmp_path: Path, on_conflict: Any
) -> None:
    target = tmp_path / "new.zt"
    with pytest.raises(UsageError, match=r"one file holds only one") as raised:
        ztensor.merge(files, target, on_conflict=on_conflict)
    assert raised.value.file == str(files[1])
    assert str(files[0]) in str(raised.value)
    assert not target.exists()
    # As the message suggests.
    ztensor.merge(files, target, attributes={})
    with ztensor.open(target) as reader:
        assert set(reader) == {"model.w", "model.b", "optimizer.m"}
    plain = [tmp_path / "plain one.zt", tmp_path / "plain other.zt"]
    for path, to in zip(files, plain, strict=True):
        ztensor.convert(path, to, version="1.1.0")
    ztensor.merge(plain, target)
    both = {"a": ztensor.load_tree(files[0]), "b": ztensor.load_tree(files[1])}
    ztensor.save_tree(both, target)
    same(ztensor.load_tree(target), {"a": ONE, "b": OTHER})


def test_one_tree_is_merged_with_files_that_have_none(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    ztensor.numpy.save_file({"more": np.ones(3)}, tmp_path / "more.zt")
    ztensor.merge([tmp_path / "more.zt", files[0]], tmp_path / "new.zt")
    same(ztensor.load_tree(tmp_path / "new.zt"), ONE)


def test_the_shards_of_a_tree_are_merged_and_split_as_that_tree(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    *shards, index = ztensor.split(files[0], tmp_path / "shards", max_shard_size=50)
    assert len(shards) == 2
    same(ztensor.load_tree(index), ONE)
    ztensor.merge(shards, tmp_path / "merged.zt")
    same(ztensor.load_tree(tmp_path / "merged.zt"), ONE)
    ztensor.convert(index, tmp_path / "one file.zt", strict=True, check=True)
    same(ztensor.load_tree(tmp_path / "one file.zt"), ONE)


def test_a_set_of_files_with_different_trees_has_none(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Someone's index over two states; the verbs copy no tree of theirs, and say so."""
    where = {"model.w": "one.zt", "model.b": "one.zt", "optimizer.m": "other.zt"}
    index = tmp_path / "model.zt.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    with pytest.raises(UsageError, match="different trees"):
        ztensor.load_tree(index)
    with ztensor.open(index) as reader:
        assert "tree" not in reader.attributes
        losses = {one.where for one in reader.unrepresented}
    assert {"one.zt: tree", "other.zt: tree"} <= losses
    report = ztensor.convert(index, tmp_path / "new.zt")
    assert {"one.zt: tree", "other.zt: tree"} <= {one.where for one in report.unrepresented}
    for path in (index, tmp_path / "new.zt"):
        ztensor.merge([path], tmp_path / "merged.zt")
        *_, again = ztensor.split(path, tmp_path / "again", max_shard_size=60)
        for made in (tmp_path / "merged.zt", again):
            with pytest.raises(UsageError, match="no tree"):
                ztensor.load_tree(made)


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize(
    "names",
    [
        {"model.w": "layer/weight"},
        {"model.w": "model.b", "model.b": "model.w"},
        {"model.w": "model", "model.b": "step"},
        {"model.w": "model.w"},
    ],
    ids=str,
)
def test_an_object_of_a_tree_is_renamed_and_the_tree_stays(
    files: tuple[Path, Path], names: dict[str, str], atomic: bool
) -> None:
    path, _ = files
    ztensor.edit.rename_tensors(path, names, atomic=atomic)
    with ztensor.open(path) as reader:
        assert set(reader) == {names.get(name, name) for name in ("model.w", "model.b")}
        assert reader.verify().ok
    same(ztensor.load_tree(path), ONE)
    ztensor.edit.rename_tensors(path, {new: old for old, new in names.items()})
    same(ztensor.load_tree(path), ONE)


@pytest.mark.slow
def test_a_large_tree_is_renamed_too(tmp_path: Path) -> None:
    tree = {f"layer.{number}": np.full(1, number) for number in range(4000)}
    ztensor.save_tree(tree, tmp_path / "a.zt")
    ztensor.edit.rename_tensors(tmp_path / "a.zt", {name: f"net.{name}" for name in tree})
    same(ztensor.load_tree(tmp_path / "a.zt"), tree)


@pytest.mark.parametrize(("more", "encoding"), [(0, None), (1, "zstd")])
def test_a_shape_over_64_kib_is_compressed(more: int, encoding: str | None, tmp_path: Path) -> None:
    tree = {"a": bytes(65442 + more)}
    ztensor.save_tree(tree, tmp_path / "a.zt")
    with ztensor.open(tmp_path / "a.zt") as reader:
        stored: Any = reader.attributes["tree"]
    assert stored.get("encoding") == encoding
    assert stored.get("length", len(stored["shape"])) == (64 << 10) + more
    same(ztensor.load_tree(tmp_path / "a.zt"), tree)


def test_an_attribute_named_tree_that_is_not_one_is_left_alone(tmp_path: Path) -> None:
    for attribute in ("oak", 3, {"version": 1}, [1]):
        with ztensor.Writer(tmp_path / "a.zt", attributes={"tree": attribute}) as writer:
            writer.write("a", np.ones(2))
        ztensor.edit.rename_tensors(tmp_path / "a.zt", {"a": "b"})
        with ztensor.open(tmp_path / "a.zt") as reader:
            assert list(reader) == ["b"]
            assert reader.attributes["tree"] == attribute


@pytest.mark.parametrize(
    ("attribute", "error"),
    [
        ({"version": 99, "shape": b""}, UnsupportedError),
        ({"version": 1, "shape": b"\xff"}, FormatError),
        ({"version": 1, "shape": "text"}, FormatError),
        ({"version": 1, "shape": b"", "encoding": "zstd", "length": 1 << 60}, LimitError),
    ],
    ids=str,
)
def test_a_tree_that_cannot_be_read_is_not_changed(
    tmp_path: Path, attribute: Any, error: type[Exception]
) -> None:
    path = tmp_path / "a.zt"
    with ztensor.Writer(path, attributes={"tree": attribute}) as writer:
        writer.write("a", np.ones(2))
    before = path.read_bytes()
    with pytest.raises((error, FormatError)) as raised:
        ztensor.edit.rename_tensors(path, {"a": "b"})
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before
