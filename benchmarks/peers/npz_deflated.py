"""NumPy's own archive, compressed."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.peers import npz

LACKS = npz.LACKS

keys, one, mapped, owned = npz.keys, npz.one, npz.mapped, npz.owned


def save(tensors: dict[str, Any], path: str) -> None:
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **tensors)
