from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor

SHAPES: Mapping[str, tuple[int, ...]] = {
    "embed.weight": (9, 4),
    "0.weight": (4, 4),
    "1.weight": (4, 4),
    "2.weight": (4, 4),
}
GROUP = {"lr": 0.1, "params": [0, 1, 2, 3]}


def step(names: bool, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, Any]:
    """Return a training state as PyTorch has it: the states of parameters by their numbers."""
    group = {**GROUP, "param_names": list(SHAPES)} if names else GROUP
    state = {
        number: {"exp_avg": np.full(shape, number + 1.0), "step": np.array(3, np.float32)}
        for number, shape in enumerate(shapes.values())
    }
    return {
        "model": {
            **{name: np.full(shape, 0.5, np.float32) for name, shape in SHAPES.items()},
            "running_mean": np.ones(4),
            "num_batches_tracked": np.array(7),
        },
        "optimizer": {"state": state, "param_groups": [group]},
        "epoch": 3,
    }


def examined(tree: dict[str, Any], path: Path) -> ztensor.insight.Insight:
    ztensor.save_tree(tree, path)
    return ztensor.examine(path)


@pytest.mark.parametrize("names", [True, False], ids=["by name", "by shape"])
def test_states_of_an_optimizer_are_rows_of_the_parameters_they_are_of(
    names: bool, tmp_path: Path
) -> None:
    (model,) = examined(step(names), tmp_path / "step.zt").as_json()["models"]
    layers = model["layers"]
    (row,) = (at for at, name in enumerate(layers["roles"]) if name.endswith("*.weight.exp_avg"))
    shown = [model["tensors"]["name"][place] for place in layers["tensor"][row]]
    assert shown == [f"optimizer.state.{number}.exp_avg" for number in (1, 2, 3)]
    assert layers["indices"] == [0, 1, 2]


def test_states_that_fit_no_model_keep_their_numbers(tmp_path: Path) -> None:
    other = {**SHAPES, "0.weight": (4, 5)}
    (model,) = examined(step(names=False, shapes=other), tmp_path / "step.zt").as_json()["models"]
    assert "optimizer.state.*.exp_avg" in model["layers"]["roles"]


def test_values_of_a_tree_are_shown_in_place_of_its_bytes(tmp_path: Path) -> None:
    ztensor.save_tree(step(names=True), tmp_path / "step.zt")
    ztensor.edit.set_attributes(tmp_path / "step.zt", {"run": "a"})
    document = ztensor.examine(tmp_path / "step.zt").as_json()
    shown = dict(document["models"][0]["attributes"])
    assert shown == {"run": "'a'", "optimizer.param_groups.0.lr": "0.1", "epoch": "3"}
