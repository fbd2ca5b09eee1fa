"""Every way to read a file, and its result, which is equal in every place."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ztensor
from ztensor.errors import ZTensorError
from ztensor.ext import Blocks
from ztensor.numpy import load_file

TESTS = Path(__file__).parents[1]
# But for checkpoints of torch: a folder of files that name each other, which is read on disk.
CORPUS = sorted(
    path
    for folder in ("corpus/spec", "corpus/real", "corpus/reject", "corpus/foreign", "corpus2")
    for path in (TESTS / folder).rglob("*")
    if path.is_file()
    and "dcp" not in path.parts
    and path.suffix not in (".py", ".json", ".md", ".txt")
    and path.stat().st_size
)


def _sum(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), hashlib.sha256(Blocks.whole(value).tobytes()).digest()
    if isinstance(value, ztensor.Tensor):
        return value.format, value.shape, {k: _sum(v) for k, v in value.components.items()}
    return repr(value)


def _tried(read: Callable[[], Any]) -> Any:
    try:
        return _sum(read())
    except ZTensorError as error:
        return type(error).__name__, error.reason


def _listed(reader: ztensor.Reader) -> Any:
    return {name: _tried(lambda name=name: reader.metadata(name).shape) for name in reader}  # type: ignore[misc]


def _each(reader: ztensor.Reader) -> Any:
    return {name: _tried(lambda name=name: reader.read(name)) for name in reader}  # type: ignore[misc]


def _rows(reader: ztensor.Reader) -> Any:
    keys = (slice(0, 1), slice(-2, None), slice(None, None, 2), [0, -1])
    return {
        (name, str(key)): _tried(lambda name=name, key=key: reader.get_slice(name)[key])  # type: ignore[misc]
        for name in reader
        for key in keys
    }


def _verified(reader: ztensor.Reader) -> Any:
    report = reader.verify()
    reasons = sorted((p.object_name or "", p.reason.value) for p in report.problems)
    return report.outcome, reasons, sorted(report.unchecked), report.checked


def _hashed(reader: ztensor.Reader) -> Any:
    return _tried(lambda: ztensor.content_hash(reader))


IN_READER: dict[str, Callable[[ztensor.Reader], Any]] = {
    "list": _listed,
    "each": _each,
    "rows": _rows,
    "verify": _verified,
    "hash": _hashed,
}


def patterns(place: Callable[[], Any]) -> dict[str, Any]:
    """Return the result of each way of reading; an error as its kind and reason.

    Args:
        place: returns the source to open, anew each time.
    """
    found: dict[str, Any] = {}
    for name, pattern in IN_READER.items():
        try:
            with ztensor.open(place(), mmap=False) as reader:
                found[name] = pattern(reader)
        except ZTensorError as error:
            found[name] = type(error).__name__, error.reason
    try:
        loaded = load_file(place(), copy=True)
        found["load"] = {name: _sum(value) for name, value in loaded.items()}
    except ZTensorError as error:
        found["load"] = type(error).__name__, error.reason
    return found
