"""NumPy's own archive, uncompressed; it always copies."""

from __future__ import annotations

from typing import Any

import numpy as np

START = ("numpy", "numpy.load(PATH).files")
LACKS = {
    "save_crc32c": "the zip's crc32 is always there",
    "save_sha256": "no such digest",
    "save_zstd": "compresses with deflate only",
    "slices": "reads whole tensors only",
    "verify": "no function of NumPy's",
    "append": "no function of NumPy's",
}


def save(tensors: dict[str, Any], path: str) -> None:
    with open(path, "wb") as file:  # savez would add a suffix to a path
        np.savez(file, allow_pickle=False, **tensors)


def keys(path: str) -> list[str]:
    with np.load(path) as archive:
        return list(archive.files)


def one(path: str, name: str) -> Any:
    with np.load(path) as archive:
        return archive[name]


def mapped(path: str) -> dict[str, Any]:
    with np.load(path) as archive:
        return {name: archive[name] for name in archive.files}


owned = mapped
