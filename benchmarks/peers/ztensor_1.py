"""ztensor 1.2.3, the released library for the format of version 1.2."""

from __future__ import annotations

import importlib
from typing import Any

import ml_dtypes
import numpy as np
from benchmarks.operations import AGAIN

# By name: in this environment `ztensor` is not the package of this checkout.
_ztensor: Any = importlib.import_module("ztensor")
_numpy: Any = importlib.import_module("ztensor.numpy")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
START = ("ztensor, ztensor.numpy", "ztensor.Reader(PATH).keys()")
IMPORT = ("-c", "import numpy")
OPEN_ONE = ("-c", "import ztensor\nztensor.Reader(PATH)[NAME].sum()")
LOAD = ("-c", "from ztensor.numpy import load_file\nload_file(PATH)")
LACKS = {
    "LS": "it has no command",
    "VERIFY": "it has no command",
    "verify": "digests are checked on no call",
}


def save(tensors: dict[str, Any], path: str) -> None:
    _numpy.save_file(tensors, path)


def _save_digested(tensors: dict[str, Any], path: str, checksum: str) -> None:
    with _ztensor.Writer(path) as writer:
        for name, tensor in tensors.items():
            writer.add(name, tensor, checksum=checksum)


def save_crc32c(tensors: dict[str, Any], path: str) -> None:
    _save_digested(tensors, path, "crc32c")


def save_sha256(tensors: dict[str, Any], path: str) -> None:
    _save_digested(tensors, path, "sha256")


def save_zstd(tensors: dict[str, Any], path: str) -> None:
    _numpy.save_file(tensors, path, compression=3)


def keys(path: str) -> list[str]:
    names: list[str] = _ztensor.Reader(path).keys()
    return names


def one(path: str, name: str) -> Any:
    return _ztensor.Reader(path)[name]


def again(path: str, name: str) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    for _ in range(AGAIN):
        array = reader[name]
    return {name: array}


def each(path: str) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    return {name: reader[name] for name in reader.keys()}  # noqa: SIM118  # no mapping


def each_owned(path: str) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    return {name: reader.read_numpy(name, copy=True) for name in reader.keys()}  # noqa: SIM118


def each_slice(path: str) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    return {name: reader[name][2:5] for name in reader.keys()}  # noqa: SIM118


def each_described(path: str) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    return {name: reader.metadata(name) for name in reader.keys()}  # noqa: SIM118


def mapped(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _numpy.load_file(path)
    return tensors


def owned(path: str) -> dict[str, Any]:
    tensors: dict[str, Any] = _numpy.load_file(path, copy=True)
    return tensors


def slices(path: str, ranges: dict[str, tuple[int, int]]) -> dict[str, Any]:
    reader = _ztensor.Reader(path)
    return {name: reader[name][start:stop] for name, (start, stop) in ranges.items()}


def append(tensors: dict[str, Any], path: str) -> None:
    writer = _ztensor.Writer.append(path)
    for name, tensor in tensors.items():
        writer.add(name, tensor)
    writer.finish()
