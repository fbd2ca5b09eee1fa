"""safetensors, by its functions for NumPy; they always copy."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
from benchmarks.operations import AGAIN

_numpy: Any = importlib.import_module("safetensors.numpy")
_safe_open: Any = importlib.import_module("safetensors").safe_open

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
START = ("safetensors, safetensors.numpy", "safetensors.safe_open(PATH, 'np').__enter__().keys()")
IMPORT = ("-c", "import numpy")
OPEN_ONE = (
    "-c",
    "import safetensors\nwith safetensors.safe_open(PATH, 'np') as file: "
    "file.get_tensor(NAME).sum()",
)
LOAD = ("-c", "from safetensors.numpy import load_file\nload_file(PATH)")
LACKS = {
    "LS": "it has no command",
    "VERIFY": "it has no command",
    "save_crc32c": "the format has no digests",
    "save_sha256": "the format has no digests",
    "save_zstd": "the format has no compression",
    "verify": "the format has no digests",
    "each_described": "no function gives both shape and type",
    "append": "a file cannot be extended",
}


def save(tensors: dict[str, Any], path: str) -> None:
    _numpy.save_file(tensors, path)


def keys(path: str) -> list[str]:
    with _safe_open(path, "np") as file:
        names: list[str] = file.keys()
        return names


def one(path: str, name: str) -> Any:
    with _safe_open(path, "np") as file:
        return file.get_tensor(name)


def again(path: str, name: str) -> dict[str, Any]:
    with _safe_open(path, "np") as file:
        for _ in range(AGAIN):
            array = file.get_tensor(name)
        return {name: array}


def each(path: str) -> dict[str, Any]:
    with _safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping


each_owned = each


def each_slice(path: str) -> dict[str, Any]:
    with _safe_open(path, "np") as file:
        return {name: file.get_slice(name)[2:5] for name in file.keys()}  # noqa: SIM118


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _numpy.load_file(path)
    return tensors


owned = mapped


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    with _safe_open(path, "np") as file:
        return {name: file.get_slice(name)[start:stop] for name, (start, stop) in ranges.items()}
