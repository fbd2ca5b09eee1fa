"""Training with the `Trainer` of transformers: its states in a `CheckpointManager`, and back.

    manager = ztensor.CheckpointManager("runs/a", keep_best=("eval_loss", 1, "min"))
    trainer = Trainer(..., callbacks=[ztensor.trainer.CheckpointCallback(manager)])

`Trainer` resumes only from its own folders: `unpack` makes one of a step.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from ztensor import CheckpointManager
from ztensor.errors import (
    ArgumentTypeError,
    UsageError,
    describe,
    system_call,
)
from ztensor.ext import path_text
from ztensor.torch import save_file
from ztensor.torch.trees import load_tree
from ztensor.training.hooks import class_of, deriving, method_of
from ztensor.training.torch_randomness import random_state
from ztensor.typing import Path

__all__ = ["CheckpointCallback", "unpack"]

_STATE = "trainer_state"
_PARTS = ("model", "optimizer", "scheduler", "random", _STATE)
_PICKLES = {"optimizer": "optimizer.pt", "scheduler": "scheduler.pt", "random": "rng_state.pth"}
_SETTINGS = ("config", "generation_config")
# The file that marks a folder of `unpack`, and its text.
_MARK = "unpacked.txt"
_SAYS = "ztensor.trainer.unpack made this folder of a step, and writes it anew for another.\n"


class SavesSteps:
    """The methods of `CheckpointCallback`, which is also derived from transformers' callback class.

    Whenever the trainer saves, the manager saves the step as well: weights, optimizer, scheduler,
    random states, and the trainer's own state. Metrics for `keep_best` are the last numbers that
    the trainer logged, such as `"loss"` and `"eval_loss"`. Only the main process saves.

    The trainer writes its own folder first; `save_total_limit=1` keeps only one of these. The
    scaler of fp16 is not passed to callbacks and is not in the step; bf16 has no scaler.

    Args:
        manager: the manager of the steps; the last step is on disk when training ends.
    """

    def __init__(self, manager: CheckpointManager) -> None:
        if not isinstance(manager, CheckpointManager):
            raise ArgumentTypeError(
                "not a manager", expected="ztensor.CheckpointManager", found=describe(manager, 60)
            )
        super().__init__()
        self.manager = manager

    def on_save(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        """Save a step; called by the trainer after its own save.

        Raises:
            ArgumentTypeError: the arguments are not a trainer's.
            ZTensorError: errors of `CheckpointManager.save`.
        """
        del args, control
        is_instance = dataclasses.is_dataclass(state) and not isinstance(state, type)
        if not is_instance or not hasattr(state, "global_step"):
            raise ArgumentTypeError(
                "not the state of a trainer",
                expected="transformers.TrainerState",
                found=describe(state, 60),
            )
        if not getattr(state, "is_world_process_zero", True):
            return
        model: Any = arguments.get("model")
        scheduler = arguments.get("lr_scheduler")
        while hasattr(model, "module") and not hasattr(model, "config"):
            model = model.module  # wrapped by torch for several devices
        own: dict[str, Any] = dataclasses.asdict(state)
        tree = {
            "model": method_of(model, "state_dict", "model")(),
            "optimizer": method_of(arguments.get("optimizer"), "state_dict", "optimizer")(),
            "scheduler": None
            if scheduler is None
            else method_of(scheduler, "state_dict", "lr_scheduler")(),
            "random": random_state(),
            _STATE: own,
            **{name: _settings(model, name) for name in _SETTINGS},
        }
        self.manager.save(own["global_step"], tree, _metrics(own), force=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **arguments: Any) -> None:
        """Wait until the last step is on disk; called by the trainer."""
        del args, state, control, arguments
        self.manager.wait()


def _settings(model: Any, name: str) -> str | None:
    """Return the text of a config's file; None if the model has no such config."""
    settings = getattr(model, name, None)
    to_text = getattr(settings, "to_json_string", None)
    return None if to_text is None else str(to_text())


