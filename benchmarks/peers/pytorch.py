"""PyTorch's own file, on the CPU: `weights_only`, mapped or read."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

_torch: Any = importlib.import_module("torch")

START = ("torch", "list(torch.load(PATH, mmap=True, weights_only=True))")
LACKS = {
    "save_crc32c": "the zip's crc32 is always there",
    "save_sha256": "no such digest",
    "save_zstd": "no compression",
    "verify": "no function of PyTorch's",
    "append": "a file cannot be extended",
}


def from_numpy(array: Any) -> Any:
    if array.dtype == np.uint16:  # the bits of bfloat16
        return _torch.from_numpy(array.view(np.int16)).view(_torch.bfloat16)
    return _torch.from_numpy(array)


def to_numpy(tensor: Any) -> Any:
    return (tensor.view(_torch.int16) if tensor.dtype == _torch.bfloat16 else tensor).numpy()


def save(tensors: dict[str, Any], path: str) -> None:
    _torch.save(tensors, path)


def keys(path: str) -> list[str]:
    return list(mapped(path))


def one(path: str, name: str) -> Any:
    return mapped(path)[name]


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _torch.load(path, mmap=True, weights_only=True)
    return tensors


def owned(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _torch.load(path, weights_only=True)
    return tensors


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    tensors = mapped(path)
    return {name: tensors[name][start:stop] for name, (start, stop) in ranges.items()}
