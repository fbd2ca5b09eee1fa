"""This checkout, with digests: crc32c written, and checked on everything that is copied."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from benchmarks.operations import AGAIN

import ztensor
from ztensor.numpy import load_file, save_file

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
START = ("ztensor, ztensor.numpy", "ztensor.open(PATH).keys()")
IMPORT = ("-c", "import numpy")
OPEN_ONE = ("-c", "import ztensor\nwith ztensor.open(PATH) as file: file[NAME].sum()")
LOAD = ("-c", "from ztensor.numpy import load_file\nload_file(PATH)")
LS = ("-m", "ztensor", "ls", "PATH")
VERIFY = ("-m", "ztensor", "verify", "PATH")


def save(tensors: dict[str, Any], path: str, *, checksum: str | None = "crc32c") -> None:
    save_file(tensors, path, checksum=checksum, durable=False)


def save_crc32c(tensors: dict[str, Any], path: str) -> None:
    save(tensors, path, checksum="crc32c")


def save_sha256(tensors: dict[str, Any], path: str) -> None:
    save(tensors, path, checksum="sha256")


def save_zstd(tensors: dict[str, Any], path: str, *, checksum: str | None = "crc32c") -> None:
    save_file(tensors, path, compression=3, checksum=checksum, durable=False)


def keys(path: str) -> list[str]:
    with ztensor.open(path) as reader:
        names: list[str] = reader.keys()
        return names


def one(path: str, name: str, *, verify: bool | None = None) -> Any:
    with ztensor.open(path, verify=verify) as reader:
        return reader[name]


def again(path: str, name: str) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        for _ in range(AGAIN):
            array = reader[name]
        return {name: array}


def each(path: str, *, verify: bool | None = None) -> dict[str, Any]:
    with ztensor.open(path, verify=verify) as reader:
        return {name: reader[name] for name in reader}


def each_owned(path: str, *, verify: bool | None = None) -> dict[str, Any]:
    with ztensor.open(path, verify=verify) as reader:
        return {name: reader.read_numpy(name, copy=True) for name in reader}


def each_slice(path: str, *, verify: bool | None = None) -> dict[str, Any]:
    with ztensor.open(path, verify=verify) as reader:
        return {name: reader.get_slice(name)[2:5] for name in reader}


def each_described(path: str) -> dict[str, Any]:
    with ztensor.open(path) as reader:
        return {name: reader.metadata(name) for name in reader}


def mapped(path: str, *, verify: bool | None = None) -> dict[str, Any]:
    return load_file(path, verify=verify)


def owned(path: str, *, verify: bool | None = None) -> dict[str, Any]:
    return load_file(path, copy=True, verify=verify)


def cat(path: str) -> list[str]:
    """Read the file as `cat` does: what loads of a cold one are held to."""
    piece = bytearray(1 << 20)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(piece):
            pass
    return [path]


def verify(path: str) -> bool:
    with ztensor.open(path) as reader:
        return not reader.verify().problems


def slices(
    path: str, ranges: dict[str, tuple[int, int]], *, verify: bool | None = None
) -> dict[str, Any]:
    with ztensor.open(path, verify=verify) as reader:
        return {name: reader.get_slice(name)[start:stop] for name, (start, stop) in ranges.items()}


def append(tensors: dict[str, Any], path: str, *, checksum: str | None = "crc32c") -> None:
    with ztensor.Editor(path, checksum=checksum, durable=False) as writer:
        for name, tensor in tensors.items():
            writer.add(name, tensor)
