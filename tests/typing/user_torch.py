"""What users of PyTorch get: tensors, whose methods and mistakes both type checkers know."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import torch

import ztensor
import ztensor.torch as zt
from ztensor import Reader, Tensor

# Any: a quantized object, or one of an unknown layout, is a `ztensor.Tensor`.
Tensors = dict[str, torch.Tensor | Any]


def wants_tensors(tensors: dict[str, torch.Tensor]) -> None: ...


def dicts(path: Path, data: bytes) -> None:
    assert_type(zt.load_file(path), Tensors)
    assert_type(zt.load(data, device="meta"), Tensors)
    zt.load_file(path)["w"].to("cuda")
    wants_tensors(zt.load_file(path))
    state: dict[str, torch.Tensor] = zt.load_file([path], torch.device("cpu"), True, threads=2)
    assert_type(zt.save_file(state, path), dict[str, str])
    assert_type(zt.save(state, {"k": "v"}), bytes)
    assert_type(zt.save(zt.load_file(path)), bytes)
    for value in zt.load_file(path, device=0).values():
        if isinstance(value, Tensor):
            assert_type(zt.dequantize(value, torch.bfloat16), torch.Tensor)


def models(model: torch.nn.Linear, path: Path) -> None:
    missing, unexpected = zt.load_model(model, path, strict=False, device="cuda", assign=True)
    assert_type(missing, list[str])
    assert_type(unexpected, list[str])
    found = zt.load_pretrained(model, path, device=torch.device("cpu"), assign=True)
    assert_type(found, tuple[list[str], list[str]])
    assert_type(zt.save_model(model, path, max_shard_size="1GB"), dict[str, str])
    assert_type(zt.save_pretrained(model, path, durable=False), dict[str, str])
    zt.save_pretrained(model.state_dict(), path)
    model.load_state_dict(zt.load_file(path))


def readers(reader: Reader, tensor: torch.Tensor) -> None:
    assert_type(reader.read_torch("w"), torch.Tensor)
    assert_type(reader.read_torch(["w"], device="cuda"), dict[str, torch.Tensor])
    assert_type(ztensor.io.ShardedReader("m").read_torch("w", copy=True), torch.Tensor)
    assert_type(reader.read("w").torch(device="cuda"), torch.Tensor)
    reader.read_into("w", tensor)
    reader.read_into({"w": tensor})
    assert_type(Tensor.from_torch(tensor), Tensor)
    Tensor(tensor)
    with ztensor.Writer("m.zt") as writer:
        writer.write("w", tensor)
        writer.write_torch("v", torch.nn.Parameter(tensor))
        with writer.stream("s", (3,), torch.bfloat16) as sink:
            sink.write(tensor)


def handles(path: Path) -> None:
    with ztensor.safe_open(path, framework="pt", device="cuda:0") as f:
        assert_type(f, ztensor.safe_open[torch.Tensor])
        assert_type(f.get_tensor("w"), torch.Tensor)
        assert_type(f.get_tensors(), dict[str, torch.Tensor])
        assert_type(f.get_slice("w")[:, 0:2], torch.Tensor)
