"""The table of golden cases: names, and functions that fill a folder with files.

A case takes nothing from a clock, from chance or from the machine. Names that the library draws at
random come from `counted_randomness`, so that parts of checkpoints have the same names each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import ml_dtypes
import numpy as np

from ztensor import Tensor

if TYPE_CHECKING:
    Case = Callable[[Path], None]
    Added = Callable[[Callable[..., None]], Callable[..., None]]

VERSIONS = ("0.1.0", "1.1.0", "1.2.0", "2.1")
WITH_LAYOUTS = VERSIONS[1:]

CASES: dict[str, Case] = {}
# Libraries that need not be installed, by how the names of their cases begin.
NEEDS = {"torch/": "torch", "export/hdf5": "h5py"}


def case(name: str, *arguments: Any) -> Added:
    """Add a function of a folder, and of further arguments, to the table."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        if name in CASES:
            raise ValueError(name)
        CASES[name] = lambda folder: function(folder, *arguments)
        return function

    return add


def each(
    name: str, values: tuple[Any, ...]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function once for each value, under the value's own name."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        for value in values:
            case(f"{name} {value}", value)(function)
        return function

    return add


def missing(name: str) -> str | None:
    """Return the library that a case needs and that is not installed."""
    for start, library in NEEDS.items():
        if name.startswith(start) and importlib.util.find_spec(library) is None:
            return library
    return None


def write(name: str, folder: Path) -> dict[str, bytes]:
    """Run a case in an empty folder; return the files by their paths in it."""
    if missing(name) is None and name.startswith(tuple(NEEDS)):
        with tempfile.TemporaryDirectory() as scratch:  # imports may take random bytes, once
            CASES[name](Path(scratch))
    with counted_randomness():
        CASES[name](folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@contextlib.contextmanager
def counted_randomness() -> Iterator[None]:
    """Let the system's random bytes be digests of 0, 1, 2 and so on."""
    number = itertools.count()

    def token_bytes(nbytes: int | None = None) -> bytes:
        return hashlib.shake_256(str(next(number)).encode()).digest(
            32 if nbytes is None else nbytes
        )

    with (
        mock.patch.object(secrets, "token_bytes", token_bytes),
        mock.patch.object(os, "urandom", token_bytes),
    ):
        yield


def of_version(version: str, **options: Any) -> dict[str, Any]:
    """Return the options that write a version; 2.x by pages, so that files stay small."""
    return {"version": version, **({"alignment": 4096} if version == "2.1" else {}), **options}


# --- Contents -------------------------------------------------------------------------------

ELEMENTS = {
    "0.1.0": ("f8", "f4", "f2", "bfloat16", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"),
    "1.1.0": ("float8_e4m3fn", "float8_e5m2", "c8", "c16"),
    "1.2.0": ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
}
SMALL = {
    "b.weight": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "a.bias": np.array([1, -1], np.float16),
    "step": np.array(1000, np.int64),
}
ROWS = {"rows": np.repeat(np.arange(5, dtype=np.float32), 400).reshape(50, 40), **SMALL}


def elements(version: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return three elements of each type that a version has."""
    made = {}
    for since, names in ELEMENTS.items():
        for name in names if since <= version else ():
            dtype = np.dtype(getattr(ml_dtypes, name, name))
            made[name.replace("?", "bool")] = np.array([0, 1, 2]).astype(dtype)
    return made


def floats(*shape: int) -> np.ndarray[Any, Any]:
    """Return floats that no rounding leaves alike."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 37) % 101 - 50) / np.float32(16)).astype("f4").reshape(shape)


def sparse() -> dict[str, Tensor]:
    """Return sparse tensors of both layouts, an empty one, and one of three axes."""
    return {
        "csr": Tensor.csr(np.array([1, 2.5, -3], "f4"), [2, 0, 1], [0, 1, 1, 3], (3, 4)),
        "csr.empty": Tensor.csr(np.zeros(0, "f8"), [], [0, 0], (1, 4)),
        "coo": Tensor.coo(np.array([3, 4], "i4"), [[0, 1], [0, 0], [1, 0]], (2, 1, 2)),
        "coo.bool": Tensor.coo(np.array([True]), [[1]], (3,), attributes={"why": "mask"}),
    }


def quantized() -> dict[str, Tensor]:
    """Return the tensors of each recipe, and of each named scheme from other programs' arrays."""
    weight = floats(32, 64)
    made = {name: Tensor.quantize(weight, name) for name in ("int8", "nf4", "mxfp4", "nvfp4")}
    for name in ("gptq", "awq"):
        made[name] = Tensor.quantize(weight, name, group_size=32)
    made |= {
        f"bits{bits}": Tensor.quantize(weight, bits=bits, group_size=16) for bits in (2, 3, 4, 8)
    }
    made["symmetric"] = Tensor.quantize(weight, group_size=-1, symmetric=True)
    qweight = np.arange(4 * 8, dtype=np.int32).reshape(4, 8) * 0x01010101
    scales = np.full((2, 8), 0.5, np.float16)
    made["of gptq"] = Tensor.from_gptq(
        qweight, np.full((2, 1), 0x77777777, np.int32), scales, np.repeat([1, 0], 16).astype("i4")
    )
    made["of awq"] = Tensor.from_awq(
        np.arange(32, dtype=np.int32).reshape(32, 1), np.zeros((2, 1), np.int32), scales
    )
    return made
