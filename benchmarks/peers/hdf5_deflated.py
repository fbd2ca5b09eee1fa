"""HDF5 by h5py: chunks of the size it chooses, behind gzip, h5py's word for deflate."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.peers import hdf5

_h5py: Any = importlib.import_module("h5py")

LACKS = hdf5.LACKS

keys, one, mapped, owned = hdf5.keys, hdf5.one, hdf5.mapped, hdf5.owned


def save(tensors: dict[str, Any], path: str) -> None:
    with _h5py.File(path, "w") as file:
        for name, tensor in tensors.items():
            file.create_dataset(name, data=tensor, compression="gzip")
