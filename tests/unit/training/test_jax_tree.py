"""Training states of JAX: arrays, keys of random numbers, and classes by a live tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, NotRepresentableError, ZTensorError

jax = pytest.importorskip("jax")
jnp = jax.numpy

from ztensor.jax import load_tree, save_tree  # noqa: E402

pytestmark = pytest.mark.slow


class ScaleByAdamState(NamedTuple):
    count: Any
    mu: Any
    nu: Any


class EmptyState(NamedTuple):
    pass


def state() -> dict[str, Any]:
    params = {"w": jnp.arange(6.0).reshape(2, 3), "b": jnp.zeros(3, jnp.bfloat16)}
    return {
        "params": params,
        "opt_state": (
            ScaleByAdamState(jnp.zeros((), jnp.int32), params, {"w": jnp.ones(2)}),
            EmptyState(),
        ),
        "key": jax.random.key(7),
        "old_key": jax.random.PRNGKey(7),
        "numpy": np.arange(3),
        "step": 3,
    }


@pytest.mark.parametrize("copy", [True, False])
def test_arrays_and_keys_come_back(tmp_path: Path, copy: bool) -> None:
    save_tree(state(), tmp_path / "a.zt")
    found = load_tree(tmp_path / "a.zt", copy=copy, into=state())
    assert jax.tree.structure(found) == jax.tree.structure(state())
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(state()), strict=True):
        assert type(one) is type(other)
        assert jnp.asarray(one == other).all()
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)
    draws = [jax.random.normal(tree["key"], (3,)) for tree in (found, state())]
    assert (draws[0] == draws[1]).all()
    assert type(found["numpy"]) is np.ndarray


def test_sparse_matrices_come_back(tmp_path: Path) -> None:
    sparse = pytest.importorskip("jax.experimental.sparse")
    matrix = sparse.BCOO.fromdense(jnp.eye(3))
    save_tree([matrix], tmp_path / "a.zt")
    found = load_tree(tmp_path / "a.zt")[0]
    assert isinstance(found, sparse.BCOO)
    assert (found.todense() == jnp.eye(3)).all()


def test_without_jax_arrays_are_numpys(tmp_path: Path) -> None:
    save_tree(state(), tmp_path / "a.zt")
    found = ztensor.load_tree(tmp_path / "a.zt")
    assert type(found["params"]["w"]) is np.ndarray
    assert found["key"].class_name == "jax.random.key"


def test_traced_values_and_functions_are_refused(tmp_path: Path) -> None:
    def traced(value: Any) -> Any:
        save_tree({"x": value}, tmp_path / "a.zt")
        return value

    with pytest.raises(ArgumentTypeError, match=r"tree\['x'\]: .*traced"):
        jax.jit(traced)(1.0)
    with pytest.raises(NotRepresentableError, match=r"tree\[0\]"):
        save_tree([jax.jit(lambda x: x)], tmp_path / "a.zt")


def test_hostile_keys_are_one_error() -> None:
    from ztensor.training.jax_tree import tree_makers

    for value in (None, ("rbg", 1), ("none", np.zeros(2, np.uint32)), ("rbg", np.zeros(3)), (1, 2)):
        with pytest.raises(ZTensorError):
            tree_makers()["jax.random.key"](value)
