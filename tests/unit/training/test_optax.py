"""Save and load states of Optax and Flax, and resume runs from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ztensor import CheckpointManager

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

from ztensor.jax import load_tree, save_tree  # noqa: E402

# Transforms that need only a learning rate.
PLAIN = [
    *("adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamw", "amsgrad"),
    *("lamb", "lars", "lion", "nadam", "novograd", "optimistic_gradient_descent", "radam"),
    *("rprop", "sm3", "yogi"),
]


def plain(name: str) -> Callable[[], Any]:
    return lambda: getattr(optax, name)(1e-2)


TRANSFORMS: dict[str, Callable[[], Any]] = {
    **{name: plain(name) for name in PLAIN},
    "noisy_sgd": lambda: optax.noisy_sgd(1e-2, key=jax.random.key(5)),
    "rmsprop": lambda: optax.rmsprop(1e-2, centered=True, momentum=0.9),
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "a schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-2, 10)),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2)),
    "masked": lambda: optax.masked(optax.adam(1e-2), {"w": True, "b": False}),
    "multi": lambda: optax.multi_transform(
        {"a": optax.adam(1e-2), "s": optax.sgd(1e-2)}, {"w": "a", "b": "s"}
    ),
    "several steps": lambda: optax.MultiSteps(optax.adam(1e-2), 2),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-2),
    "average": lambda: optax.chain(optax.adam(1e-2), optax.ema(0.9)),
    "finite": lambda: optax.apply_if_finite(optax.adam(1e-2), 3),
    "lookahead": lambda: optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda _: 0.1)),
}  # fmt: skip


def parameters() -> dict[str, Any]:
    return {"w": jax.numpy.linspace(-1, 1, 12).reshape(3, 4), "b": jax.numpy.ones(4)}


def stepped(transform: Any, state: Any, params: Any, seeds: range) -> tuple[Any, Any]:
    for seed in seeds:
        keys = jax.random.split(jax.random.key(seed))
        grads = {
            "w": jax.random.normal(keys[0], (3, 4)),
            "b": jax.random.normal(keys[1], (4,)),
        }
        updates, state = transform.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return state, params


def assert_same(found: Any, wanted: Any) -> None:
    assert jax.tree_util.tree_structure(found) == jax.tree_util.tree_structure(wanted)
    pairs = zip(*map(jax.tree_util.tree_leaves, (found, wanted)), strict=True)
    for one, other in (map(_array, pair) for pair in pairs):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def _array(leaf: Any) -> Any:
    if jax.dtypes.issubdtype(getattr(leaf, "dtype", np.int64), jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, name: str) -> None:
    transform = TRANSFORMS[name]()
    params = parameters()
    state, params = stepped(transform, transform.init(params), params, range(3))
    save_tree({"state": state, "params": params}, tmp_path / "state.zt")
    live = {"state": transform.init(parameters()), "params": parameters()}
    found = load_tree(tmp_path / "state.zt", into=live)
    assert_same(found, {"state": state, "params": params})
    resumed = stepped(transform, found["state"], found["params"], range(3, 6))
    assert_same(resumed, stepped(transform, state, params, range(3, 6)))


def test_a_manager_restores_over_a_live_state(tmp_path: Path) -> None:
    transform = optax.adamw(1e-2)
    params = parameters()
    with CheckpointManager(tmp_path) as manager:
        state, params = stepped(transform, transform.init(params), params, range(2))
        manager.save(2, {"state": state, "params": params, "key": jax.random.key(1)})
    live = {"state": transform.init(params), "params": parameters(), "key": jax.random.key(0)}
    found = CheckpointManager(tmp_path).restore(into=live)
    assert found is not None
    assert_same(found.tree, {"state": state, "params": params, "key": jax.random.key(1)})


def test_states_of_flax(tmp_path: Path) -> None:
    nnx = pytest.importorskip("flax.nnx")

    class Model(nnx.Module):  # type: ignore[name-defined, misc]
        def __init__(self, rngs: Any) -> None:
            self.layers = nnx.List([nnx.Linear(4, 4, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)])

    def states(seed: int) -> Any:
        return nnx.to_pure_dict(nnx.state(Model(nnx.Rngs(seed))))

    save_tree(states(1), tmp_path / "state.zt")
    found = load_tree(tmp_path / "state.zt", into=states(0))
    assert_same(found, states(1))
    model = Model(nnx.Rngs(0))
    state = nnx.state(model)
    nnx.replace_by_pure_dict(state, found)
    nnx.update(model, state)
    assert_same(nnx.to_pure_dict(nnx.state(model)), states(1))
