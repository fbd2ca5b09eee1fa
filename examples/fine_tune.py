"""Train with checkpoints, stop in the middle, go on: weights and optimizer end up the same.

python examples/fine_tune.py [folder]      needs torch
"""

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch

from ztensor.torch import load_tree, save_tree

STEPS, SAVE_EVERY = 30, 4


class Run(NamedTuple):
    """All that decides how training goes on, but for torch's random state."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler


def new_run(seed: int, lr: float) -> Run:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    return Run(model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.95))


def save(path: Path, run: Run, step: int) -> None:
    """Save a run as the tree it is.

    The file is replaced as a whole: who dies while saving has the checkpoint before.
    """
    states = {part: getattr(run, part).state_dict() for part in Run._fields}
    # Dropout draws from the random state.
    save_tree({"step": step, "random": torch.get_rng_state(), **states}, path)


def resume(path: Path, run: Run) -> int:
    """Load a checkpoint into a new run and return the step it was made at."""
    saved = load_tree(path, copy=True)  # copies are checked against their digests
    torch.set_rng_state(saved["random"])
    for part in Run._fields:
        getattr(run, part).load_state_dict(saved[part])
    return saved["step"]


def train(path: Path, seed: int, lr: float, *, end: int = STEPS) -> Run:
    """Train from the checkpoint, or from the beginning where there is none."""
    run = new_run(seed, lr)
    first = resume(path, run) if path.exists() else 0
    for step in range(first, end):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        loss = (run.model(x) - x[:, :4].sin()).square().mean()
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        run.scheduler.step()
        if (step + 1) % SAVE_EVERY == 0:
            save(path, run, step + 1)
    print(f"from step {first} to {end}: loss {loss.item():.4f}")
    return run


def is_same(one: object, other: object) -> bool:
    """Return whether two states are equal, types and every bit of their tensors included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(is_same, one, other))
    return one == other


def main(folder: Path) -> None:
    whole = train(folder / "whole.zt", seed=1, lr=1e-2)
    train(folder / "model.zt", seed=1, lr=1e-2, end=18)  # killed here: the rest is lost
    # What the resumed run begins with, weights and learning rate, is replaced by the checkpoint's.
    resumed = train(folder / "model.zt", seed=2, lr=0.5)
    for part, one, other in zip(Run._fields, whole, resumed, strict=True):
        same = is_same(one.state_dict(), other.state_dict())
        print(f"{part} of the resumed run: {'equal' if same else 'DIFFERENT'}")
        assert same


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
