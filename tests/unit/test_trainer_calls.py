"""The calls for libraries that train, beside stand-ins of these libraries.

A library that is not installed beside this suite has a stand-in here: the few classes and methods
that ours take from it. So our side runs wherever the tests do; `tests/ecosystem` tries it with the
libraries themselves.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import ztensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore")  # what libraries say of odd values

# --- Stand-ins ----------------------------------------------------------------------------------


class Accelerator:
    """What ours asks of that of Accelerate."""

    def __init__(self) -> None:
        self.step = self.process_index = 0
        self.num_processes = 1
        self.is_main_process = True
        self.scaler = None

    def unwrap_model(self, model: Any) -> Any:
        return model

    def register_save_state_pre_hook(self, hook: Any) -> Any:
        return hook

    def register_load_state_pre_hook(self, hook: Any) -> Any:
        return hook


class Model:
    """What ours asks of that of Keras."""

    optimizer = None

    def __init__(self) -> None:
        self.state: Any = {"trainable_variables": {"dense": {"kernel": np.ones((2, 3))}}}

    def get_state_tree(self, value_format: str) -> Any:
        assert value_format == "numpy_array"
        return self.state

    def set_state_tree(self, state: Any) -> None:
        self.state = state


class LightningModule:
    """What ours asks of that of Lightning."""

    @classmethod
    def load_from_checkpoint(cls, file: Any, weights_only: object = None) -> LightningModule:
        del weights_only
        torch.load(file, weights_only=False)  # what ours wrote a moment ago
        return cls()


class Case(NamedTuple):
    """A call: of which function, with which arguments."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


def case(function: Any, **arguments: Any) -> Case:
    return Case(function, arguments)


def stand_ins() -> dict[str, dict[str, Any]]:
    """Return the modules of each library, and what is in them."""
    empty = type("Base", (), {})
    return {
        "accelerate": {"Accelerator": Accelerator},
        "accelerate.utils": {"gather_object": list},
        "keras": {"Model": Model},
        "lightning": {},
        "lightning.fabric.plugins.io.checkpoint_io": {"CheckpointIO": empty},
        "transformers": {"TrainerCallback": empty},
    }


LIBRARIES = {name.partition(".")[0] for name in stand_ins()}
MISSING = {name for name in LIBRARIES if importlib.util.find_spec(name) is None}


@pytest.fixture(autouse=True)
def _libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)  # odd relative paths name nothing of worth
    for name, words in stand_ins().items():
        if name.partition(".")[0] in MISSING:
            module = types.ModuleType(name)
            vars(module).update(words)
            monkeypatch.setitem(sys.modules, name, module)
    yield
    for home, name in (("lightning", "CheckpointIO"), ("trainer", "CheckpointCallback")):
        vars(importlib.import_module(f"ztensor.{home}")).pop(name, None)


# --- Right calls --------------------------------------------------------------------------------


@dataclasses.dataclass
class TrainerState:
    is_world_process_zero: bool = True
    global_step: int = 3
    log_history: list[Any] = dataclasses.field(default_factory=lambda: [{"loss": 0.5}])


def accelerator() -> Any:
    return importlib.import_module("accelerate").Accelerator()


def keras_model() -> Any:
    keras = importlib.import_module("keras")
    if keras.Model is Model:
        return Model()
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])


def manager(folder: Path) -> ztensor.CheckpointManager:
    return ztensor.CheckpointManager(folder / "run", background=False, durable=False)


def saving() -> dict[str, Any]:
    model = torch.nn.Linear(2, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters()), "lr_scheduler": None}


def callback(folder: Path) -> Any:
    return ztensor.trainer.CheckpointCallback(manager(folder))


def unpacked(folder: Path) -> Case:
    callback(folder).on_save(None, TrainerState(), None, **saving())
    return case(ztensor.trainer.unpack, source=manager(folder), folder=folder / "new", step=None)


def checkpoint(folder: Path) -> Path:
    path = folder / "a.ckpt"
    ztensor.torch.save_tree({"state_dict": {"w": torch.ones(3)}}, path)
    return path


def plugin() -> Any:
    return ztensor.lightning.CheckpointIO()


def run_state(folder: Path) -> dict[str, Any]:
    del folder
    found: dict[str, Any] = ztensor.accelerate.state_of(accelerator(), model=torch.nn.Linear(2, 3))
    return found


def keras_file(folder: Path) -> Path:
    path = folder / "keras.zt"
    ztensor.keras.save_state(keras_model(), path)
    return path


CASES: dict[str, Callable[[Path], Case]] = {
    "accelerate.register": lambda _: case(
        ztensor.accelerate.register, accelerator=accelerator(), compression=False, checksum=True,
        durable="auto",
    ),
    "accelerate.state_of": lambda _: case(
        ztensor.accelerate.state_of, accelerator=accelerator(), model=torch.nn.Linear(2, 3)
    ),
    "accelerate.set_state": lambda f: case(
        ztensor.accelerate.set_state, accelerator=accelerator(), tree=run_state(f),
        model=torch.nn.Linear(2, 3),
    ),
    "keras.state_of": lambda _: case(ztensor.keras.state_of, model=keras_model()),
    "keras.set_state": lambda _: case(
        ztensor.keras.set_state, model=keras_model(), state=ztensor.keras.state_of(keras_model())
    ),
    "keras.save_state": lambda f: case(
        ztensor.keras.save_state, model=keras_model(), filename=f / "b.zt", checksum=True
    ),
    "keras.load_state": lambda f: case(
        ztensor.keras.load_state, model=keras_model(), filename=keras_file(f), verify=None
    ),
    "lightning.CheckpointIO.__init__": lambda _: case(
        ztensor.lightning.CheckpointIO, compression=False, checksum=True, durable=True,
        storage=None,
    ),
    "lightning.CheckpointIO.save_checkpoint": lambda f: case(
        plugin().save_checkpoint, checkpoint={"w": torch.ones(3)}, path=f / "b.ckpt",
        storage_options=None,
    ),
    "lightning.CheckpointIO.load_checkpoint": lambda f: case(
        plugin().load_checkpoint, path=checkpoint(f), map_location=None, weights_only=None
    ),
    "lightning.CheckpointIO.remove_checkpoint": lambda f: case(
        plugin().remove_checkpoint, path=checkpoint(f)
    ),
    "lightning.CheckpointIO.teardown": lambda _: case(plugin().teardown),
    "lightning.load_from_checkpoint": lambda f: case(
        ztensor.lightning.load_from_checkpoint, module=LightningModule, path=checkpoint(f),
        device=None, storage=None,
    ),
    "trainer.CheckpointCallback.__init__": lambda f: case(
        ztensor.trainer.CheckpointCallback, manager=manager(f)
    ),
    "trainer.CheckpointCallback.on_save": lambda f: case(
        callback(f).on_save, args=None, state=TrainerState(), control=None, **saving()
    ),
    "trainer.CheckpointCallback.on_train_end": lambda f: case(
        callback(f).on_train_end, args=None, state=None, control=None
    ),
    "trainer.unpack": unpacked,
}  # fmt: skip


# --- Calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_a_right_call_gives_a_result(tmp_path: Path, name: str) -> None:
    call = CASES[name](tmp_path)
    call.function(**call.arguments)
