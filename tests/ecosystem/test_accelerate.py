"""Accelerate: weights by its hooks, and whole states as trees, beside its own folders."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ztensor
from ztensor.errors import ArgumentTypeError, ArgumentValueError


class Run:
    """A run from one seed: a model that draws random numbers, and what trains it."""

    def __init__(self, seed: int = 3) -> None:
        import torch
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState, GradientState, PartialState

        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        layers = [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.3)]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(8, 1))
        model.append(torch.nn.Linear(1, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
        data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 128).reshape(32, 4))
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
        self.model, self.optimizer, self.schedule, self.loader = self.accelerator.prepare(
            model, optimizer, schedule, loader
        )

    @property
    def objects(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "more": [self.schedule]}

    def train(self, epochs: int) -> None:
        for _ in range(epochs):
            for (batch,) in self.loader:
                with self.accelerator.accumulate(self.model):
                    scale = random.random() + np.random.rand()
                    loss = scale * self.model(batch).square().mean()
                    self.accelerator.backward(loss)
                    self.optimizer.step()
                    self.schedule.step()
                    self.optimizer.zero_grad()

    def weights(self) -> dict[str, Any]:
        state = self.accelerator.unwrap_model(self.model).state_dict()
        return {name: value.clone() for name, value in state.items()}


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    import torch

    return list(one) == list(other) and all(torch.equal(one[k], other[k]) for k in one)


def test_a_state_as_a_tree_goes_on_as_a_stock_one(tmp_path: Path) -> None:
    run = Run()
    run.train(2)
    run.accelerator.save_state(str(tmp_path / "stock"))
    with ztensor.CheckpointManager(tmp_path / "ours") as manager:
        tree = ztensor.accelerate.state_of(run.accelerator, **run.objects)
        manager.save(2, tree)
    run.train(2)
    unbroken = run.weights()

    stock = Run(8)
    stock.accelerator.load_state(str(tmp_path / "stock"))
    stock.train(2)
    ours = Run(9)
    restored = ztensor.CheckpointManager(tmp_path / "ours").restore()
    assert restored is not None
    ztensor.accelerate.set_state(ours.accelerator, restored.tree, **ours.objects)
    ours.train(2)
    assert equal(ours.weights(), unbroken)
    assert equal(stock.weights(), unbroken)
    assert ours.accelerator.step == run.accelerator.step


def test_hooks_write_and_read_the_weights(tmp_path: Path) -> None:
    run = Run()
    handles = ztensor.accelerate.register(run.accelerator)
    run.train(1)
    run.accelerator.save_state(str(tmp_path / "a"))
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert "model.zt" in names
    assert not {name for name in names if name.endswith(".safetensors")}
    run.train(1)
    unbroken = run.weights()

    other = Run(8)
    ztensor.accelerate.register(other.accelerator)
    other.accelerator.load_state(str(tmp_path / "a"))
    other.train(1)
    assert equal(other.weights(), unbroken)

    for handle in handles:
        handle.remove()
    run.accelerator.save_state(str(tmp_path / "b"))
    assert not (tmp_path / "b" / "model.zt").exists()
    other.accelerator.load_state(str(tmp_path / "b"))  # has no model.zt: Accelerate reads its own
    assert equal(other.weights(), run.weights())


def test_two_processes_resume_from_one_tree(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_processes.py")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    run = subprocess.run(
        [*command, str(script), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "hooks" / "model.zt").exists()
    assert sorted(run.stdout.splitlines()) == [
        f"process {process} from {way}: equal"
        for process in (0, 1)
        for way in ("hooks", "stock", "tree")
    ]


def test_mistakes_are_refused(tmp_path: Path) -> None:
    run = Run()
    own = run.accelerator
    tree = ztensor.accelerate.state_of(own, **run.objects)
    path = tmp_path / "a.zt"
    ztensor.torch.save_tree(tree, path)
    with pytest.raises(ArgumentTypeError):
        ztensor.accelerate.state_of(own, model=3)
    with pytest.raises(ArgumentValueError):
        ztensor.accelerate.state_of(own, random=run.model)
    with pytest.raises(ArgumentValueError):
        ztensor.accelerate.set_state(own, tree, other=run.model)
    with pytest.raises(ArgumentValueError):
        ztensor.accelerate.set_state(own, tree, more=[])
    with pytest.raises(ArgumentValueError):
        ztensor.accelerate.set_state(own, {**tree, "random": []})
    with pytest.raises(ArgumentValueError):
        ztensor.accelerate.set_state(own, {**tree, "random": [{"python": 3}]})
    for call in (ztensor.accelerate.register, ztensor.accelerate.state_of):
        with pytest.raises(ArgumentTypeError):
            call(run.model)
