"""Cases of states: trees, steps of a run, checkpoints of several processes, PyTorch."""

from __future__ import annotations

import collections
import datetime
import pathlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import ztensor
import ztensor.numpy
from tests.golden.table import ROWS, case, each, floats, quantized, sparse
from ztensor import distributed as divided

# --- Trees --------------------------------------------------------------------------------------

TREES: dict[str, Any] = {
    "nested": {"model": {"w": floats(2, 2), "layers": [floats(1), (floats(2), None)]}, "step": 3},
    "scalars": [None, True, False, 1, -(2**70), 0.1, float("inf"), "\u00fc", b"\0", 1 + 2j],
    "keys": {1: "int", "1": "text", (1, "a"): "tuple", None: "none", 0.5: "float", b"k": []},
    "sets": {"set": {3, 1, 2}, "frozen": frozenset({"b", "a"})},
    "packed": {"ints": list(range(9)), "floats": (0.5, 1.5, 2.5, 3.5, 4.5)},
    "numpy": {"scalar": np.float32(0.5), "dtype": np.dtype("f2"), "zero": np.array(1, "i2")},
    "kinds": {
        "ordered": collections.OrderedDict(b=1, a=2),
        "defaults": collections.defaultdict(list, {"a": [1]}),
        "counter": collections.Counter("aab"),
        "path": pathlib.PurePosixPath("a/b"),
        "date": datetime.date(2026, 11, 24),
        "time": datetime.datetime(2026, 11, 24, 8, 39, tzinfo=datetime.UTC),
        "delta": datetime.timedelta(days=1, seconds=2),
        "range": range(1, 9, 2),
        "slice": slice(1, None),
    },
    "sparse": sparse(),
    "alone": floats(3),
}


def _tree(folder: Path, name: str, **options: Any) -> None:
    ztensor.save_tree(TREES[name], folder / "a.zt", **options)


for _name in TREES:
    case(f"tree/{_name}", _name)(_tree)


@each("tree/version", ("2.1",))
def tree_versions(folder: Path, version: str) -> None:
    ztensor.save_tree(TREES["nested"], folder / "a.zt", {"by": "hand"}, version=version)


@case("tree/tied")
def tree_tied(folder: Path) -> None:
    weight = floats(2)
    ztensor.save_tree({"a": weight, "b": [weight, weight.copy()]}, folder / "a.zt")


@case("tree/shards")
def tree_shards(folder: Path) -> None:
    ztensor.save_tree(TREES["nested"], folder / "a.zt", max_shard_size=20)


@case("tree/zstd")
def tree_zstd(folder: Path) -> None:
    ztensor.save_tree({"rows": ROWS["rows"], "step": 1}, folder / "a.zt", compression=True)


@case("tree/steps of a run")
def steps(folder: Path) -> None:
    with ztensor.CheckpointManager(folder / "run", background=False) as manager:
        manager.save(10, TREES["nested"], {"loss": 0.5})
        manager.save(20, {"only": floats(1)})


@case("tree/increments of a run")
def increments(folder: Path) -> None:
    state = {"frozen": floats(40), "trained": floats(4)}
    with ztensor.CheckpointManager(folder / "run", background=False, increments=True) as manager:
        manager.save(10, state)
        manager.save(20, {**state, "trained": floats(4) + 1})


# --- Checkpoints of several processes -----------------------------------------------------------


def _parts(folder: Path, number: int = 0, **options: Any) -> list[divided.PartRecord]:
    """Let two processes write half of a matrix each, and one of them a tensor of its own."""
    records = []
    for process in range(2):
        with divided.PartWriter(
            folder, process=process, processes=2, save_id="golden", **options
        ) as writer:
            half = floats(2, 3) + process
            writer.add("w", half, shape=(4, 3), offsets=(2 * process, 0))
            if process == 0:
                writer.add("step", np.array(number))
                writer.add("fp8", np.array([1, 2], ml_dtypes.float8_e4m3fn))
            records.append(writer.finish())
    return records


@case("parts/two processes")
def parts_of_two(folder: Path) -> None:
    divided.commit(folder, _parts(folder), {"epoch": 1, "note": "x"}, writer="cases")


@case("parts/since")
def parts_since(folder: Path) -> None:
    old, new = folder / "1", folder / "2"
    old.mkdir()
    new.mkdir()
    divided.commit(old, _parts(old, checksum="xxh3-128"))
    divided.commit(new, _parts(new, 7, since=old))


@case("parts/shards")
def parts_of_shards(folder: Path) -> None:
    divided.commit(folder, _parts(folder, max_shard_size=20, checksum="sha256"))


@case("parts/tied, sparse, quantized")
def parts_of_objects(folder: Path) -> None:
    with divided.PartWriter(folder) as writer:
        writer.add("w", floats(4))
        writer.share("tied", "w")
        writer.add("csr", sparse()["csr"])
        writer.add("q", quantized()["bits4"])
        record = writer.finish()
    divided.commit(folder, [record])


@case("parts/repaired")
def parts_repaired(folder: Path) -> None:
    divided.commit(folder, _parts(folder))
    next(folder.glob("checkpoint*.zt")).unlink()
    divided.repair(folder)


# --- PyTorch ------------------------------------------------------------------------------------


@case("torch/model")
def torch_model(folder: Path) -> None:
    import torch

    import ztensor.torch

    layer = torch.nn.Linear(2, 2)
    tied = torch.nn.Sequential(layer, layer)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(4.0).reshape(2, 2))
        layer.bias.zero_()
    ztensor.torch.save_model(tied, folder / "a.zt")


@case("torch/tree")
def torch_tree(folder: Path) -> None:
    import torch

    import ztensor.torch

    weight = torch.arange(6.0).reshape(2, 3)
    tree = {
        "w": weight, "view": weight[0], "parameter": torch.nn.Parameter(weight.clone()),
        "last": torch.arange(8.0).reshape(1, 2, 2, 2).to(memory_format=torch.channels_last),
        "dtype": torch.bfloat16, "device": torch.device("cpu"), "size": torch.Size([2]),
    }  # fmt: skip
    ztensor.torch.save_tree(tree, folder / "a.zt")


@case("torch/checkpoint")
def torch_checkpoint(folder: Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    import ztensor.torch

    state = {"model": {"w": torch.arange(6.0)}, "step": 3, "names": ["a", "b"]}
    dcp.save(state, storage_writer=ztensor.torch.StorageWriter(folder / "a"), no_dist=True)
