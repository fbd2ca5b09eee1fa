"""Make the HDF5 files of this corpus: `python -m tests.corpus.foreign.make_hdf5`.

h5py 3.16 with HDF5 2.0.0 wrote those that are there; another release writes other bytes, so no test
compares them. Those to refuse are a good file with a few bytes changed.
"""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import h5py
import numpy as np

FOLDER = Path(__file__).parent
ACCEPT, REJECT = FOLDER / "accept" / "hdf5", FOLDER / "reject" / "hdf5"

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
        "signature_only.h5": (good[:8], "field_value"),
        "cut.h5": (good[: len(good) // 2], "field_value"),
        "behind_user_block.h5": (bytes(1024) + good[:100], "field_value"),
        "heap_without_end.h5": (hang, "field_value"),
        "heap_that_wraps.h5": (wraps, "field_value"),
        "data_outside.h5": (
            _patched(good, struct.pack("<Q", offset), struct.pack("<Q", len(good) - 8)),
            "field_value",  # libhdf5 before 2.0 leaves it to us: out_of_bounds
        ),
        "slash_in_name.h5": (_patched(good, b"chunked\0", b"chu/ked\0"), "field_value"),
        "name_not_utf8.h5": (_patched(good, b"chunked\0", b"chu\xffked\0"), "field_value"),
        "deep.h5": (_deep(), "limit_depth"),
    }


if __name__ == "__main__":
    for folder in (ACCEPT, REJECT):
        folder.mkdir(parents=True, exist_ok=True)
    kinds: dict[str, dict[str, Any]] = {
        "earliest": {},
        "latest": {"libver": "latest"},
        "user_block": {"userblock_size": 512},
    }
    for name, options in kinds.items():
        (ACCEPT / f"{name}.h5").write_bytes(small(**options))
    cases = rejects()
    for name, (content, _) in cases.items():
        (REJECT / name).write_bytes(content)
    expected = {name: reason for name, (_, reason) in cases.items()}
    (REJECT / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", "utf-8")
    values = {name: array.tolist() for name, array in ARRAYS.items() if name != "complex"}
    (ACCEPT / "expected.json").write_text(json.dumps(values, indent=1) + "\n", "utf-8")
