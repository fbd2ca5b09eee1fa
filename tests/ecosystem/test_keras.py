"""Keras 3: state trees of models, with each backend that is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from tests.flipping import flip
from ztensor.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    DigestMismatchError,
    FormatError,
)

os.environ.setdefault("KERAS_BACKEND", "torch")


def model(width: int = 8, *, dropout: bool = False) -> Any:
    import keras

    keras.utils.clear_session()
    keras.utils.set_random_seed(3)
    layers = [keras.layers.Dense(width, name="a"), keras.layers.BatchNormalization(name="norm")]
    if dropout:
        layers.append(keras.layers.Dropout(0.3, name="drop", seed=5))
    made = keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1, name="b")])
    made.compile(keras.optimizers.Adam(0.05), loss="mse")
    return made


def fitted(made: Any, epochs: int = 2) -> Any:
    draw = np.random.default_rng(1)
    x, y = draw.standard_normal((2, 32, 4)).astype(np.float32)
    made.fit(x, y[:, :1], epochs=epochs, batch_size=8, shuffle=False, verbose=0)
    return made


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        where = f"{path}/{key}"
        found |= leaves(value, where) if isinstance(value, dict) else {where: value}
    return found


def require_same(one: Any, other: Any) -> None:
    one, other = leaves(one), leaves(other)
    assert list(one) == list(other)
    for name, value in one.items():
        assert np.asarray(value).dtype == np.asarray(other[name]).dtype
        assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize("dropout", [False, True])
def test_a_state_comes_back_into_a_fresh_model(tmp_path: Path, dropout: bool) -> None:
    first = fitted(model(dropout=dropout))
    ztensor.keras.save_state(first, tmp_path / "a.zt")
    state = ztensor.keras.state_of(first)
    stock = tmp_path / "a.keras"
    first.save(stock)
    fresh = model(dropout=dropout)
    ztensor.keras.load_state(fresh, tmp_path / "a.zt")
    found = ztensor.keras.state_of(fresh)
    for part in ("trainable_variables", "non_trainable_variables", "optimizer_variables"):
        require_same(found[part], state[part])
    import keras

    keras.utils.clear_session()
    again = keras.models.load_model(stock)
    same = ztensor.keras.state_of(again)
    # Keras itself renames variables when it loads; their values are the same.
    part = "trainable_variables"
    pairs = zip(leaves(same[part]).values(), leaves(found[part]).values(), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)
    if not dropout:  # seeds aside, the next epochs equal an uninterrupted run
        require_same(
            ztensor.keras.state_of(fitted(fresh))["trainable_variables"],
            ztensor.keras.state_of(fitted(first))["trainable_variables"],
        )


def test_a_manager_keeps_states_of_models(tmp_path: Path) -> None:
    with ztensor.CheckpointManager(tmp_path, keep=1) as manager:
        made = model()
        for step in range(2):
            manager.save(step, ztensor.keras.state_of(fitted(made, 1)), {"loss": 1.0})
    restored = manager.restore()
    assert restored is not None
    other = model()
    ztensor.keras.set_state(other, restored.tree)
    require_same(
        ztensor.keras.state_of(other)["optimizer_variables"],
        ztensor.keras.state_of(made)["optimizer_variables"],
    )


def test_mistakes_are_refused_and_change_nothing(tmp_path: Path) -> None:
    first = fitted(model())
    ztensor.keras.save_state(first, tmp_path / "a.zt")
    other = model(width=6)
    before = ztensor.keras.state_of(other)
    with pytest.raises(ArgumentValueError):
        ztensor.keras.load_state(other, tmp_path / "a.zt")
    part = ztensor.keras.state_of(first)
    part.pop("trainable_variables")
    with pytest.raises(ArgumentValueError):
        ztensor.keras.set_state(first, part)
    after = ztensor.keras.state_of(other)
    require_same(after["trainable_variables"], before["trainable_variables"])
    for wrong in (3, [1]):
        with pytest.raises(ArgumentTypeError):
            ztensor.keras.set_state(first, wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError):
        ztensor.keras.state_of(3)
    (tmp_path / "a.zt").write_bytes((tmp_path / "a.zt").read_bytes()[:-9])
    with pytest.raises(FormatError):
        ztensor.keras.load_state(first, tmp_path / "a.zt")


@pytest.mark.parametrize("copy", [False, True])
def test_a_flipped_bit_is_noticed(copy: bool, tmp_path: Path) -> None:
    made = fitted(model())
    path = tmp_path / "a.zt"
    ztensor.keras.save_state(made, path)
    with ztensor.open(path) as reader:
        offset = reader.location(next(iter(reader))).offset
    flip(path, offset)
    with pytest.raises(DigestMismatchError):
        ztensor.keras.load_state(made, path, copy=copy)
