"""`load_sharded`: a tree of arrays as another tree says, from any file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
from tests.counting import CountedFile
from ztensor.errors import ArgumentValueError, NotRepresentableError

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402

from ztensor.jax import leaf_names, load_sharded, save, save_sharded  # noqa: E402

ROWS = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


class Moments(NamedTuple):
    count: Any
    mean: Any


@dataclasses.dataclass
class State:
    params: Any
    moments: Any
    step: Any
    name: str


jax.tree_util.register_dataclass(
    State, data_fields=["params", "moments", "step"], meta_fields=["name"]
)


def one_device() -> Any:
    return jax.sharding.SingleDeviceSharding(jax.devices()[0])


def committed(array: Any) -> Any:
    return jax.device_put(array, one_device())


def struct(shape: tuple[int, ...], dtype: Any = jnp.float32, sharding: Any = None) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def state(scale: float = 1.0) -> State:
    params = {"w": committed(ROWS * scale), "half": jnp.asarray(ROWS * scale, jnp.bfloat16)}
    moments = [Moments(jnp.int32(scale), {"w": jnp.asarray(ROWS[0] * scale)})]
    return State(params, moments, int(7 * scale), "run")


def require_equal(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
        assert getattr(one, "sharding", None) == getattr(other, "sharding", None)
        assert getattr(one, "committed", None) == getattr(other, "committed", None)


# --- What comes back ---------------------------------------------------------------------------


def test_it_is_the_inverse_of_save_sharded(tmp_path: Path) -> None:
    save_sharded(state(2), tmp_path)
    live = state()
    for array in jax.tree.leaves(live.params):
        array.delete()  # as an array that a call was given to keep
    require_equal(load_sharded(tmp_path, live), state(2))


def test_an_abstract_tree_is_enough(tmp_path: Path) -> None:
    save_sharded(state(2), tmp_path)
    abstract = jax.eval_shape(state)
    assert abstract.params["w"].sharding is None
    found = load_sharded(tmp_path, like=abstract)
    assert (found.step.dtype, found.step) == (np.int32, 14)  # `eval_shape` makes arrays of numbers
    assert not found.params["w"].committed
    np.testing.assert_array_equal(found.params["w"], ROWS * 2)
    abstract.params["w"] = struct((64, 32), sharding=one_device())
    assert load_sharded(tmp_path, like=abstract).params["w"].committed


def test_values_of_numpy_sparse_matrices_and_tensors_are_of_their_kind(tmp_path: Path) -> None:
    from jax.experimental import sparse

    tree = {
        "array": ROWS,
        "scalar": np.float64(0.1),
        "sparse": sparse.BCOO.fromdense(jnp.eye(3)),
        "rows": sparse.BCSR.fromdense(jnp.eye(3)),
        "tensor": ztensor.Tensor.quantize(np.ones((128, 8), np.float32)),
        "lr": 0.5,
        "text": "cosine",
    }
    save_sharded(tree, tmp_path)
    found = load_sharded(tmp_path, like=tree)
    assert all(type(found[name]) is type(value) for name, value in tree.items())
    assert (found["lr"], found["text"], found["scalar"]) == (0.5, "cosine", np.float64(0.1))
    found["array"][0] = 0  # memory of its own
    np.testing.assert_array_equal(found["sparse"].todense(), jnp.eye(3))
    assert found["tensor"].format == "quantized_group"


FILES: dict[str, Callable[[Any, Path], object]] = {
    "zt": lambda flat, path: ztensor.jax.save_file(flat, path / "x.zt"),
    "compressed": lambda flat, path: ztensor.jax.save_file(flat, path / "x.zt", compression=True),
    "safetensors": lambda flat, path: ztensor.jax.save_file(flat, path / "x.safetensors"),
    "npz": lambda flat, path: np.savez(path / "x.npz", **flat),
    "shards": lambda flat, path: ztensor.jax.save_file(flat, path / "x.zt", max_shard_size=6000),
}


@pytest.mark.parametrize("kind", FILES)
def test_any_file_with_the_names_of_the_leaves_will_do(tmp_path: Path, kind: str) -> None:
    tree = {"layers": [{"w": committed(ROWS)}, {"w": jnp.asarray(ROWS[:8])}], "b": np.arange(3.0)}
    names = jax.tree.leaves(leaf_names(tree))
    FILES[kind](dict(zip(names, jax.tree.leaves(tree), strict=True)), tmp_path)
    paths = sorted(tmp_path.iterdir())
    source = tmp_path if len(paths) > 1 else paths[0]
    require_equal(load_sharded(source, like=tree), tree)
    with ztensor.open(source) as reader:
        require_equal(load_sharded(reader, like=tree), tree)
        assert len(reader) == 3  # still open


NUMBERS: dict[str, tuple[Any, Any, Any]] = {  # saved, in the tree, loaded
    "a number for an array": (jnp.int32(7), 0, 7),
    "a number for an array of NumPy": (np.float32(0.5), 0.0, 0.5),
    "an array for a number": (7, jnp.int32(0), jnp.int32(7)),
    "an array on a device": (7, committed(jnp.float32(0)), committed(jnp.float32(7))),
    "an array of NumPy for a number": (0.5, np.float64(0), np.float64(0.5)),
    "a bool": (True, jnp.bool_(False), jnp.bool_(True)),
    "no integer": (0.5, jnp.int32(0), None),
    "no text": ("7", jnp.int32(0), None),
    "no axes": (7, jnp.zeros(1, jnp.int32), None),
    "no array with axes": (jnp.zeros(1, jnp.int32), 0, None),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_a_number_and_an_array_without_axes_stand_for_one_another(
    tmp_path: Path, case: str
) -> None:
    stored, like, expected = NUMBERS[case]
    save_sharded({"n": stored}, tmp_path)
    if expected is None:
        with pytest.raises(ArgumentValueError):
            load_sharded(tmp_path, like={"n": like})
    else:
        require_equal(load_sharded(tmp_path, like={"n": like}), {"n": expected})


# --- What differs ------------------------------------------------------------------------------

LARGE = 1 << 20
SHAPE = (LARGE // 64, 64)
SAVED = {"a.w": np.zeros(SHAPE, np.float32), "a.i": np.arange(8)}
RIGHT: dict[str, Any] = {"w": struct(SHAPE), "i": np.zeros(8, np.int64)}
QUANTIZED = ztensor.Tensor.quantize(np.ones(SHAPE, np.float32))
NOWHERE = jax.sharding.NamedSharding(
    jax.sharding.AbstractMesh((4,), ("a",)), jax.sharding.PartitionSpec("a")
)
WRONG: dict[str, tuple[Any, type[Exception]]] = {
    "a leaf too many": ({**RIGHT, "x": struct(())}, ArgumentValueError),
    "a leaf too few": ({"w": RIGHT["w"]}, ArgumentValueError),
    "a plain value": ({**RIGHT, "i": 3}, ArgumentValueError),
    "another shape": ({**RIGHT, "w": struct((64, LARGE // 64))}, ArgumentValueError),
    "another rank": ({**RIGHT, "w": struct((LARGE,))}, ArgumentValueError),
    "another type": ({**RIGHT, "w": struct(SHAPE, jnp.bfloat16)}, ArgumentValueError),
    "a type without x64": ({**RIGHT, "i": struct((8,), np.int64)}, NotRepresentableError),
    "a key": ({**RIGHT, "w": jax.random.key(0)}, ArgumentValueError),
    "a quantized one": ({**RIGHT, "w": QUANTIZED}, ArgumentValueError),
    "a mesh without devices": ({**RIGHT, "w": struct(SHAPE, sharding=NOWHERE)}, ArgumentValueError),
    "two leaves of one name": ({**RIGHT, "b": {"c": 1}, "b.c": 2}, ArgumentValueError),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_tree_that_does_not_fit_is_refused_before_data_is_read(case: str) -> None:
    file = CountedFile(save(SAVED))
    like, error = WRONG[case]
    with pytest.raises(error):
        load_sharded(file, like={"a": like})
    assert file.nbytes < LARGE // 16
    load_sharded(file, like={"a": RIGHT})
    assert file.nbytes > 4 * LARGE


def test_the_error_lists_names_of_both_sides() -> None:
    with pytest.raises(ArgumentValueError) as caught:
        load_sharded(save({"model.w": ROWS}), like={"params": {"w": struct((64, 32))}})
    assert "params.w" in str(caught.value.expected)
    assert "model.w" in str(caught.value.found)


def test_not_strict_keeps_leaves_and_ignores_objects() -> None:
    live = {"w": struct((64, 32)), "new": jnp.ones(3), "step": 5}
    found = load_sharded(save({"w": ROWS, "old": ROWS}), like=live, strict=False)
    np.testing.assert_array_equal(found["w"], ROWS)
    assert found["new"] is live["new"]
    assert found["step"] == 5
    with pytest.raises(ArgumentValueError, match="'new'"):  # there are no elements to keep
        load_sharded(save({"w": ROWS}), like={**live, "new": struct((3,))}, strict=False)


@pytest.mark.parametrize("sharding", [None, one_device()], ids=["default", "sharding"])
def test_cast_converts_elements(sharding: Any) -> None:
    data = save({"w": np.arange(6.0), "n": np.arange(3, dtype=np.int16)})  # float64, without x64
    like = {"w": struct((6,), jnp.bfloat16, sharding), "n": np.zeros(3, np.float32)}
    found = load_sharded(data, like=like, cast=True)
    assert (found["w"].dtype, found["n"].dtype) == (jnp.bfloat16, np.float32)
    np.testing.assert_array_equal(found["w"].astype(np.float32), np.arange(6.0))
    np.testing.assert_array_equal(found["n"], np.arange(3))


@pytest.mark.parametrize(
    ("found", "wanted"),
    [("c8", "f4"), ("f4", "i4"), ("i8", "i4"), ("i4", "u4"), ("u1", "?")],
)
def test_a_cast_loses_no_more_than_precision(found: str, wanted: str) -> None:
    like = {"w": struct((6,), wanted, None)}
    with pytest.raises(ArgumentValueError):
        load_sharded(save({"w": np.ones(6, found)}), like=like, cast=True)
    assert load_sharded(save({"w": np.ones(6, "?")}), like=like, cast=True)["w"].sum() == 6


def test_names_are_renamed_and_may_be_shared() -> None:
    data = save({"model.embed": ROWS})
    like = {"embed": struct((64, 32)), "head": struct((64, 32), sharding=one_device())}
    found = load_sharded(data, like=like, names=lambda _: "model.embed")
    for array in found.values():
        np.testing.assert_array_equal(array, ROWS)


def test_damage_is_found_if_all_is_verified() -> None:
    data = bytearray(save({"w": np.ones(LARGE, np.uint8)}))
    data[LARGE // 2] ^= 1
    like = {"w": struct((LARGE,), jnp.uint8, one_device())}
    with pytest.raises(ztensor.FormatError):
        load_sharded(bytes(data), like=like, verify=True)
