"""Hooks into training libraries, as far as they need none; tests/ecosystem has the libraries."""

from __future__ import annotations

import importlib
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentValueError, MissingDependencyError

torch = pytest.importorskip("torch")

NEEDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "lightning": ("lightning", lambda: ztensor.lightning.CheckpointIO),
    "accelerate": ("accelerate", lambda: ztensor.accelerate.register(3)),
    "accelerate state": ("accelerate", lambda: ztensor.accelerate.state_of(3)),
    "accelerate back": ("accelerate", lambda: ztensor.accelerate.set_state(3, {})),
    "trainer": ("transformers", lambda: ztensor.trainer.CheckpointCallback),
    "keras": ("keras", lambda: ztensor.keras.state_of(3)),
    "keras file": ("keras", lambda: ztensor.keras.load_state(3, "a.zt")),
}


@pytest.mark.parametrize("name", NEEDS)
def test_each_names_its_missing_library(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library, call = NEEDS[name]
    others = ["pytorch_lightning", "lightning_fabric"] if library == "lightning" else []
    for one in [library, *others]:
        for known in [known for known in sys.modules if known.partition(".")[0] == one]:
            monkeypatch.delitem(sys.modules, known)
        monkeypatch.setitem(sys.modules, one, None)
    module = importlib.import_module(f"ztensor.{name.partition(' ')[0]}")
    for made in ("CheckpointIO", "CheckpointCallback"):
        vars(module).pop(made, None)
    with pytest.raises(MissingDependencyError, match="pip install"):
        call()


def test_a_missing_name_is_an_attribute_error() -> None:
    for module in (ztensor.lightning, ztensor.trainer):
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            _ = module.nothing


def test_random_numbers_go_on_from_a_saved_state(tmp_path: Path) -> None:
    def drawn() -> list[float]:
        normal = float(np.random.standard_normal())
        return [random.random(), random.gauss(0, 1), normal, float(torch.rand(1))]

    drawn()
    ztensor.torch.save_tree(ztensor.torch.random_state(), tmp_path / "a.zt")
    expected = [drawn() for _ in range(3)]
    drawn()
    ztensor.torch.set_random_state(ztensor.torch.load_tree(tmp_path / "a.zt"))
    assert [drawn() for _ in range(3)] == expected


def test_a_wrong_random_state_changes_nothing() -> None:
    before = ztensor.torch.random_state()
    wrong: Any
    for wrong in ({}, 3, {**before, "cpu": 3}, {**before, "numpy": ()}, {**before, "python": (3,)}):
        with pytest.raises(ArgumentValueError, match="random numbers"):
            ztensor.torch.set_random_state(wrong)
        after = ztensor.torch.random_state()
        assert after["python"] == before["python"]
        assert np.array_equal(after["numpy"][1], before["numpy"][1])
        assert torch.equal(after["cpu"], before["cpu"])


@pytest.mark.skipif(os.name == "nt", reason="makes links")
def test_lightning_has_only_trees_of_ours_removed(tmp_path: Path) -> None:
    plugin, path = ztensor.lightning.TreeCheckpoints(durable=False), tmp_path / "a.ckpt"
    for name in ("a.ckpt", "damaged.ckpt", "gone.ckpt"):
        plugin.save_checkpoint({"w": torch.ones(100)}, tmp_path / name)
    os.truncate(tmp_path / "damaged.ckpt", 300)
    torch.save({"w": torch.ones(3)}, tmp_path / "stock.ckpt")
    ztensor.torch.save_file({"w": torch.ones(3)}, tmp_path / "model.zt")
    (tmp_path / "link.ckpt").symlink_to(path)
    (tmp_path / "folder.ckpt").mkdir()
    for name in ("stock.ckpt", "model.zt", "link.ckpt", "folder.ckpt", "none.ckpt"):
        plugin.remove_checkpoint(tmp_path / name)
    for name in ("damaged.ckpt", "gone.ckpt"):
        plugin.remove_checkpoint(tmp_path / name)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "a.ckpt",
        "folder.ckpt",
        "link.ckpt",
        "model.zt",
        "stock.ckpt",
    ]
