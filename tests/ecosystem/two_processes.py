"""Two processes of one run of Accelerate, each resumed in three ways; started by `torchrun`.

    torchrun --nproc_per_node=2 tests/ecosystem/two_processes.py FOLDER

Each prints, for each way, whether its weights equal an uninterrupted run.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState

import ztensor


class Run:
    """A run from one seed; each process draws its own random numbers."""

    def __init__(self, seed: int) -> None:
        AcceleratorState._reset_state()
        GradientState._reset_state()
        self.accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        torch.manual_seed(seed)
        model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)
        )
        for begin in (random.seed, np.random.seed, torch.manual_seed):
            begin(seed + 7 + self.accelerator.process_index)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=80)
        data = torch.utils.data.TensorDataset(torch.linspace(-1, 1, 128).reshape(32, 4))
        loader = torch.utils.data.DataLoader(data, batch_size=4)
        prepared = self.accelerator.prepare(model, optimizer, schedule, loader)
        self.model, self.optimizer, self.schedule, self.loader = prepared

    @property
    def objects(self) -> dict[str, Any]:
        return {"model": self.model, "optimizer": self.optimizer, "schedule": self.schedule}

    def train(self) -> dict[str, Any]:
        """Train for two epochs, and return the weights."""
        for _ in range(2):
            for (batch,) in self.loader:
                with self.accelerator.accumulate(self.model):
                    scale = random.random() + np.random.rand()
                    self.accelerator.backward(scale * self.model(batch).square().mean())
                    self.optimizer.step()
                    self.schedule.step()
                    self.optimizer.zero_grad()
        state = self.accelerator.unwrap_model(self.model).state_dict()
        return {name: value.clone() for name, value in state.items()}


def main(folder: str) -> None:
    """Run, save in three ways, go on; resume from each, and compare."""
    run = Run(3)
    assert run.accelerator.num_processes == 2
    run.train()
    run.accelerator.save_state(f"{folder}/stock")
    handles = ztensor.accelerate.register(run.accelerator)
    run.accelerator.save_state(f"{folder}/hooks")
    for handle in handles:
        handle.remove()
    tree = ztensor.accelerate.state_of(run.accelerator, **run.objects)
    manager = ztensor.CheckpointManager(f"{folder}/tree")
    if run.accelerator.is_main_process:
        manager.save(2, tree)
        manager.wait()
    run.accelerator.wait_for_everyone()
    unbroken = run.train()
    for way in ("stock", "hooks", "tree"):
        other = Run(11)
        if way == "tree":
            restored = manager.restore()
            assert restored is not None
            assert len(restored.tree["random"]) == 2
            ztensor.accelerate.set_state(other.accelerator, restored.tree, **other.objects)
        else:
            if way == "hooks":
                ztensor.accelerate.register(other.accelerator)
            other.accelerator.load_state(f"{folder}/{way}")
        found = other.train()
        same = all(torch.equal(found[name], value) for name, value in unbroken.items())
        process = other.accelerator.process_index
        line = f"process {process} from {way}: {'equal' if same else 'DIFFERENT'}\n"
        print(line, end="", flush=True)  # at once, as both write to one pipe
        other.accelerator.wait_for_everyone()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
