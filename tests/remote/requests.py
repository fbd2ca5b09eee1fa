"""How many requests each format takes, in one table: list, one tensor, thirty slices, all of it.

    python -m tests.remote.requests

Every model has the same tensors, 24 MiB of them, and is read from a server that counts.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import ztensor
import ztensor.numpy as znumpy
from tests.corpus.foreign import make_onnx
from tests.remote.range_server import RangeServer

MIB = 1 << 20
PART = 8 * MIB  # bytes of one request of a whole load
LAYERS, ROWS = 20, 30


class Budget(NamedTuple):
    """The most requests a format may take; of a whole load also so many for each 8 MiB.

    Attributes:
        names: to open it and list the names.
        one: for one tensor then.
        slices: for `ROWS` neighbouring rows, each asked for by itself.
        whole: of a whole load, beside one for each 8 MiB.
    """

    names: int = 2
    one: int = 1
    slices: int = 3
    whole: int = 3


class Counted(NamedTuple):
    """The counts in the order of `Budget`; the share of bytes sent; the size of the file."""

    names: int
    one: int
    slices: int
    whole: int
    share: float
    nbytes: int


# These formats describe a tensor next to its data, with the place of the next: listing visits each
# tensor, and no goal is set. HDF5 has trees beside, of chunks and of names.
_VISITED = Budget(names=LAYERS + 5, whole=LAYERS + 8)
BUDGETS: dict[str, Budget] = {
    "m.zt": Budget(),
    "zstd.zt": Budget(),
    "planes.zt": Budget(),
    "0.1.zt": Budget(),
    "2.1.zt": Budget(),
    "m.safetensors": Budget(),
    "m.gguf": Budget(names=3),
    "m.npz": Budget(one=2),  # and what stands before it
    "deflated.npz": Budget(one=3),
    "m.pt": Budget(one=2),
    "one.npy": Budget(one=4),  # all of it
    "legacy.pt": Budget(one=2),  # and what stands before it
    "m.onnx": _VISITED,
    "m.h5": _VISITED,
    "m.keras": _VISITED,
}


def arrays() -> dict[str, Any]:
    """Return the tensors of every model."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for n in range(LAYERS):  # small ones between large ones, as in models
        if n == LAYERS // 2:
            found["embedding"] = random.integers(0, 50, (4000, 256)).astype(np.int32)
        found[f"layer.{n:02d}"] = random.random((250, 1000)).astype(np.float32)
        found[f"norm.{n:02d}"] = random.random(100).astype(np.float32)
    return found


def build(folder: Path) -> list[str]:
    """Write a model in each format with an installed library; return their names."""
    tensors = arrays()
    znumpy.save_file(tensors, folder / "m.zt")
    znumpy.save_file(tensors, folder / "zstd.zt", compression=True)
    znumpy.save_file(tensors, folder / "planes.zt", compression="planes")
    znumpy.save_file(tensors, folder / "0.1.zt", version="0.1.0")
    znumpy.save_file(tensors, folder / "2.1.zt", version="2.1")
    znumpy.save_file(tensors, folder / "m.safetensors")
    znumpy.save_file(tensors, folder / "m.gguf")
    np.savez(folder / "m.npz", **tensors)
    np.savez_compressed(folder / "deflated.npz", **tensors)
    np.save(folder / "one.npy", np.concatenate([tensors["embedding"]] * 6))
    (folder / "m.onnx").write_bytes(_onnx(tensors))
    if importlib.util.find_spec("torch"):
        import torch

        state = {name: torch.from_numpy(array) for name, array in tensors.items()}
        torch.save(state, folder / "m.pt")
        torch.save(state, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    if importlib.util.find_spec("h5py"):
        znumpy.save_file(tensors, folder / "m.h5")
        with zipfile.ZipFile(folder / "m.keras", "w") as file:
            file.writestr("metadata.json", b"{}")
            file.writestr("config.json", b'{"class_name": "Sequential"}')
            file.write(folder / "m.h5", "model.weights.h5")
    return [name for name in BUDGETS if (folder / name).exists()]


def _onnx(tensors: dict[str, Any]) -> bytes:
    kinds = {"float32": 1, "int32": 6}
    made: bytes = make_onnx.model(
        *(
            make_onnx.tensor(
                name, kinds[str(one.dtype)], list(one.shape), make_onnx.raw(one.tobytes())
            )
            for name, one in tensors.items()
        )
    )
    return made


def count(server: RangeServer, name: str) -> Counted:
    """Return how many requests each way to read takes; the values are compared with the file."""
    path = server.folder / name
    size = path.stat().st_size
    url = f"{server.url}/{name}"
    expected = znumpy.load_file(path)
    found: list[int] = []

    def counted(use: Callable[[], Any]) -> Any:
        server.record.clear()
        value = use()
        found.append(len(server.record))
        return value

    with counted(lambda: ztensor.open(url)) as reader:
        assert sorted(reader) == sorted(expected)
        large = next((one for one in expected if "embedding" in one), "array")
        other = next((one for one in expected if "layer.07" in one), "array")
        assert (counted(lambda: reader[other]) == expected[other]).all()
    with ztensor.open(url) as reader:
        part = reader.get_slice(large)
        rows = counted(lambda: [part[start] for start in range(3000, 3000 + ROWS)])
        assert (np.stack(rows) == expected[large][3000 : 3000 + ROWS]).all()
    whole = counted(lambda: znumpy.load_file(url))
    share = server.record.sent / size
    assert list(whole) == list(expected)
    assert all((whole[one] == expected[one]).all() for one in expected)
    names, one, slices, load = found
    return Counted(names, one, slices, load, share, size)


def most(name: str, nbytes: int) -> Budget:
    """Return a format's budget, with the whole load for so many bytes."""
    budget = BUDGETS[name]
    return budget._replace(whole=budget.whole + nbytes // PART)


def line(name: str, counted: Counted) -> str:
    """Return a row of the table: counts and limits."""
    budget = most(name, counted.nbytes)
    cells = (f"{found:4d} /{limit:3d}" for found, limit in zip(counted[:4], budget, strict=True))
    return f"{name:14s} {counted.nbytes / MIB:6.1f} {'  '.join(cells)}  {counted.share:7.3f}"


HEAD = (
    f"{'':14s} {'MiB':>6s} {'list':>9s}  {'one':>9s}  {'30 slices':>9s}  {'whole':>9s}  "
    f"{'of bytes':>8s}"
)


def main() -> None:
    out = io.StringIO()
    out.write(f"requests / budget, and the bytes of a whole load for those of the file\n{HEAD}\n")
    with tempfile.TemporaryDirectory() as folder:
        names = build(Path(folder))
        with RangeServer(Path(folder)) as server:
            for name in names:
                out.write(f"{line(name, count(server, name))}\n")
    sys.stdout.write(out.getvalue())


if __name__ == "__main__":
    main()
