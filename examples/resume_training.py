"""Kill a training run with `kill -9` again and again: it always resumes, and ends the same.

python examples/resume_training.py [kills] [folder]      needs torch

One process trains without a break. Another is killed at random moments, in a step or while it
saves, and started again, until it gets to the end. Both end with the same weights, optimizer,
scheduler and random states, bit for bit.
"""

import multiprocessing
import random
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import torch

import ztensor

SAMPLES, BATCH, SAVE_EVERY = 256, 16, 4
STEPS_PER_KILL = 30


class Run:
    """A model with all that decides how its training goes on."""

    def __init__(self, steps: int) -> None:
        torch.manual_seed(1)
        random.seed(2)
        self.draw = np.random.default_rng(3)
        self.data = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(4))
        self.model = torch.nn.Sequential(
            torch.nn.Linear(8, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(32, 1),
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.order: list[int] = []  # of this epoch's samples; what is left of it is the position

    def step(self) -> float:
        if not self.order:
            self.order = random.sample(range(SAMPLES), SAMPLES)
        batch = self.data[[self.order.pop() for _ in range(BATCH)]]
        batch = batch + 0.1 * float(self.draw.normal())
        loss = (self.model(batch).squeeze(1) - batch.sum(1)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.item()

    def state(self) -> dict:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "order": self.order,
            "random": (random.getstate(), self.draw.bit_generator.state, torch.get_rng_state()),
        }

    def resume(self, state: dict) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.order = state["order"]
        own, numpy, torchs = state["random"]
        random.setstate(own)
        self.draw.bit_generator.state = numpy
        torch.set_rng_state(torchs)


def train(folder: Path, steps: int, begins: Connection) -> None:
    """Train to the end, from wherever the last process got to; save the last state as a file."""
    torch.set_num_threads(1)
    run = Run(steps)
    with ztensor.CheckpointManager(
        folder, keep=2, keep_best=("loss", 1, "min"), every=SAVE_EVERY
    ) as manager:
        restored = manager.restore()
        if restored is not None:
            run.resume(restored.tree)
        first = 0 if restored is None else restored.step + 1
        begins.send(first)
        for step in range(first, steps):
            loss = run.step()
            manager.save(step, run.state(), {"loss": loss})
    ztensor.save_tree(run.state(), folder / "last.zt")


def start(folder: Path, steps: int) -> tuple[BaseProcess, int]:
    """Start a process that trains; return it, and the step it goes on from."""
    # A fork has torch already; this process never computes with it.
    way = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(way)
    here, there = context.Pipe(duplex=False)
    with here:
        child = context.Process(target=train, args=(folder, steps, there))
        child.start()
        there.close()
        return child, here.recv()


def finish(child: BaseProcess) -> None:
    child.join()
    if child.exitcode:
        raise SystemExit("a run failed that nobody killed")


def main(kills: int, folder: Path) -> None:
    steps = STEPS_PER_KILL * (kills + 1)
    unbroken, broken = folder / "unbroken", folder / "broken"
    Run(steps)  # loads what torch needs for it, once for all processes
    child, _ = start(unbroken, steps)
    begin = time.perf_counter()
    finish(child)
    per_kill = (time.perf_counter() - begin) * STEPS_PER_KILL / steps
    begins = []
    for _ in range(kills):
        child, first = start(broken, steps)
        begins.append(first)
        time.sleep(random.uniform(0, 1.5 * per_kill))  # noqa: S311  # no secret
        child.kill()
        child.join()
    child, first = start(broken, steps)
    finish(child)
    same = (unbroken / "last.zt").read_bytes() == (broken / "last.zt").read_bytes()
    went_on = sum(now > before for before, now in zip(begins, [*begins[1:], first], strict=True))
    print(f"killed {kills} times in {steps} steps, resumed every time, {went_on} times further on")
    print("steps left:", ztensor.CheckpointManager(broken).steps())
    print("the last states are", "equal, bit for bit" if same else "DIFFERENT")
    if not same:
        for path, values in ztensor.diff(unbroken / "last.zt", broken / "last.zt").values.items():
            print(path, values)


if __name__ == "__main__":
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    if len(sys.argv) > 2:
        main(kills, Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(kills, Path(folder))
