"""Train with checkpoints, stop in the middle, go on: the weights end up bit for bit the same.

python examples/fine_tune.py [folder]      needs torch
"""

import sys
import tempfile
from pathlib import Path

import torch

import ztensor
from ztensor.torch import load_file, save_file

STEPS, STEPS_IN_EPOCH, SAVE_EVERY = 30, 10, 4


def new_run(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
    model = torch.nn.Sequential(*layers)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Save all that decides how training goes on, as one flat dict of tensors.

    The file is replaced as a whole: who dies while saving has the checkpoint before.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{key}": value for key, value in state.items()}
    tensors["random"] = torch.get_rng_state()  # dropout draws from it
    save_file(tensors, path, {"step": step, "epoch": step // STEPS_IN_EPOCH})


def resume(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a checkpoint and return the step it was made at."""
    with ztensor.open(path) as reader:
        step = reader.attributes["step"]
    tensors = load_file(path, copy=True)  # copies are checked against their digests
    torch.set_rng_state(tensors.pop("random"))
    groups = optimizer.state_dict()["param_groups"]
    state: dict[int, dict[str, torch.Tensor]] = {}
    weights = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        if part == "model":
            weights[rest] = tensor
        else:
            number, _, key = rest.partition(".")
            state.setdefault(int(number), {})[key] = tensor
    model.load_state_dict(weights)
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    return step


def train(path: Path, seed: int, *, end: int = STEPS) -> dict[str, torch.Tensor]:
    """Train from the checkpoint, or from the beginning where there is none."""
    model, optimizer = new_run(seed)
    first = resume(path, model, optimizer) if path.exists() else 0
    for step in range(first, end):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(step))
        loss = (model(x) - x[:, :4].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % SAVE_EVERY == 0:
            save(path, model, optimizer, step + 1)
    print(f"from step {first} to {end}: loss {loss.item():.4f}")
    return model.state_dict()


def main(folder: Path) -> None:
    whole = train(folder / "whole.zt", seed=1)
    train(folder / "model.zt", seed=1, end=18)  # killed here: what is not in the file is lost
    resumed = train(folder / "model.zt", seed=2)  # what it begins with is replaced
    same = all(torch.equal(whole[name], resumed[name]) for name in whole)
    print(f"{len(whole)} weights of the resumed run: {'equal' if same else 'DIFFERENT'}")
    assert same


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
