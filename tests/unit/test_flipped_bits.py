"""One flipped bit of stored data: every function that ends in memory of its own notices it.

What gives views of a mapped file does not, and its documentation says so.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ztensor
import ztensor.numpy
from tests.flipping import flip
from ztensor.errors import DigestMismatchError, EncodingError

W = (np.arange(40_000) % 251).astype(np.float32).reshape(200, 200)


def damaged(path: Path, name: str = "w", role: str = "data") -> Path:
    """Flip one bit in the middle of the stored bytes of an object."""
    with ztensor.open(path) as reader:
        place = reader.location(name, role)
    flip(path, place.offset + place.length // 2, 2)
    return path


FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "0.1": ("w.zt", {"version": "0.1.0"}),
    "1.1": ("w.zt", {"version": "1.1.0"}),
    "1.2": ("w.zt", {}),
    "1.2 sha256": ("w.zt", {"checksum": "sha256"}),
    "1.2 compressed": ("w.zt", {"compression": True}),
    "2.1": ("w.zt", {"version": "2.1"}),
    "2.1 compressed": ("w.zt", {"version": "2.1", "compression": True}),
    "npz": ("w.npz", {}),
    "pt": ("w.pt", {}),
}
# The digests of 2.1 cover decoded bytes: what cannot be decoded is noticed before.
NOTICED = (DigestMismatchError, (DigestMismatchError, EncodingError))


def stored(folder: Path, kind: str) -> Path:
    name, options = FORMATS[kind]
    values = {"a": np.ones(9, np.float32), "w": W}
    if kind == "pt":
        torch = pytest.importorskip("torch")
        torch.save({key: torch.from_numpy(one) for key, one in values.items()}, folder / name)
    else:
        ztensor.numpy.save_file(values, folder / name, **options)
    return damaged(folder / name)


# --- What copies ----------------------------------------------------------------------------


def torch_() -> Any:
    pytest.importorskip("torch")
    import ztensor.torch

    return ztensor.torch


def jax_() -> Any:
    pytest.importorskip("jax")
    import ztensor.jax

    return ztensor.jax


def read_into(path: Path, target: Any) -> None:
    with ztensor.open(path) as reader:
        reader.read_into("w", target)


def into_torch(path: Path) -> None:
    torch_()
    import torch

    read_into(path, torch.empty(200, 200).t())


def into_model(path: Path, **options: Any) -> None:
    home = torch_()
    import torch

    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(200, 200))
    home.load_model(model, path, strict=False, **options)


def sharded_over(path: Path, *, copy: bool) -> None:
    home = jax_()
    import jax

    mesh = jax.sharding.Mesh(jax.devices()[:1], ("x",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    home.load_file(path, sharding={"w": everywhere}, copy=copy)


def by_dask(path: Path) -> None:
    pytest.importorskip("dask.array")
    import ztensor.dask

    ztensor.dask.from_file(path, "w", chunks=-1).compute(scheduler="synchronous")


def read(path: Path, method: str, **options: Any) -> Any:
    with ztensor.open(path) as reader:
        return getattr(reader, method)("w", **options)


COPYING: dict[str, Callable[[Path], Any]] = {
    "numpy.load_file": lambda path: ztensor.numpy.load_file(path, copy=True),
    "numpy.load_file in one thread": lambda path: ztensor.numpy.load_file(
        path, copy=True, threads=1
    ),
    "numpy.load_file of views": lambda path: ztensor.numpy.load_file(path, verify=True),
    "numpy.load": lambda path: ztensor.numpy.load(path.read_bytes()),
    "numpy.load_file of a file object": lambda path: ztensor.numpy.load_file(
        io.BytesIO(path.read_bytes())
    ),
    "read": lambda path: read(path, "read", copy=True),
    "read_numpy": lambda path: read(path, "read_numpy", copy=True),
    "read_into": lambda path: read_into(path, np.empty((200, 200), "f4")),
    "read_into strides": lambda path: read_into(path, np.empty((200, 400), "f4")[:, ::2]),
    "read_into torch": into_torch,
    "iterate": lambda path: list(ztensor.iterate(path)),
    "convert to zt": lambda path: ztensor.convert(path, path.parent / "out.zt"),
    "convert to npz": lambda path: ztensor.convert(path, path.parent / "out.npz"),
    "convert to safetensors": lambda path: ztensor.convert(path, path.parent / "out.safetensors"),
    "torch.load_file": lambda path: torch_().load_file(path, copy=True),
    "torch.load_file of views": lambda path: torch_().load_file(path, verify=True),
    "torch.load": lambda path: torch_().load(path.read_bytes()),
    "torch.load_model": into_model,
    "torch.load_model copied twice": lambda path: into_model(path, copy=True),
    "torch.load_model assigned copies": lambda path: into_model(path, copy=True, assign=True),
    "read_torch": lambda path: (torch_(), read(path, "read_torch", copy=True)),
    "jax.load_file": lambda path: jax_().load_file(path, copy=True),
    "jax.load_file of views": lambda path: jax_().load_file(path, verify=True),
    "jax.load": lambda path: jax_().load(path.read_bytes()),
    "jax sharded": lambda path: sharded_over(path, copy=True),
    "dask": by_dask,
}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("way", COPYING)
def test_a_call_that_copies_refuses_a_flipped_bit(way: str, kind: str, tmp_path: Path) -> None:
    path = stored(tmp_path, kind)
    with pytest.raises(NOTICED[kind == "2.1 compressed"]):
        COPYING[way](path)


# --- What cannot be a view is copied, and checked ------------------------------------------------


def of_fp4(path: Path) -> None:
    ztensor.numpy.save_file({"w": np.zeros((64, 64), ml_dtypes.float4_e2m1fn)}, path)


@pytest.mark.parametrize(
    "load",
    [
        ztensor.numpy.load_file,
        lambda path: read(path, "read"),
        lambda path: ztensor.open(path)["w"],
        lambda path: torch_().load_file(path),
        lambda path: (torch_(), read(path, "read_torch")),
    ],
    ids=["numpy", "read", "[]", "torch", "read_torch"],
)
def test_packed_elements_are_unpacked_only_where_they_are_right(
    load: Callable[[Path], Any], tmp_path: Path
) -> None:
    of_fp4(tmp_path / "w.zt")
    path = damaged(tmp_path / "w.zt")
    with pytest.raises(DigestMismatchError):
        load(path)


@pytest.mark.parametrize("one", [True, False], ids=["read_torch", "load_file"])
def test_what_torch_cannot_view_is_checked(one: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    path = tmp_path / "w.npz"
    np.savez(path, w=W)
    with ztensor.open(path) as reader:
        assert reader.location("w").offset % 4
    damaged(path)
    with pytest.raises(DigestMismatchError):
        torch_().load_file(path) if not one else read(path, "read_torch")


@pytest.mark.parametrize("kind", ["1.2", "2.1"])
@pytest.mark.parametrize("home", ["torch", "jax"])
@pytest.mark.parametrize("layout", ["csr", "coo"])
def test_values_of_sparse_tensors_are_checked(
    layout: str, home: str, kind: str, tmp_path: Path
) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.eye(300, format=layout, dtype=np.float32)
    path = tmp_path / "w.zt"
    ztensor.numpy.save_file({"w": ztensor.Tensor.from_scipy(matrix)}, path, **FORMATS[kind][1])
    damaged(path, "w", "values")
    with pytest.raises(DigestMismatchError):
        (torch_() if home == "torch" else jax_()).load_file(path)


# --- Trees ----------------------------------------------------------------------------------


def of_torch(order: Any, device: str = "") -> Callable[[Path], None]:
    def save(path: Path) -> None:
        torch_()
        import torch

        from ztensor.training.tree.kinds import Leaf, Made

        weight = torch.ones(4, 8, 16, 16)
        if order:
            weight = weight.to(memory_format=torch.channels_last)
        if device:  # as a machine with a GPU writes it
            ztensor.save_tree(
                {"w": Made("torch.Tensor", (Leaf(weight, None, "torch"), device))}, path
            )
        else:
            ztensor.save_tree({"w": weight}, path)

    return save


def of_jax(path: Path) -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    ztensor.save_tree({"w": jnp.ones(100)}, path)


def twice(path: Path) -> None:
    ztensor.save_tree({"a": W, "w": W.copy()}, path, version="2.1")
    ztensor.compact(path, canonical=True)


def save_step(path: Path) -> None:
    with ztensor.CheckpointManager(path.parent) as manager:
        manager.save(1, {"w": W})
        manager.wait()
    next(path.parent.glob("*.zt")).rename(path)


def restore_step(path: Path) -> None:
    path.rename(path.with_name("step-00000001.zt"))
    with ztensor.CheckpointManager(path.parent) as manager:
        manager.restore(1)


TREES: dict[str, tuple[Callable[[Path], None], Callable[[Path], Any]]] = {
    "copy": (lambda path: ztensor.save_tree({"w": W}, path), ztensor.load_tree),
    "part": (
        lambda path: ztensor.save_tree({"w": W}, path),
        lambda path: ztensor.load_tree(path, only="w"),
    ),
    "lazy": (
        lambda path: ztensor.save_tree({"w": W}, path),
        lambda path: ztensor.open_tree(path).tree(),
    ),
    "torch": (of_torch(None), lambda path: torch_().load_tree(path)),
    "another order": (of_torch("last"), lambda path: torch_().load_tree(path, copy=False)),
    "another device": (
        of_torch(None, "cuda"),
        lambda path: torch_().load_tree(path, copy=False, device="cpu"),
    ),
    "jax": (of_jax, lambda path: jax_().load_tree(path, copy=False)),
    "a step": (save_step, restore_step),
    "equal tensors that are stored once": (twice, lambda path: ztensor.load_tree(path, copy=False)),
}


@pytest.mark.parametrize("how", TREES)
def test_a_tree_in_memory_of_its_own_is_checked(how: str, tmp_path: Path) -> None:
    save, load = TREES[how]
    save(tmp_path / "w.zt")
    path = damaged(tmp_path / "w.zt")
    with pytest.raises(DigestMismatchError):
        load(path)


def by_dcp(path: Path) -> None:
    from torch.distributed import checkpoint as dcp

    home = torch_()
    import torch

    try:
        dcp.load(
            {"w": torch.zeros(200, 200)}, storage_reader=home.StorageReader(path), no_dist=True
        )
    except dcp.CheckpointException as error:  # which has ours inside
        raise error.failures[0][0] from error


DIVIDED: dict[str, Callable[[Path], Any]] = {
    "dcp": by_dcp,
    "jax": lambda path: sharded_over(path, copy=True),
    "load_tree": ztensor.load_tree,
    "numpy": lambda path: ztensor.numpy.load_file(path, copy=True),
}


@pytest.mark.filterwarnings("ignore:torch.distributed is")
@pytest.mark.parametrize("how", DIVIDED)
def test_a_checkpoint_of_many_processes_is_checked(how: str, tmp_path: Path) -> None:
    home = torch_()
    import torch
    from torch.distributed import checkpoint as dcp

    dcp.save({"w": torch.from_numpy(W)}, storage_writer=home.StorageWriter(tmp_path), no_dist=True)
    damaged(next(path for path in tmp_path.glob("*.zt") if path.name != "checkpoint.zt"))
    with pytest.raises(DigestMismatchError):
        DIVIDED[how](tmp_path)


# --- Views ----------------------------------------------------------------------------------

VIEWS: dict[str, tuple[Callable[[Path], Any], Callable[[], Any]]] = {
    "numpy.load_file": (ztensor.numpy.load_file, lambda: ztensor.numpy.load_file),
    "[]": (lambda path: ztensor.open(path)["w"], lambda: ztensor.Reader.__getitem__),
    "read": (lambda path: read(path, "read"), lambda: ztensor.Reader.read),
    "read_numpy": (lambda path: read(path, "read_numpy"), lambda: ztensor.Reader.read_numpy),
    "read_torch": (
        lambda path: (torch_(), read(path, "read_torch")),
        lambda: ztensor.Reader.read_torch,
    ),
    "safe_open": (
        lambda path: ztensor.safe_open(path, "np").get_tensor("w"),
        lambda: ztensor.safe_open.get_tensor,
    ),
    "torch.load_file": (lambda path: torch_().load_file(path), lambda: torch_().load_file),
    "torch.load_model": (
        lambda path: into_model(path, assign=True),
        lambda: torch_().load_model,
    ),
    "jax.load_file": (lambda path: jax_().load_file(path), lambda: jax_().load_file),
}


@pytest.mark.parametrize("way", VIEWS)
def test_a_view_is_not_checked_and_its_documentation_says_so(way: str, tmp_path: Path) -> None:
    load, function = VIEWS[way]
    path = stored(tmp_path, "1.2")
    load(path)
    assert "unchecked" in (function().__doc__ or "")
    with ztensor.open(path, verify=True) as reader, pytest.raises(DigestMismatchError):
        reader["w"]
