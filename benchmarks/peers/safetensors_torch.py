"""safetensors, by its functions for PyTorch."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.peers import pytorch, safetensors_numpy

_safe_open: Any = importlib.import_module("safetensors").safe_open
_torch: Any = importlib.import_module("safetensors.torch")

LACKS = {**safetensors_numpy.LACKS, "START": "PyTorch's import is most of it"}

from_numpy = pytorch.from_numpy
to_numpy = pytorch.to_numpy
keys = safetensors_numpy.keys


def save(tensors: dict[str, Any], path: str) -> None:
    _torch.save_file(tensors, path)


def one(path: str, name: str) -> Any:
    return mapped(path)[name]


def each(path: str) -> dict[str, Any]:
    with _safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _torch.load_file(path)
    return tensors


def owned(path: str) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in mapped(path).items()}
