"""Train a sharded model with four processes, stop, and go on with two.

Run: python examples/distributed_training.py

Needs PyTorch 2.6 or newer. Four processes hold a model and the state of AdamW in shards (FSDP2) and
train it for three steps. They save with `torch.distributed.checkpoint`, once by `ztensor` and once
by torch's own writer. Two processes load each of the two, go on for two steps, and compare.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # what every process would else load for itself, as it has a DTensor
from torch import distributed as dist
from torch import multiprocessing as mp
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ztensor
import ztensor.torch


class Training(torch.nn.Module):
    """A model in shards, its optimizer and its schedule."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(12, 30), torch.nn.GELU(), torch.nn.Linear(30, 7)
        )
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in self.model:
            fully_shard(layer, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)

    def step(self, number: int) -> float:
        """Train one step; all processes see the same data, so that their number changes nothing."""
        data = torch.randn(16, 12, generator=torch.Generator().manual_seed(number))
        loss = self.model(data).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        return float(loss)

    def state(self) -> dict[str, Any]:
        """Return what is saved: tensors in shards, and plain values beside them."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "schedule": self.schedule.state_dict()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a state that was loaded."""
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.schedule.load_state_dict(state["schedule"])


def train_and_save(rank: int, world: int, folder: str) -> None:
    """Train three steps, and save the state twice."""
    start(rank, world, folder)
    training = Training()
    for number in range(3):
        training.step(number)
    dcp.save(training.state(), storage_writer=ztensor.torch.StorageWriter(f"{folder}/ours"))
    dcp.save(training.state(), storage_writer=dcp.FileSystemWriter(f"{folder}/torch"))
    dist.destroy_process_group()


def resume(rank: int, world: int, folder: str) -> None:
    """Load both, go on with each, and compare all that there is."""
    start(rank, world, folder)
    readers = {
        "ours": ztensor.torch.StorageReader(f"{folder}/ours"),
        "torch": dcp.FileSystemReader(f"{folder}/torch"),
    }
    ended = {}
    for name, reader in readers.items():
        training = Training()
        training.step(99)  # a state that is wrong everywhere
        state = training.state()
        dcp.load(state, storage_reader=reader)
        training.resume(state)
        losses = [training.step(number) for number in (3, 4)]
        ended[name] = losses, training.state()
    (losses, ours), (theirs, stock) = ended["ours"], ended["torch"]
    is_same = losses == theirs and is_equal(ours, stock)
    if rank == 0:
        print(f"steps 3 and 4: losses {losses[0]:.6f} and {losses[1]:.6f}")
        print(f"resumed on {world} processes:", "equal to torch" if is_same else "DIFFERENT")
    dist.destroy_process_group()
    if not is_same:
        raise SystemExit(1)


def is_equal(a: Any, b: Any) -> bool:
    """Compare two states, the shards of this process in them."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    if isinstance(a, dist.tensor.DTensor):
        return torch.equal(a.to_local(), b.to_local())
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return bool(a == b) and type(a) is type(b)


def start(rank: int, world: int, folder: str) -> None:
    """Let the processes of this machine find one another."""
    warnings.simplefilter("ignore")  # what torch says of its own
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(f"{folder}/of-{world}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)


def main() -> None:
    """Save with four processes, resume with two, and look at the checkpoint as a file."""
    with tempfile.TemporaryDirectory() as folder:
        for task, world in ((train_and_save, 4), (resume, 2)):
            mp.start_processes(task, (world, folder), world, start_method="fork")
        files = sorted(path.name for path in Path(folder, "ours").iterdir())
        print(f"{len(files)} files:", ", ".join(files))
        with ztensor.open(f"{folder}/ours") as reader:
            weight = reader.get_slice("model.0.weight")
            print("model.0.weight is whole:", weight.get_shape(), "first:", weight[0, :3])


if __name__ == "__main__":
    main()
