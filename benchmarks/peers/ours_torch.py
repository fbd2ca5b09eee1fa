"""This checkout by `ztensor.torch`, with digests written, and none checked on what is mapped."""

from __future__ import annotations

from typing import Any

from benchmarks.peers import ours, pytorch

import ztensor.torch

LACKS = {
    "save_sha256": "as with NumPy",
    "save_zstd": "as with NumPy",
    "verify": "as with NumPy",
    "append": "as with NumPy",
    "START": "PyTorch's import is most of it",
}

from_numpy = pytorch.from_numpy
to_numpy = pytorch.to_numpy
keys = ours.keys


def save(tensors: dict[str, Any], path: str) -> None:
    ztensor.torch.save_file(tensors, path, durable=False)


def one(path: str, name: str) -> Any:
    with ztensor.open(path) as reader:
        return reader.read_torch(name)


def each(path: str) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        return {name: reader.read_torch(name) for name in reader}


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = ztensor.torch.load_file(path)
    return tensors


def owned(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = ztensor.torch.load_file(path, copy=True)
    return tensors
