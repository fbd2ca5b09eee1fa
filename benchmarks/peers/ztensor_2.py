"""ztensor 2.1.2, the released library for the container of version 2; it always writes digests."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

# By name: in this environment `ztensor` is not the package of this checkout.
_ztensor: Any = importlib.import_module("ztensor")
_numpy: Any = importlib.import_module("ztensor.numpy")

START = ("ztensor, ztensor.numpy", "ztensor.open(PATH).keys()")
LACKS = {
    "save_crc32c": "its digest is xxh3, written by every save",
    "save_sha256": "its digest is xxh3, written by every save",
}


def save(tensors: dict[str, Any], path: str) -> None:
    _numpy.save_file(tensors, path)


def save_zstd(tensors: dict[str, Any], path: str) -> None:
    _numpy.save_file(tensors, path, compression=True)


def keys(path: str) -> list[str]:
    with _ztensor.open(path) as source:
        return list(source.keys())


def one(path: str, name: str) -> Any:
    with _ztensor.open(path) as source:
        return np.from_dlpack(source[name])


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _numpy.load_file(path)
    return tensors


def owned(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _numpy.load_file(path, copy=True)
    return tensors


def verify(path: str) -> bool:
    checked, undigested = _ztensor.verify(path, deep=True)
    return bool(checked > 0 and undigested == 0)


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    tensors = mapped(path)
    return {name: tensors[name][start:stop] for name, (start, stop) in ranges.items()}


def append(tensors: dict[str, Any], path: str) -> None:
    writer = _ztensor.Writer(path, canonical=False, append=True)
    for name, tensor in tensors.items():
        writer.add(name, tensor.reshape(-1).view(np.uint8), shape=list(tensor.shape), dtype="f32")
    writer.finish()
