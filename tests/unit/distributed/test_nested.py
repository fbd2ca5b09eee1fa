"""A checkpoint, and a conversion of it, is read as the nested state that was saved."""

from __future__ import annotations

import collections
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from tests.unit.distributed.saving import save
from tests.unit.training.tree.alike import assert_alike
from ztensor.distributed.root import PATHS
from ztensor.errors import NotRepresentableError, ObjectNotFoundError

TENSORS: dict[str, Any] = {
    "model.w": np.arange(12, dtype="f4").reshape(4, 3),
    "optim.0": np.ones(3),
    "rng.1": np.full(2, 7),
}
VALUES: dict[str, Any] = {
    "step": 7,
    "betas": (0.9, 0.95),
    "rng": ("MT", np.arange(5, dtype="u4")),
    "seen": {3, 1},
    "counts": collections.Counter("aab"),
    "when": datetime.date(2026, 1, 2),
    "optim.1": None,
}
PLACES: dict[str, Any] = {
    "model.w": ("model", "w"),
    "optim.0": ("optim", 0),
    "optim.1": ("optim", 1),
    "gone": ("model", "gone"),
    "step": ("step",),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "step"
    found.mkdir()
    save(found, TENSORS, values={**VALUES, PATHS: PLACES})
    return found


def test_a_state_comes_back_nested_from_the_folder_and_from_a_file(
    folder: Path, tmp_path: Path
) -> None:
    expected = {
        "model": {"w": TENSORS["model.w"]},
        "optim": [TENSORS["optim.0"], None],
        "step": 7,
        "rng.1": TENSORS["rng.1"],
        **{name: value for name, value in VALUES.items() if name not in PLACES},
    }
    tree = ztensor.load_tree(folder)
    assert_alike(dict(sorted(tree.items())), dict(sorted(expected.items())))
    report = ztensor.convert(folder, tmp_path / "one.zt", strict=True, check=True)
    assert report.lost == ()
    assert_alike(ztensor.load_tree(tmp_path / "one.zt"), tree)
    ztensor.merge([folder], tmp_path / "merged.zt")
    assert_alike(ztensor.load_tree(tmp_path / "merged.zt"), tree)
    assert ztensor.content_hash(folder, attributes=True) == ztensor.content_hash(
        tmp_path / "one.zt", attributes=True
    )
    found = ztensor.diff(folder, tmp_path / "one.zt")
    assert not found.differing
    assert not found.values


def test_an_array_among_the_values_is_an_object_that_is_read_and_verified(folder: Path) -> None:
    with ztensor.open(folder) as reader:
        assert list(reader) == [*TENSORS, "rng.1#2"]
        np.testing.assert_array_equal(reader["rng.1#2"], np.arange(5))
        assert reader.verify().objects == 4
        assert reader.verify(["rng.1#2"]).ok
        assert reader.verify(["model.w", "rng.1#2"]).objects == 2
        with pytest.raises(ObjectNotFoundError):
            reader.verify(["rng.1#3"])
        assert reader.unrepresented == ()
    root = folder / "checkpoint.zt"
    with ztensor.open(root) as reader:
        at = reader.objects.file.object("values/rng.1").components["data"].offset  # type: ignore[union-attr]
    flip(root, at + 5)
    with ztensor.open(folder) as reader:
        assert not reader.verify(["rng.1#2"]).ok
        assert reader.verify(["model.w"]).ok


def test_a_checkpoint_without_values_is_a_flat_tree(tmp_path: Path) -> None:
    save(tmp_path, TENSORS)
    assert_alike(ztensor.load_tree(tmp_path), TENSORS)
    with ztensor.open(tmp_path) as reader:
        assert reader.attributes == {}


def test_a_tree_that_was_saved_in_parts_is_a_file_of_one_when_it_is_converted(
    tmp_path: Path,
) -> None:
    state = {"model": {"w": np.ones(3)}, "step": 3, 4: (1, 2)}
    with ztensor.CheckpointManager(tmp_path, increments=True, durable=False) as manager:
        manager.save(3, state, {"loss": 0.5})
    folder = tmp_path / "step-00000003"
    assert_alike(ztensor.load_tree(folder), state)
    ztensor.convert(folder, tmp_path / "one.zt", strict=True)
    assert_alike(ztensor.load_tree(tmp_path / "one.zt"), state)
    with ztensor.open(tmp_path / "one.zt") as reader:
        assert reader.attributes["checkpoint"]["metrics"] == {"loss": 0.5}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".gguf", ".h5", ".zt"])
def test_lost_values_are_named(folder: Path, tmp_path: Path, suffix: str) -> None:
    ztensor.save_tree(ztensor.load_tree(folder), tmp_path / "tree.zt")
    options: dict[str, Any] = (
        {"version": "1.1.0"} if suffix == ".zt" else {}
    )  # one that holds no tree
    for source in (folder, tmp_path / "tree.zt"):
        report = ztensor.convert(source, tmp_path / f"new{suffix}", **options)
        losses = " ".join(loss.sentence for loss in report.lost)
        for name in ("seen", "when"):
            assert f"left out: value {name!r}" in losses
        assert "'tree'" not in losses
        with ztensor.open(tmp_path / f"new{suffix}") as reader:
            attributes = reader.attributes
        assert "tree" not in attributes
        if suffix == ".h5":
            assert attributes["step"] == 7
            assert attributes["rng.0"] == "MT"
        elif suffix == ".safetensors":
            assert attributes["step"] == "7"
        else:
            assert "'step'" in losses or attributes["step"] == 7
        with pytest.raises(NotRepresentableError):
            ztensor.convert(source, tmp_path / f"new{suffix}", **options, strict=True)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ({}, {"a": 1, "b": 2}),
        ({"a": ("x", 0), "b": ("x", 1)}, {"x": [1, 2]}),
        ({"b": ("x", 0), "a": ("x", 1)}, {"x": [2, 1]}),
        ({"a": ("x", 1), "b": ("x", 2)}, {"x": {1: 1, 2: 2}}),
        ({"a": ("x", 0), "b": ("x", "0")}, {"x": {0: 1, "0": 2}}),
        ({"a": ("x",), "b": ("x", "y")}, {"x": 1, "b": 2}),
        ({"a": ("x", "y"), "b": ("x",)}, {"x": {"y": 1}, "b": 2}),
        ({"a": ("x",), "b": ("x",)}, {"x": 1, "b": 2}),
        ({"a": ("b",)}, {"b": 1, "b#2": 2}),
        ({"a": (), "b": (1.5,)}, {"a": 1, "b": 2}),
        ({"a": 3, "b": (True,)}, {"a": 1, "b": 2}),
        ({"a": ["x"] * 20_000}, None),
    ],
    ids=str,
)
def test_values_are_nested_by_their_paths(tmp_path: Path, paths: Any, expected: Any) -> None:
    save(tmp_path, {}, processes=1, values={"a": 1, "b": 2, PATHS: paths})
    found = ztensor.load_tree(tmp_path)
    if expected is None:
        for _ in range(20_000):
            found = found["x"]
        assert found == 1
    else:
        assert found == expected
