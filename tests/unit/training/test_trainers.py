"""What libraries that train are given: without them, and what needs none of them."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import random
import sys
import types
from collections.abc import Callable, Iterator
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
def test_without_its_library_each_says_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_name_that_is_none_is_told_as_python_does() -> None:
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


# --- Beside stand-ins of the libraries, which `tests/ecosystem` tries themselves --------------


class Accelerator:
    """What ours asks of that of Accelerate."""

    num_processes, is_main_process, scaler = 1, True, None

    def __init__(self) -> None:
        self.step = self.process_index = 0

    def unwrap_model(self, model: Any) -> Any:
        return model

    def register_save_state_pre_hook(self, hook: Any) -> Any:
        return hook

    register_load_state_pre_hook = register_save_state_pre_hook


class Model:
    """What ours asks of that of Keras."""

    def __init__(self, value: float) -> None:
        self.state: Any = {"trainable_variables": {"dense": {"kernel": np.full((2, 3), value)}}}

    def get_state_tree(self, value_format: str) -> Any:
        assert value_format == "numpy_array"
        return self.state

    def set_state_tree(self, state: Any) -> None:
        self.state = state


@dataclasses.dataclass
class TrainerState:
    global_step: int = 3
    is_world_process_zero: bool = True
    log_history: list[Any] = dataclasses.field(default_factory=lambda: [{"loss": 0.5}])


@pytest.fixture
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base = type("Base", (), {})
    modules: dict[str, dict[str, Any]] = {
        "accelerate": {"Accelerator": Accelerator},
        "accelerate.utils": {"gather_object": list},
        "keras": {"Model": Model},
        "lightning": {},
        "lightning.fabric.plugins.io.checkpoint_io": {"CheckpointIO": base},
        "transformers": {"TrainerCallback": base},
    }
    for name, words in modules.items():
        module = types.ModuleType(name)
        vars(module).update(words)
        monkeypatch.setitem(sys.modules, name, module)
    yield
    for home, name in (
        (ztensor.lightning, "CheckpointIO"),
        (ztensor.trainer, "CheckpointCallback"),
    ):
        vars(home).pop(name, None)


@pytest.mark.usefixtures("_stand_ins")
def test_the_hooks_of_accelerate_write_and_read_weights(tmp_path: Path) -> None:
    model, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    save, load = ztensor.accelerate.register(Accelerator(), durable=False)
    weights, models = [model.state_dict()], [other]
    save([model], weights, str(tmp_path))
    load(models, str(tmp_path))
    assert torch.equal(model.weight, other.weight)
    assert (weights, models) == ([], [])  # what is left there, Accelerate writes
    assert [path.name for path in tmp_path.iterdir()] == ["model.zt"]


@pytest.mark.usefixtures("_stand_ins")
def test_the_state_of_a_run_of_accelerate_goes_on() -> None:
    model, accelerator = torch.nn.Linear(2, 3), Accelerator()
    accelerator.step = 7
    tree = ztensor.accelerate.state_of(accelerator, model=model)
    other, later = torch.nn.Linear(2, 3), Accelerator()
    ztensor.accelerate.set_state(later, tree, model=other)
    assert torch.equal(model.weight, other.weight)
    assert later.step == 7


@pytest.mark.usefixtures("_stand_ins")
def test_the_state_of_a_model_of_keras_comes_back(tmp_path: Path) -> None:
    model = Model(0)
    ztensor.keras.save_state(Model(5), tmp_path / "a.zt", checksum=True)
    ztensor.keras.load_state(model, tmp_path / "a.zt", verify=None)
    assert model.state["trainable_variables"]["dense"]["kernel"].tolist() == [[5] * 3] * 2
    ztensor.keras.set_state(model, ztensor.keras.state_of(Model(6)))
    assert model.state["trainable_variables"]["dense"]["kernel"].tolist() == [[6] * 3] * 2


@pytest.mark.usefixtures("_stand_ins")
def test_the_plugin_of_lightning_saves_loads_and_removes(tmp_path: Path) -> None:
    class Module:
        @classmethod
        def load_from_checkpoint(cls, file: Any, weights_only: object = None) -> Any:
            return torch.load(file, weights_only=weights_only)

    plugin, path = ztensor.lightning.CheckpointIO(durable=False), tmp_path / "new" / "a.ckpt"
    plugin.save_checkpoint({"state_dict": {"w": torch.ones(3)}}, path)
    assert plugin.load_checkpoint(path)["state_dict"]["w"].tolist() == [1, 1, 1]
    found: Any = ztensor.lightning.load_from_checkpoint(Module, path)
    assert found["state_dict"]["w"].tolist() == [1, 1, 1]
    plugin.teardown()
    plugin.remove_checkpoint(path)
    assert not path.exists()


@pytest.mark.usefixtures("_stand_ins")
def test_a_step_of_the_trainer_is_unpacked(tmp_path: Path) -> None:
    manager = ztensor.CheckpointManager(tmp_path / "run", durable=False)
    callback, model = ztensor.trainer.CheckpointCallback(manager), torch.nn.Linear(2, 3)
    optimizer = torch.optim.SGD(model.parameters())
    callback.on_save(None, TrainerState(), None, model=model, optimizer=optimizer)
    callback.on_train_end(None, None, None)
    folder = tmp_path / "resumed"
    assert ztensor.trainer.unpack(manager, folder) == str(folder)
    weights = ztensor.torch.load_file(folder / "model.safetensors")
    assert torch.equal(weights["weight"], model.weight)
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 3
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors", "optimizer.pt", "rng_state.pth", "trainer_state.json", "unpacked.txt",
    }  # fmt: skip
