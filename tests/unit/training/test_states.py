"""Trees in files: saved and loaded, in parts, over live trees, and what happens to their files."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
from tests.flipping import flip_object
from tests.unit.training.tree.alike import assert_alike
from ztensor.errors import (
    ArgumentValueError,
    DigestMismatchError,
    FormatError,
    ManifestError,
    NotRepresentableError,
    ObjectNotFoundError,
    UnsupportedError,
    UsageError,
)
from ztensor.ext import ENCODINGS
from ztensor.limits import Limits
from ztensor.numpy import load_file, save_file

STORED = "CBOR|manifest|zstd|stored"


class Moments(NamedTuple):
    count: Any
    mu: Any


@dataclasses.dataclass(frozen=True)
class State:
    step: int
    params: dict[str, Any]
    apply: Any = dataclasses.field(default=None, metadata={"pytree_node": False})


def tree() -> dict[str, Any]:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4)
    return {
        "model": {"w": weight, "tied": weight, "b": np.zeros(3)},
        "optimizer": {"state": {0: {"step": 5, "m": np.ones(2)}}, "betas": (0.9, 0.99)},
        "epoch": 3,
    }


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("compression", [True, False])
@pytest.mark.parametrize("version", ["1.2.0", "2.1"])
def test_a_tree_comes_back(tmp_path: Path, copy: bool, compression: bool, version: str) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path, {"run": "a"}, compression=compression, version=version)
    found = ztensor.load_tree(path, copy=copy)
    assert_alike(found, tree())
    assert found["model"]["w"] is found["model"]["tied"]
    assert ztensor.open_tree(path).attributes == {"run": "a"}


def test_a_tree_of_many_leaves(tmp_path: Path) -> None:
    many = {"state": {i: {"m": np.full(1, i), "step": i} for i in range(3000)}}
    ztensor.save_tree(many, tmp_path / "many.zt")
    assert_alike(ztensor.load_tree(tmp_path / "many.zt"), many)
    with ztensor.open(tmp_path / "many.zt") as reader:
        assert reader.attributes["tree"]["encoding"] == "zstd"


def test_a_tree_in_shards(tmp_path: Path) -> None:
    large = {"a": [np.full(1000, i) for i in range(5)], "n": 1}
    ztensor.save_tree(large, tmp_path / "large.zt", max_shard_size=20_000)
    assert len(list(tmp_path.glob("large-*.zt"))) > 1
    assert_alike(ztensor.load_tree(tmp_path / "large.zt.index.json"), large)


def test_other_tools_see_an_ordinary_file(tmp_path: Path) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path)
    assert sorted(load_file(path)) == ["model.b", "model.w", "optimizer.state.0.m"]
    with ztensor.open(path) as reader:
        assert reader.verify().ok


def test_parts_of_a_tree_read_just_their_objects(tmp_path: Path) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path)
    flip_object(path, "optimizer.state.0.m")
    found = ztensor.load_tree(path, only=["model.*", "epoch"])
    assert_alike(found, {"model": tree()["model"], "epoch": 3})
    with pytest.raises(DigestMismatchError, match=r"optimizer\.state\.0\.m"):
        ztensor.load_tree(path)
    with pytest.raises(DigestMismatchError):
        ztensor.load_tree(path, only="optimizer*")


def test_leaves_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path)
    with ztensor.open_tree(path) as lazy:
        assert list(lazy) == [
            "model.w", "model.tied", "model.b",
            "optimizer.state.0.step", "optimizer.state.0.m",
            "optimizer.betas.0", "optimizer.betas.1", "epoch",
        ]  # fmt: skip
        assert lazy["optimizer.betas.0"] == 0.9
        np.testing.assert_array_equal(lazy["model.tied"], tree()["model"]["w"])
        assert lazy.tree(only="epoch") == {"epoch": 3}
        with pytest.raises(ObjectNotFoundError):
            lazy["model"]


def jax_array() -> Any:
    return pytest.importorskip("jax.numpy").arange(3)


def _sparse() -> Any:
    return pytest.importorskip("scipy.sparse").eye(3, format="csr")


TWICE = {
    "array": lambda: np.arange(3),
    "empty array": lambda: np.zeros((0, 2)),
    "Tensor": lambda: ztensor.Tensor(np.arange(3)),
    "sparse Tensor": lambda: ztensor.Tensor.from_scipy(_sparse()),
    "scipy": _sparse,
    "jax": jax_array,
    "torch sparse": lambda: pytest.importorskip("torch").eye(3).to_sparse(),
}


@pytest.mark.parametrize("make", TWICE.values(), ids=TWICE)
def test_a_value_that_is_in_a_tree_twice_is_stored_once(
    make: Callable[[], Any], tmp_path: Path
) -> None:
    value = make()
    ztensor.save_tree({"a": value, "b": [value]}, tmp_path / "a.zt")
    with ztensor.open(tmp_path / "a.zt") as reader:
        assert len(reader) == 1
    found = ztensor.load_tree(tmp_path / "a.zt")
    assert found["a"] is found["b"][0]


@pytest.mark.parametrize("copy", [True, False])
def test_equal_leaves_are_stored_once_on_request_and_come_back_apart(
    tmp_path: Path, copy: bool
) -> None:
    state = {"a": np.arange(4096.0), "b": np.arange(4096.0)}
    for name, deduplicate in (("apart", False), ("once", "content")):
        ztensor.save_tree(state, tmp_path / f"{name}.zt", deduplicate=deduplicate)  # type: ignore[arg-type]
    assert (tmp_path / "once.zt").stat().st_size < 40_000 < (tmp_path / "apart.zt").stat().st_size
    found = ztensor.load_tree(tmp_path / "once.zt", copy=copy)
    found["a"][0] = 7
    assert_alike(found["b"], state["b"])


def test_a_buffer_comes_back_from_files_steps_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "state.zt"
    state = {"losses": io.BytesIO(b"1 2"), "w": np.ones(2)}
    ztensor.save_tree(state, path)
    with ztensor.CheckpointManager(tmp_path / "steps") as manager:
        manager.save(1, state)
        manager.wait()
        restored = manager.restore()
        assert restored is not None
    with ztensor.open_tree(path) as lazy:
        found = [ztensor.load_tree(path)["losses"], restored.tree["losses"], lazy["losses"]]
    assert [(type(one), one.read()) for one in found] == [(io.BytesIO, b"1 2")] * 3


def test_buffers_are_compared_by_their_bytes(tmp_path: Path) -> None:
    for name, held, step in [("a", b"1", 1), ("b", b"1", 2), ("c", b"2", 1)]:
        ztensor.save_tree({"x": io.BytesIO(held), "step": step}, tmp_path / f"{name}.zt")
    assert ztensor.diff(tmp_path / "a.zt", tmp_path / "b.zt").values == {"step": (1, 2)}
    assert list(ztensor.diff(tmp_path / "a.zt", tmp_path / "c.zt").values) == ["x"]


# --- Live trees -----------------------------------------------------------------------------


def test_a_live_tree_has_the_classes_and_fields_that_are_not_data(tmp_path: Path) -> None:
    live = State(0, {"w": np.zeros(2)}, apply=len), (Moments(np.zeros(()), [np.zeros(2)]),)
    saved = State(7, {"w": np.ones(2)}, apply=max), (Moments(np.ones(()), [np.ones(2)]),)
    path = tmp_path / "state.zt"
    ztensor.save_tree(saved, path)
    found = ztensor.load_tree(path, into=live)
    assert found[0].apply is len
    assert_alike(found[0].params, saved[0].params)
    assert found[0].step == 7
    assert_alike(found[1], saved[1])


@pytest.mark.parametrize(
    ("live", "says"),
    [
        ({"a": np.zeros(2)}, "other keys"),
        ({"a": np.zeros(3), "b": Moments(0, 0)}, r"tree\['a'\]: .*shape"),
        ({"a": np.zeros(2, np.int8), "b": Moments(0, 0)}, r"tree\['a'\]: .*element type"),
        ({"a": [1], "b": Moments(0, 0)}, r"tree\['a'\]: .*another type"),
        ({"a": np.zeros(2), "b": State(1, {})}, r"tree\['b'\]: .*another class"),
        ({"a": np.zeros(2), "b": Moments("x", 0)}, r"tree\['b'\]\.count: .*another type"),
        ([1, 2], r"^[^:]*tree: .*another type"),
    ],
)
def test_a_live_tree_of_another_structure_is_refused(tmp_path: Path, live: Any, says: str) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree({"a": np.zeros(2), "b": Moments(1, 2)}, path)
    with pytest.raises(ArgumentValueError, match=says):
        ztensor.load_tree(path, into=live)


@pytest.mark.parametrize("names", ["a", "ac", "abc"])
def test_a_class_that_changed_its_fields_is_refused(tmp_path: Path, names: str) -> None:
    saved, live = (dataclasses.make_dataclass("Options", [*found]) for found in ("ab", names))
    ztensor.save_tree(saved(1, 2), tmp_path / "state.zt")
    with pytest.raises(ArgumentValueError, match="other fields"):
        ztensor.load_tree(tmp_path / "state.zt", into=live(*range(len(names))))


@pytest.mark.parametrize(
    ("live", "expected", "found"),
    [("abc", "'c'", "no such key"), ("a", "no more", "'b'"), ("ac", "'c'", "'b'")],
)
def test_of_other_keys_only_the_others_are_named(live: str, expected: str, found: str) -> None:
    buffer = io.BytesIO()
    ztensor.save_tree({"a": 1, "b": 2}, buffer)
    with pytest.raises(ArgumentValueError) as caught:
        ztensor.load_tree(buffer.getvalue(), into=dict.fromkeys(live, 0))
    assert (caught.value.expected, caught.value.found) == (expected, found)


# --- Refused --------------------------------------------------------------------------------


def test_a_refused_tree_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path)
    before = path.read_bytes()
    with pytest.raises(NotRepresentableError, match=r"tree\['hook'\]"):
        ztensor.save_tree({**tree(), "hook": print}, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.zt"]


@pytest.mark.parametrize("name", ["a.safetensors", "a.npz", "a.gguf"])
def test_files_of_other_formats_hold_no_trees(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArgumentValueError, match="only zTensor files hold trees"):
        ztensor.save_tree({}, tmp_path / name)


def test_the_attribute_is_not_for_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ArgumentValueError, match="tree"):
        ztensor.save_tree({}, tmp_path / "a.zt", {"tree": 1})


def test_a_file_without_a_tree_is_refused(tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "a.zt")
    for load in (ztensor.load_tree, ztensor.open_tree):
        with pytest.raises(UsageError, match="holds no tree"):
            load(tmp_path / "a.zt")


@pytest.mark.parametrize("only", [None, "model.*"])
def test_a_tree_whose_tensor_is_gone_names_it(tmp_path: Path, only: str | None) -> None:
    path = tmp_path / "state.zt"
    ztensor.save_tree(tree(), path)
    ztensor.edit.remove_tensors(path, names=["model.b"])
    with pytest.raises(ManifestError, match=r"'model\.b': .*removed or renamed"):
        ztensor.load_tree(path, only=only)
    assert ztensor.load_tree(path, only="epoch") == {"epoch": 3}
    with ztensor.open_tree(path) as lazy, pytest.raises(ManifestError, match="removed"):
        lazy["model.b"]


@pytest.mark.parametrize(
    ("attribute", "error", "says"),
    [
        (1, ManifestError, "not a map with a version"),
        ({"version": "1"}, ManifestError, "not a map with a version"),
        ({"version": 2, "shape": b""}, UnsupportedError, "newer release"),
        ({"version": 1}, ManifestError, "not a byte string"),
        ({"version": 1, "shape": b"\xff"}, FormatError, STORED),
        (
            {"version": 1, "shape": b"", "encoding": "lzma", "length": 1},
            ManifestError,
            "unknown encoding",
        ),
        ({"version": 1, "shape": b"", "encoding": "zstd"}, ManifestError, "unknown encoding"),
        (
            {"version": 1, "shape": b"x" * 40, "encoding": "zstd", "length": 9},
            FormatError,
            STORED,
        ),
        (
            {"version": 1, "shape": b"", "encoding": "zstd", "length": 1 << 60},
            FormatError,
            STORED,
        ),
    ],
)
def test_a_hostile_attribute_is_one_error(
    tmp_path: Path, attribute: Any, error: type[Exception], says: str
) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "a.zt", {"tree": attribute})
    with pytest.raises(error, match=says):
        ztensor.load_tree(tmp_path / "a.zt")


@pytest.mark.slow
def test_a_trusted_file_may_cost_more(tmp_path: Path) -> None:
    path = tmp_path / "a.zt"
    ztensor.save_tree([None] * 5_000_000, path)
    with ztensor.open(path) as reader:
        tree = dict(reader.attributes["tree"])
    tree["length"], tree["encoding"] = len(tree["shape"]), "zstd"  # as no release writes it now
    tree["shape"] = b"".join(ENCODINGS["zstd"].encode(memoryview(tree["shape"]), level=3))
    save_file({}, path, {"tree": tree})
    with pytest.raises(ztensor.LimitError, match="cost"):
        ztensor.load_tree(path)
    assert len(ztensor.load_tree(path, limits=Limits(cost_floor=1 << 30))) == 5_000_000


@pytest.mark.parametrize("library", ["torch", "jax.numpy"])
def test_values_of_a_framework_are_saved_before_its_package_is_imported(
    library: str, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    text = f"""
import {library} as library
import ztensor
ztensor.save_tree({{"a": library.ones(3)}}, "tree.zt")
assert ztensor.load_tree("tree.zt")["a"].tolist() == [1, 1, 1]
"""
    subprocess.run([sys.executable, "-c", text], check=True, cwd=tmp_path)
