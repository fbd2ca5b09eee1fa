"""Make the checkpoint folders of this corpus: `python -m tests.corpus.foreign.make_dcp`.

They are written by torch (2.13) in two processes, which talk over the loopback device; the tests do
without torch. An id in each `.metadata` is new each time, the tensors are the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import warnings
from pathlib import Path
from typing import Any

ACCEPT = Path(__file__).parent / "accept" / "dcp"
PROCESSES = 2


def tensors(mesh: Any) -> dict[str, Any]:
    """Return the tensors that both processes save: uneven rows, columns, whole, empty, of one."""
    import torch
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    def numbers(*shape: int) -> Any:
        count = torch.Size(shape).numel()
        return torch.arange(count, dtype=torch.float32).reshape(shape) / 7 - 1

    return {
        "rows": distribute_tensor(numbers(5, 3), mesh, [Shard(0)]),
        "columns": distribute_tensor(numbers(3, 4).bfloat16(), mesh, [Shard(1)]),
        "copied": distribute_tensor(numbers(2, 2), mesh, [Replicate()]),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
    }


def values() -> dict[str, Any]:
    return {"step": 12, "optimizer": {"lr": 0.5, "betas": (0.9, 0.99), "name": "adam"}}


def save(process: int, folder: str, port: int) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.tensor import init_device_mesh

    warnings.simplefilter("ignore")
    os.chdir(folder)  # the path is written, too
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=process, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    state = tensors(mesh)
    transposed = {"transposed": state["rows"].full_tensor().t()}
    writer = dcp.FileSystemWriter("stock", sync_files=False)
    dcp.save({**state, **transposed, **values()}, storage_writer=writer)
    shards = HuggingFaceStorageWriter("shards", save_distributed=True)
    dcp.save(state, storage_writer=shards)
    dist.destroy_process_group()


def main() -> None:
    """Make the folders, and return their expected content."""
    import torch
    import torch.distributed.checkpoint as dcp
    import torch.multiprocessing

    shutil.rmtree(ACCEPT, ignore_errors=True)
    ACCEPT.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(save, (str(ACCEPT), port), nprocs=PROCESSES)
    expected: dict[str, Any] = {}
    metadata = dcp.FileSystemReader(ACCEPT / "stock").read_metadata()
    state = {
        name: torch.empty(one.size, dtype=one.properties.dtype)
        for name, one in metadata.state_dict_metadata.items()
        if hasattr(one, "size")
    }
    dcp.load(state, storage_reader=dcp.FileSystemReader(ACCEPT / "stock"), no_dist=True)
    for name, tensor in sorted(state.items()):
        data = tensor.contiguous().view(torch.uint8) if tensor.numel() > 1 else tensor
        expected[name] = {
            "shape": list(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "sha256": hashlib.sha256(data.numpy().tobytes()).hexdigest(),
        }
    text = json.dumps({"tensors": expected}, indent=1, sort_keys=True)
    (ACCEPT / "expected.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