def _metrics(state: dict[str, Any]) -> dict[str, float]:
    """Return the last logged number of each name."""
    metrics: dict[str, float] = {}
    for line in state.get("log_history") or []:
        metrics.update(
            (name, float(value))
            for name, value in line.items()
            if isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        )
    return metrics


if TYPE_CHECKING:
    CheckpointCallback = SavesSteps
else:
    __getattr__ = deriving(
        globals(),
        "CheckpointCallback",
        SavesSteps,
        lambda: [class_of("transformers", "TrainerCallback")],
    )


def unpack(
    source: CheckpointManager | Path, folder: Path, *, step: int | None = None
) -> str | None:
    """Write a folder for `Trainer` to resume from, of a step that `CheckpointCallback` saved.

        trainer.train(resume_from_checkpoint=ztensor.trainer.unpack(manager, "resumed"))

    Args:
        source: a manager, for its newest undamaged step; or the file of a step.
        folder: the folder to make. An existing folder must be empty, or made by `unpack`: its files
            are then replaced.
        step: another step of the manager.

    Returns:
        The folder: `model.safetensors`, `optimizer.pt`, `scheduler.pt`, `rng_state.pth`,
        `trainer_state.json`, and configs. The pickles are made here, of built-in values. None if
        the manager has no step, as in a new run: the trainer then starts from the beginning.

    Raises:
        ObjectNotFoundError: the step does not exist.
        UsageError: the folder is not empty, or a `CheckpointCallback` did not save the step.
        FormatError: the step is damaged, or all steps are.
        SourceError: a file cannot be read or written.
    """
    import torch

    if isinstance(source, CheckpointManager):
        restored = source.restore(step)
        if restored is None:
            return None
        tree = restored.tree
    else:
        tree = load_tree(source)
    if not isinstance(tree, dict) or any(part not in tree for part in _PARTS):
        raise UsageError("ztensor.trainer.CheckpointCallback did not save the step")
    place = path_text(folder)
    with system_call("cannot write the folder", place):
        os.makedirs(place, exist_ok=True)
        _require_own(place, has_scheduler=tree["scheduler"] is not None)
        _write(place, _MARK, _SAYS)
        # The files by which `Trainer` recognises the folder are written last.
        for part, name in _PICKLES.items():
            if tree[part] is not None:
                torch.save(tree[part], os.path.join(place, name))
        state = json.dumps(tree[_STATE], indent=2, default=_as_json)
        _write(place, "trainer_state.json", state + "\n")
        for name in _SETTINGS:
            if tree.get(name) is not None:
                _write(place, f"{name}.json", tree[name] + "\n")
    weights = {name: value for name, value in tree["model"].items() if torch.is_tensor(value)}
    seen: set[int] = set()  # safetensors has no tied tensors: one name of a group is enough
    for name in list(weights):
        start = weights[name].data_ptr()
        if start in seen and weights[name].numel():
            del weights[name]
        seen.add(start)
    save_file(weights, os.path.join(place, "model.safetensors"), {"format": "pt"})
    return place


def _require_own(place: str, *, has_scheduler: bool) -> None:
    """Refuse a folder that is not empty, unless `unpack` made it for the same kind of run."""
    names = os.listdir(place)
    if not names:
        return
    mark = os.path.join(place, _MARK)
    if _MARK in names and os.path.isfile(mark):
        with open(mark, encoding="utf-8", errors="replace") as file:
            is_own = file.read(len(_SAYS) + 1) == _SAYS
        if is_own and (has_scheduler or "scheduler.pt" not in names):
            return
    raise UsageError("the folder is not empty, and was not made by unpack", file=place)


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def _as_json(value: Any) -> Any:
    """Return a metric of NumPy or torch as a Python number."""
    return value.item() if hasattr(value, "item") else str(value)
