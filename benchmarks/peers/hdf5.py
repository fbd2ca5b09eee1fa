"""HDF5 by h5py: one contiguous dataset per tensor; it always copies."""

from __future__ import annotations

import importlib
from typing import Any

_h5py: Any = importlib.import_module("h5py")

START = ("h5py", "list(h5py.File(PATH))")
LACKS = {
    "save_crc32c": "no digests over contiguous datasets",
    "save_sha256": "no such digest",
    "save_zstd": "zstd only with a plugin",
    "verify": "no digests over contiguous datasets",
}


def save(tensors: dict[str, Any], path: str) -> None:
    with _h5py.File(path, "w") as file:
        for name, tensor in tensors.items():
            file.create_dataset(name, data=tensor)


def keys(path: str) -> list[str]:
    with _h5py.File(path, "r") as file:
        return list(file)


def one(path: str, name: str) -> Any:
    with _h5py.File(path, "r") as file:
        return file[name][()]


def mapped(path: str) -> dict[str, Any]:
    with _h5py.File(path, "r") as file:
        return {name: dataset[()] for name, dataset in file.items()}


owned = mapped


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    with _h5py.File(path, "r") as file:
        return {name: file[name][start:stop] for name, (start, stop) in ranges.items()}


def append(tensors: dict[str, Any], path: str) -> None:
    with _h5py.File(path, "a") as file:
        for name, tensor in tensors.items():
            file.create_dataset(name, data=tensor)
