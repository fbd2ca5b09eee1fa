"""The worst known files of every format, by format: each a function from a length to a file.

    add("npz", {"members with short names": lambda length: ...})

A shape returns a file of about that length; or a dict of names to bytes for several files, the
first of which is opened. `budget.py` measures all of them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

Made: TypeAlias = "bytes | dict[str, bytes]"


class Format(NamedTuple):
    """How files of a format are named and opened.

    Attributes:
        file: the name a file is written under.
        recover: whether it is opened as a torn file too.
    """

    file: str
    recover: bool = False


FORMATS = {
    "zt 0.1": Format("a.zt"),
    "zt 1.0": Format("a.zt"),
    "zt 1.2": Format("a.zt"),
    "zt columns": Format("a.zt"),
    "zt 2": Format("a.zt"),
    "torn": Format("a.zt", recover=True),
    "safetensors": Format("a.safetensors"),
    "index": Format("model.safetensors.index.json"),
    "npy": Format("a.npy"),
    "npz": Format("a.npz"),
    "pt zip": Format("a.pt"),
    "pt legacy": Format("a.pt"),
    "gguf": Format("a.gguf"),
    "onnx": Format("a.onnx"),
    "hdf5": Format("a.h5"),
    "keras": Format("a.keras"),
    "dcp": Format(".metadata"),
    "divided": Format("checkpoint.zt"),
}
WIDE = "\U0001f600"  # a text that has one takes four bytes for each character


def widening(length: int) -> str:
    """Return a text that is found to be wide at its end: decoding it takes most memory."""
    return "a" * length + "\u20ac" + WIDE


SHAPES: dict[str, dict[str, Callable[[int], Made]]] = {name: {} for name in FORMATS}


def shape(kind: str, name: str = "") -> Callable[[Callable[[int], Made]], Callable[[int], Made]]:
    """Add a function to the shapes of a format, under a name or its own in words."""

    def add(make: Callable[[int], Made]) -> Callable[[int], Made]:
        SHAPES[kind][name or make.__name__.strip("_").replace("_", " ")] = make
        return make

    return add


def add(kind: str, shapes: Mapping[str, Callable[[int], Made]]) -> None:
    """Add a table of shapes, by name, to a format."""
    SHAPES[kind].update(shapes)


def around(make: Callable[[int], bytes], wrap: Callable[[bytes], Made]) -> Callable[[int], Made]:
    """Return a shape: the result of `make`, put into a file by `wrap`."""
    return lambda length: wrap(make(length))


def load() -> dict[str, dict[str, Callable[[int], Made]]]:
    """Return the shapes of all modules here."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return SHAPES


def write(kind: str, make: Callable[[int], Made], length: int, folder: Path) -> tuple[Path, int]:
    """Write a shape of about a length; return the path to open, and the length of all files."""
    made = make(length)
    files = made if isinstance(made, dict) else {FORMATS[kind].file: made}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / next(iter(files)), sum(map(len, files.values()))
