"""Make the HDF5 files of this corpus: `python -m tests.corpus.foreign.make_hdf5`.

h5py 3.16 with HDF5 2.0.0 wrote those that are there; another release writes other bytes, so no test
compares them. Those to refuse are a good file with a few bytes changed.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.corpus.foreign.writing import as_json, to_refuse, write

ARRAYS: dict[str, Any] = {
    "layers/dense/vars/0": np.arange(6, dtype="<f4").reshape(2, 3),
    "layers/dense/vars/1": np.arange(3, dtype=">i2"),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j]),
    "scalar": np.float64(2.5),
    "none": np.zeros((0, 4), "<u8"),
}
CHUNKED = np.arange(40, dtype="<i4").reshape(8, 5)


def small(**options: Any) -> bytes:
    """Return a file with a little of everything."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", **options) as file:
        file.attrs["backend"] = "jax"
        file.attrs["numbers"] = [1, 2]
        for name, array in ARRAYS.items():
            file[name] = array
        filters: dict[str, dict[str, Any]] = {
            "gzip": {"compression": "gzip", "shuffle": True, "fletcher32": True},
            "lzf": {"compression": "lzf"},
            "plain": {},
        }
        for name, how in filters.items():
            file.create_dataset(f"chunked/{name}", data=CHUNKED, chunks=(3, 2), **how)
        file["layers/dense"].attrs["name"] = "dense_1"
        file["flags"].attrs["of"] = 3
        file["alias"] = h5py.SoftLink("/layers/dense/vars/0")
        file["layers/up"] = file["/"]
    return buffer.getvalue()


def _deep() -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", libver="latest") as file:
        file["/".join("g" * 70)] = 1
    return buffer.getvalue()


def _patched(data: bytes, old: bytes, new: bytes) -> bytes:
    if data.count(old) < 1 or len(old) != len(new):
        raise ValueError(old)
    return data.replace(old, new)


def rejects() -> dict[str, tuple[bytes, str]]:
    """Return the files to refuse when they are opened, each with its reason."""
    good = small()
    with h5py.File(io.BytesIO(good)) as file:
        offset = file["layers/dense/vars/0"].id.get_offset()
    heap = good.index(b"GCOL\1")
    place = heap + 16
    index, size = struct.unpack_from("<H6xQ", good, place)
    while index:
        place += 16 + (size + 7) // 8 * 8
        index, size = struct.unpack_from("<H6xQ", good, place)
    hang = good[: place + 8] + bytes(8) + good[place + 16 :]
    wraps = good[: heap + 24] + struct.pack("<Q", 2**64 - 16) + good[heap + 32 :]
    return {
        "signature_only": (good[:8], "field_value"),
        "cut": (good[: len(good) // 2], "field_value"),
        "behind_user_block": (bytes(1024) + good[:100], "field_value"),
        "heap_without_end": (hang, "field_value"),
        "heap_that_wraps": (wraps, "field_value"),
        "data_outside": (
            _patched(good, struct.pack("<Q", offset), struct.pack("<Q", len(good) - 8)),
            "field_value",  # libhdf5 before 2.0 leaves it to us: out_of_bounds
        ),
        "slash_in_name": (_patched(good, b"chunked\0", b"chu/ked\0"), "field_value"),
        "name_not_utf8": (_patched(good, b"chunked\0", b"chu\xffked\0"), "field_value"),
        "deep": (_deep(), "limit_depth"),
    }


def main() -> None:
    kinds: dict[str, dict[str, Any]] = {
        "earliest": {},
        "latest": {"libver": "latest"},
        "user_block": {"userblock_size": 512},
    }
    values = {name: array.tolist() for name, array in ARRAYS.items() if name != "complex"}
    folder = Path("accept/hdf5")
    made = {folder / f"{name}.h5": small(**options) for name, options in kinds.items()}
    made[folder / "expected.json"] = as_json(values, is_sorted=False)
    write(made | to_refuse("hdf5", "h5", rejects()))


if __name__ == "__main__":
    main()
